//! `/v1/apps/{app}/policies`: delivery policies of tiers, topics and subscriptions. A message contains its own.
//! [`crate::api::policies::preview`] shows the combined policy.

pub(crate) mod preview;
pub(crate) mod simulation;

use axum::Json as Answer;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::ApiState;
use super::http::auth::{MayRead, MaySetPolicies, Server};
use super::http::caller::Caller;
use super::http::extract::{Json, PathId, Query, TopicName};
use super::http::paging::{Page, Paging};
use super::http::problem::{Faults, FieldError, Problem};
use super::http::routes::routes;
use crate::api::subscriptions::response::{current, unknown};
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::id::SubscriptionId;
use bellwire_core::permission::Speaker;
use bellwire_core::scope::Scope;
use bellwire_rules::policy::{
    DEPRECATED, DeliveryPolicy, Guide, Layer, Parsed, Places, Policy, PolicyError, PolicyLevel, Preset, Terms,
};
use bellwire_store::WriteOutcome;
use bellwire_store::audience::subscriptions::Right;
use bellwire_store::keys::apps::App;
use bellwire_store::keys::audit::{Actor, AuditAction, AuditEntry};
use bellwire_store::keyset::key_of;
use bellwire_store::{audience::aliases, audience::topics, queue::policies, queue::throttles};
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(list_topics))
        .routes(routes!(show_tier, set_tier, delete_tier))
        .routes(routes!(show_topic, set_topic, delete_topic))
        .routes(routes!(show_subscription, set_subscription, delete_subscription))
}

/// Policy set at one level: a tier, topic or subscription.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PolicyResponse {
    /// Level of the policy.
    level: PolicyLevel,
    /// Name of the tier or topic, or id of the subscription.
    name: String,
    /// The policy as written. Null: none is set.
    #[schema(value_type = Option<DeliveryPolicy>)]
    policy: Option<Value>,
    /// For a tier: the combined policy of messages without one of their own, including the server's settings.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<DeliveryPolicy>)]
    in_force: Option<Value>,
    /// For a subscription: its waiting deliveries.
    #[serde(skip_serializing_if = "Option::is_none")]
    backlog: Option<SubscriptionBacklog>,
    /// Warnings about the policy.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<FieldError>,
}

/// Waiting deliveries of one subscription: retries, and deliveries above its `maxReceivesPerSecond`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SubscriptionBacklog {
    /// Number of waiting deliveries.
    waiting: i64,
    /// Deliveries that wait because of `maxReceivesPerSecond`.
    throttled: i64,
    /// Seconds since the oldest waiting delivery was due. Null: no delivery is late.
    oldest_s: Option<f64>,
}

/// All policies of an app.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PolicyOverview {
    /// Maximum `retries` of a policy in QStash's form, and the default if a policy has none. It is a setting of the app.
    max_retries: i16,
    /// Policies of all tiers.
    tiers: Vec<PolicyResponse>,
    /// Allowed values of `preset` in a policy.
    presets: Vec<&'static str>,
}

pub(super) fn terms_of(app: &App, place: PolicyLevel) -> Terms {
    Terms { place, max_retries: app.max_retries.unsigned_abs().into() }
}

impl PolicyResponse {
    /// Returns the stored policy of a level, with its current faults.
    fn stored(app: &App, place: PolicyLevel, name: impl Into<String>, policy: Option<Value>) -> (Self, Option<Layer>) {
        let (layer, warnings) = restore(app, place, policy.as_ref());
        (Self { level: place, name: name.into(), policy, in_force: None, backlog: None, warnings }, layer)
    }

    fn of_tier(state: &ApiState, app: &App, tier: Tier, policy: Option<Value>) -> Self {
        let (view, layer) = Self::stored(app, PolicyLevel::Tier, tier.name(), policy);
        let places = Places { tier: layer.as_ref(), server: state.settings.policy, ..Places::default() };
        Self { in_force: Some(written(&Policy::in_force(tier, &places))), ..view }
    }
}

/// Serialises a combined policy, including the settings of breaker and retry tokens.
pub(super) fn written(policy: &Policy) -> Value {
    let mut json = policy.to_json();
    if let (Value::Object(members), Value::Object(figures)) = (&mut json, policy.settings.to_json()) {
        members.extend(figures);
    }
    json
}

