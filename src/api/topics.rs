//! `/v1/apps/{app}/topics`: named audiences. A topic is created here, or when a server first names it for a subscription.
//! Browsers create topics only if their app allows it.

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sqlx::PgExecutor;
use utoipa::ToSchema;

use super::ApiState;
use super::http::auth::{MayChangeSubscribers, MayRead, Server};
use super::http::draft::Draft;
use super::http::extract::{PathId, Query, TopicName, null_is_default, nullable};
use super::http::paging::{Page, Paging};
use super::http::problem::{FieldError, Problem, ProblemCode};
use super::http::routes::routes;
use super::opt_in::TopicDisplay;
use super::policies::of_new;
use crate::api::subscriptions::response::{ended, unknown};
use bellwire_core::id::SubscriptionId;
use bellwire_core::permission::{Maker, TopicJoin};
use bellwire_rules::policy::{DeliveryPolicy, PolicyLevel};
use bellwire_store::WriteOutcome;
use bellwire_store::audience::membership::{self, Membership};
use bellwire_store::audience::topics::{self, Removed, SetTopicResult, TopicRow};
use bellwire_store::keys::apps::App;
use bellwire_store::keys::audit::{AuditAction, AuditEntry};
use bellwire_store::keyset::{Keyset, key_of};
use bellwire_store::queue::policies;
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(show, set, change, delete)).routes(routes!(join, leave))
}

/// Topic of an app.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct TopicResponse {
    /// Name of the topic, unique in the app.
    name: String,
    /// Callers that can join and leave the topic: `anyone`, or only a `server` with an API key.
    join: TopicJoin,
    /// Creator of the topic.
    made_by: Maker,
    /// Entry in the preferences of visitors. Null: not offered to visitors.
    #[schema(value_type = Option<TopicDisplay>)]
    display: Option<Value>,
    /// Number of its subscriptions.
    members: i64,
    /// Time of the creation.
    created_at: DateTime<Utc>,
    /// Warnings about the policy in this request.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<FieldError>,
}

impl From<TopicRow> for TopicResponse {
    fn from(row: TopicRow) -> Self {
        let TopicRow { name, join, made_by, display, members, created_at, .. } = row;
        Self { name, join, made_by, display, members, created_at, warnings: Vec::new() }
    }
}

/// Settings of a topic.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TopicRequest {
    /// Callers that can join the topic. By default `anyone`.
    #[serde(default)]
    join: TopicJoin,
    /// Delivery policy of messages to the topic. Requires the scope `policies` in addition. Absent: an existing topic keeps its
    /// policy.
    #[schema(value_type = Option<DeliveryPolicy>)]
    policy: Option<Value>,
    /// Entry in the preferences of visitors. Null: not offered to visitors. Absent: an existing topic keeps its entry.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<TopicDisplay>)]
    display: Option<Option<TopicDisplay>>,
}

/// Changes of a topic.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct TopicChange {
    /// Callers that can join the topic. Null: `anyone`. Subscriptions in the topic stay.
    #[serde(default, deserialize_with = "null_is_default")]
    join: Option<TopicJoin>,
    /// Entry in the preferences of visitors. Null: not offered to visitors.
    #[serde(default, deserialize_with = "nullable")]
    #[schema(value_type = Option<TopicDisplay>)]
    display: Option<Option<TopicDisplay>>,
}

/// Lists topics, the newest first.
#[utoipa::path(get, path = "/v1/apps/{app}/topics", tag = "Topics", responses((status = 200, body = Page<TopicResponse>)))]
pub(crate) async fn list(
    server: Server<MayRead>, State(state): State<ApiState>, uri: Uri, Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let cut = paging.cut()?;
    let rows = topics::list(&state.pool, server.app.id, None, cut.ask()).await?;
    Ok(cut.page(rows, |row| key_of(row.id), TopicResponse::from).answer(&uri))
}

/// Returns a topic.
#[utoipa::path(get, path = "/v1/apps/{app}/topics/{topic}", tag = "Topics",
    responses((status = 200, body = TopicResponse)))]
pub(crate) async fn show(
    server: Server<MayRead>, State(state): State<ApiState>, PathId(topic): PathId<TopicName>,
) -> Result<axum::Json<TopicResponse>, Problem> {
    find(&state.pool, &server.app, &topic.0).await.map(axum::Json)
}

async fn find(executor: impl PgExecutor<'_>, app: &App, name: &str) -> Result<TopicResponse, Problem> {
    let found = topics::list(executor, app.id, Some(name), Keyset::newest(1)).await?.pop();
    found.map(TopicResponse::from).ok_or_else(|| Problem::not_found("topic"))
}

/// Creates a topic, or replaces the settings of an existing one. Its subscriptions stay.
#[utoipa::path(put, path = "/v1/apps/{app}/topics/{topic}", tag = "Topics", request_body = TopicRequest,
    responses((status = 200, body = TopicResponse), (status = 201, body = TopicResponse, description = "Created")))]
