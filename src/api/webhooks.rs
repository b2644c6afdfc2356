//! `/v1/apps/{app}/webhooks`: receivers of events over HTTP. [`deliveries`] has the requests to them.

pub(crate) mod deliveries;

use std::borrow::Cow;

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use url::Url;
use utoipa::openapi::{ObjectBuilder, RefOr, Schema, Type};
use utoipa::{PartialSchema, ToSchema};
use utoipa_axum::router::OpenApiRouter;

use super::ApiState;
use super::http::auth::{MayManageKeys, MayRead, Server};
use super::http::caller::Caller;
use super::http::draft::Draft;
use super::http::extract::{Json, PathId, Query, is_plain_text, not_null, nullable};
use super::http::idempotency::{Instead, Making};
use super::http::paging::{Page, Paging};
use super::http::problem::{Faults, Problem, ProblemCode};
use super::http::routes::routes;
use super::policies::{check, terms_of};
use crate::hooks::{Secret, generate};
use bellwire_core::event_type::EventType;
use bellwire_core::hook::{WebhookDisabledReason, WebhookKinds, WebhookState};
use bellwire_core::id::{AppId, WebhookId};
use bellwire_core::scope::Scope;
use bellwire_core::subscription::Endpoint;
use bellwire_rules::policy::{DeliveryPolicy, PolicyLevel};
use bellwire_store::WriteOutcome;
use bellwire_store::connections::engine;
use bellwire_store::hooks::webhooks::{self, AddWebhookResult, WEBHOOKS_MAX, Webhook, WebhookFields};
use bellwire_store::keys::apps::App;
use bellwire_store::keys::audit::AuditAction;
use bellwire_vault::{WEBHOOK_SECRET, WEBHOOK_URL};

/// Default number of events in one request. The maximum is [`MAX_EVENTS_MAX`].
const MAX_EVENTS_DEFAULT: i32 = 100;
const MAX_EVENTS_MAX: i32 = 500;
/// Default hours for which the previous secret also signs.
const OVERLAP_DEFAULT_HOURS: i64 = 24;
const OVERLAP_MAX_HOURS: i64 = 168;

const SECRET_RULE: &str = "must be `whsec_` and base64 of 24 to 64 octets";

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(list, create))
        .routes(routes!(show, change, delete))
        .routes(routes!(rotate_secret))
        .merge(deliveries::routes())
}

/// Webhook of an app.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WebhookResponse {
    /// Id of the webhook.
    id: WebhookId,
    /// Display name of the webhook.
    name: String,
    /// URL of the receiver. Without the scope `keys` only its scheme and host, because many URLs contain secrets.
    url: String,
    /// Types of events to send.
    #[schema(value_type = Vec<WebhookEvent>)]
    events: Vec<EventType>,
    /// Maximum events in one request.
    max_events: i32,
    /// Retry policy as written. Null: the preset `sns-customer-managed`, 50 retries in over six hours.
    #[schema(value_type = Option<DeliveryPolicy>)]
    policy: Option<Value>,
    /// State: `enabled` or `disabled`.
    state: WebhookState,
    /// Reason why it is disabled. Null: enabled.
    disabled_why: Option<WebhookDisabledReason>,
    /// State of its circuit breaker: `closed`, `open` or `half_open`.
    breaker: String,
    /// Time until which nothing is sent. Null: the breaker is not open.
    open_until: Option<DateTime<Utc>>,
    /// Time of the first failure since the last success. Null if the last request succeeded or none was sent.
    failing_since: Option<DateTime<Utc>>,
    /// Requests that wait to be sent.
    pending: i64,
    /// Requests that failed permanently and can be replayed.
    failed: i64,
    /// Events dropped because too many requests waited.
    dropped_events: i64,
    /// Time until which the previous secret also signs. Null: only the current one signs.
    former_secret_until: Option<DateTime<Utc>>,
    /// Time of the creation.
    created_at: DateTime<Utc>,
    /// Creator: the id of an API key or a teammate, or `local` for the command line.
    created_by: String,
    /// Time of the last change.
    changed_at: DateTime<Utc>,
    /// Caller that last changed the webhook or its secret. Null: never changed.
    changed_by: Option<String>,
    /// Secret for verifying signatures, `whsec_…`. It is shown only now.
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<String>,
}

impl WebhookResponse {
    fn of(state: &ApiState, row: Webhook, caller: &Caller) -> Result<Self, Problem> {
        let now = state.clock.now();
        let url = open_url(state, &row)?;
        Ok(Self {
            url: if caller.may(Scope::Keys) { url } else { origin_of(&url) },
            events: row.events.iter().filter_map(|name| EventType::from_name(name)).collect(),
            id: row.id,
            name: row.name,
            max_events: row.max_events,
            policy: row.policy,
            state: row.state,
            disabled_why: row.disabled_why,
            breaker: row.breaker,
            open_until: row.open_until,
            failing_since: row.failing_since,
            pending: row.pending,
            failed: row.failed,
            dropped_events: row.dropped,
            former_secret_until: row.former_until.filter(|until| *until > now),
            created_at: row.created_at,
            created_by: row.created_by,
            changed_at: row.changed_at,
            changed_by: row.changed_by,
            secret: None,
        })
    }
}