/// Parses a stored policy, with warnings about it. `None`: it cannot be parsed.
pub(super) fn restore(app: &App, place: PolicyLevel, policy: Option<&Value>) -> (Option<Layer>, Vec<FieldError>) {
    match policy.map(|policy| Layer::restore(policy, &terms_of(app, place))) {
        None => (None, Vec::new()),
        Some(Ok(Parsed { layer, warnings })) => (Some(layer), warnings.into_iter().map(|w| w.under("")).collect()),
        Some(Err(errors)) => {
            let about = format!("the {}'s policy is no longer readable and is skipped: {}", place.name(), errors[0]);
            (None, vec![FieldError { pointer: None, parameter: None, header: None, detail: about }])
        }
    }
}

/// Converts a fault of a policy to a fault of the body that contains the policy at `pointer`.
pub(super) trait PolicyFault {
    fn under(self, pointer: &str) -> FieldError;
}

impl PolicyFault for PolicyError {
    fn under(self, pointer: &str) -> FieldError {
        FieldError::member(format!("{pointer}{}", self.pointer), self.detail)
    }
}

/// Checks a policy at `pointer` of a body.
pub(super) fn check(policy: &Value, terms: &Terms, pointer: &str, faults: &mut Faults) -> Option<Parsed> {
    match Layer::parse(policy, terms) {
        Ok(parsed) => Some(parsed),
        Err(errors) => {
            for error in errors {
                let FieldError { pointer, detail, .. } = error.under(pointer);
                faults.refuse(pointer.unwrap_or_default(), detail);
            }
            None
        }
    }
}

/// Returns the stored form of an accepted policy: all members except empty ones.
pub(super) fn kept(mut policy: Value) -> Value {
    if let Value::Object(members) = &mut policy {
        members.retain(|name, _| !DEPRECATED.contains(&name.as_str()));
    }
    policy
}

/// Checks a policy that is a whole body. Returns the stored form, and warnings.
fn accept(app: &App, place: PolicyLevel, policy: Value) -> Result<(Value, Vec<FieldError>), Problem> {
    let mut faults = Faults::default();
    let parsed = check(&policy, &terms_of(app, place), "", &mut faults);
    faults.finish()?;
    let warnings = parsed.map(|parsed| parsed.warnings).unwrap_or_default();
    Ok((kept(policy), warnings.into_iter().map(|warning| warning.under("")).collect()))
}

/// Returns the policies of all tiers, with the combined policy of each.
#[utoipa::path(get, path = "/v1/apps/{app}/policies", tag = "Policies", responses((status = 200, body = PolicyOverview)))]
pub(crate) async fn list(
    Server { app, .. }: Server<MayRead>, State(state): State<ApiState>,
) -> Result<Answer<PolicyOverview>, Problem> {
    let tiers = policies::tiers(&state.pool, app.id).await?;
    let tiers = Tier::ALL.into_iter().zip(tiers);
    Ok(Answer(PolicyOverview {
        max_retries: app.max_retries,
        tiers: tiers.map(|(tier, policy)| PolicyResponse::of_tier(&state, &app, tier, policy)).collect(),
        presets: [&Preset::ALL.map(Preset::name)[..], &[Guide::PRESET]].concat(),
    }))
}

/// Lists the policies of topics, the newest topic first.
#[utoipa::path(get, path = "/v1/apps/{app}/policies/topics", tag = "Policies",
    responses((status = 200, body = Page<PolicyResponse>)))]
pub(crate) async fn list_topics(
    Server { app, .. }: Server<MayRead>, State(state): State<ApiState>, uri: Uri, Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let cut = paging.cut()?;
    let rows = policies::topics(&state.pool, app.id, cut.ask()).await?;
    let topic =
        |row: policies::TopicPolicy| PolicyResponse::stored(&app, PolicyLevel::Topic, row.name, Some(row.policy)).0;
    Ok(cut.page(rows, |row| key_of(row.id), topic).answer(&uri))
}

/// Returns an app's policy of a tier, and the combined policy.
#[utoipa::path(get, path = "/v1/apps/{app}/policies/tiers/{tier}", tag = "Policies",
    responses((status = 200, body = PolicyResponse)))]
pub(crate) async fn show_tier(
    Server { app, .. }: Server<MayRead>, State(state): State<ApiState>, PathId(tier): PathId<Tier>,
) -> Result<Answer<PolicyResponse>, Problem> {
    let policy = policies::tier(&state.pool, app.id, tier).await?;
    Ok(Answer(PolicyResponse::of_tier(&state, &app, tier, policy)))
}

/// Sets an app's policy for a tier. It applies to all sends and retries within a minute.
#[utoipa::path(put, path = "/v1/apps/{app}/policies/tiers/{tier}", tag = "Policies",
    request_body = DeliveryPolicy,
    responses((status = 200, body = PolicyResponse)))]