pub(crate) async fn set(
    server: Server<MayChangeSubscribers>, State(state): State<ApiState>, PathId(TopicName(topic)): PathId<TopicName>,
    Draft(body, mut faults, _): Draft<TopicRequest>,
) -> Result<(StatusCode, axum::Json<TopicResponse>), Problem> {
    let (policy, warnings) = of_new(PolicyLevel::Topic, body.policy, &server.app, Some(&server.caller), &mut faults)?;
    if let Some(Some(display)) = &body.display {
        display.check(&mut faults);
    }
    faults.finish()?;
    let (app, now) = (server.app.id, state.clock.now());
    let mut tx = state.begin().await?;
    let (status, action) = match topics::set(&mut tx, app, &topic, body.join, now).await? {
        SetTopicResult::Created => (StatusCode::CREATED, AuditAction::TopicCreated),
        SetTopicResult::Changed => (StatusCode::OK, AuditAction::TopicChanged),
        SetTopicResult::TooMany => return Err(Problem::too_many_topics()),
    };
    let mut detail = json!({"join": body.join});
    if let Some(display) = body.display.map(|display| display.map(|display| json!(display))) {
        topics::set_display(&mut tx, app, &topic, display.as_ref()).await?;
        detail["display"] = display.into();
    }
    server.did(action, &topic).with(detail).record(&mut tx, 1, now).await?;
    if let Some((policy, by)) = policy {
        policies::set_topic(&mut tx, app, &topic, Some(&policy)).await?;
        let target = format!("{}:{topic}", PolicyLevel::Topic.name());
        AuditEntry::new(by, Some(app), AuditAction::PolicySet, target).record(&mut tx, 1, now).await?;
    }
    let topic = find(&mut *tx, &server.app, &topic).await?;
    tx.commit().await?;
    Ok((status, axum::Json(TopicResponse { warnings, ..topic })))
}

/// Changes a topic.
#[utoipa::path(patch, path = "/v1/apps/{app}/topics/{topic}", tag = "Topics", request_body = TopicChange,
    responses((status = 200, body = TopicResponse)))]
pub(crate) async fn change(
    server: Server<MayChangeSubscribers>, State(state): State<ApiState>, PathId(topic): PathId<TopicName>,
    Draft(body, mut faults, _): Draft<TopicChange>,
) -> Result<axum::Json<TopicResponse>, Problem> {
    if let Some(Some(display)) = &body.display {
        display.check(&mut faults);
    }
    faults.finish()?;
    let mut detail = Map::new();
    let mut tx = state.begin().await?;
    if let Some(join) = body.join
        && topics::change(&mut tx, server.app.id, &topic.0, join).await? == WriteOutcome::Done
    {
        detail.insert("join".to_owned(), json!(join));
    }
    if let Some(display) = body.display.map(|display| display.map(|display| json!(display)))
        && topics::set_display(&mut tx, server.app.id, &topic.0, display.as_ref()).await? == WriteOutcome::Done
    {
        detail.insert("display".to_owned(), display.into());
    }
    if !detail.is_empty() {
        let entry = server.did(AuditAction::TopicChanged, &topic.0).with(detail.into());
        entry.record(&mut tx, 1, state.clock.now()).await?;
    }
    tx.commit().await?;
    find(&state.pool, &server.app, &topic.0).await.map(axum::Json)
}

/// Deletes a topic and its policy. Its subscriptions stay, without the topic. 409 while a message to the topic is fanned out.
#[utoipa::path(delete, path = "/v1/apps/{app}/topics/{topic}", tag = "Topics", responses((status = 204)))]
pub(crate) async fn delete(
    server: Server<MayChangeSubscribers>, State(state): State<ApiState>, PathId(topic): PathId<TopicName>,
) -> Result<StatusCode, Problem> {
    let now = state.clock.now();
    let mut tx = state.begin().await?;
    match topics::remove(&mut tx, server.app.id, &topic.0, now).await? {
        Removed::Done => {}
        Removed::Unknown => return Err(Problem::not_found("topic")),
        Removed::InUse(message) => {
            let detail = format!("The message {message} is still being fanned out to this topic: wait, or cancel it.");
            return Err(Problem::new(ProblemCode::TopicInUse, detail));
        }
    }
    server.did(AuditAction::TopicRemoved, &topic.0).record(&mut tx, 1, now).await?;
    tx.commit().await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Adds a subscription to a topic.
#[utoipa::path(put, path = "/v1/apps/{app}/topics/{topic}/subscriptions/{subscription}", tag = "Topics",
    responses((status = 204)))]
pub(crate) async fn join(
    server: Server<MayChangeSubscribers>, State(state): State<ApiState>, PathId(topic): PathId<TopicName>,
    PathId(id): PathId<SubscriptionId>,
) -> Result<StatusCode, Problem> {
    set_member(&server, &state, topic, id, true).await
}

/// Removes a subscription from a topic.
#[utoipa::path(delete, path = "/v1/apps/{app}/topics/{topic}/subscriptions/{subscription}", tag = "Topics",
    responses((status = 204)))]
pub(crate) async fn leave(
    server: Server<MayChangeSubscribers>, State(state): State<ApiState>, PathId(topic): PathId<TopicName>,
    PathId(id): PathId<SubscriptionId>,
) -> Result<StatusCode, Problem> {
    set_member(&server, &state, topic, id, false).await
}

async fn set_member(
    server: &Server<MayChangeSubscribers>, state: &ApiState, topic: TopicName, id: SubscriptionId, member: bool,
) -> Result<StatusCode, Problem> {
    let now = state.clock.now();
    match membership::set_membership(&state.pool, &state.vault, (server.app.id, id), &topic.0, member, now).await? {
        Membership::Done => Ok(StatusCode::NO_CONTENT),
        Membership::Unknown => Err(unknown()),
        Membership::Ended => Err(ended()),
        Membership::TooManyTopics => Err(Problem::too_many_topics()),
    }
}
