//! `/v1/apps/{app}/events`: history of an app's events, as a list and as a stream for warehouses.

use std::io;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, TimeDelta, Utc};
use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use sqlx::PgPool;
use utoipa::{IntoParams, ToSchema};
use uuid::Uuid;

use super::ApiState;
use super::auth::{MayRead, Server};
use super::extract::Query;
use super::outgoing::Outgoing;
use super::paging::{Page, Paging};
use super::problem::Problem;
use super::routes::routes;
use bellwire_core::clock::first_uuid_of;
use bellwire_core::event_type::EventType;
use bellwire_core::id::{AppId, EventId};
use bellwire_store::keyset::{Keyset, Towards};
use bellwire_store::outcomes::events::{self, DeadLetterCreated, EventRow, SlaMissed, SubscriptionGone};
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Age at which an event is final: its minute has ended, and so has every transaction that could add to it.
const FINAL_AFTER: TimeDelta = TimeDelta::minutes(2);
/// Events of a stream that are read at a time.
const PART: i64 = 1_000;

/// Event. What is alike within a minute is one event with a count.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventResponse {
    /// Id of the event, and its cursor in a stream.
    id: EventId,
    /// Time of the first occurrence within its minute.
    at: DateTime<Utc>,
    /// Number of occurrences within that minute.
    count: i64,
    /// Type of the event.
    #[schema(value_type = EventType)]
    kind: Value,
    /// Data of the event, by its type.
    #[schema(value_type = EventData)]
    data: Value,
}

/// Data of an event, by its type.
#[derive(Serialize, ToSchema)]
#[serde(untagged)]
#[expect(dead_code, reason = "describes JSON, is never built")]
enum EventData {
    DeadLetterCreated(DeadLetterCreated),
    SubscriptionGone(SubscriptionGone),
    SlaMissed(SlaMissed),
}

impl From<EventRow> for EventResponse {
    fn from(mut row: EventRow) -> Self {
        let [kind, data] = ["kind", "data"].map(|member| row.body[member].take());
        Self { id: row.id, at: row.at, count: row.n, kind, data }
    }
}

/// Part of the list, or the beginning of a stream.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventQuery {
    /// Rows per page, 1 to 250; 50 by default.
    limit: Option<u16>,
    /// `iterator` or `prev_iterator` of another page.
    iterator: Option<String>,
    /// Streams the events after this one as NDJSON, the oldest first, instead of a page. `0`: from the oldest event.
    after: Option<String>,
}

/// Lists events, the newest first, or streams them.
///
/// With `after` the response is NDJSON: all later events that are final, the oldest first. An event is final two minutes after its
/// first occurrence. Continue with the `id` of the last line: no event is skipped or repeated. Events are kept as long as the
/// server's retention of dead letters.
#[utoipa::path(get, path = "/v1/apps/{app}/events", tag = "Events",
    responses((status = 200, content((Page<EventResponse> = "application/json"), (EventResponse = "application/x-ndjson")))))]
pub(crate) async fn list(
    server: Server<MayRead>,
    State(state): State<ApiState>,
    Query(EventQuery { limit, iterator, after }): Query<EventQuery>,
    mut request: Request,
) -> Result<Response, Problem> {
    let app = server.app.id;
    let Some(after) = after else {
        let cut = Paging { limit, iterator }.cut()?;
        let rows = events::list(state.reads.pool(), app, cut.ask()).await?;
        return Ok(cut.page(rows, |row| row.id, EventResponse::from).answer(request.uri()));
    };
    if limit.is_some() || iterator.is_some() {
        return Err(Problem::invalid_parameter("after", "cannot be combined with `limit` and `iterator`"));
    }
    let after = match after.as_str() {
        "0" => Uuid::nil(),
        id => {
            let id = id.parse::<EventId>();
            id.map_err(|_| Problem::invalid_parameter("after", "must be the id of an event, or `0`"))?.0
        }
    };
    let place = state.place_to_transfer(app).await?;
    let until = first_uuid_of(state.clock.now() - FINAL_AFTER);
    let parts = Parts { pool: state.pool.clone(), app, after: Some(after), until };
    // The first part is read before the response begins: an error in it is a problem like any other.
    let Some((first, rest)) = parts.next().await? else { return Err(Problem::internal()) };
    let parts = stream::once(async { Ok(first) }).chain(stream::try_unfold(rest, Parts::next));
    let (outgoing, body) = Outgoing::answering(&mut request, &state);
    outgoing.give(parts, place, "a stream of events");
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

/// Final events of an app, in parts.
struct Parts {
    pool: PgPool,
    app: AppId,
    /// Last event of the previous part. `None`: there are no more.
    after: Option<Uuid>,
    /// Later events are not final.
    until: Uuid,
}

impl Parts {
    /// Returns the next part and the remaining ones. The first part exists even if it is empty.
    async fn next(mut self) -> sqlx::Result<Option<(Bytes, Self)>> {
        let Some(beyond) = self.after else { return Ok(None) };
        let page = Keyset { towards: Towards::Newer, beyond, limit: PART };
        let mut rows = events::list(&self.pool, self.app, page).await?;
        rows.retain(|row| row.id.0 < self.until);
        self.after = rows.last().filter(|_| rows.len() as i64 == PART).map(|row| row.id.0);
        let mut lines = Vec::new();
        for row in rows {
            serde_json::to_writer(&mut lines, &EventResponse::from(row)).map_err(io::Error::from)?;
            lines.push(b'\n');
        }
        Ok(Some((lines.into(), self)))
    }
}