pub(crate) async fn set_tier(
    server: Server<MaySetPolicies>, State(state): State<ApiState>, PathId(tier): PathId<Tier>,
    Json(policy, _): Json<Value>,
) -> Result<Answer<PolicyResponse>, Problem> {
    let (policy, warnings) = accept(&server.app, PolicyLevel::Tier, policy)?;
    write_tier(&state, &server, tier, Some(&policy)).await?;
    Ok(Answer(PolicyResponse { warnings, ..PolicyResponse::of_tier(&state, &server.app, tier, Some(policy)) }))
}

/// Deletes an app's policy of a tier. The built-in default then applies.
#[utoipa::path(delete, path = "/v1/apps/{app}/policies/tiers/{tier}", tag = "Policies", responses((status = 204)))]
pub(crate) async fn delete_tier(
    server: Server<MaySetPolicies>, State(state): State<ApiState>, PathId(tier): PathId<Tier>,
) -> Result<StatusCode, Problem> {
    write_tier(&state, &server, tier, None).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn entry(server: &Server<MaySetPolicies>, place: PolicyLevel, name: &str, policy: Option<&Value>) -> AuditEntry {
    let action = if policy.is_some() { AuditAction::PolicySet } else { AuditAction::PolicyRemoved };
    server.did(action, format!("{}:{name}", place.name()))
}

/// Policy to store with a new subscription or topic, and the actor that sets it.
type InitialPolicy = Option<(Value, Actor)>;

/// Checks the policy at `/policy` of a body that creates a subscription or topic. The caller needs the scope `policies`, as for
/// changing a policy. Returns the policy to store, its actor, and warnings.
pub(super) fn of_new(
    place: PolicyLevel, policy: Option<Value>, app: &App, caller: Option<&Caller>, faults: &mut Faults,
) -> Result<(InitialPolicy, Vec<FieldError>), Problem> {
    let Some(policy) = policy else { return Ok((None, Vec::new())) };
    let caller = caller.filter(|caller| caller.may(Scope::Policies)).ok_or_else(|| {
        Problem::forbidden(format!("A {}'s policy is set with an API key that has the scope `policies`.", place.name()))
    })?;
    let parsed = check(&policy, &terms_of(app, place), "/policy", faults);
    let warnings =
        parsed.into_iter().flat_map(|parsed| parsed.warnings).map(|warning| warning.under("/policy")).collect();
    Ok((Some((kept(policy), caller.actor())), warnings))
}

async fn write_tier(
    state: &ApiState, server: &Server<MaySetPolicies>, tier: Tier, policy: Option<&Value>,
) -> Result<(), Problem> {
    let now = state.clock.now();
    let mut tx = state.begin().await?;
    policies::set_tier(&mut *tx, server.app.id, tier, policy, now).await?;
    entry(server, PolicyLevel::Tier, tier.name(), policy).record(&mut tx, 1, now).await?;
    Ok(tx.commit().await?)
}

/// Returns a topic's policy.
#[utoipa::path(get, path = "/v1/apps/{app}/policies/topics/{topic}", tag = "Policies",
    responses((status = 200, body = PolicyResponse)))]
pub(crate) async fn show_topic(
    Server { app, .. }: Server<MayRead>, State(state): State<ApiState>, PathId(topic): PathId<TopicName>,
) -> Result<Answer<PolicyResponse>, Problem> {
    let found = policies::topic(&state.pool, app.id, &topic.0).await?;
    let own = found.ok_or_else(|| Problem::not_found("topic"))?;
    Ok(Answer(PolicyResponse::stored(&app, PolicyLevel::Topic, topic.0, own.policy).0))
}

/// Sets the policy of messages to a topic. Creates the topic if it does not exist.
#[utoipa::path(put, path = "/v1/apps/{app}/policies/topics/{topic}", tag = "Policies",
    request_body = DeliveryPolicy,
    responses((status = 200, body = PolicyResponse)))]
pub(crate) async fn set_topic(
    server: Server<MaySetPolicies>, State(state): State<ApiState>, PathId(TopicName(topic)): PathId<TopicName>,
    Json(policy, _): Json<Value>,
) -> Result<Answer<PolicyResponse>, Problem> {
    let (policy, warnings) = accept(&server.app, PolicyLevel::Topic, policy)?;
    let (app, now) = (server.app.id, state.clock.now());
    let mut tx = state.begin().await?;
    let (_, missing) = topics::ensure(&mut tx, app, std::slice::from_ref(&topic), &Speaker::Server, now).await?;
    if !missing.is_empty() {
        return Err(Problem::too_many_topics());
    }
    policies::set_topic(&mut tx, app, &topic, Some(&policy)).await?;
    entry(&server, PolicyLevel::Topic, &topic, Some(&policy)).record(&mut tx, 1, now).await?;
    tx.commit().await?;
    Ok(Answer(PolicyResponse {
        level: PolicyLevel::Topic,
        name: topic,
        policy: Some(policy),
        in_force: None,
        backlog: None,
        warnings,
    }))
}

