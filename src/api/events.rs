//! `/v1/apps/{app}/events`: what happened that an app may want to hear of.

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use utoipa::ToSchema;

use super::ApiState;
use super::auth::{MayRead, Server};
use super::extract::Query;
use super::paging::{Page, Paging};
use super::problem::Problem;
use super::routes::routes;
use bellwire_core::id::EventId;
use bellwire_store::outcomes::events::{self, EventData, EventRow};
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Something that happened. What is alike within a minute is one event with a count.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventResponse {
    /// Id of the event.
    id: EventId,
    /// Time of the first occurrence within its minute.
    at: DateTime<Utc>,
    /// Number of occurrences within that minute.
    count: i64,
    /// Content of the event: `kind` and `data`.
    #[serde(flatten)]
    #[schema(value_type = EventData)]
    body: Value,
}

impl From<EventRow> for EventResponse {
    fn from(row: EventRow) -> Self {
        Self { id: row.id, at: row.at, count: row.n, body: row.body }
    }
}

/// Lists events, the newest first.
#[utoipa::path(get, path = "/v1/apps/{app}/events", tag = "Events", responses((status = 200, body = Page<EventResponse>)))]
pub(crate) async fn list(
    server: Server<MayRead>,
    State(state): State<ApiState>,
    uri: Uri,
    Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let cut = paging.cut()?;
    let rows = events::list(state.reads.pool(), server.app.id, cut.ask()).await?;
    Ok(cut.page(rows, |row| row.id, EventResponse::from).answer(&uri))
}
