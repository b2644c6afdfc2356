//! `/v1/apps/{app}/messages/{message}/deliveries`: deliveries of a message, one per subscription. [`search`] finds deliveries
//! across messages.

pub(crate) mod search;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::http::auth::{MayRead, MaySteerMessages, Server};
use super::http::extract::{PathId, Query};
use super::http::paging::{Page, Paging};
use super::http::problem::{Problem, ProblemCode};
use super::http::routes::routes;
use super::{ApiState, Work};
use crate::api::messages::response::missing;
use crate::api::subscriptions::response::current;
use bellwire_core::delivery::{Ending, ReceiptKind};
use bellwire_core::id::{AppId, MessageId, SubscriptionId};
use bellwire_core::named;
use bellwire_store::keys::apps::App;
use bellwire_store::keyset::Keyset;
use bellwire_store::outcomes::deliveries::{self, AttemptRow, DeliveryActionResult, DeliveryRow};
use bellwire_store::outcomes::receipts::{self, ReceiptRow};
use bellwire_store::queue::messages;
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(show))
        .routes(routes!(retry))
        .routes(routes!(cancel))
        .routes(routes!(search::find))
}

named! {
    #[schema(as = DeliveryState)]
    pub(crate) enum DeliveryStatus {
        Queued = "queued",
        Dispatching = "dispatching",
        Retrying = "retrying",
        Accepted = "accepted",
        Gone = "gone",
        Expired = "expired",
        Dead = "dead",
        Cancelled = "cancelled",
        Capped = "capped",
    }
}

impl DeliveryStatus {
    /// Whether the delivery has not ended.
    fn waits(self) -> bool {
        matches!(self, Self::Queued | Self::Dispatching | Self::Retrying)
    }

    fn of(ending: Ending) -> Self {
        match ending {
            Ending::Retry => Self::Retrying,
            Ending::Accepted => Self::Accepted,
            Ending::Gone => Self::Gone,
            Ending::Expired => Self::Expired,
            Ending::Dead => Self::Dead,
            Ending::Cancelled => Self::Cancelled,
            Ending::Capped => Self::Capped,
        }
    }
}

/// A delivery: one message to one subscription.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DeliveryResponse {
    /// Recipient of the delivery.
    subscription: SubscriptionId,
    /// State of the delivery.
    state: DeliveryStatus,
    /// Time at which the next attempt is due. Null: ended, or the message is paused.
    due_at: Option<DateTime<Utc>>,
    /// Receipt state of an accepted delivery: `awaiting_ack` (no receipt yet), `acknowledged` (at least one), `unconfirmed`
    /// (expired without a receipt). Null: not accepted, or its push requests no receipt.
    confirmation: Option<&'static str>,
    /// Attempts in order of time.
    attempts: Vec<AttemptResponse>,
    /// Receipts from the browser in order of time.
    receipts: Vec<ReceiptResponse>,
}

/// Receipt from a browser.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReceiptResponse {
    /// Kind of the report.
    kind: ReceiptKind,
    /// Time at which the receipt arrived.
    at: DateTime<Utc>,
    /// Name of the clicked button. Null: the notification itself, or no click.
    action: Option<String>,
}

/// One POST to a push service, or an ending without a POST.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AttemptResponse {
    /// Number of the attempt, from 0.
    attempt: i32,
    /// Time of the response, or of the ending.
    at: DateTime<Utc>,
    /// Result of the attempt.
    ending: Ending,
    /// HTTP status. Null: no response, or no POST.
    status: Option<i16>,
    /// Time from the start of the POST to the response, in milliseconds.
    took_ms: Option<i32>,
    /// Reason of a failure or ending. Null: none.
    reason: Option<String>,
}

impl From<AttemptRow> for AttemptResponse {
    fn from(row: AttemptRow) -> Self {
        Self {
            attempt: row.attempt,
            at: row.at,
            ending: Ending::from_code(row.ending).unwrap_or(Ending::Dead),
            status: row.status,
            took_ms: row.took_ms,
            reason: row.reason,
        }
    }
}

impl ReceiptResponse {
    pub(super) fn new(row: ReceiptRow) -> Option<Self> {
        Some(Self { kind: ReceiptKind::from_code(row.kind)?, at: row.at, action: row.action })
    }
}

/// Derives the state of a delivery from its lease, its retry count while it waits, and the ending of its last attempt.
fn standing(held: bool, retries: Option<i32>, last: Option<Ending>) -> DeliveryStatus {
    match (held, retries, last) {
        (true, ..) => DeliveryStatus::Dispatching,
        (false, Some(0), _) => DeliveryStatus::Queued,
        // History is read after the queue: a retry written in between is still a retry.
        (false, Some(_), _) => DeliveryStatus::Retrying,
        (false, None, Some(ending)) => DeliveryStatus::of(ending),
        (false, None, None) => DeliveryStatus::Dispatching,
    }
}

