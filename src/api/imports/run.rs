//! Imports a file part by part. While the two halves of one part are written concurrently, the next part is read and checked.
//! Memory use is two parts.

use std::collections::HashMap;
use std::time::Duration;

use axum::body::{BodyDataStream, Bytes};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

use super::super::ApiState;
use super::super::http::auth::{MayChangeSubscribers, Server};
use super::super::http::caller::Caller;
use super::super::http::extract::{Recheck, malformed, too_slow};
use super::super::http::problem::{Problem, ProblemCode};
use super::encoding::Transcoder;
use super::entry::{RecordReader, Wrong};
use super::sample::{ImportSampleRow, ROWS_MAX};
use super::split::{ImportFormat, NoFile, RECORD_MAX, Record, Splitter};
use crate::api::subscriptions::push_address::{Address, CheckedHosts};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{ImportId, VapidKeyId};
use bellwire_core::subscription::Consent;
use bellwire_store::audience::imports::{self, ImportBatch, ImportPosition, LineFault, Numbered};
use bellwire_store::audience::registration::Registration;
use bellwire_store::audience::subscriptions::{Changes, Right};
use bellwire_store::keys::apps::App;
use bellwire_store::keys::audit::{Actor, AuditAction};
use bellwire_store::keys::vapid_keys;

mod check;

/// Records in a part. Each half is one transaction, which costs some ten statements and a WAL flush.
const PART: usize = 2_000;
/// Bytes of records after which a part ends early. Typical records reach half of it.
const PART_OCTETS: usize = 4 * 1024 * 1024;
/// Maximum time of a part, as a multiple of the read timeout, so that a slowly dripping client loses its slot.
const PATIENCES: u32 = 10;
/// Interval of checking the caller's permission during a file.
const RECHECK_EVERY: Duration = Duration::from_secs(1);
/// Records checked before the task yields.
const TURN: usize = 50;
/// Maximum entries in the VAPID-key cache of one import.
const KEYS_MAX: usize = 1_000;

/// State of a running import.
pub(super) struct Incoming {
    pub id: ImportId,
    pub dry_run: bool,
    pub restore_pruned: bool,
    /// Number of finished lines before the body.
    pub lines: i64,
    /// Number of finished lines of each half.
    pub reached: ImportPosition,
    /// Number of the body's first line; for CSV, of the first line after the header.
    pub from: i64,
    pub recheck: Option<Recheck>,
}

struct CheckedRecord {
    line: i64,
    id: uuid::Uuid,
    address: Address,
    vapid_key: VapidKeyId,
    stated: bool,
    wanted: Changes,
    created_at: Option<Timestamp>,
    consent: Option<Consent>,
    unsubscribed_at: Option<Timestamp>,
    policy: Option<(Value, Actor)>,
}

impl CheckedRecord {
    /// Converts a checked record to a registration.
    fn numbered(&self, app: &App) -> Numbered<'_> {
        let request = Registration {
            id: self.id,
            app: app.id,
            endpoint: &self.address.endpoint,
            keys: &self.address.keys,
            gateway: self.address.gateway,
            vapid_key: self.vapid_key,
            vapid_key_stated: self.stated,
            wanted: &self.wanted,
            expires_at: self.address.expires_at,
            right: Right::Server,
            replaces: None,
            policy: self.policy.as_ref().map(|(policy, by)| (policy, *by)),
            created_at: self.created_at,
            consent: self.consent.as_ref(),
            unsubscribed_at: self.unsubscribed_at,
        };
        Numbered { line: self.line, request }
    }
}

/// Lines of a file that were read together.
#[derive(Default)]
struct ImportChunk {
    lines: i64,
    checked: Vec<CheckedRecord>,
    left_out: Vec<i64>,
    refused: Vec<i64>,
    faults: Vec<LineFault>,
    /// Optional values omitted from imported lines.
    warnings: Vec<LineFault>,
    ignored: Vec<String>,
    is_last: bool,
    /// Fault at the end of the file: an expected last line is missing.
    missing: Option<LineFault>,
}