fn open_url(state: &ApiState, row: &Webhook) -> Result<String, Problem> {
    Ok(String::from_utf8_lossy(&state.vault.open(WEBHOOK_URL, row.id, &row.url)?).into_owned())
}

fn origin_of(url: &str) -> String {
    Url::parse(url).map(|url| url.origin().ascii_serialization()).unwrap_or_default()
}

/// Webhook to create.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewWebhook {
    /// Display name, 1 to 200 characters.
    name: String,
    /// URL of the receiver: `https://`, with a public address.
    url: String,
    /// Types of events to send.
    #[schema(value_type = Vec<WebhookEvent>)]
    events: Vec<EventType>,
    /// Maximum events in one request, 1 to 500. By default 100.
    max_events: Option<i32>,
    /// Retry policy: a delivery policy in one of the three forms. Null: the default.
    #[schema(value_type = Option<DeliveryPolicy>)]
    policy: Option<Value>,
    /// Existing secret of the receiver: `whsec_` and base64 of 24 to 64 bytes. By default one is generated.
    secret: Option<String>,
}

/// Schema of the events in webhook requests.
struct WebhookEvent;

impl PartialSchema for WebhookEvent {
    fn schema() -> RefOr<Schema> {
        let names = EventType::ALL.into_iter().filter(|event| event.is_for_webhooks()).map(EventType::name);
        let schema = ObjectBuilder::new().schema_type(Type::String).enum_values(Some(names));
        schema.description(Some("Event types of webhooks. Names never change.")).into()
    }
}

impl ToSchema for WebhookEvent {
    fn name() -> Cow<'static, str> {
        "EventType".into()
    }
}

/// Changes of a webhook. Absent members stay.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct WebhookChange {
    /// Display name, 1 to 200 characters.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    name: Option<String>,
    /// URL of the receiver.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    url: Option<String>,
    /// Types of events to send.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(value_type = Vec<WebhookEvent>, required = false)]
    events: Option<Vec<EventType>>,
    /// Maximum events in one request, 1 to 500. Null: the default.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<i32>)]
    max_events: Option<Option<i32>>,
    /// Retry policy. Null: the default.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<DeliveryPolicy>)]
    policy: Option<Option<Value>>,
    /// Whether the webhook is enabled. While it is disabled, pending requests wait, and new events are not recorded for it.
    #[serde(default, deserialize_with = "not_null")]
    #[schema(nullable = false)]
    enabled: Option<bool>,
}

/// Options of a new secret.
#[derive(Debug, Default, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct SecretRotation {
    /// Hours for which the previous secret also signs, 0 to 168. By default 24.
    overlap_hours: Option<i64>,
}

/// Settings of a webhook to check.
struct WebhookSpec<'a> {
    name: &'a str,
    url: &'a str,
    events: &'a [EventType],
    max_events: i32,
    policy: Option<&'a Value>,
    caller: &'a Caller,
}

impl WebhookSpec<'_> {
    fn check(&self, state: &ApiState, app: &App, mut faults: Faults) -> Result<(), Problem> {
        faults.require(
            is_plain_text(self.name, 200),
            "/name",
            "must be 1 to 200 characters without control characters",
        );
        match Endpoint::parse(self.url) {
            Err(error) => faults.refuse("/url", error.to_string()),
            Ok(endpoint) => {
                if let Err(refused) = state.gateways.recognise(&endpoint) {
                    faults.refuse("/url", refused.to_string());
                }
            }
        }
        let tells = |event: &EventType| event.is_for_webhooks() && *event != EventType::WebhookTest;
        faults.require(
            !self.events.is_empty() && self.events.len() <= EventType::ALL.len() && self.events.iter().all(tells),
            "/events",
            "must name at least one event type for webhooks, except `webhook.test`, which every webhook receives",
        );
        let about_subscriptions = self.events.iter().any(|event| event.is_about_subscription());
        faults.require(
            !(about_subscriptions && engine::is_distributed()),
            "/events",
            "cannot name `subscription.created`, `subscription.changed` or `subscription.ended` on a distributed database",
        );
        faults.require(
            (1..=MAX_EVENTS_MAX).contains(&self.max_events),
            "/max_events",
            &format!("must be 1 to {MAX_EVENTS_MAX}"),
        );
        if let Some(policy) = self.policy {
            let parsed = check(policy, &terms_of(app, PolicyLevel::Message), "/policy", &mut faults);
            let throttles = parsed.is_some_and(|parsed| parsed.layer.throttle.is_some());
            faults.require(!throttles, "/policy/throttlePolicy", "is not supported for webhooks");
        }
        faults.finish()?;
        // Also without a change of its events: a new URL would receive them.
        match self.events.iter().any(|event| event.is_about_server()) {
            true => self.caller.require_for_server(Scope::Keys),
            false => Ok(()),
        }
    }

    fn said(&self, state: &ApiState, id: WebhookId, disabled_why: Option<WebhookDisabledReason>) -> WebhookFields {
        let mut events = self.events.to_vec();
        events.sort_unstable();
        events.dedup();
        WebhookFields {
            name: self.name.to_owned(),
            url: state.vault.seal(WEBHOOK_URL, id, self.url.as_bytes()),
            heard: WebhookKinds::of(&events),
            events: events.iter().map(|event| event.name().to_owned()).collect(),
            max_events: self.max_events,
            policy: self.policy.cloned(),
            disabled_why,
            by: self.caller.actor().who.name(),
        }
    }
}

