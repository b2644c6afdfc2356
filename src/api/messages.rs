//! `/v1/apps/{app}/messages`: sends, pauses, resumes and cancels messages. [`crate::api::messages::compose`] checks new
//! messages.

pub(in crate::api) mod accept;
pub(in crate::api) mod accepted;
pub(crate) mod batch;
pub(crate) mod compose;
pub(crate) mod content;
pub(crate) mod counts;
pub(crate) mod explain;
pub(crate) mod group_commit;
pub(crate) mod list;
pub(in crate::api) mod response;
pub(crate) mod retry_headers;
pub(in crate::api) mod send_at;
pub(crate) mod sunset;
pub(crate) mod update;
pub(crate) mod withdraw;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::engagement;
use super::http::auth::{MayRead, MaySend, MaySteerMessages, Server};
use super::http::draft::Draft;
use super::http::extract::{PathId, Query};
use super::http::idempotency::{first_response, idempotency_key};
use super::http::problem::{Faults, FieldError, Problem, ProblemCode};
use super::http::routes::routes;
use super::{ApiState, Work};
use crate::api::messages::accept::accept_under;
use crate::api::messages::accepted::Accepted;
use crate::api::messages::compose::{Composed, MessageKey, MessageRequest};
use crate::api::messages::content::titles;
use crate::api::messages::counts::MessageCounts;
use crate::api::messages::response::{MessageResponse, missing};
use crate::api::messages::retry_headers::RetryHeaders;
use crate::api::templates::templated::Templates;
use bellwire_core::delivery::Tier;
use bellwire_core::id::MessageId;
use bellwire_store as store;
use bellwire_store::keys::apps::App;
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::queue::messages;
use bellwire_store::queue::sending::{self, Addressed, Sent};
use bellwire_store::queue::steering::{self, MessageOrder, Steered};
use bellwire_store::queue::withdrawals;
use bellwire_telemetry::panics;
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(crate::api::messages::list::list, send))
        .routes(routes!(show))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(cancel))
        .routes(routes!(show_by_key))
        .routes(routes!(cancel_by_key))
        .merge(update::routes())
        .merge(withdraw::routes())
}

/// Result of a dry run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DryRun {
    /// Always `true`, for a dry run.
    dry_run: bool,
    /// Number of deliveries, as counted now. For a segment, an estimate from a sample.
    audience_estimate: i64,
    /// Margin of error of the estimate, plus or minus, at 95 % confidence. 0: counted exactly.
    audience_margin: i64,
    /// Number of named subscriptions that are not active, and of named users without an active one.
    unreachable: i64,
    /// Warnings about the policy, and about broadcasts that recipients ignore or close.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<FieldError>,
}

/// Options of a send.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SendQuery {
    /// Whether to check and count only, without sending.
    #[serde(default)]
    dry_run: bool,
}

const SEND_ROUTE: &str = "POST /v1/apps/{app}/messages";

/// Sends a message. A repeat of the request with the same `Idempotency-Key` gets the response of the first one.
#[utoipa::path(post, path = "/v1/apps/{app}/messages", tag = "Messages", request_body = MessageRequest,
    params(("Bellwire-Retries" = Option<u32>, Header, description = "Beats the policy's `retries`; also `Upstash-Retries`"),
        ("Bellwire-Retry-Delay" = Option<String>, Header,
            description = "Beats the policy's `retryDelay`; also `Upstash-Retry-Delay`")),
    responses((status = 202, body = Accepted), (status = 200, body = DryRun, description = "With `dry_run=true`")))]