/// Imports a file to its end. Returns the first rows of a dry run.
///
/// # Errors Earlier parts stay stored and counted, and the import can be resumed there.
pub(super) async fn run(
    server: &Server<MayChangeSubscribers>, state: &ApiState, incoming: Incoming, source: ImportSource<'_>,
) -> Result<Vec<ImportSampleRow>, Problem> {
    let (mut source, mut incoming) = (source, incoming);
    let mut part = source.gather().await?;
    while !part.is_last {
        let (written, next) = tokio::join!(write(state, &server.app, &mut incoming, part), source.gather());
        written?;
        part = next?;
    }
    let (lines, missing) = (part.lines, part.missing.take());
    write(state, &server.app, &mut incoming, part).await?;
    finish(server, state, &incoming, (lines, missing)).await?;
    Ok(source.sample)
}

async fn write(state: &ApiState, app: &App, incoming: &mut Incoming, part: ImportChunk) -> Result<(), Problem> {
    if let Some(recheck) = &incoming.recheck {
        recheck.ask(state).await?;
    }
    let batch = ImportBatch {
        lines: part.lines,
        subscriptions: part.checked.iter().map(|checked| checked.numbered(app)).collect(),
        left_out: part.left_out,
        refused: part.refused,
        faults: part.faults,
        warnings: part.warnings,
        ignored: part.ignored,
        restores_pruned: incoming.restore_pruned,
    };
    let import = (app.id, incoming.id, incoming.dry_run);
    let reached = &mut incoming.reached;
    let taken = imports::take(&state.pool, &state.vault, import, &batch, reached, state.clock.now()).await?;
    if taken { Ok(()) } else { Err(elsewhere()) }
}

async fn finish(
    server: &Server<MayChangeSubscribers>, state: &ApiState, incoming: &Incoming,
    (lines, missing): (i64, Option<LineFault>),
) -> Result<(), Problem> {
    let now = state.clock.now();
    let mut tx = state.begin().await?;
    if !imports::finish(&mut tx, incoming.id, lines, missing, now).await? {
        return Err(elsewhere());
    }
    let entry = server.did(AuditAction::ImportFinished, incoming.id).with(json!({"dry_run": incoming.dry_run}));
    entry.record(&mut tx, lines, now).await?;
    Ok(tx.commit().await?)
}

/// Returns a 409 problem: another request continues the import.
fn elsewhere() -> Problem {
    Problem::new(ProblemCode::ImportElsewhere, "Another request has resumed or ended this import.")
}

/// Reader of the file.
pub(super) struct ImportSource<'a> {
    state: &'a ApiState,
    app: &'a App,
    caller: &'a Caller,
    body: BodyDataStream,
    format: ImportFormat,
    splitter: Splitter,
    reader: RecordReader,
    hosts: CheckedHosts,
    keys: HashMap<String, Option<VapidKeyId>>,
    active: VapidKeyId,
    lines: i64,
    from: i64,
    recheck: Option<Recheck>,
    recheck_at: Instant,
    /// Deadline of the current part.
    part_until: Instant,
    transcoder: Transcoder,
    has_ended: bool,
    records: u64,
    /// Whether the file has an unknown form: its records are skipped.
    is_misfit: bool,
    sample: Vec<ImportSampleRow>,
}

impl<'a> ImportSource<'a> {
    pub(super) async fn new(
        server: &'a Server<MayChangeSubscribers>, state: &'a ApiState,
        (format, mut reader, transcoder): (ImportFormat, RecordReader, Transcoder), incoming: &Incoming,
        body: BodyDataStream,
    ) -> Result<Self, Problem> {
        reader.cells = incoming.dry_run.then(Vec::new);
        let active = vapid_keys::active(&state.pool, server.app.id).await?.id;
        let first = if format == ImportFormat::Csv { 1 } else { incoming.from };
        let (splitter, hosts, keys) = (Splitter::new(format, first), CheckedHosts::default(), HashMap::new());
        let (app, caller, lines, from) = (&server.app, &server.caller, incoming.lines, incoming.from);
        let (recheck, now) = (incoming.recheck.clone(), Instant::now());
        Ok(Self {
            state,
            app,
            caller,
            body,
            format,
            splitter,
            reader,
            hosts,
            keys,
            active,
            lines,
            from,
            recheck,
            recheck_at: now + RECHECK_EVERY,
            part_until: now,
            transcoder,
            has_ended: false,
            records: 0,
            is_misfit: false,
            sample: Vec::new(),
        })
    }

