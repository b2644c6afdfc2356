//! `bellwire import`: imports subscriptions of any sender into an app, or a whole app that `bellwire export` wrote on another
//! server.
//!
//! A whole-app file begins with settings, which this module creates line by line through the API. An existing app keeps its own
//! settings unless an argument requests those of the file: otherwise a list from an untrusted source could change settings by
//! adding a line. From the first other line on, the file is streamed to the API. Each earlier line is replaced by an empty one,
//! so that line numbers stay correct.

mod listed;
mod settings;

use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, bail};
use axum::body::{Body, Bytes};
use futures_util::stream;
use serde_json::{Map, Value, json};
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader};
use url::form_urlencoded;

use super::client::{ApiRequest, Client, path};
use super::output::{Output, rows, table, text};
use super::refusal::{ArgumentNames, CommandError};
use super::verb::{Call, Verb, flag, option, positional, verb, word};
use crate::api::exports::record::{APP, END, KINDS, SUBSCRIPTION};
use crate::api::http::problem::ProblemCode;
use crate::progress::{Progress, Unit};
use listed::Setting;
use settings::Making;

const NAMES: &ArgumentNames =
    &[("app", "--app"), ("map", "--map"), ("charset", "--charset"), ("format", "--format"), ("import", "--resume")];
/// Upper bound for the bytes of a settings line.
const LINE_MAX: u64 = 1 << 20;
/// Bytes passed on at a time.
const PART: usize = 64 * 1024;
/// Value of `--resume` without an argument.
const LATEST: &str = "latest";

pub(super) fn import() -> Verb {
    let app = "The app's short name or id; a whole app is made under this name, or brought into the app that has it (`--with-settings`). \
               By default the name that it had, if no app has that";
    let with_settings = "Also make the file's settings those of an app that exists: origins, keys, webhooks and all else that it brings. \
                         Only for files whose author may have the app";
    let dry_run = "Say what would come of it, and keep nothing. Lists settings that the file brings";
    let restore =
        "Make subscriptions active again that their push service called gone. Those that were unsubscribed stay so";
    let format =
        "The form: lines of JSON, a table, or a JSON array; by default as the file's name ends, or lines of JSON";
    let map = "Meanings of columns: pairs such as `abo:endpoint,kunde:user_id`; without a name after the colon, the column is ignored";
    let charset = "The encoding of a file without byte-order mark, such as `windows-1252`; UTF-8 by default";
    let resume = "Resume an interrupted import: the one with this id, or the latest";
    let resume = option("--resume <IMPORT>", "-", resume).conflicts("dry-run");
    verb("import", "POST /apps/{app}/imports", "Import subscriptions of another sender, or an exported app")
        .takes([
            positional("FILE", "-", "The file; - for standard input"),
            option("--app <APP>", "{app}", app).is(word()),
            flag("--with-settings", "-", with_settings),
            flag("--dry-run", "?dry_run", dry_run),
            flag("--restore-pruned", "?restore_pruned", restore).conflicts("resume"),
            option("--format <FORMAT>", "-", format).one_of(["ndjson", "csv", "json"]),
            option("--map <MAP>", "?map", map),
            option("--charset <ENCODING>", "?charset", charset),
            resume.with(|arg| arg.num_args(0..=1).default_missing_value(LATEST)),
        ])
        .run(|call| Box::pin(async { Import::new(call).run().await }))
        .examples([
            "bellwire import shop.ndjson",
            "bellwire import subscriptions.csv --app shop --dry-run",
            "bellwire import subscriptions.csv --app shop --resume",
            "bellwire import shop.ndjson --app shop --with-settings",
        ])
}

/// The arguments of an import.
struct Import<'a> {
    call: &'a Call<'a>,
    client: &'a Client,
    file: PathBuf,
    app: Option<String>,
    resume: Option<String>,
    dry_run: bool,
}

/// Reader of a file, with the last line that was read.
struct LineSource {
    reader: BufReader<File>,
    line: Vec<u8>,
    /// Number of lines before the last one.
    before: usize,
    /// Bytes of the file. `None`: a pipe.
    size: Option<u64>,
}