pub(crate) async fn send(
    server: Server<MaySend>, State(state): State<ApiState>, Query(query): Query<SendQuery>, headers: HeaderMap,
    Draft(body, faults, octets): Draft<MessageRequest>,
) -> Result<Response, Problem> {
    let retries = RetryHeaders::read(&headers)?;
    let digest = retries.digest(&octets);
    let keyed = |key| server.keyed_request(&state.vault, SEND_ROUTE, key, &[digest.as_ref()]);
    let request = idempotency_key(&headers)?.filter(|_| !query.dry_run).map(keyed);
    let mut composed = match compose(&state, &server, &retries, (body, faults)).await {
        Ok(composed) => composed,
        Err(refused) => {
            return first_response(&state, request.as_ref(), refused).await.map(IntoResponse::into_response);
        }
    };
    if query.dry_run {
        let Addressed { message, audience } = &composed.addressed;
        let mut conn = state.pool.acquire().await?;
        let (filter, now) = (message.filter.as_ref(), message.accepted_at);
        let sent = sending::dry_run(&mut conn, &state.vault, (server.app.id, audience), filter, now).await?;
        composed.asked.refuse_unknown(&sent)?;
        let Sent { estimate: audience_estimate, margin: audience_margin, unreachable, .. } = sent;
        let warnings = composed.asked.warnings;
        let counted = DryRun { dry_run: true, audience_estimate, audience_margin, unreachable, warnings };
        return Ok(axum::Json(counted).into_response());
    }
    accept_under(&state, &server.app, request, composed).await
}

/// Checks a message against the current state of the app.
async fn compose(
    state: &ApiState, server: &Server<MaySend>, retries: &RetryHeaders, (mut body, faults): (MessageRequest, Faults),
) -> Result<Composed, Problem> {
    let segment = body.to.segment(state, &server.app).await?;
    let mut templates = Templates::default();
    let template = templates.resolve(state, server.app.id, body.template.take()).await;
    let template = template.map_err(|refused| faults.with(refused))?;
    let mut composed =
        body.compose(state, &server.app, retries, segment, template, faults)?.sent_by(server.caller.counted_as());
    composed.try_out(&mut templates, state, server.app.id).await?;
    let Addressed { message, audience } = &composed.addressed;
    if !audience.is_named() && message.tier != Tier::Transactional {
        // A message is not refused, and does not wait, because figures cannot be read.
        let warnings = engagement::warnings(state, server.app.id).await.unwrap_or_default();
        composed.asked.warnings.extend(warnings);
    }
    Ok(composed)
}

/// Returns a message with its counts, which add up at every moment.
#[utoipa::path(get, path = "/v1/apps/{app}/messages/{message}", tag = "Messages",
    responses((status = 200, body = MessageResponse)))]
pub(crate) async fn show(
    server: Server<MayRead>, State(state): State<ApiState>, PathId(id): PathId<MessageId>,
) -> Result<axum::Json<MessageResponse>, Problem> {
    panics::point("show a message", id.0);
    view(&state, &server, id).await
}

async fn view<S>(state: &ApiState, server: &Server<S>, id: MessageId) -> Result<axum::Json<MessageResponse>, Problem> {
    let (app, now) = (&server.app, state.clock.now());
    let found = messages::account(&state.pool, app.id, id, now).await?;
    let (row, account) = found.ok_or_else(|| missing(state, id))?;
    let withdrawal = withdrawals::of(&state.pool, id).await?;
    let counts = MessageCounts::new(account, row.enveloped, row.expires_at <= now).with_withdrawal(withdrawal);
    let title = titles(&state.pool, state, server, &[id]).await?.remove(&id);
    Ok(axum::Json(MessageResponse::new(app, row, now).with_counts(title, counts)))
}

/// Pauses a message: no push starts later than a second after the response. Its time to live keeps running.
#[utoipa::path(post, path = "/v1/apps/{app}/messages/{message}/pause", tag = "Messages",
    responses((status = 200, body = MessageResponse)))]
pub(crate) async fn pause(
    server: Server<MaySteerMessages>, State(state): State<ApiState>, PathId(id): PathId<MessageId>,
) -> Result<axum::Json<MessageResponse>, Problem> {
    steer(&state, &server, id, MessageOrder::Pause).await
}

/// Resumes a paused message.
#[utoipa::path(post, path = "/v1/apps/{app}/messages/{message}/resume", tag = "Messages",
    responses((status = 200, body = MessageResponse)))]