    /// Reads the next part of the file, without lines that were processed before.
    async fn gather(&mut self) -> Result<ImportChunk, Problem> {
        let mut part = ImportChunk { lines: self.lines, ..ImportChunk::default() };
        let (mut records, mut octets) = (0, 0);
        self.part_until = Instant::now() + PATIENCES * self.state.settings.body_timeout;
        while records < PART && octets < PART_OCTETS && part.faults.len() + part.warnings.len() < PART {
            let Some(record) = self.next(&mut part).await? else {
                part.lines = part.lines.max(self.splitter.ended());
                part.is_last = true;
                part.missing = self.missing(part.lines);
                break;
            };
            records += 1;
            octets += record.octets.as_ref().map_or(0, Vec::len);
            if records % TURN == 0 {
                yield_now().await;
            }
            self.dispose(record, &mut part).await?;
        }
        self.lines = part.lines;
        part.ignored.clone_from(&self.reader.ignored);
        Ok(part)
    }

    /// Processes a header line or a record. Skips it if the file has an unknown form.
    async fn dispose(&mut self, record: Record, part: &mut ImportChunk) -> Result<(), Problem> {
        let is_first = self.records == 0;
        self.records += 1;
        if is_first && let Some(reason) = self.transcoder.misfit(self.format) {
            self.refuse_file(part, vec![Wrong::new("", reason)]);
        }
        if self.is_misfit {
            part.lines = part.lines.max(record.end);
        } else if self.format == ImportFormat::Csv && self.reader.awaits_heading() {
            if let Err(wrong) = self.reader.heading(record.octets.as_deref().unwrap_or_default()) {
                self.refuse_file(part, wrong);
            }
            // A line that names the separator is no record.
            self.records = u64::from(!self.reader.awaits_heading());
            if self.from > 1 {
                self.splitter.go_on_at(self.from);
            } else {
                part.lines = part.lines.max(record.end);
            }
        } else if record.end > self.lines {
            part.lines = record.end;
            self.take(record, part).await?;
        }
        Ok(())
    }

    fn refuse_file(&mut self, part: &mut ImportChunk, wrong: Vec<Wrong>) {
        self.is_misfit = true;
        part.lines = part.lines.max(self.lines + 1);
        part.refused.push(self.lines + 1);
        part.faults.extend(faults_of(self.lines + 1, wrong));
    }

    /// Returns a fault if the file has no records, or an export lacks its last line.
    fn missing(&self, lines: i64) -> Option<LineFault> {
        let is_begun = self.is_misfit || self.from > 1 || self.lines > 1;
        let headings = u64::from(self.format == ImportFormat::Csv);
        if !is_begun && self.records <= headings {
            let reason = match (self.records, self.transcoder.misfit(self.format)) {
                (0, Some(reason)) => reason,
                (0, None) => "found no subscription; expected at least one".to_owned(),
                _ => "found a line of names and no row below it; expected at least one row".to_owned(),
            };
            return Some(LineFault { line: 1, field: String::new(), reason });
        }
        let reason = "the export is incomplete: its last line, of the type `end`, is missing";
        self.reader.lacks_end().then(|| LineFault {
            line: lines + 1,
            field: "type".to_owned(),
            reason: reason.to_owned(),
        })
    }

    /// Returns the next record. Invalid JSON is recorded as a fault in the part, and ends reading.
    async fn next(&mut self, part: &mut ImportChunk) -> Result<Option<Record>, Problem> {
        loop {
            let next = match self.splitter.next() {
                Ok(None) if !self.has_ended => {
                    let octets = self.octets().await?;
                    self.has_ended = octets.is_none();
                    self.splitter.feed(self.transcoder.decode(octets.as_deref().unwrap_or_default(), self.has_ended));
                    continue;
                }
                Ok(None) => self.splitter.finish(),
                next => next,
            };
            return match next {
                Ok(record) => Ok(record),
                Err(NoFile::NoArray)
                    if self.has_ended && self.transcoder.misfit(self.format).is_some() && self.records == 0 =>
                {
                    Ok(None)
                }
                Err(NoFile::NoArray) if self.lines == 0 => {
                    let reason = self.transcoder.misfit(self.format).unwrap_or_else(|| NoFile::NoArray.to_string());
                    self.refuse_file(part, vec![Wrong::new("", reason)]);
                    while self.octets().await?.is_some() {}
                    Ok(None)
                }
                Err(error) => Err(malformed(format!("The body {error}."))),
            };
        }
    }