impl LineSource {
    fn open(file: &Path) -> anyhow::Result<Self> {
        let opened = match file == Path::new("-") {
            true => std::io::stdin().as_fd().try_clone_to_owned().map(std::fs::File::from),
            false => std::fs::File::open(file),
        };
        let opened = opened.and_then(|opened| match opened.metadata()?.is_dir() {
            true => Err(std::io::ErrorKind::IsADirectory.into()),
            false => Ok(opened),
        });
        let opened = opened.with_context(|| format!("cannot read {}", file.display()))?;
        let size = opened.metadata().ok().filter(std::fs::Metadata::is_file).map(|metadata| metadata.len());
        let reader = BufReader::with_capacity(PART, File::from_std(opened));
        Ok(Self { reader, line: Vec::new(), before: 0, size })
    }

    /// Reads the next line. `None`: end of the file.
    async fn next(&mut self) -> anyhow::Result<Option<&[u8]>> {
        self.before += usize::from(!self.line.is_empty());
        self.line.clear();
        (&mut self.reader).take(LINE_MAX).read_until(b'\n', &mut self.line).await?;
        Ok((!self.line.is_empty()).then_some(&*self.line))
    }

    /// Returns the file from the last line on, after an empty line for each earlier one. Shows progress unless `is_quiet`.
    fn rest(self, is_quiet: bool) -> Body {
        let Self { reader, line, before, size } = self;
        let progress = Progress::begin("import", Unit::Bytes, size, is_quiet);
        let first = [vec![b'\n'; before], line].concat();
        let parts = stream::try_unfold((Some(first), reader, progress), |(first, mut reader, progress)| async move {
            let part = match first {
                Some(first) if !first.is_empty() => first,
                _ => {
                    let mut part = Vec::with_capacity(PART);
                    reader.read_buf(&mut part).await?;
                    part
                }
            };
            progress.add(part.len() as u64);
            Ok::<_, std::io::Error>((!part.is_empty()).then(|| (Bytes::from(part), (None, reader, progress))))
        });
        Body::from_stream(parts)
    }
}

/// Returns the members of a line and its export type. `None` for other files: their lines may have a `type` too, and those with an endpoint
/// are subscriptions.
fn of_export(line: &[u8]) -> Option<(&'static str, Map<String, Value>)> {
    let Ok(Value::Object(members)) = serde_json::from_slice(line) else { return None };
    let kind = members.get("type")?.as_str()?;
    let has_endpoint = ["endpoint", "subscription"].iter().any(|name| members.contains_key(*name));
    let kind = KINDS.into_iter().find(|known| *known == kind && (kind == SUBSCRIPTION || !has_endpoint))?;
    Some((kind, members))
}

/// Result of the settings lines at the beginning.
#[derive(Debug, Default)]
struct Before {
    /// App to import into. `None`: a dry run for an app that does not exist yet.
    app: Option<String>,
    made: usize,
    faults: Vec<Value>,
    /// Settings found in a dry run, which did not create them.
    listed: Vec<Setting>,
    /// Reason why the file of a dry run would be refused. `None`: it would be accepted.
    refusal: Option<String>,
}

impl<'a> Import<'a> {
    fn new(call: &'a Call<'a>) -> Self {
        let given = |id: &str| call.has(id).then(|| call.text(id));
        let (app, resume, dry_run) = (given("app"), given("resume"), call.has("dry-run"));
        Self { call, client: call.client, file: call.text("FILE").into(), app, resume, dry_run }
    }

    async fn run(self) -> anyhow::Result<()> {
        let mut source = LineSource::open(&self.file)?;
        let before = match self.format().as_str() {
            "ndjson" => self.begin(&mut source).await?,
            _ => None,
        };
        let is_whole = before.is_some();
        let Some(before) = before.or_else(|| {
            let app = self.app.clone()?;
            Some(Before { app: Some(app), ..Before::default() })
        }) else {
            bail!("name the app with --app: only the export of a whole app contains the name");
        };
        let import = match &before.app {
            Some(app) => self.take_in(app, source).await?,
            None => look_through(source).await?,
        };
        report(self.call.out, &self.file, is_whole, before, import)
    }

    fn format(&self) -> String {
        let end = self.file.extension().and_then(|end| end.to_str());
        let by_name = end.filter(|end| ["csv", "json"].contains(end)).unwrap_or("ndjson");
        if self.call.has("format") { self.call.text("format") } else { by_name.to_owned() }
    }

