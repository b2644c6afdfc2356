//! `/v1/apps/{app}/messages`: sending, and steering what is being sent. Checks of a new message are in
//! [`super::compose`].

use axum::extract::State;
use axum::http::HeaderMap;
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::accept::accept_under;
use super::accepted::{Accepted, Links, SendState};
use super::auth::{MayRead, MaySend, MaySteerMessages, Server};
use super::compose::{Composed, MessageKey, MessageRequest};
use super::counts::MessageCounts;
use super::engagement;
use super::extract::{Json, PathId, Query};
use super::idempotency::{first_response, idempotency_key};
use super::message_list::MessageProgress;
use super::problem::{FieldError, Problem, ProblemCode};
use super::retry_headers::RetryHeaders;
use super::routes::routes;
use super::sunset::SunsetBody;
use super::templated::Templates;
use super::{ApiState, Work};
use bellwire_core::clock::{Timestamp, first_uuid_of};
use bellwire_core::delivery::{Tier, Urgency};
use bellwire_core::id::{ApiKeyId, CampaignId, MessageId, TeammateId};
use bellwire_rules::policy::DeliveryPolicy;
use bellwire_store as store;
use bellwire_store::keys::apps::App;
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::outcomes::receipts::kept_since;
use bellwire_store::queue::messages::{self, MessageRow};
use bellwire_store::queue::sending::{self, Addressed, Sent};
use bellwire_store::queue::steering::{self, MessageOrder, Steered};
use bellwire_telemetry::panics;
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(super::message_list::list, send))
        .routes(routes!(show))
        .routes(routes!(pause))
        .routes(routes!(resume))
        .routes(routes!(cancel))
        .routes(routes!(show_by_key))
        .routes(routes!(cancel_by_key))
}

/// Result of a dry run.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct DryRun {
    /// Always `true`, for a dry run.
    dry_run: bool,
    /// Deliveries to make, as counted now; of a segment, as estimated from a sample.
    audience_estimate: i64,
    /// Margin of the estimate, in 95 of 100 cases. 0 if counted.
    audience_margin: i64,
    /// Named subscriptions that are not active, or users without an active one.
    unreachable: i64,
    /// Warnings: about the policy, or about broadcasts that recipients do not welcome.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<FieldError>,
}

/// Options of a send.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SendQuery {
    /// Check and count only.
    #[serde(default)]
    dry_run: bool,
}

/// A message, without its content.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MessageResponse {
    /// Id of the message.
    id: MessageId,
    /// State of the message.
    state: SendState,
    /// Tier of the message.
    tier: Tier,
    /// `to`, as it was given. The ids of users are null once every delivery has ended, and those of erased users at once.
    #[schema(value_type = Object)]
    to: Value,
    /// Expression of its segment at the acceptance, which narrows these recipients.
    #[serde(skip_serializing_if = "Option::is_none")]
    segment: Option<String>,
    /// Sunset rule, which leaves out recipients who do not click.
    #[serde(skip_serializing_if = "Option::is_none")]
    sunset: Option<SunsetBody>,
    /// Time to live, in seconds.
    ttl: i32,
    /// Urgency for push services.
    urgency: Urgency,
    /// Value of the `Topic` header: a hash of the collapse key.
    topic_header: Option<String>,
    /// Delivery policy of the message, including the retry headers of its request.
    #[schema(value_type = Option<DeliveryPolicy>)]
    policy: Option<Value>,
    /// The message that it sends again to those whose deliveries of it died.
    replay_of: Option<MessageId>,
    /// The campaign that made it; the campaign may have been deleted since.
    campaign: Option<CampaignId>,
    /// Whether its content was deleted, since every delivery has ended and no open dead letter needs it.
    content_deleted: bool,
    /// Your own name for it; null if a later message has taken that over.
    key: Option<String>,
    /// Time of `send_at`, else of the acceptance. The time to live begins then.
    accepted_at: DateTime<Utc>,
    /// Time at which its request was accepted, also with `send_at`.
    received_at: DateTime<Utc>,
    /// End of its time to live.
    expires_at: DateTime<Utc>,
    /// Whether every recipient has been found.
    expanded: bool,
    /// Deliveries to make, as counted when it was accepted; of a segment, as estimated from a sample.
    audience_estimate: i64,
    /// Sender: the id of an API key or a teammate. Null: a campaign, the example page or a diagnosis.
    sent_by: Option<String>,
    /// Counts of its deliveries. Not in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    counts: Option<MessageCounts>,
    /// Progress of its deliveries. Only in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    progress: Option<MessageProgress>,
    /// Links to related resources.
    links: Links,
}