    /// Returns the next bytes of the body. 401: the caller's permission has ended. 408: the bytes, or their part of the file,
    /// took too long.
    async fn octets(&mut self) -> Result<Option<Bytes>, Problem> {
        let patience = self.state.settings.body_timeout;
        let until = Instant::now() + patience;
        loop {
            let now = Instant::now();
            if now >= until {
                return Err(too_slow(patience));
            }
            if now >= self.part_until {
                let within = PATIENCES * patience;
                let mut problem = too_slow(within);
                problem.detail = format!("A part of the file did not come within {} s.", within.as_secs_f64());
                return Err(problem);
            }
            if now >= self.recheck_at {
                if let Some(recheck) = &self.recheck {
                    recheck.ask(self.state).await?;
                }
                self.recheck_at = now + RECHECK_EVERY;
            }
            match timeout_at(until.min(self.part_until).min(self.recheck_at), self.body.next()).await {
                Ok(None) => return Ok(None),
                Ok(Some(octets)) => {
                    return octets
                        .map(Some)
                        .map_err(|_| malformed("The connection closed before the end of the body.".into()));
                }
                Err(_) => {}
            }
        }
    }

    async fn take(&mut self, record: Record, part: &mut ImportChunk) -> Result<(), Problem> {
        let entry = match record.octets {
            None => {
                Err(vec![Wrong::new("", format!("has more than {RECORD_MAX} octets, or a quote that is not closed"))])
            }
            Some(octets) if self.format == ImportFormat::Csv => self.reader.row(&octets),
            Some(octets) => self.reader.object(&octets),
        };
        let (outcome, checked) = match entry {
            Ok(entry) if entry.left_out => {
                part.left_out.push(record.line);
                self.show(record.line, "left_out");
                return Ok(());
            }
            Ok(mut entry) => {
                let mut warnings = std::mem::take(&mut entry.warnings);
                let checked = self.check(record.line, entry, &mut warnings).await?;
                if checked.is_ok() {
                    part.warnings.extend(faults_of(record.line, warnings));
                }
                (if checked.is_ok() { "read" } else { "refused" }, checked)
            }
            Err(wrong) => ("refused", Err(wrong)),
        };
        self.show(record.line, outcome);
        match checked {
            Ok(checked) => part.checked.push(checked),
            Err(wrong) => {
                part.refused.push(record.line);
                part.faults.extend(faults_of(record.line, wrong));
            }
        }
        Ok(())
    }

    /// Adds the last record to the sample of a dry run.
    fn show(&mut self, line: i64, outcome: &'static str) {
        if let Some(cells) = &mut self.reader.cells {
            self.sample.push(ImportSampleRow { line, outcome, cells: std::mem::take(cells) });
            if self.sample.len() >= ROWS_MAX {
                self.reader.cells = None;
            }
        }
    }
}

fn faults_of(line: i64, wrong: Vec<Wrong>) -> impl Iterator<Item = LineFault> {
    let cut = |text: &str, max| printable(text).take(max).collect();
    wrong.into_iter().map(move |wrong| LineFault {
        line,
        field: cut(&wrong.field, 200),
        reason: cut(&wrong.reason, 500),
    })
}

/// Escapes control characters as `\u{0}`. Faults contain names from the file, and Postgres refuses NUL.
fn printable(text: &str) -> impl Iterator<Item = char> + '_ {
    text.chars().flat_map(|c| {
        let escaped = c.is_control().then(|| c.escape_unicode());
        escaped.into_iter().flatten().chain((!c.is_control()).then_some(c))
    })
}
