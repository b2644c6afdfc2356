//! Requests to the receivers of webhooks: lists, tests and replays them.

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;

use super::find;
use crate::api::ApiState;
use crate::api::http::auth::{MayManageKeys, MayRead, Server};
use crate::api::http::extract::{Json, PathId, Query};
use crate::api::http::idempotency::{Instead, Pending};
use crate::api::http::paging::{Page, Paging};
use crate::api::http::problem::{Problem, ProblemCode};
use crate::api::http::routes::routes;
use crate::hooks::test_event;
use bellwire_core::hook::{DeliveryState, WebhookState};
use bellwire_core::id::{EventId, WebhookDeliveryId, WebhookId};
use bellwire_core::request_time;
use bellwire_store::hooks::deliveries::{self, AttemptRow, DeliveryRow, ResendSelection};
use bellwire_store::hooks::packing::{self, NewDelivery};
use bellwire_store::keys::audit::AuditAction;
use bellwire_vault::WEBHOOK_BODY;

/// Maximum attempts shown of a request: the last ones.
const ATTEMPTS_MAX: i64 = 200;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(list_deliveries))
        .routes(routes!(show_delivery))
        .routes(routes!(test))
        .routes(routes!(replay))
}

/// A request to a webhook's receiver.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookDeliveryResponse {
    /// Id of the request, sent as `webhook-id` with each attempt.
    id: WebhookDeliveryId,
    /// State of the request.
    state: DeliveryState,
    /// Number of its events.
    events: i32,
    /// Number of attempts.
    attempts: i32,
    /// Time of the next attempt. Null: not pending.
    due_at: Option<DateTime<Utc>>,
    /// Time of the creation.
    created_at: DateTime<Utc>,
    /// Time at which it was accepted, or failed permanently. Null: pending.
    ended_at: Option<DateTime<Utc>>,
}

impl From<&DeliveryRow> for WebhookDeliveryResponse {
    fn from(row: &DeliveryRow) -> Self {
        Self {
            id: row.id,
            state: row.state,
            events: row.events,
            attempts: row.attempts,
            due_at: (row.state == DeliveryState::Pending).then_some(row.due_at),
            created_at: row.created_at,
            ended_at: row.ended_at,
        }
    }
}

/// One attempt of a request.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookAttempt {
    /// Number of the attempt, from 0.
    number: i32,
    /// Time of the response or failure.
    at: DateTime<Utc>,
    /// HTTP status of the response. Null: no response.
    #[schema(minimum = 100, maximum = 999)]
    http_status: Option<i16>,
    /// Duration in milliseconds.
    took_ms: i32,
    /// Reason of a failure: the beginning of the response, or the network error.
    reason: Option<String>,
}

impl From<AttemptRow> for WebhookAttempt {
    fn from(row: AttemptRow) -> Self {
        let AttemptRow { number, at, status, took_ms, reason } = row;
        Self { number, at, http_status: status, took_ms, reason }
    }
}

/// A request with its attempts and, until it is accepted, its events.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookDeliveryDetail {
    /// State of the request.
    #[serde(flatten)]
    delivery: WebhookDeliveryResponse,
    /// Last 200 attempts, in order of time.
    recent_attempts: Vec<WebhookAttempt>,
    /// Events of the request. Null after it was accepted.
    #[schema(value_type = Option<Vec<Object>>)]
    body: Option<Vec<Value>>,
}

/// Filter of requests.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct OfState {
    /// Requests in this state only.
    state: Option<DeliveryState>,
    /// Rows per page, 1 to 250; 50 by default.
    limit: Option<u16>,
    /// `iterator` or `prev_iterator` of another page.
    iterator: Option<String>,
}

/// Failed requests to replay: one, or all since a time.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebhookReplay {
    /// Id of a single request.
    webhook_delivery: Option<WebhookDeliveryId>,
    /// Earliest first due time of the requests.
    #[serde(default, deserialize_with = "request_time::optional")]
    since: Option<DateTime<Utc>>,
}

/// Result of a replay.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookReplayed {
    /// Number of requests that will be sent again.
    replayed: u64,
}

/// Lists requests to a webhook's receiver, the newest first. Accepted requests are kept for three days.
#[utoipa::path(get, path = "/v1/apps/{app}/webhooks/{webhook}/deliveries", tag = "Webhooks",
    responses((status = 200, body = Page<WebhookDeliveryResponse>)))]
