//! Takes a file in, part by part: while one is being written, its halves side by side, the next is read and checked. The memory is
//! that of two parts.

use std::collections::HashMap;
use std::time::Duration;

use axum::body::{BodyDataStream, Bytes};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout_at};

use super::super::ApiState;
use super::super::auth::{Caller, MayChangeSubscribers, Server};
use super::super::consent::check_source;
use super::super::details::Said;
use super::super::extract::{Recheck, malformed, too_slow};
use super::super::policies::of_new_subscription;
use super::super::problem::{Faults, FieldError, Problem};
use super::super::push_address::{Address, Hosts, PushKeys, PushSubscription, check_address};
use super::entry::{Entry, Reader, Wrong};
use super::split::{Format, RECORD_MAX, Record, Splitter};
use crate::model::base64url;
use crate::model::clock::Timestamp;
use crate::model::id::{ImportId, VapidKeyId};
use crate::model::permission::Speaker;
use crate::model::subscription::Consent;
use crate::store::audience::imports::{self, Batch, Fault, Numbered, Reached};
use crate::store::audience::registration::Registration;
use crate::store::audience::subscriptions::{Changes, Merge, Right};
use crate::store::keys::apps::App;
use crate::store::keys::audit::{Action, Actor};
use crate::store::keys::vapid_keys;

/// Records of a part, which are registered in a transaction for each half: each costs some ten statements and a flush of the log.
const PART: usize = 2_000;
/// Octets of records after which a part ends, however few they are: those of common records come to half of it.
const PART_OCTETS: usize = 4 * 1024 * 1024;
/// A part may take so many times as long as the octets that are waited for at once: whoever sends a few now and then keeps no place.
const PATIENCES: u32 = 10;
/// How often it is asked, while a file comes in, whether whoever sends it still may.
const RECHECK_EVERY: Duration = Duration::from_secs(1);
/// Records that are checked before others have their turn on this thread.
const TURN: usize = 50;
/// Ways to name a VAPID key that are remembered.
const KEYS_MAX: usize = 1_000;

/// A file that comes in.
pub(super) struct Incoming {
    pub id: ImportId,
    pub dry_run: bool,
    /// So many lines are dealt with.
    pub lines: i64,
    /// And so many in each half.
    pub reached: Reached,
    /// The number of the body's first line; of a CSV file, of the first below its heading.
    pub from: i64,
    pub recheck: Option<Recheck>,
}