/// Lists an app's webhooks.
#[utoipa::path(get, path = "/v1/apps/{app}/webhooks", tag = "Webhooks", responses((status = 200, body = Page<WebhookResponse>)))]
pub(crate) async fn list(
    server: Server<MayRead>, State(state): State<ApiState>, uri: Uri, Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let cut = paging.cut()?;
    let rows = webhooks::list(&state.pool, server.app.id, None).await?;
    let views =
        rows.into_iter().map(|row| WebhookResponse::of(&state, row, &server.caller)).collect::<Result<_, _>>()?;
    Ok(cut.page_of_all(views, |view: &WebhookResponse| view.id, |view| view).answer(&uri))
}

/// Returns a webhook.
#[utoipa::path(get, path = "/v1/apps/{app}/webhooks/{webhook}", tag = "Webhooks",
    responses((status = 200, body = WebhookResponse)))]
pub(crate) async fn show(
    server: Server<MayRead>, State(state): State<ApiState>, PathId(id): PathId<WebhookId>,
) -> Result<axum::Json<WebhookResponse>, Problem> {
    view(&state, server.app.id, id, &server.caller).await.map(axum::Json)
}

async fn find(state: &ApiState, app: AppId, id: WebhookId) -> Result<Webhook, Problem> {
    webhooks::find(&state.pool, app, id).await?.ok_or_else(|| Problem::not_found("webhook"))
}

async fn view(state: &ApiState, app: AppId, id: WebhookId, caller: &Caller) -> Result<WebhookResponse, Problem> {
    WebhookResponse::of(state, find(state, app, id).await?, caller)
}

/// Creates a webhook. It gets events from now on; events of deliveries already in progress start within a minute. The secret is
/// shown only in this response.
#[utoipa::path(post, path = "/v1/apps/{app}/webhooks", tag = "Webhooks", request_body = NewWebhook,
    responses((status = 201, body = WebhookResponse)))]
pub(crate) async fn create(
    server: Server<MayManageKeys>, State(state): State<ApiState>, Making(body, mut faults, pending): Making<NewWebhook>,
) -> Result<Response, Instead> {
    let wanted = WebhookSpec {
        name: &body.name,
        url: &body.url,
        events: &body.events,
        max_events: body.max_events.unwrap_or(MAX_EVENTS_DEFAULT),
        policy: body.policy.as_ref().filter(|policy| !policy.is_null()),
        caller: &server.caller,
    };
    let secret = body.secret.as_deref().map_or_else(|| Some(generate()), Secret::read);
    faults.require(secret.is_some(), "/secret", SECRET_RULE);
    wanted.check(&state, &server.app, faults)?;
    let secret = secret.expect("an unreadable secret was refused");
    let (id, now) = (WebhookId(state.clock.uuid()), state.clock.now());
    let sealed = state.vault.seal(WEBHOOK_SECRET, id, secret.expose());
    let mut once = pending.begin(&state).await?;
    let said = wanted.said(&state, id, None);
    if webhooks::add(once.conn(), server.app.id, id, &said, &sealed, now).await? == AddWebhookResult::TooMany {
        let detail = format!("An app may have at most {WEBHOOKS_MAX} webhooks. Delete one that is no longer in use.");
        return Err(Problem::new(ProblemCode::TooManyWebhooks, detail).into());
    }
    let detail = json!({"name": said.name, "events": said.events});
    server.did(AuditAction::WebhookCreated, id).with(detail).record(once.conn(), 1, now).await?;
    let made = webhooks::find(once.conn(), server.app.id, id).await?.ok_or_else(Problem::internal)?;
    let shown = WebhookResponse {
        secret: Some(secret.write().to_string()),
        ..WebhookResponse::of(&state, made, &server.caller)?
    };
    once.finish(&state, StatusCode::CREATED, &shown).await
}