    /// Creates the settings at the beginning of a file. `None`: not a whole app. The line after them is then the source's last
    /// one.
    async fn begin(&self, source: &mut LineSource) -> anyhow::Result<Option<Before>> {
        let Some((APP, first)) = source.next().await?.and_then(of_export) else { return Ok(None) };
        let app = self.app.as_deref().or_else(|| first.get("slug")?.as_str());
        let app = app.context("the first line names no app")?.to_owned();
        let exists = settings::exists(self.client, &app).await?;
        if exists && self.app.is_none() {
            bail!(
                "there is an app {app:?} already: --app {app} --with-settings brings the file into it, --app NAME makes another one"
            );
        }
        if !exists && self.resume.is_some() {
            bail!("there is no app {app:?}, so there is no import to resume");
        }
        let may_set = !exists || self.call.has("with-settings");
        // What has broken off has made its settings, and a dry run makes none.
        let mut making =
            (may_set && !self.dry_run && self.resume.is_none()).then(|| Making::new(self.client, &app, exists));
        let mut listed = vec![Setting::new(source.before + 1, APP, &first)];
        if let Some(making) = &mut making {
            making.begin(first);
        }
        while let Some(line) = source.next().await? {
            let Some((kind, members)) = of_export(line).filter(|(kind, _)| ![SUBSCRIPTION, END].contains(kind)) else {
                break;
            };
            let number = source.before + 1;
            match &mut making {
                Some(making) => making.take(number, kind, members).await?,
                None => listed.push(Setting::new(number, kind, &members)),
            }
        }
        let refusal = (!may_set && self.resume.is_none()).then(|| listed::refusal(&app, &listed));
        if let Some(refusal) = refusal.as_ref().filter(|_| !self.dry_run) {
            bail!("{refusal}");
        }
        let (made, faults) = match making {
            None => (0, Vec::new()),
            Some(making) => making.finish()?,
        };
        if made > 0 {
            self.call.out.note(&format!("The app {app} has its settings: {made} lines. Its subscriptions follow."));
        }
        let listed = if self.dry_run { listed } else { Vec::new() };
        Ok(Some(Before { app: (exists || !self.dry_run).then_some(app), made, faults, listed, refusal }))
    }

    /// Streams the rest to the API.
    async fn take_in(&self, app: &str, source: LineSource) -> anyhow::Result<Value> {
        let (client, all) = (self.client, path(["apps", app, "imports"]));
        let mut query = form_urlencoded::Serializer::new(String::new());
        for name in ["map", "charset"].into_iter().filter(|name| self.call.has(name)) {
            query.append_pair(name, &self.call.text(name));
        }
        let at = match &self.resume {
            None => {
                query.append_pair("format", &self.format());
                for (name, id) in [("dry_run", "dry-run"), ("restore_pruned", "restore-pruned")] {
                    query.append_pair(name, if self.call.has(id) { "true" } else { "false" });
                }
                all.clone()
            }
            Some(id) => path(["apps", app, "imports", &resumed(client, &all, id).await?]),
        };
        let body = source.rest(self.call.out.json);
        let taken = client.upload(format!("{at}?{}", query.finish()), NAMES, body).await;
        taken.map_err(|error| {
            let before = [ProblemCode::NotFound, ProblemCode::InvalidParameter, ProblemCode::TransfersBusy];
            match error {
                error if CommandError::is(&error, &before) => error, // nothing has begun
                error if self.dry_run => error.context("the check stopped before the end of the file"),
                error => error.context(format!(
                    "the import was interrupted: continue it with the same arguments and `--app {app} --resume`"
                )),
            }
        })
    }
}

/// Returns the import selected by `--resume`.
async fn resumed(client: &Client, all: &str, id: &str) -> anyhow::Result<String> {
    if id != LATEST {
        return Ok(id.to_owned());
    }
    let imports = client.list(ApiRequest::get(all.to_owned())).await?;
    let open = rows(&imports).find(|import| import["finished_at"].is_null() && import["dry_run"] == false);
    Ok(text(open.context("this app has no interrupted import")?, "/id"))
}