/// A subscription that has passed all checks.
struct Checked {
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

impl Checked {
    /// As a request to register.
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

/// What was read of a file at a time.
#[derive(Default)]
struct Part {
    lines: i64,
    checked: Vec<Checked>,
    left_out: Vec<i64>,
    refused: Vec<i64>,
    faults: Vec<Fault>,
    ignored: Vec<String>,
    /// There is no more.
    is_last: bool,
    /// What should have been there at the end of the file, and was not.
    missing: Option<Fault>,
}

/// Takes a file in to its end.
///
/// # Errors
/// What was taken in before stays, and is counted: the file can go on there.
pub(super) async fn run(
    server: &Server<MayChangeSubscribers>,
    state: &ApiState,
    incoming: Incoming,
    source: Source<'_>,
) -> Result<(), Problem> {
    let (mut source, mut incoming) = (source, incoming);
    let mut part = source.gather().await?;
    while !part.is_last {
        let (written, next) = tokio::join!(write(state, &server.app, &mut incoming, part), source.gather());
        written?;
        part = next?;
    }
    let (lines, missing) = (part.lines, part.missing.take());
    write(state, &server.app, &mut incoming, part).await?;
    finish(server, state, &incoming, (lines, missing)).await
}

async fn write(state: &ApiState, app: &App, incoming: &mut Incoming, part: Part) -> Result<(), Problem> {
    if let Some(recheck) = &incoming.recheck {
        recheck.ask(state).await?;
    }
    let batch = Batch {
        lines: part.lines,
        subscriptions: part.checked.iter().map(|checked| checked.numbered(app)).collect(),
        left_out: part.left_out,
        refused: part.refused,
        faults: part.faults,
        ignored: part.ignored,
    };
    let import = (app.id, incoming.id, incoming.dry_run);
    let reached = &mut incoming.reached;
    let taken = imports::take(&state.pool, &state.vault, import, &batch, reached, state.clock.now()).await?;
    if taken { Ok(()) } else { Err(elsewhere()) }
}

async fn finish(
    server: &Server<MayChangeSubscribers>,
    state: &ApiState,
    incoming: &Incoming,
    (lines, missing): (i64, Option<Fault>),
) -> Result<(), Problem> {
    let now = state.clock.now();
    let mut tx = state.pool.begin().await?;
    if !imports::finish(&mut tx, incoming.id, lines, missing, now).await? {
        return Err(elsewhere());
    }
    let entry = server.did(Action::ImportFinished, incoming.id).with(json!({"dry_run": incoming.dry_run}));
    entry.record(&mut tx, lines, now).await?;
    Ok(tx.commit().await?)
}

/// 409: somebody else goes on with the import.
fn elsewhere() -> Problem {
    Problem::conflict("import_elsewhere", "Another request goes on with this import, or has ended it.")
}

/// A file as it is read.
pub(super) struct Source<'a> {
    state: &'a ApiState,
    app: &'a App,
    caller: &'a Caller,
    body: BodyDataStream,
    format: Format,
    splitter: Splitter,
    reader: Reader,
    hosts: Hosts,
    keys: HashMap<String, Option<VapidKeyId>>,
    active: VapidKeyId,
    lines: i64,
    from: i64,
    recheck: Option<Recheck>,
    /// When that is asked again.
    recheck_at: Instant,
    /// By when the part that is being read has to be there.
    part_until: Instant,
}

impl<'a> Source<'a> {
    pub(super) async fn new(
        server: &'a Server<MayChangeSubscribers>,
        state: &'a ApiState,
        (format, reader): (Format, Reader),
        incoming: &Incoming,
        body: BodyDataStream,
    ) -> Result<Self, Problem> {
        let active = vapid_keys::active(&state.pool, server.app.id).await?.id;
        let first = if format == Format::Csv { 1 } else { incoming.from };
        let (splitter, hosts, keys) = (Splitter::new(format, first), Hosts::default(), HashMap::new());
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
        })
    }

    /// The next part of the file, without what is dealt with already.
    async fn gather(&mut self) -> Result<Part, Problem> {
        let mut part = Part { lines: self.lines, ..Part::default() };
        let (mut records, mut octets) = (0, 0);
        self.part_until = Instant::now() + PATIENCES * self.state.settings.body_timeout;
        while records < PART && octets < PART_OCTETS && part.faults.len() < PART {
            let Some(record) = self.next().await? else {
                part.lines = part.lines.max(self.splitter.ended());
                part.is_last = true;
                part.missing = self.miss_end(part.lines);
                break;
            };
            records += 1;
            octets += record.octets.as_ref().map_or(0, Vec::len);
            if records % TURN == 0 {
                yield_now().await;
            }
            if self.format == Format::Csv && self.reader.awaits_heading() {
                self.reader.heading(record.octets.as_deref().unwrap_or_default());
                if self.from > 1 {
                    self.splitter.go_on_at(self.from);
                } else {
                    part.lines = part.lines.max(record.end);
                }
            } else if record.end > self.lines {
                part.lines = record.end;
                self.take(record, &mut part).await?;
            }
        }
        self.lines = part.lines;
        part.ignored.clone_from(&self.reader.ignored);
        Ok(part)
    }

    /// Tells of an export that has no end: what is missing of it nobody knows.
    fn miss_end(&self, lines: i64) -> Option<Fault> {
        let reason = "the export breaks off here: its last line, of the type `end`, is missing";
        self.reader.lacks_end().then(|| Fault { line: lines + 1, field: "type".to_owned(), reason: reason.to_owned() })
    }

    async fn next(&mut self) -> Result<Option<Record>, Problem> {
        let no_file = |error: super::split::NoFile| malformed(error.to_string());
        loop {
            if let Some(record) = self.splitter.next().map_err(no_file)? {
                return Ok(Some(record));
            }
            match self.octets().await? {
                Some(octets) => self.splitter.feed(octets),
                None => return self.splitter.finish().map_err(no_file),
            }
        }
    }

    /// The next octets of the body. 401: whoever sends it may not any more, however they come. 408: these, or the part of the file that
    /// they belong to, take too long.
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
                Ok(Some(octets)) => return octets.map(Some).map_err(|_| malformed("The body broke off.".into())),
                Err(_) => {}
            }
        }
    }

    async fn take(&mut self, record: Record, part: &mut Part) -> Result<(), Problem> {
        let entry = match record.octets {
            None => {
                Err(vec![Wrong::new("", format!("has more than {RECORD_MAX} octets, or a quote that is not closed"))])
            }
            Some(octets) if self.format == Format::Csv => self.reader.row(&octets),
            Some(octets) => self.reader.object(&octets),
        };
        let checked = match entry {
            Ok(entry) if entry.left_out => {
                part.left_out.push(record.line);
                return Ok(());
            }
            Ok(entry) => self.check(record.line, entry).await?,
            Err(wrong) => Err(wrong),
        };
        match checked {
            Ok(checked) => part.checked.push(checked),
            Err(wrong) => {
                part.refused.push(record.line);
                let fault = |wrong: Wrong| Fault {
                    line: record.line,
                    field: wrong.field.chars().take(200).collect(),
                    reason: wrong.reason.chars().take(500).collect(),
                };
                part.faults.extend(wrong.into_iter().map(fault));
            }
        }
        Ok(())
    }

    /// Checks a record as a request to register is checked, by the same code.
    async fn check(&mut self, line: i64, entry: Entry) -> Result<Result<Checked, Vec<Wrong>>, Problem> {
        let mut faults = Faults::default();
        let (now, stated) = (self.state.clock.now(), entry.vapid_key.is_some());
        for (there, field) in [(&entry.endpoint, "/endpoint"), (&entry.p256dh, "/p256dh"), (&entry.auth, "/auth")] {
            faults.require(there.is_some(), field, "is missing");
        }
        let (Some(endpoint), Some(p256dh), Some(auth)) = (entry.endpoint, entry.p256dh, entry.auth) else {
            return Ok(Err(wrong(faults)));
        };
        let times = [
            (entry.created_at, "/created_at"),
            (entry.consent_at, "/consent_at"),
            (entry.unsubscribed_at, "/unsubscribed_at"),
        ];
        for (at, field) in times {
            faults.require(at.is_none_or(|at| at <= now), field, "must not lie in the future");
        }
        let consent = Consent { at: entry.consent_at, source: entry.consent_source };
        check_source(consent.source.as_deref(), "/consent_source", &mut faults);
        let said = Said {
            by: Speaker::Server,
            user_id: entry.user_id.map(Some),
            tags: entry.tags,
            attributes: entry.attributes,
            topics: entry.topics,
            locale: entry.locale.map(Some),
            timezone: entry.timezone.map(Some),
        };
        let wanted = said.check(Merge::Replace, &mut faults);
        let vapid_key = match entry.vapid_key {
            Some(named) => self.key(named).await?,
            None => Some(self.active),
        };
        faults.require(vapid_key.is_some(), "/vapid_key", "is no key of this app");
        let policy = of_new_subscription(entry.policy, self.app, Some(self.caller), &mut faults);
        let (policy, _) = policy.unwrap_or_else(|why| {
            faults.refuse("/policy", why.detail.clone());
            (None, Vec::new())
        });
        let given = PushSubscription { endpoint, expiration_time: entry.expires_at, keys: PushKeys { p256dh, auth } };
        let address = check_address(&given, self.app, self.state, &mut self.hosts, &mut faults).await;
        let wrong = wrong(faults);
        let (Some(address), Some(vapid_key), true) = (address, vapid_key, wrong.is_empty()) else {
            return Ok(Err(wrong));
        };
        // Who agreed then was there by then.
        let (id, created_at) = (self.state.clock.uuid(), entry.created_at.or(entry.consent_at));
        let consent = Some(consent).filter(Consent::is_known);
        let unsubscribed_at = entry.unsubscribed_at;
        Ok(Ok(Checked { line, id, address, vapid_key, stated, wanted, created_at, consent, unsubscribed_at, policy }))
    }

    /// The app's key of that id or with that public half.
    async fn key(&mut self, named: String) -> Result<Option<VapidKeyId>, Problem> {
        if let Some(known) = self.keys.get(&named) {
            return Ok(*known);
        }
        let found = match (named.parse::<VapidKeyId>(), base64url::decode_any(&named)) {
            (Ok(id), _) => vapid_keys::find(&self.state.pool, self.app.id, id).await?.map(|key| key.id),
            (_, Some(public)) => vapid_keys::find_public(&self.state.pool, self.app.id, &public).await?,
            _ => None,
        };
        if self.keys.len() >= KEYS_MAX {
            self.keys.clear();
        }
        self.keys.insert(named, found);
        Ok(found)
    }
}

/// What is wrong by the names of a file's fields.
fn wrong(faults: Faults) -> Vec<Wrong> {
    let errors = faults.finish().err().map(|problem| problem.errors.clone()).unwrap_or_default();
    let wrong = |FieldError { pointer, detail, .. }| {
        let pointer = pointer.unwrap_or_default();
        let within = pointer.strip_prefix("/subscription").unwrap_or(&pointer);
        let field = within.strip_prefix("/keys").unwrap_or(within).trim_start_matches('/');
        Wrong::new(if field == "expirationTime" { "expires_at" } else { field }, detail)
    };
    errors.into_iter().map(wrong).collect()
}
