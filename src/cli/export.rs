//! `bellwire export`: writes all data of an app to a file for `bellwire import` on another server.

use std::fs::{File, OpenOptions};
use std::io::{IsTerminal as _, Read as _, Seek as _, SeekFrom, Write, stdout};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use anyhow::{Context as _, ensure};
use serde_json::{Value, json};

use super::client::path;
use super::output::Stdout;
use super::verb::{Call, Verb, app, flag, option, verb};
use crate::api::exports::record::{END, SUBSCRIPTION};
use crate::progress::{Progress, Unit};

/// Upper bound for the bytes of a line.
const LINE_MAX: u64 = 1 << 20;

pub(super) fn export() -> Verb {
    let raw = "With `--format csv`: do not put apostrophes before cells that a spreadsheet would evaluate as formulas";
    let format = option("--format <FORMAT>", "?format", "Output format: JSON lines, or a CSV table of subscriptions");
    let resume = flag("--resume", "-", "Resume an interrupted export to the same file");
    verb("export", "GET /apps/{app}/export", "Export an app, secrets included, for another server")
        .takes([
            app(),
            option("--output <FILE>", "-", "A new file that only its owner may read; by default standard output"),
            option("--only <ONLY>", "?only", "Only this type of line").one_of(["subscriptions"]),
            format.one_of(["ndjson", "csv"]).default("ndjson"),
            flag("--raw", "?raw", raw),
            resume.with(|arg| arg.requires("output")),
        ])
        .names([("after", "--resume")])
        .run(|call| Box::pin(run(call)))
        .examples([
            "bellwire export --app shop --output shop.ndjson",
            "bellwire export --app shop --only subscriptions --format csv > subscriptions.csv",
        ])
}

async fn run(call: &Call<'_>) -> anyhow::Result<()> {
    let (mut to, after) = open(call)?;
    let mut request = call.request().await?;
    match after {
        After::All => {
            call.out.note("The file is whole already.");
            return Ok(());
        }
        After::Subscription(id) => request.path += &format!("&after={id}"),
        After::Nothing => {}
    }
    let mut octets = 0;
    let is_quiet = call.out.json || (!call.has("output") && stdout().is_terminal());
    let progress = Progress::begin("export", Unit::Lines, lines(call).await, is_quiet);
    let take = |part: &[u8]| {
        to.write_all(part)?;
        octets += part.len();
        progress.add(part.iter().filter(|octet| **octet == b'\n').count() as u64);
        Ok(())
    };
    call.client
        .stream(&request, take)
        .await
        .context("the export was interrupted: the file is incomplete (with --output, continue it by --resume)")?;
    to.flush()?;
    drop(progress);
    if call.has("output") {
        let answer = json!({"octets": octets, "file": call.value("output")});
        let people = "{/octets} octets were written to {/file}. A reader of the file can send to these browsers.";
        call.out.say(&answer, &call.fill(people, &answer))?;
    }
    Ok(())
}

/// Estimates the number of lines by the number of active subscriptions. `None`: unknown.
async fn lines(call: &Call<'_>) -> Option<u64> {
    if call.has("resume") {
        return None;
    }
    let at = format!("{}?measures=subscriptions_active", path(["apps", &call.text("app"), "metrics"]));
    let active = call.client.get(at).await.ok()?.pointer("/data/0/metrics/subscriptions_active")?.as_u64();
    active.filter(|lines| *lines > 0)
}

/// Opens the output. Returns the writer and the position to resume from.
fn open(call: &Call<'_>) -> anyhow::Result<(Box<dyn Write>, After)> {
    if !call.has("output") {
        return Ok((Box::new(Stdout), After::Nothing));
    }
    let at = call.text("output");
    if call.has("resume") {
        ensure!(call.text("format") == "ndjson", "--resume: only lines of JSON go on");
        let (file, after) = go_on(Path::new(&at)).with_context(|| format!("cannot resume {at}"))?;
        return Ok((Box::new(file), after));
    }
    // There are private keys in it.
    let file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&at);
    let failed = || format!("cannot create {at}; its directory must exist, and the file must not");
    Ok((Box::new(file.with_context(failed)?), After::Nothing))
}

/// Content of the output file before this export.
#[derive(Debug, PartialEq, Eq)]
enum After {
    Nothing,
    Subscription(String),
    All,
}

/// Opens a file to append after its last complete line, and removes incomplete data after it. A file without subscriptions is started again.
fn go_on(at: &Path) -> anyhow::Result<(File, After)> {
    let mut file = OpenOptions::new().read(true).write(true).open(at)?;
    let length = file.metadata()?.len();
    let from = length.saturating_sub(2 * LINE_MAX);
    file.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    (&mut file).take(2 * LINE_MAX).read_to_end(&mut tail)?;
    let end = tail.iter().rposition(|octet| *octet == b'\n').map_or(0, |at| at + 1);
    let begin = tail[..end.saturating_sub(1)].iter().rposition(|octet| *octet == b'\n').map_or(0, |at| at + 1);
    let line: Value = serde_json::from_slice(&tail[begin..end]).unwrap_or_default();
    let (after, keep) = match (line["type"].as_str(), line["id"].as_str()) {
        (Some(END), _) => (After::All, from + end as u64),
        (Some(SUBSCRIPTION), Some(id)) => (After::Subscription(id.to_owned()), from + end as u64),
        _ => (After::Nothing, 0),
    };
    file.set_len(keep)?;
    file.seek(SeekFrom::Start(keep))?;
    Ok((file, after))
}

#[cfg(test)]
#[path = "../../tests/unit/cli/export.rs"]
mod tests;
