//! `POST /v1/apps/{app}/receipts`: receipts from service workers. The token in each push is the only credential needed.

use std::sync::Arc;

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
use super::link_tags;
use super::state::known_link_tags::LinkParameters;
use crate::receipts::NotTaken;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::ReceiptKind;
use bellwire_core::id::AppId;
use bellwire_store::keys::apps::App;
use bellwire_store::outcomes::receipts::Receipt;
use bellwire_vault::delivery_token::parse_receipt;
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(take))
}

const REPORTS_MAX: usize = 100;
/// Maximum characters of a button's name.
const ACTION_MAX: usize = 200;
/// Maximum bytes of one receipt: a token of 64, an action of four bytes per character, and the JSON around them.
const REPORT_MAX: usize = 64 + 4 * ACTION_MAX + 128;
/// Maximum bytes of a body: the longest list of receipts fits.
const BODY_MAX: usize = REPORTS_MAX * REPORT_MAX;

/// Receipt of a delivery.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct ReceiptInput {
    /// Token of the receipt: `bellwire.receipt` in the push.
    receipt: String,
    /// Kind of the report.
    kind: ReceiptKind,
    /// Clicked button, at most 200 characters.
    action: Option<String>,
    /// Seconds between the event and this request. By default 0. The event is never dated before the message's acceptance.
    age: Option<u32>,
}

/// One receipt, or up to 100. Only for the OpenAPI description: the handler distinguishes them by the first character.
#[derive(ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "only its shape counts")]
pub(crate) enum ReceiptReports {
    /// One receipt.
    One(ReceiptInput),
    /// Array of receipts.
    Several(Vec<ReceiptInput>),
}

/// Result of one receipt of a displayed notification, in apps with link tags.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReceiptAccepted {
    /// Parameters that the service worker adds to links of the notification. Null: none.
    link_tags: Option<LinkParameters>,
}

/// Result of several receipts.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReceiptsAccepted {
    /// Accepted receipts, repeats included.
    accepted: usize,
    /// Receipts that cannot be parsed or have an invalid token.
    refused: usize,
}

/// Accepts receipts, one or an array of up to 100, as JSON or, for `sendBeacon`, as plain text. Repeats change nothing. The
/// response follows the commit: a client without a response, or with 429 or 5xx, should retry. One receipt gets 204, or 400 if
/// its token is invalid; in apps with link tags, one of a displayed notification gets 200 with its parameters. Several get 202, and
/// invalid ones among them are only counted.
#[utoipa::path(post, path = "/v1/apps/{app}/receipts", tag = "Receipts",
    request_body(content((ReceiptReports = "application/json"), (String = "text/plain"))),
    responses((status = 204), (status = 200, body = ReceiptAccepted), (status = 202, body = ReceiptsAccepted)))]
pub(crate) async fn take(
    State(state): State<ApiState>, Extension(app): Extension<Arc<App>>, request: Request,
) -> Result<Response, Problem> {
    let body = read_body(request, BODY_MAX, state.settings.body_timeout).await?;
    let now = state.clock.now();
    if !body.trim_ascii_start().starts_with(b"[") {
        let receipt = check(&state, parse(&body)?, now)?;
        let displayed = (receipt.kind == ReceiptKind::Displayed && app.has_link_tags).then_some(receipt.message);
        write(&state, app.id, vec![receipt]).await?;
        let Some(message) = displayed else { return Ok(StatusCode::NO_CONTENT.into_response()) };
        let link_tags = link_tags::of_message(&state, app.id, message).await?;
        return Ok(axum::Json(ReceiptAccepted { link_tags }).into_response());
    }
    let reports: Vec<Box<RawValue>> = serde_json::from_slice(&body).map_err(|_| not_json())?;
    if reports.len() > REPORTS_MAX {
        return Err(Problem::invalid_member("", format!("may hold at most {REPORTS_MAX} reports")));
    }
    let read = |report: &RawValue| check(&state, serde_json::from_str(report.get()).ok()?, now).ok();
    let receipts: Vec<Receipt> = reports.iter().filter_map(|report| read(report)).collect();
    let counts = ReceiptsAccepted { accepted: receipts.len(), refused: reports.len() - receipts.len() };
    write(&state, app.id, receipts).await?;
    Ok((StatusCode::ACCEPTED, axum::Json(counts)).into_response())
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
        return Err(Problem::new(ProblemCode::InvalidReceipt, "This server did not issue the receipt."));
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
