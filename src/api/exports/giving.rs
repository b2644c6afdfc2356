//! Writes an export in parts: the next part is read while one is sent. No transaction is open meanwhile.

use std::collections::BTreeMap;

use serde::Serialize;
use tokio::task::spawn_blocking;
use uuid::Uuid;

use super::super::ApiState;
use super::super::http::fair_semaphore::SharePermit;
use super::super::http::outgoing::{BodyInterrupted, Outgoing};
use super::super::http::problem::Problem;
use super::record::{NoLine, SUBSCRIPTION, SubscriptionLine, columns};
use super::{Contents, ExportFormat};
use bellwire_core::clock::first_uuid_of;
use bellwire_core::id::{ExportId, SubscriptionId};
use bellwire_store::keys::apps::App;
use bellwire_store::operations::exports::{self, SubscriptionOut};
use bellwire_vault::{Unopenable, Vault};

/// Subscriptions read per statement.
const PART: i64 = 1_000;
/// Bytes of settings sent in one part.
const PART_OCTETS: usize = 64 * 1024;

/// Reason for which an export was interrupted. The connection is then closed without the end of the body, so that a client
/// notices the truncation.
#[derive(Debug, thiserror::Error)]
pub(super) enum Broken {
    #[error(transparent)]
    Cut(#[from] BodyInterrupted),
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    #[error(transparent)]
    Line(#[from] NoLine),
    #[error("a stored value cannot be read")]
    Stored,
}

impl From<Unopenable> for Broken {
    fn from(error: Unopenable) -> Self {
        Self::Line(error.into())
    }
}

impl From<serde_json::Error> for Broken {
    fn from(error: serde_json::Error) -> Self {
        Self::Line(error.into())
    }
}

impl From<Problem> for Broken {
    fn from(_: Problem) -> Self {
        Self::Stored
    }
}

/// Writer of a running export.
pub(super) struct Giver {
    pub state: ApiState,
    pub app: App,
    pub id: ExportId,
    pub contents: Contents,
    pub format: ExportFormat,
    /// Whether CSV cells stay as stored, formulas included.
    pub raw: bool,
    pub after: Option<SubscriptionId>,
    pub _place: SharePermit,
}

pub(super) struct Giving {
    pub(super) giver: Giver,
    pub(super) to: Outgoing,
    pub(super) out: Vec<u8>,
    pub(super) lines: i64,
    pub(super) counts: BTreeMap<&'static str, i64>,
}

impl Giving {
    pub(super) async fn line(&mut self, kind: &'static str, members: &impl Serialize) -> Result<(), Broken> {
        #[derive(Serialize)]
        struct ExportLine<'a, T> {
            r#type: &'static str,
            #[serde(flatten)]
            members: &'a T,
        }
        serde_json::to_writer(&mut self.out, &ExportLine { r#type: kind, members })?;
        self.out.push(b'\n');
        self.lines += 1;
        *self.counts.entry(kind).or_default() += 1;
        if self.out.len() < PART_OCTETS { Ok(()) } else { self.hand_over().await }
    }

    /// Sends the buffered data after the client has read the previous part.
    pub(super) async fn hand_over(&mut self) -> Result<(), Broken> {
        if self.out.is_empty() {
            return Ok(());
        }
        let Giver { state, id, .. } = &self.giver;
        self.to.part(std::mem::take(&mut self.out).into()).await?;
        exports::advance(&state.pool, *id, self.lines, state.clock.now()).await?;
        Ok(())
    }

    /// Writes the subscriptions that existed when the export started. Including later ones could make it endless.
    pub(super) async fn give_subscriptions(&mut self) -> Result<(), Broken> {
        let Giver { state, app, format, raw, after, .. } = &self.giver;
        let (pool, vault, app, format) = (state.reads.pool().clone(), state.vault.clone(), app.id, (*format, *raw));
        let until = first_uuid_of(state.clock.now() + chrono::TimeDelta::milliseconds(1));
        let mut after = after.map_or(Uuid::nil(), Uuid::from);
        let mut is_first = after.is_nil();
        let mut rows = exports::subscriptions(&pool, app, after, until, PART).await?;
        loop {
            let is_last = (rows.len() as i64) < PART;
            after = rows.last().map_or(after, |row| row.id.into());
            let vault = vault.clone();
            let written = spawn_blocking(move || write(&rows, &vault, format, is_first));
            let next = async {
                if is_last { Ok(Vec::new()) } else { exports::subscriptions(&pool, app, after, until, PART).await }
            };
            let given = async {
                let (octets, n) = written.await.map_err(|_| Broken::Stored)??;
                self.out = octets;
                self.lines += n;
                *self.counts.entry(SUBSCRIPTION).or_default() += n;
                self.hand_over().await
            };
            let (given, next) = tokio::join!(given, next);
            given?;
            if is_last {
                return Ok(());
            }
            (rows, is_first) = (next?, false);
        }
    }
}

/// Encodes subscriptions, and returns their number. Runs on a blocking thread: decrypting a thousand takes milliseconds of CPU
/// time.
fn write(
    rows: &[SubscriptionOut], vault: &Vault, (format, raw): (ExportFormat, bool), is_first: bool,
) -> Result<(Vec<u8>, i64), NoLine> {
    let mut lines = 0;
    let mut out = Vec::with_capacity(rows.len() * 768);
    match format {
        ExportFormat::Ndjson => {
            for row in rows {
                let Some(line) = SubscriptionLine::of(row, vault)? else { continue };
                line.write_json(&mut out)?;
                lines += 1;
            }
        }
        ExportFormat::Csv => {
            let mut csv = csv::Writer::from_writer(out);
            if is_first {
                csv.write_record(columns(raw))?;
            }
            for row in rows {
                let Some(line) = SubscriptionLine::of(row, vault)? else { continue };
                line.write_csv(&mut csv, raw)?;
                lines += 1;
            }
            out = csv.into_inner().map_err(|error| csv::Error::from(error.into_error()))?;
        }
    }
    Ok((out, lines))
}