/// Checks that the rest of a dry run is complete, if there is no app to try it on.
async fn look_through(mut source: LineSource) -> anyhow::Result<Value> {
    let (mut subscriptions, mut faults, mut has_end) = (0, Vec::new(), false);
    let mut line = Some(source.line.clone()).filter(|line| !line.is_empty());
    while let Some(octets) = line {
        match of_export(&octets) {
            Some((SUBSCRIPTION, _)) => subscriptions += 1,
            Some((END, _)) => has_end = true,
            _ => faults.push(fault(source.before + 1, "type", "is not a type of line in an export")),
        }
        line = source.next().await?.map(<[u8]>::to_vec);
    }
    if !has_end {
        faults.push(fault(
            source.before + 1,
            "type",
            "the export is incomplete: its last line, of the type `end`, is missing",
        ));
    }
    let refused = faults.len();
    Ok(json!({"dry_run": true, "lines": source.before, "added": subscriptions, "refused": refused, "faults": faults}))
}

fn fault(line: usize, field: &str, reason: &str) -> Value {
    json!({"line": line, "field": field, "reason": reason})
}

/// Prints the result. Fails if any line was refused.
fn report(out: Output, file: &Path, is_whole: bool, before: Before, mut import: Value) -> anyhow::Result<()> {
    let Before { made, mut faults, listed, refusal, .. } = before;
    let wrong = faults.len() as u64 + import["refused"].as_u64().unwrap_or(0);
    faults.extend(import["faults"].as_array().cloned().unwrap_or_default());
    import["faults"] = faults.into();
    let is_dry = import["dry_run"] == true;
    if is_whole {
        import["settings"] = if is_dry { listed.len() } else { made }.into();
    }
    if is_whole && is_dry {
        import["settings_lines"] = listed::as_json(&listed);
    }
    let n = |name: &str| text(&import, name);
    let would = if is_dry { "would be " } else { "" };
    let mut people = format!(
        "{} lines: {} subscriptions {would}added, {} known, {} left out, {wrong} wrong.",
        n("/lines"),
        n("/added"),
        n("/known"),
        n("/left_out")
    );
    if import["restored"].as_u64() > Some(0) {
        people.push_str(&format!("\n{} of the known ones {would}active again.", n("/restored")));
    }
    if import["pruned"].as_u64() > Some(0) {
        people.push_str(&format!(
            "\n{} were left out because their push service called them gone: --restore-pruned brings them back.",
            n("/pruned")
        ));
    }
    if !listed.is_empty() {
        people.push_str(&format!("\nSettings that the file brings:\n{}", listed::as_table(&listed)));
    }
    if import["ignored"].as_array().is_some_and(|ignored| !ignored.is_empty()) {
        people.push_str(&format!("\nUnknown columns, ignored: {}", n("/ignored")));
    }
    people.push_str(&sample(&import["sample"]));
    let row = |fault: &Value| [text(fault, "/line"), text(fault, "/field"), text(fault, "/reason")];
    for (member, heading) in [("warnings", "Warnings of lines that are taken:\n"), ("faults", "")] {
        let listed = import[member].as_array().filter(|listed| !listed.is_empty());
        let listed = listed.map(|listed| table(["LINE", "FIELD", "REASON"], listed.iter().map(row)));
        people.extend(listed.map(|listed| format!("\n{heading}{listed}")));
    }
    out.say(&import, &people)?;
    if let Some(refusal) = refusal {
        bail!("{refusal}");
    }
    if wrong > 0 {
        bail!("{wrong} lines of {} are wrong", file.display());
    }
    Ok(())
}

/// Formats the first rows of a dry run, one cell per line.
fn sample(rows: &Value) -> String {
    let rows = rows.as_array().map(Vec::as_slice).unwrap_or_default();
    let cell = |row: &Value, cell: &Value| {
        let shown = |at: &str| if cell[at].is_null() { "-".to_owned() } else { text(cell, &format!("/{at}")) };
        [text(row, "/line"), text(row, "/outcome"), shown("column"), shown("field"), shown("value")]
    };
    let cells = rows.iter().flat_map(|row| row["cells"].as_array().into_iter().flatten().map(move |it| cell(row, it)));
    match rows.is_empty() {
        true => String::new(),
        false => format!("\nThe first rows:\n{}", table(["LINE", "OUTCOME", "COLUMN", "READ AS", "VALUE"], cells)),
    }
}