/// Deletes a topic's policy.
#[utoipa::path(delete, path = "/v1/apps/{app}/policies/topics/{topic}", tag = "Policies", responses((status = 204)))]
pub(crate) async fn delete_topic(
    server: Server<MaySetPolicies>, State(state): State<ApiState>, PathId(topic): PathId<TopicName>,
) -> Result<StatusCode, Problem> {
    let mut tx = state.begin().await?;
    if policies::set_topic(&mut tx, server.app.id, &topic.0, None).await? == WriteOutcome::Unknown {
        return Err(Problem::not_found("topic"));
    }
    entry(&server, PolicyLevel::Topic, &topic.0, None).record(&mut tx, 1, state.clock.now()).await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns a subscription's policy and its waiting deliveries.
#[utoipa::path(get, path = "/v1/apps/{app}/policies/subscriptions/{subscription}", tag = "Policies",
    responses((status = 200, body = PolicyResponse)))]
pub(crate) async fn show_subscription(
    Server { app, .. }: Server<MayRead>, State(state): State<ApiState>, PathId(id): PathId<SubscriptionId>,
) -> Result<Answer<PolicyResponse>, Problem> {
    let id = current(&state, &app, id).await?;
    let own = policies::subscription(&state.pool, app.id, id).await?;
    let policy = own.ok_or_else(|| Problem::not_found("subscription"))?.policy;
    let waiting = throttles::backlog(&state.pool, id).await?;
    let late = |since: Timestamp| (state.clock.now() - since).to_std().ok().map(|age| age.as_secs_f64());
    let (waiting, throttled, oldest_s) = (waiting.all, waiting.throttled, waiting.oldest.and_then(late));
    let (view, _) = PolicyResponse::stored(&app, PolicyLevel::Subscription, id.to_string(), policy);
    Ok(Answer(PolicyResponse { backlog: Some(SubscriptionBacklog { waiting, throttled, oldest_s }), ..view }))
}

/// Sets a subscription's policy. If the browser subscribes again, the new subscription inherits the policy.
#[utoipa::path(put, path = "/v1/apps/{app}/policies/subscriptions/{subscription}", tag = "Policies",
    request_body = DeliveryPolicy,
    responses((status = 200, body = PolicyResponse)))]
pub(crate) async fn set_subscription(
    server: Server<MaySetPolicies>, State(state): State<ApiState>, PathId(id): PathId<SubscriptionId>,
    Json(policy, _): Json<Value>,
) -> Result<Answer<PolicyResponse>, Problem> {
    let (policy, warnings) = accept(&server.app, PolicyLevel::Subscription, policy)?;
    let id = write_subscription(&state, &server, id, Some(&policy)).await?;
    let (place, name) = (PolicyLevel::Subscription, id.to_string());
    Ok(Answer(PolicyResponse { level: place, name, policy: Some(policy), in_force: None, backlog: None, warnings }))
}

/// Deletes a subscription's policy.
#[utoipa::path(delete, path = "/v1/apps/{app}/policies/subscriptions/{subscription}", tag = "Policies",
    responses((status = 204)))]
pub(crate) async fn delete_subscription(
    server: Server<MaySetPolicies>, State(state): State<ApiState>, PathId(id): PathId<SubscriptionId>,
) -> Result<StatusCode, Problem> {
    write_subscription(&state, &server, id, None).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Stores the policy. Returns the id of the subscription that has it: the successor's if the given one was replaced.
async fn write_subscription(
    state: &ApiState, server: &Server<MaySetPolicies>, id: SubscriptionId, policy: Option<&Value>,
) -> Result<SubscriptionId, Problem> {
    let mut tx = state.begin().await?;
    let row = aliases::lock_current(&mut tx, &state.vault, server.app.id, id, Right::Server).await?;
    let id = row.ok_or_else(unknown)?.id;
    policies::set_subscription(&mut *tx, server.app.id, id, policy).await?;
    entry(server, PolicyLevel::Subscription, &id.to_string(), policy).record(&mut tx, 1, state.clock.now()).await?;
    tx.commit().await?;
    Ok(id)
}

#[cfg(test)]
#[path = "../../tests/unit/api/policies.rs"]
mod tests;