/// Changes the given members of a webhook. When it is enabled again, it gets events from then on.
#[utoipa::path(patch, path = "/v1/apps/{app}/webhooks/{webhook}", tag = "Webhooks", request_body = WebhookChange,
    responses((status = 200, body = WebhookResponse)))]
pub(crate) async fn change(
    server: Server<MayManageKeys>, State(state): State<ApiState>, PathId(id): PathId<WebhookId>,
    Draft(body, faults, _): Draft<WebhookChange>,
) -> Result<axum::Json<WebhookResponse>, Problem> {
    let before = find(&state, server.app.id, id).await?;
    let url = open_url(&state, &before)?;
    let events: Vec<EventType> = before.events.iter().filter_map(|name| EventType::from_name(name)).collect();
    let wanted = WebhookSpec {
        name: body.name.as_deref().unwrap_or(&before.name),
        url: body.url.as_deref().unwrap_or(&url),
        events: body.events.as_deref().unwrap_or(&events),
        max_events: body.max_events.map_or(before.max_events, |max| max.unwrap_or(MAX_EVENTS_DEFAULT)),
        policy: match &body.policy {
            None => before.policy.as_ref(),
            Some(policy) => policy.as_ref(),
        },
        caller: &server.caller,
    };
    wanted.check(&state, &server.app, faults)?;
    let disabled_why = match body.enabled {
        None => before.disabled_why,
        Some(true) => None,
        Some(false) => Some(before.disabled_why.unwrap_or(WebhookDisabledReason::Asked)),
    };
    let (said, now) = (wanted.said(&state, id, disabled_why), state.clock.now());
    let mut tx = state.begin().await?;
    if webhooks::change(&mut tx, server.app.id, id, &said, now).await? == WriteOutcome::Unknown {
        return Err(Problem::not_found("webhook"));
    }
    let detail = json!({"name": said.name, "events": said.events, "enabled": said.disabled_why.is_none()});
    server.did(AuditAction::WebhookChanged, id).with(detail).record(&mut tx, 1, now).await?;
    tx.commit().await?;
    view(&state, server.app.id, id, &server.caller).await.map(axum::Json)
}

/// Deletes a webhook and its pending requests.
#[utoipa::path(delete, path = "/v1/apps/{app}/webhooks/{webhook}", tag = "Webhooks", responses((status = 204)))]
pub(crate) async fn delete(
    server: Server<MayManageKeys>, State(state): State<ApiState>, PathId(id): PathId<WebhookId>,
) -> Result<StatusCode, Problem> {
    let mut tx = state.begin().await?;
    if webhooks::remove(&mut tx, server.app.id, id).await? == WriteOutcome::Unknown {
        return Err(Problem::not_found("webhook"));
    }
    server.did(AuditAction::WebhookRemoved, id).record(&mut tx, 1, state.clock.now()).await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Generates a new secret, which is shown only now. The previous secret also signs for a while, so that receivers can switch
/// without refusing requests.
#[utoipa::path(post, path = "/v1/apps/{app}/webhooks/{webhook}/rotate-secret", tag = "Webhooks",
    responses((status = 200, body = WebhookResponse)))]
pub(crate) async fn rotate_secret(
    server: Server<MayManageKeys>, State(state): State<ApiState>, PathId(id): PathId<WebhookId>,
    Json(body, _): Json<SecretRotation>,
) -> Result<axum::Json<WebhookResponse>, Problem> {
    let hours = body.overlap_hours.unwrap_or(OVERLAP_DEFAULT_HOURS);
    if !(0..=OVERLAP_MAX_HOURS).contains(&hours) {
        return Err(Problem::invalid_member("/overlap_hours", format!("must be 0 to {OVERLAP_MAX_HOURS}")));
    }
    let (secret, now) = (generate(), state.clock.now());
    let sealed = state.vault.seal(WEBHOOK_SECRET, id, secret.expose());
    let mut tx = state.begin().await?;
    let until = now + TimeDelta::hours(hours);
    let by = server.caller.actor().who.name();
    if webhooks::rotate(&mut tx, server.app.id, id, &sealed, until, &by, now).await? == WriteOutcome::Unknown {
        return Err(Problem::not_found("webhook"));
    }
    server
        .did(AuditAction::WebhookSecretRotated, id)
        .with(json!({"overlap_hours": hours}))
        .record(&mut tx, 1, now)
        .await?;
    tx.commit().await?;
    let view = view(&state, server.app.id, id, &server.caller).await?;
    Ok(axum::Json(WebhookResponse { secret: Some(secret.write().to_string()), ..view }))
}
