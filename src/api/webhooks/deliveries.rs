//! Requests to the receivers of webhooks: what became of them, trying one out, and making those again that failed.

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
use bellwire_core::id::{EventId, HookDeliveryId, WebhookId};
use bellwire_core::request_time;
use bellwire_store::hooks::deliveries::{self, AttemptRow, DeliveryRow, ResendSelection};
use bellwire_store::hooks::packing::{self, NewDelivery};
use bellwire_store::keys::audit::AuditAction;
use bellwire_vault::WEBHOOK_BODY;

/// Attempts of a delivery that are shown: the last ones.
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
    /// Id of the request: the `webhook-id` of each attempt.
    id: HookDeliveryId,
    /// State of the request.
    state: DeliveryState,
    /// Number of its events.
    events: i32,
    /// Number of attempts.
    attempts: i32,
    /// Time of the next attempt, if pending.
    due_at: Option<DateTime<Utc>>,
    /// Time of the creation.
    created_at: DateTime<Utc>,
    /// Time at which it was accepted, or failed for good.
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

/// One try of a request.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookAttempt {
    /// Number of the attempt. 0: the first.
    number: i32,
    /// Time of the response or failure.
    at: DateTime<Utc>,
    /// The HTTP status of the answer; null: there was none.
    #[schema(minimum = 100, maximum = 999)]
    http_status: Option<i16>,
    /// Duration in milliseconds.
    took_ms: i32,
    /// Why it failed: the first words of the answer, or why there is none.
    reason: Option<String>,
}

impl From<AttemptRow> for WebhookAttempt {
    fn from(row: AttemptRow) -> Self {
        let AttemptRow { number, at, status, took_ms, reason } = row;
        Self { number, at, http_status: status, took_ms, reason }
    }
}

/// Request with its attempts and, until it is accepted, its events.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookDeliveryDetail {
    /// Fields of the request.
    #[serde(flatten)]
    delivery: WebhookDeliveryResponse,
    /// The last 200 tries, in order.
    tries: Vec<WebhookAttempt>,
    /// Events of the request. Null once it was accepted.
    #[schema(value_type = Option<Vec<Object>>)]
    body: Option<Vec<Value>>,
}

/// Filter of requests.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct OfState {
    /// Only those that stand there.
    state: Option<DeliveryState>,
    /// Rows per page, 1 to 250; 50 by default.
    limit: Option<u16>,
    /// `iterator` or `prev_iterator` of another page.
    iterator: Option<String>,
}

/// Failed requests to repeat: one, or all since a time.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebhookReplay {
    /// Id of a single request.
    webhook_delivery: Option<HookDeliveryId>,
    /// Those that were first due at this time or later.
    #[serde(default, deserialize_with = "request_time::optional")]
    since: Option<DateTime<Utc>>,
}

/// Result of a replay.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookReplayed {
    /// Requests that will be made again.
    replayed: u64,
}

/// Lists requests to a webhook's receiver, the newest first. Those that were taken are kept for three days.
#[utoipa::path(get, path = "/v1/apps/{app}/webhooks/{webhook}/deliveries", tag = "Webhooks",
    responses((status = 200, body = Page<WebhookDeliveryResponse>)))]
pub(crate) async fn list_deliveries(
    server: Server<MayRead>,
    State(state): State<ApiState>,
    PathId(id): PathId<WebhookId>,
    uri: Uri,
    Query(wanted): Query<OfState>,
) -> Result<Response, Problem> {
    let OfState { state: stands, limit, iterator } = wanted;
    let cut = Paging { limit, iterator }.cut()?;
    let webhook = find(&state, server.app.id, id).await?;
    let rows = deliveries::list(&state.pool, webhook.id, stands, cut.ask()).await?;
    Ok(cut.page(rows, |row| row.id, |row| WebhookDeliveryResponse::from(&row)).answer(&uri))
}

/// Shows a request to a webhook's receiver, with its tries.
#[utoipa::path(get, path = "/v1/apps/{app}/webhooks/{webhook}/deliveries/{webhook_delivery}", tag = "Webhooks",
    responses((status = 200, body = WebhookDeliveryDetail)))]
pub(crate) async fn show_delivery(
    server: Server<MayRead>,
    State(state): State<ApiState>,
    PathId(id): PathId<WebhookId>,
    PathId(delivery): PathId<HookDeliveryId>,
) -> Result<axum::Json<WebhookDeliveryDetail>, Problem> {
    let webhook = find(&state, server.app.id, id).await?;
    let row = deliveries::find(&state.pool, webhook.id, delivery).await?;
    let row = row.ok_or_else(|| Problem::not_found("webhook delivery"))?;
    let tries = deliveries::attempts(&state.pool, delivery, ATTEMPTS_MAX).await?;
    let body = match &row.body {
        None => None,
        Some(sealed) => serde_json::from_slice(&state.vault.open(WEBHOOK_BODY, delivery, sealed)?).ok(),
    };
    let tries = tries.into_iter().map(WebhookAttempt::from).collect();
    Ok(axum::Json(WebhookDeliveryDetail { delivery: (&row).into(), tries, body }))
}

/// Tests a webhook: sends the event `webhook.test` to its receiver. The returned delivery shows the result.
#[utoipa::path(post, path = "/v1/apps/{app}/webhooks/{webhook}/test", tag = "Webhooks",
    responses((status = 202, body = WebhookDeliveryResponse)))]
pub(crate) async fn test(
    server: Server<MayManageKeys>,
    State(state): State<ApiState>,
    PathId(id): PathId<WebhookId>,
    pending: Pending,
) -> Result<Response, Instead> {
    let webhook = find(&state, server.app.id, id).await?;
    if webhook.state == WebhookState::Disabled {
        let detail = "The webhook is disabled: nothing is sent to it.";
        return Err(Problem::new(ProblemCode::WebhookDisabled, detail).into());
    }
    let (delivery, now) = (HookDeliveryId(state.clock.uuid()), state.clock.now());
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

/// Makes failed requests again, each under its own id and with all its retries: one, or all that were made since a time.
#[utoipa::path(post, path = "/v1/apps/{app}/webhooks/{webhook}/replay", tag = "Webhooks",
    responses((status = 200, body = WebhookReplayed)))]
pub(crate) async fn replay(
    server: Server<MayManageKeys>,
    State(state): State<ApiState>,
    PathId(id): PathId<WebhookId>,
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