impl MessageResponse {
    /// Shows a row, without its account.
    pub(super) fn new(app: &App, row: MessageRow, now: Timestamp) -> Self {
        let sent_by = row.sent_by.map(|id| match row.sent_by_key {
            true => ApiKeyId(id).to_string(),
            false => TeammateId(id).to_string(),
        });
        let sunset = row.filter.as_ref().and_then(|filter| filter.0.sunset.as_ref()).map(SunsetBody::from);
        Self {
            id: row.id,
            state: SendState::of(&row, now),
            tier: Tier::from_code(row.tier).unwrap_or(Tier::Promotional),
            to: row.audience,
            segment: row.filter.and_then(|filter| filter.0.segment).map(|segment| segment.to_string()),
            sunset,
            ttl: row.ttl_s,
            urgency: Urgency::from_code(row.urgency).unwrap_or(Urgency::Normal),
            topic_header: row.topic_header,
            policy: row.policy,
            replay_of: row.replay_of,
            campaign: row.campaign,
            content_deleted: row.content_deleted,
            key: row.key,
            accepted_at: row.accepted_at,
            received_at: row.received_at.unwrap_or(row.accepted_at),
            expires_at: row.expires_at,
            expanded: !row.expanding,
            audience_estimate: row.audience_estimate,
            sent_by,
            counts: None,
            progress: None,
            links: Links::new(app, row.id),
        }
    }

    /// The same in a list.
    pub(super) fn with_progress(self, progress: MessageProgress) -> Self {
        Self { progress: Some(progress), ..self }
    }
}

const SEND_ROUTE: &str = "POST /v1/apps/{app}/messages";

/// Sends a message. With an `Idempotency-Key`, the same request made again is answered as it was the first time.
#[utoipa::path(post, path = "/v1/apps/{app}/messages", tag = "Messages",
    params(("Bellwire-Retries" = Option<u32>, Header, description = "Beats the policy's `retries`; also `Upstash-Retries`"),
        ("Bellwire-Retry-Delay" = Option<String>, Header,
            description = "Beats the policy's `retryDelay`; also `Upstash-Retry-Delay`")),
    responses((status = 202, body = Accepted), (status = 200, body = DryRun, description = "With `dry_run=true`")))]
pub(crate) async fn send(
    server: Server<MaySend>,
    State(state): State<ApiState>,
    Query(query): Query<SendQuery>,
    headers: HeaderMap,
    Json(body, octets): Json<MessageRequest>,
) -> Result<Response, Problem> {
    let retries = RetryHeaders::read(&headers)?;
    let digest = retries.digest(&octets);
    let keyed = |key| server.keyed_request(&state.vault, SEND_ROUTE, key, &[digest.as_ref()]);
    let request = idempotency_key(&headers)?.filter(|_| !query.dry_run).map(keyed);
    let mut composed = match compose(&state, &server, &retries, body).await {
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

/// Checks a message against the present state of the app.
async fn compose(
    state: &ApiState,
    server: &Server<MaySend>,
    retries: &RetryHeaders,
    mut body: MessageRequest,
) -> Result<Composed, Problem> {
    let segment = body.to.segment(state, &server.app).await?;
    let mut templates = Templates::default();
    let template = templates.resolve(state, server.app.id, body.template.take()).await?;
    let mut composed =
        body.compose(state, &server.app, retries, segment, template)?.sent_by(server.caller.counted_as());
    templates.try_out(state, server.app.id, &mut composed).await?;
    let Addressed { message, audience } = &composed.addressed;
    if !audience.is_named() && message.tier != Tier::Transactional {
        // A message is not refused, and does not wait, because figures cannot be read.
        let warnings = engagement::warnings(state, server.app.id).await.unwrap_or_default();
        composed.asked.warnings.extend(warnings);
    }
    Ok(composed)
}

/// Shows a message and its account, which adds up at every moment.
#[utoipa::path(get, path = "/v1/apps/{app}/messages/{message}", tag = "Messages",
    responses((status = 200, body = MessageResponse)))]
pub(crate) async fn show(
    server: Server<MayRead>,
    State(state): State<ApiState>,
    PathId(id): PathId<MessageId>,
) -> Result<axum::Json<MessageResponse>, Problem> {
    panics::point("show a message", id.0);
    view(&state, &server.app, id).await
}