pub(crate) async fn resume(
    server: Server<MaySteerMessages>, State(state): State<ApiState>, PathId(id): PathId<MessageId>,
) -> Result<axum::Json<MessageResponse>, Problem> {
    steer(&state, &server, id, MessageOrder::Resume).await
}

/// Cancels a message permanently: no push starts later than a second after the response.
#[utoipa::path(post, path = "/v1/apps/{app}/messages/{message}/cancel", tag = "Messages",
    responses((status = 200, body = MessageResponse)))]
pub(crate) async fn cancel(
    server: Server<MaySteerMessages>, State(state): State<ApiState>, PathId(id): PathId<MessageId>,
) -> Result<axum::Json<MessageResponse>, Problem> {
    steer(&state, &server, id, MessageOrder::Cancel).await
}

/// Returns the message that has this key now or had it last.
#[utoipa::path(get, path = "/v1/apps/{app}/messages/by-key/{key}", tag = "Messages",
    responses((status = 200, body = MessageResponse)))]
pub(crate) async fn show_by_key(
    server: Server<MayRead>, State(state): State<ApiState>, PathId(key): PathId<MessageKey>,
) -> Result<axum::Json<MessageResponse>, Problem> {
    let id = keyed(&state, &server.app, &key).await?;
    view(&state, &server, id).await
}

/// Cancels the message that has this key, for example a reminder that is no longer needed. 404 if no message has it, 409 if all
/// its deliveries have ended.
#[utoipa::path(post, path = "/v1/apps/{app}/messages/by-key/{key}/cancel", tag = "Messages",
    responses((status = 200, body = MessageResponse)))]
pub(crate) async fn cancel_by_key(
    server: Server<MaySteerMessages>, State(state): State<ApiState>, PathId(key): PathId<MessageKey>,
) -> Result<axum::Json<MessageResponse>, Problem> {
    let id = keyed(&state, &server.app, &key).await?;
    steer(&state, &server, id, MessageOrder::Cancel).await
}

async fn keyed(state: &ApiState, app: &App, MessageKey(key): &MessageKey) -> Result<MessageId, Problem> {
    messages::by_key(&state.pool, app.id, key).await?.ok_or_else(|| Problem::not_found("message with this key"))
}

async fn steer(
    state: &ApiState, server: &Server<MaySteerMessages>, id: MessageId, order: MessageOrder,
) -> Result<axum::Json<MessageResponse>, Problem> {
    let action = match order {
        MessageOrder::Pause => AuditAction::MessagePaused,
        MessageOrder::Resume => AuditAction::MessageResumed,
        MessageOrder::Cancel => AuditAction::MessageCancelled,
    };
    let (app, entry) = (&server.app, server.did(action, id));
    match steering::steer(&state.pool, app.id, id, order, &entry, state.clock.now()).await? {
        Steered::Unknown => return Err(missing(state, id)),
        Steered::Done => {
            return Err(Problem::new(ProblemCode::MessageDone, "Every delivery of this message has ended."));
        }
        Steered::Cancelled => return Err(Problem::new(ProblemCode::MessageCancelled, "This message was cancelled.")),
        Steered::Already => {}
        Steered::Now { stop, progress } => {
            (state.engine.tell)(Work::Stop(stop));
            if progress == store::ChunkProgress::More {
                tokio::spawn(go_on(state.clone(), id));
            }
        }
    }
    view(state, server, id).await
}

/// Applies a pause, resume or cancel to the remaining rows of a long queue. If this process ends first, maintenance continues.
async fn go_on(state: ApiState, id: MessageId) {
    loop {
        match steering::go_on(&state.pool, id, state.clock.now()).await {
            Ok(store::ChunkProgress::More) => {}
            Ok(store::ChunkProgress::Done) => break (state.engine.tell)(Work::Due),
            Err(error) => {
                break tracing::warn!(error = %error, message_id = %id, "a changed message was left to maintenance");
            }
        }
    }
}
