//! Exports dead letters page by page: memory use is one page for any length.

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use utoipa::{IntoParams, ToSchema};

use super::Filtered;
use crate::api::ApiState;
use crate::api::http::auth::{MayExport, Server};
use crate::api::http::csv_cells::neutralise;
use crate::api::http::outgoing::Outgoing;
use crate::api::http::problem::Problem;
use bellwire_core::clock::Clock;
use bellwire_core::id::ActionId;
use bellwire_store::keyset::Keyset;
use bellwire_store::outcomes::dead_letters::handling::{self, HandlingAction, Operation};
use bellwire_store::outcomes::dead_letters::{DeadLetterFilter, DeadLetterRow, list};
use bellwire_store::transactions::begin;

/// Dead letters read per statement.
const PAGE: i64 = 2_000;

/// The form of an export.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DeadLetterFormat {
    /// Comma-separated values (RFC 4180) with a header line. A cell that a spreadsheet would evaluate as a formula begins with
    /// an apostrophe.
    Csv,
    /// A JSON object on each line.
    Ndjson,
}

impl DeadLetterFormat {
    fn media_type(self) -> &'static str {
        match self {
            DeadLetterFormat::Csv => "text/csv; charset=utf-8; header=present",
            DeadLetterFormat::Ndjson => "application/x-ndjson",
        }
    }

    fn attachment(self) -> &'static str {
        match self {
            DeadLetterFormat::Csv => r#"attachment; filename="dead-letters.csv""#,
            DeadLetterFormat::Ndjson => r#"attachment; filename="dead-letters.ndjson""#,
        }
    }

    /// Encodes a page. `first` marks the first page, which begins with the header.
    fn write(self, letters: &[DeadLetterRow], first: bool) -> Result<Vec<u8>, DeadLetterExportError> {
        match self {
            DeadLetterFormat::Csv => write_csv(letters, first),
            DeadLetterFormat::Ndjson => {
                let mut out = Vec::new();
                for letter in letters {
                    serde_json::to_writer(&mut out, letter).map_err(std::io::Error::from)?;
                    out.push(b'\n');
                }
                Ok(out)
            }
        }
    }
}

/// Reason for which an export was interrupted. The connection is then closed without the end of the body, so that a client
/// notices the truncation.
#[derive(Debug, thiserror::Error)]
enum DeadLetterExportError {
    #[error(transparent)]
    Sql(#[from] sqlx::Error),
    #[error(transparent)]
    Written(#[from] std::io::Error),
    #[error(transparent)]
    Csv(#[from] csv::Error),
}

impl From<DeadLetterExportError> for Problem {
    fn from(failed: DeadLetterExportError) -> Self {
        match failed {
            DeadLetterExportError::Sql(error) => error.into(),
            DeadLetterExportError::Written(_) | DeadLetterExportError::Csv(_) => Problem::internal(),
        }
    }
}

const COLUMNS: [&str; 14] = [
    "id",
    "at",
    "state",
    "reason",
    "status",
    "detail",
    "retries",
    "attempts",
    "tier",
    "gateway",
    "message",
    "subscription",
    "settled_at",
    "replay",
];

fn write_csv(letters: &[DeadLetterRow], first: bool) -> Result<Vec<u8>, DeadLetterExportError> {
    let mut out = csv::Writer::from_writer(Vec::new());
    if first {
        out.write_record(COLUMNS)?;
    }
    fn text(value: Option<impl ToString>) -> String {
        value.map(|value| value.to_string()).unwrap_or_default()
    }
    for letter in letters {
        let cells: [String; COLUMNS.len()] = [
            letter.id.to_string(),
            letter.at.to_rfc3339(),
            letter.state.name().to_owned(),
            letter.reason.clone(),
            text(letter.status),
            text(letter.detail.as_deref()),
            letter.retries.to_string(),
            letter.attempts.to_string(),
            letter.tier.name().to_owned(),
            letter.gateway.name().to_owned(),
            letter.message.to_string(),
            letter.subscription.to_string(),
            text(letter.settled_at.map(|at| at.to_rfc3339())),
            text(letter.replay),
        ];
        out.write_record(cells.into_iter().map(neutralise))?;
    }
    out.into_inner().map_err(|error| error.into_error().into())
}

/// Options of an export.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ExportQuery {
    /// Format of the export.
    #[param(inline)]
    format: DeadLetterFormat,
}

/// Exports all matching dead letters, the newest first, without their content. Each page is recorded in the audit trail before
/// it is sent. If too many exports and imports run, the response is 503 (`transfers_busy`).
#[utoipa::path(get, path = "/v1/apps/{app}/dead-letters/export", tag = "Dead letters", params(ExportQuery, DeadLetterFilter),
    responses((status = 200, content(
        (DeadLetterRow = "application/x-ndjson"), (String = "text/csv")))))]
pub(crate) async fn export(
    server: Server<MayExport>, State(state): State<ApiState>,
    Filtered(filter, ExportQuery { format }): Filtered<ExportQuery>, mut request: Request,
) -> Result<Response, Problem> {
    let (clock, app, actor) = (state.clock.clone(), server.app.id, server.caller.actor());
    let place = state.place_to_transfer(app).await?;
    let operation = Operation {
        id: ActionId(clock.uuid()),
        app,
        action: HandlingAction::Export,
        actor,
        filter,
        began: clock.now(),
    };
    let pages = Pages { pool: state.pool.clone(), clock, operation, format, part: 0, next: Some(Keyset::newest(PAGE)) };
    // The first page is read before the answer begins: what fails there is a problem like any other.
    let Some((first, rest)) = pages.next().await? else { return Err(Problem::internal()) };
    let parts = stream::once(async { Ok(first) }).chain(stream::try_unfold(rest, Pages::next));
    let (outgoing, body) = Outgoing::answering(&mut request, &state);
    outgoing.give(parts, place, "an export of dead letters");
    let headers = [(header::CONTENT_TYPE, format.media_type()), (header::CONTENT_DISPOSITION, format.attachment())];
    Ok((headers, body).into_response())
}

struct Pages {
    pool: PgPool,
    clock: Clock,
    operation: Operation,
    format: DeadLetterFormat,
    part: i32,
    /// Start of the next page. `None`: this is the last page.
    next: Option<Keyset>,
}

impl Pages {
    /// Returns the next page and the remaining export. The first page exists even if it is empty.
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, DeadLetterExportError> {
        let Some(page) = self.next else { return Ok(None) };
        let rows = list(&self.pool, self.operation.app, &self.operation.filter, page).await?;
        let n = rows.len() as i64;
        self.next = rows.last().filter(|_| n == PAGE).map(|last| Keyset { beyond: last.id.into(), ..page });
        if n > 0 || self.part == 0 {
            let mut tx = begin(&self.pool).await?;
            handling::record(&mut tx, &self.operation, self.part, n, self.clock.now()).await?;
            tx.commit().await?;
        }
        let page = self.format.write(&rows, self.part == 0)?;
        self.part += 1;
        Ok(Some((page.into(), self)))
    }
}