async fn view(state: &ApiState, app: &App, id: MessageId) -> Result<axum::Json<MessageResponse>, Problem> {
    let now = state.clock.now();
    let found = messages::account(&state.pool, app.id, id, now).await?;
    let (row, account) = found.ok_or_else(|| missing(state, id))?;
    let counts = MessageCounts::new(account, row.enveloped, row.expires_at <= now);
    Ok(axum::Json(MessageResponse { counts: Some(counts), ..MessageResponse::new(app, row, now) }))
}

/// 404: there is no such message, or no more.
pub(super) fn missing(state: &ApiState, id: MessageId) -> Problem {
    let days = state.settings.receipts.retention_days;
    let mut problem = Problem::not_found("message");
    if id.0 < first_uuid_of(kept_since(state.clock.now(), days)) {
        problem.detail =
            format!("There is no such message. Messages are kept for {days} days; one of that id would be older.");
    }
    problem
}

/// Pauses a message: no push of it starts later than a second after the answer. Its time to live keeps running.
#[utoipa::path(post, path = "/v1/apps/{app}/messages/{message}/pause", tag = "Messages",
    responses((status = 200, body = MessageResponse)))]
pub(crate) async fn pause(
    server: Server<MaySteerMessages>,
    State(state): State<ApiState>,
    PathId(id): PathId<MessageId>,
) -> Result<axum::Json<MessageResponse>, Problem> {
    steer(&state, &server, id, MessageOrder::Pause).await
}

/// Resumes a paused message.
#[utoipa::path(post, path = "/v1/apps/{app}/messages/{message}/resume", tag = "Messages",
    responses((status = 200, body = MessageResponse)))]
pub(crate) async fn resume(
    server: Server<MaySteerMessages>,
    State(state): State<ApiState>,
    PathId(id): PathId<MessageId>,
) -> Result<axum::Json<MessageResponse>, Problem> {
    steer(&state, &server, id, MessageOrder::Resume).await
}

/// Cancels a message for good: no push of it starts later than a second after the answer.
#[utoipa::path(post, path = "/v1/apps/{app}/messages/{message}/cancel", tag = "Messages",
    responses((status = 200, body = MessageResponse)))]
pub(crate) async fn cancel(
    server: Server<MaySteerMessages>,
    State(state): State<ApiState>,
    PathId(id): PathId<MessageId>,
) -> Result<axum::Json<MessageResponse>, Problem> {
    steer(&state, &server, id, MessageOrder::Cancel).await
}

/// Shows the message that has this key, or had it last.
#[utoipa::path(get, path = "/v1/apps/{app}/messages/by-key/{key}", tag = "Messages",
    responses((status = 200, body = MessageResponse)))]
pub(crate) async fn show_by_key(
    server: Server<MayRead>,
    State(state): State<ApiState>,
    PathId(key): PathId<MessageKey>,
) -> Result<axum::Json<MessageResponse>, Problem> {
    let id = keyed(&state, &server.app, &key).await?;
    view(&state, &server.app, id).await
}

/// Cancels the message that has this key: "forget the reminder". 404 if there is none, 409 if all its deliveries have ended.
#[utoipa::path(post, path = "/v1/apps/{app}/messages/by-key/{key}/cancel", tag = "Messages",
    responses((status = 200, body = MessageResponse)))]
pub(crate) async fn cancel_by_key(
    server: Server<MaySteerMessages>,
    State(state): State<ApiState>,
    PathId(key): PathId<MessageKey>,
) -> Result<axum::Json<MessageResponse>, Problem> {
    let id = keyed(&state, &server.app, &key).await?;
    steer(&state, &server, id, MessageOrder::Cancel).await
}

async fn keyed(state: &ApiState, app: &App, MessageKey(key): &MessageKey) -> Result<MessageId, Problem> {
    messages::by_key(&state.pool, app.id, key).await?.ok_or_else(|| Problem::not_found("message with this key"))
}

async fn steer(
    state: &ApiState,
    server: &Server<MaySteerMessages>,
    id: MessageId,
    order: MessageOrder,
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
    view(state, app, id).await
}

/// Carries a turn through the rest of a long queue. If this process ends first, maintenance takes over.
async fn go_on(state: ApiState, id: MessageId) {
    loop {
        match steering::go_on(&state.pool, id, state.clock.now()).await {
            Ok(store::ChunkProgress::More) => {}
            Ok(store::ChunkProgress::Done) => break (state.engine.tell)(Work::Due),
            Err(error) => {
                break tracing::warn!(error = %error, message_id = %id, "left a turned message to maintenance");
            }
        }
    }
}
