//! `/v1/apps/{app}/topics`: named audiences. A topic comes about with the first subscription that joins it.

use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::ApiState;
use super::auth::{MayChangeSubscribers, MayRead, Server};
use super::extract::{At, Query, TopicName};
use super::paging::{Page, Paging, number_cursor};
use super::problem::Problem;
use super::subscriptions::{ended, too_many_topics, unknown};
use crate::id::SubscriptionId;
use crate::store::subscriptions::{self, Membership};
use crate::store::topics::{self, TopicRow};

/// A topic.
#[derive(Debug, Serialize, ToSchema)]
pub struct TopicView {
    /// Its name.
    name: String,
    /// Subscriptions in it.
    members: i64,
    /// When it was first named.
    created_at: DateTime<Utc>,
}

impl From<TopicRow> for TopicView {
    fn from(row: TopicRow) -> Self {
        Self { name: row.name, members: row.members, created_at: row.created_at }
    }
}

/// Lists topics, the newest first.
#[utoipa::path(get, path = "/v1/apps/{app}/topics", tag = "Topics",
    params(("app" = String, Path, description = "Id or slug"), Paging),
    security(("api_key" = ["read"])), responses((status = 200, body = Page<TopicView>)))]
pub async fn list(
    server: Server<MayRead>,
    State(state): State<ApiState>,
    uri: Uri,
    Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let cut = paging.cut()?;
    let rows = topics::list(&state.pool, server.app.id, None, cut.below(), cut.ask()).await?;
    Ok(cut.page(rows, |row| number_cursor(row.id), TopicView::from).answer(&uri))
}

/// Shows a topic.
#[utoipa::path(get, path = "/v1/apps/{app}/topics/{topic}", tag = "Topics",
    params(("app" = String, Path, description = "Id or slug"), ("topic" = String, Path)),
    security(("api_key" = ["read"])), responses((status = 200, body = TopicView)))]
pub async fn show(
    server: Server<MayRead>,
    State(state): State<ApiState>,
    At(topic): At<TopicName>,
) -> Result<axum::Json<TopicView>, Problem> {
    let found = topics::list(&state.pool, server.app.id, Some(&topic.0), i32::MAX, 1).await?.pop();
    found.map(|row| axum::Json(row.into())).ok_or_else(|| Problem::not_found("topic"))
}

/// Puts a subscription into a topic.
#[utoipa::path(put, path = "/v1/apps/{app}/topics/{topic}/subscriptions/{subscription}", tag = "Topics",
    params(("app" = String, Path, description = "Id or slug"), ("topic" = String, Path), ("subscription" = String, Path)),
    security(("api_key" = ["subscribers"])), responses((status = 204)))]
pub async fn join(
    server: Server<MayChangeSubscribers>,
    State(state): State<ApiState>,
    At(topic): At<TopicName>,
    At(id): At<SubscriptionId>,
) -> Result<StatusCode, Problem> {
    set(&server, &state, topic, id, true).await
}

/// Takes a subscription out of a topic.
#[utoipa::path(delete, path = "/v1/apps/{app}/topics/{topic}/subscriptions/{subscription}", tag = "Topics",
    params(("app" = String, Path, description = "Id or slug"), ("topic" = String, Path), ("subscription" = String, Path)),
    security(("api_key" = ["subscribers"])), responses((status = 204)))]
pub async fn leave(
    server: Server<MayChangeSubscribers>,
    State(state): State<ApiState>,
    At(topic): At<TopicName>,
    At(id): At<SubscriptionId>,
) -> Result<StatusCode, Problem> {
    set(&server, &state, topic, id, false).await
}

async fn set(
    server: &Server<MayChangeSubscribers>,
    state: &ApiState,
    topic: TopicName,
    id: SubscriptionId,
    member: bool,
) -> Result<StatusCode, Problem> {
    let now = state.clock.now();
    match subscriptions::set_membership(&state.pool, server.app.id, id, &topic.0, member, now).await? {
        Membership::Done => Ok(StatusCode::NO_CONTENT),
        Membership::Unknown => Err(unknown()),
        Membership::Ended => Err(ended()),
        Membership::TooManyTopics => Err(too_many_topics()),
    }
}
