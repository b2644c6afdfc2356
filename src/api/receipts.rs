//! `POST /v1/apps/{app}/receipts`: what service workers report. The token in each push is all the right it takes.

use axum::Extension;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use chrono::TimeDelta;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use utoipa::ToSchema;

use super::ApiState;
use super::http::extract::{is_plain_text, parse, read_body};
use super::http::problem::{Problem, ProblemCode};
use super::http::routes::routes;
use crate::receipts::NotTaken;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::ReceiptKind;
use bellwire_core::id::AppId;
use bellwire_store::outcomes::receipts::Receipt;
use bellwire_vault::delivery_token::parse_receipt;
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(take))
}

const REPORTS_MAX: usize = 100;
/// Longest name of a button, in characters.
const ACTION_MAX: usize = 200;
/// Octets of a report, at most: a token of 64, an action whose characters take four each, and what is around them.
const REPORT_MAX: usize = 64 + 4 * ACTION_MAX + 128;
/// Octets of a body: the longest list fits. What browsers may send elsewhere is less.
const BODY_MAX: usize = REPORTS_MAX * REPORT_MAX;

/// Report about a delivery.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReceiptInput {
    /// `bellwire.receipt` of the push.
    receipt: String,
    /// Kind of the report.
    kind: ReceiptKind,
    /// Clicked button, at most 200 characters.
    action: Option<String>,
    /// Seconds between the event and this report. By default 0. The event never counts as earlier than the message's acceptance.
    age: Option<u32>,
}

/// One report, or up to 100: for the description of the API. The handler looks at the first character.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its shape counts")]
pub(crate) enum ReceiptReports {
    /// One report.
    One(ReceiptInput),
    /// Several reports in a list.
    Several(Vec<ReceiptInput>),
}

/// Result of several reports.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReceiptsAccepted {
    /// Taken, also those that were known already.
    taken: usize,
    /// Not understood, or without a token of ours.
    refused: usize,
}

/// Accepts receipts, one or an array of up to 100, as JSON or, for `sendBeacon`, as plain text. Repeats change nothing. The
/// response follows their commit. A client without one, or with 429 or 5xx, reports again later. One receipt gets 204, or 400 if
/// its token is invalid. Several get 202, and invalid ones among them are only counted.
#[utoipa::path(post, path = "/v1/apps/{app}/receipts", tag = "Receipts",
    request_body(content((ReceiptReports = "application/json"), (String = "text/plain"))),
    responses((status = 204), (status = 202, body = ReceiptsAccepted)))]
pub(crate) async fn take(
    State(state): State<ApiState>,
    Extension(app): Extension<AppId>,
    request: Request,
) -> Result<Response, Problem> {
    let body = read_body(request, BODY_MAX, state.settings.body_timeout).await?;
    let now = state.clock.now();
    if !body.trim_ascii_start().starts_with(b"[") {
        let receipt = check(&state, parse(&body)?, now)?;
        write(&state, app, vec![receipt]).await?;
        return Ok(StatusCode::NO_CONTENT.into_response());
    }
    let reports: Vec<Box<RawValue>> = serde_json::from_slice(&body).map_err(|_| not_json())?;
    if reports.len() > REPORTS_MAX {
        return Err(Problem::invalid_member("", format!("may hold at most {REPORTS_MAX} reports")));
    }
    let read = |report: &RawValue| check(&state, serde_json::from_str(report.get()).ok()?, now).ok();
    let receipts: Vec<Receipt> = reports.iter().filter_map(|report| read(report)).collect();
    let taken = ReceiptsAccepted { taken: receipts.len(), refused: reports.len() - receipts.len() };
    write(&state, app, receipts).await?;
    Ok((StatusCode::ACCEPTED, axum::Json(taken)).into_response())
}

fn not_json() -> Problem {
    Problem::new(ProblemCode::MalformedJson, "The body is not a JSON array.")
}

fn check(state: &ApiState, report: ReceiptInput, now: Timestamp) -> Result<Receipt, Problem> {
    if report.action.as_deref().is_some_and(|action| !is_plain_text(action, ACTION_MAX)) {
        let detail = format!("must be 1 to {ACTION_MAX} characters without control characters");
        return Err(Problem::invalid_member("/action", detail));
    }
    let Some((message, subscription)) = parse_receipt(&state.vault, &report.receipt) else {
        return Err(Problem::new(ProblemCode::InvalidReceipt, "The receipt is not one of ours."));
    };
    let age = TimeDelta::seconds(report.age.unwrap_or_default().into());
    Ok(Receipt { message, subscription, kind: report.kind, action: report.action, at: now - age })
}

async fn write(state: &ApiState, app: AppId, receipts: Vec<Receipt>) -> Result<(), Problem> {
    if receipts.is_empty() {
        return Ok(());
    }
    state.receipts.write(app, receipts).await.map_err(|error| {
        let code = match error {
            NotTaken::Busy => ProblemCode::TooManyReceipts,
            NotTaken::Failed => ProblemCode::DatabaseUnavailable,
        };
        Problem::new(code, "The receipts were not stored. Report them again shortly.")
            .with_header(header::RETRY_AFTER, HeaderValue::from_static("1"))
    })
}