async fn read(
    state: &ApiState, app: AppId, message: MessageId, rows: Vec<DeliveryRow>,
) -> Result<Vec<(SubscriptionId, DeliveryResponse)>, Problem> {
    let terms = messages::terms(&state.pool, app, message).await?;
    let terms = terms.ok_or_else(|| missing(state, message))?;
    if rows.is_empty() {
        return Ok(Vec::new());
    }
    let known = terms.enveloped;
    let expired = terms.expires_at <= state.clock.now();
    let ids: Vec<SubscriptionId> = rows.iter().map(|row| row.subscription).collect();
    let mut history = deliveries::attempts(&state.pool, message, &ids).await?;
    let mut reported = receipts::of(&state.pool, message, &ids).await?;
    Ok(rows
        .into_iter()
        .map(|row| {
            let of_this = |attempt: &mut AttemptRow| attempt.subscription == row.subscription;
            let attempts: Vec<AttemptResponse> = history.extract_if(.., of_this).map(AttemptResponse::from).collect();
            let of_this = |receipt: &mut ReceiptRow| receipt.subscription == row.subscription;
            let receipts: Vec<ReceiptResponse> =
                reported.extract_if(.., of_this).filter_map(ReceiptResponse::new).collect();
            let state = standing(row.held, row.retries, attempts.last().map(|last| last.ending));
            let confirmation = match (receipts.is_empty(), expired) {
                _ if !known || state != DeliveryStatus::Accepted => None,
                (false, _) => Some("acknowledged"),
                (true, false) => Some("awaiting_ack"),
                (true, true) => Some("unconfirmed"),
            };
            let (subscription, due_at) = (row.subscription, row.due_at);
            let view = DeliveryResponse { subscription, state, due_at, confirmation, attempts, receipts };
            (subscription, view)
        })
        .collect())
}

/// Lists the deliveries of a message that are stored individually, the newest subscriptions first. Recipients still behind a
/// fan-out cursor are not listed.
#[utoipa::path(get, path = "/v1/apps/{app}/messages/{message}/deliveries", tag = "Messages",
    responses((status = 200, body = Page<DeliveryResponse>)))]
pub(crate) async fn list(
    server: Server<MayRead>, State(state): State<ApiState>, PathId(message): PathId<MessageId>, uri: Uri,
    Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let cut = paging.cut()?;
    let now = state.clock.now();
    let rows = deliveries::list(state.reads.pool(), server.app.id, message, None, cut.ask(), now).await?;
    let views = read(&state, server.app.id, message, rows).await?;
    Ok(cut.page(views, |(id, _)| *id, |(_, view)| view).answer(&uri))
}

/// Returns one delivery. If the delivery moved to the successor of a replaced subscription, both ids work.
#[utoipa::path(get, path = "/v1/apps/{app}/messages/{message}/deliveries/{subscription}", tag = "Messages",
    responses((status = 200, body = DeliveryResponse)))]
pub(crate) async fn show(
    server: Server<MayRead>, State(state): State<ApiState>, PathId(message): PathId<MessageId>,
    PathId(id): PathId<SubscriptionId>,
) -> Result<axum::Json<DeliveryResponse>, Problem> {
    let id = kept_under(&state, &server.app, message, id).await?;
    one(&state, server.app.id, message, id).await
}

/// Returns the subscription id under which a delivery is stored: the given one, or its successor's if the delivery moved.
async fn kept_under(
    state: &ApiState, app: &App, message: MessageId, id: SubscriptionId,
) -> Result<SubscriptionId, Problem> {
    let find = |id| deliveries::list(&state.pool, app.id, message, Some(id), Keyset::newest(1), state.clock.now());
    let here = find(id).await?.pop();
    if here.as_ref().is_some_and(|row| row.held || row.retries.is_some()) {
        return Ok(id);
    }
    let attempts = deliveries::attempts(&state.pool, message, &[id]).await?;
    if attempts.last().is_some_and(|last| last.ending != Ending::Retry.code()) {
        return Ok(id);
    }
    let successor = current(state, app, id).await?;
    Ok(if find(successor).await?.is_empty() { id } else { successor })
}

async fn one(
    state: &ApiState, app: AppId, message: MessageId, id: SubscriptionId,
) -> Result<axum::Json<DeliveryResponse>, Problem> {
    let rows = deliveries::list(&state.pool, app, message, Some(id), Keyset::newest(1), state.clock.now()).await?;
    let found = read(state, app, message, rows).await?.pop();
    found.map(|(_, view)| axum::Json(view)).ok_or_else(|| Problem::not_found("delivery"))
}

/// Makes a waiting delivery due now. This does not use up a retry of its policy.
#[utoipa::path(post, path = "/v1/apps/{app}/messages/{message}/deliveries/{subscription}/retry", tag = "Messages",
    responses((status = 202, body = DeliveryResponse)))]
pub(crate) async fn retry(
    server: Server<MaySteerMessages>, State(state): State<ApiState>, PathId(message): PathId<MessageId>,
    PathId(id): PathId<SubscriptionId>,
) -> Result<(StatusCode, axum::Json<DeliveryResponse>), Problem> {
    let (app, id) = (server.app.id, kept_under(&state, &server.app, message, id).await?);
    let hurried = deliveries::hurry(&state.pool, app, message, id, state.clock.now()).await?;
    let view = one(&state, app, message, id).await?;
    if hurried == DeliveryActionResult::NotWaiting {
        return Err(not_waiting());
    }
    (state.engine.tell)(Work::Due);
    Ok((StatusCode::ACCEPTED, view))
}

/// Cancels a waiting delivery.
#[utoipa::path(post, path = "/v1/apps/{app}/messages/{message}/deliveries/{subscription}/cancel", tag = "Messages",
    responses((status = 200, body = DeliveryResponse)))]
pub(crate) async fn cancel(
    server: Server<MaySteerMessages>, State(state): State<ApiState>, PathId(message): PathId<MessageId>,
    PathId(id): PathId<SubscriptionId>,
) -> Result<axum::Json<DeliveryResponse>, Problem> {
    let (app, id) = (server.app.id, kept_under(&state, &server.app, message, id).await?);
    let cancelled = deliveries::cancel(&state.pool, app, message, id, state.clock.now()).await?;
    let view = one(&state, app, message, id).await?;
    match cancelled {
        DeliveryActionResult::Done => Ok(view),
        DeliveryActionResult::NotWaiting => Err(not_waiting()),
    }
}

fn not_waiting() -> Problem {
    let detail = "The delivery does not wait: it has ended, is being sent, or its message is paused.";
    Problem::new(ProblemCode::DeliveryNotWaiting, detail)
}