pub(crate) async fn list_deliveries(
    server: Server<MayRead>, State(state): State<ApiState>, PathId(id): PathId<WebhookId>, uri: Uri,
    Query(wanted): Query<OfState>,
) -> Result<Response, Problem> {
    let OfState { state: stands, limit, iterator } = wanted;
    let cut = Paging { limit, iterator }.cut()?;
    let webhook = find(&state, server.app.id, id).await?;
    let rows = deliveries::list(&state.pool, webhook.id, stands, cut.ask()).await?;
    Ok(cut.page(rows, |row| row.id, |row| WebhookDeliveryResponse::from(&row)).answer(&uri))
}

/// Returns a request to a webhook's receiver, with its attempts.
#[utoipa::path(get, path = "/v1/apps/{app}/webhooks/{webhook}/deliveries/{webhook_delivery}", tag = "Webhooks",
    responses((status = 200, body = WebhookDeliveryDetail)))]
pub(crate) async fn show_delivery(
    server: Server<MayRead>, State(state): State<ApiState>, PathId(id): PathId<WebhookId>,
    PathId(delivery): PathId<WebhookDeliveryId>,
) -> Result<axum::Json<WebhookDeliveryDetail>, Problem> {
    let webhook = find(&state, server.app.id, id).await?;
    let row = deliveries::find(&state.pool, webhook.id, delivery).await?;
    let row = row.ok_or_else(|| Problem::not_found("webhook delivery"))?;
    let attempts = deliveries::attempts(&state.pool, delivery, ATTEMPTS_MAX).await?;
    let body = match &row.body {
        None => None,
        Some(sealed) => serde_json::from_slice(&state.vault.open(WEBHOOK_BODY, delivery, sealed)?).ok(),
    };
    let recent_attempts = attempts.into_iter().map(WebhookAttempt::from).collect();
    Ok(axum::Json(WebhookDeliveryDetail { delivery: (&row).into(), recent_attempts, body }))
}

/// Sends the event `webhook.test` to the webhook's receiver. The returned request shows the result.
#[utoipa::path(post, path = "/v1/apps/{app}/webhooks/{webhook}/test", tag = "Webhooks",
    responses((status = 202, body = WebhookDeliveryResponse)))]
pub(crate) async fn test(
    server: Server<MayManageKeys>, State(state): State<ApiState>, PathId(id): PathId<WebhookId>, pending: Pending,
) -> Result<Response, Instead> {
    let webhook = find(&state, server.app.id, id).await?;
    if webhook.state == WebhookState::Disabled {
        let detail = "The webhook is disabled, so nothing is sent to it.";
        return Err(Problem::new(ProblemCode::WebhookDisabled, detail).into());
    }
    let (delivery, now) = (WebhookDeliveryId(state.clock.uuid()), state.clock.now());
    let body = test_event(EventId(state.clock.uuid()), id, now);
    let new = NewDelivery {
        id: delivery,
        webhook: id,
        events: 1,
        body: state.vault.seal(WEBHOOK_BODY, delivery, body.as_bytes()),
        subscriptions: Vec::new(),
    };
    let mut once = pending.begin(&state).await?;
    packing::add(once.conn(), &[new], now).await?;
    let row = deliveries::find(once.conn(), id, delivery).await?;
    let row = row.ok_or_else(|| Problem::not_found("webhook"))?;
    once.finish(&state, StatusCode::ACCEPTED, &WebhookDeliveryResponse::from(&row)).await
}

/// Replays failed requests, each with its own id and all its retries: one, or all since a time.
#[utoipa::path(post, path = "/v1/apps/{app}/webhooks/{webhook}/replay", tag = "Webhooks",
    responses((status = 200, body = WebhookReplayed)))]
pub(crate) async fn replay(
    server: Server<MayManageKeys>, State(state): State<ApiState>, PathId(id): PathId<WebhookId>,
    Json(body, _): Json<WebhookReplay>,
) -> Result<axum::Json<WebhookReplayed>, Problem> {
    let which = match (body.webhook_delivery, body.since) {
        (Some(one), None) => ResendSelection::One(one),
        (None, Some(since)) => ResendSelection::Since(since),
        _ => return Err(Problem::invalid_member("", "must have either `webhook_delivery` or `since`")),
    };
    let webhook = find(&state, server.app.id, id).await?;
    let now = state.clock.now();
    let mut tx = state.begin().await?;
    let replayed = deliveries::replay(&mut tx, webhook.id, which, now).await?;
    let detail = json!({"webhook_delivery": body.webhook_delivery, "since": body.since});
    let n = i64::try_from(replayed).unwrap_or(i64::MAX);
    server.did(AuditAction::WebhookReplayed, id).with(detail).record(&mut tx, n, now).await?;
    tx.commit().await?;
    Ok(axum::Json(WebhookReplayed { replayed }))
}
