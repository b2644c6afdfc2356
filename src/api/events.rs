//! `/v1/apps/{app}/events`: history of an app's events, as a list and as a stream for warehouses.

pub(crate) mod conversions;
pub(crate) mod live_stream;
pub(crate) mod record;

use std::io;

use axum::body::Bytes;
use axum::extract::{Request, State};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, TimeDelta, Utc};
use futures_util::{StreamExt as _, stream};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::ApiState;
use super::http::auth::{MayRead, Server};
use super::http::extract::Query;
use super::http::outgoing::Outgoing;
use super::http::paging::{Page, Paging};
use super::http::problem::Problem;
use super::http::routes::routes;
use bellwire_core::id::{AppId, EventId};
use bellwire_store::outcomes::events::{self, DeadLetterCreated, EventRow, SlaMissed, StreamRow, SubscriptionGone};
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list, record::record)).routes(routes!(conversions::report))
}

/// Age at which an event joins the stream. By then its minute has ended, and its count seldom grows.
const SETTLED_AFTER: TimeDelta = TimeDelta::minutes(2);
/// Events read per statement.
const PART: i64 = 1_000;

/// Event. Equal events within a minute are one event with a count.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventResponse {
    /// Id of the event.
    id: EventId,
    /// Time of the first occurrence within its minute.
    at: DateTime<Utc>,
    /// Number of occurrences within that minute.
    count: i64,
    /// Type of the event.
    #[schema(value_type = AppEventType)]
    kind: Value,
    /// Data of the event, by its type.
    #[schema(value_type = EventData)]
    data: Value,
}

/// Type of an event in the history of an app.
#[derive(Serialize, ToSchema)]
#[expect(dead_code, reason = "describes JSON, is never built")]
enum AppEventType {
    /// Deliveries died; the first of a reason and minute.
    #[serde(rename = "dead_letter.created")]
    DeadLetterCreated,
    /// Subscriptions of one push service and VAPID key are gone.
    #[serde(rename = "subscription.gone")]
    SubscriptionGone,
    /// Deliveries missed the SLA of their tier; the first of a tier and minute.
    #[serde(rename = "sla.missed")]
    SlaMissed,
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

/// Line of a stream of events.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EventLine {
    /// Position of the line: `after` of the next request.
    #[schema(pattern = "^[0-9]{1,19}$")]
    cursor: String,
    #[serde(flatten)]
    event: EventResponse,
}

impl From<StreamRow> for EventLine {
    fn from(StreamRow { id, n, body, at, seq }: StreamRow) -> Self {
        Self { cursor: seq.to_string(), event: EventRow { id, n, body, at }.into() }
    }
}

/// Page of the list, or start position of the stream.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct EventQuery {
    /// Rows per page, 1 to 250; 50 by default.
    limit: Option<u16>,
    /// `iterator` or `prev_iterator` of another page.
    iterator: Option<String>,
    /// `cursor` of a line: streams the events after it as NDJSON. `0`: all events.
    #[param(pattern = "^[0-9]{1,19}$")]
    after: Option<String>,
}

/// Lists events, the newest first, or streams them.
///
/// With `after` the response is NDJSON: the events that joined the stream after this cursor, in that order. An event joins two minutes
/// after its minute began. The cursor skips nothing, even if transactions commit out of order. An event whose count grows later is sent
/// again with the same `id` and a new cursor: keep the last line. Events are deleted with the archive of dead letters.
#[utoipa::path(get, path = "/v1/apps/{app}/events", tag = "Events",
    responses((status = 200, content((Page<EventResponse> = "application/json"), (EventLine = "application/x-ndjson")))))]
pub(crate) async fn list(
    server: Server<MayRead>, State(state): State<ApiState>,
    Query(EventQuery { limit, iterator, after }): Query<EventQuery>, mut request: Request,
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
    let cursor = after.parse().ok().filter(|after| *after >= 0);
    let after = cursor.ok_or_else(|| Problem::invalid_parameter("after", "must be the `cursor` of a line, or `0`"))?;
    let place = state.place_to_transfer(app).await?;
    let parts = Parts { state: state.clone(), app, after: Some(after) };
    // The first part is read before the response begins: an error in it is a problem like any other.
    let Some((first, rest)) = parts.next().await? else { return Err(Problem::internal()) };
    let parts = stream::once(async { Ok(first) }).chain(stream::try_unfold(rest, Parts::next));
    let (outgoing, body) = Outgoing::answering(&mut request, &state);
    outgoing.give(parts, place, "a stream of events");
    Ok(([(header::CONTENT_TYPE, "application/x-ndjson")], body).into_response())
}

/// Stream of an app's events, in parts.
struct Parts {
    state: ApiState,
    app: AppId,
    /// Cursor of the previous part's last event. `None`: the stream has ended.
    after: Option<i64>,
}

impl Parts {
    /// Returns the next part and the remaining ones. The first part exists even if it is empty.
    async fn next(mut self) -> sqlx::Result<Option<(Bytes, Self)>> {
        let Some(after) = self.after else { return Ok(None) };
        let now = self.state.clock.now();
        let mut tx = self.state.begin().await?;
        events::add_to_stream(&mut tx, self.app, now - SETTLED_AFTER, now, PART).await?;
        tx.commit().await?;
        let rows = events::stream(&self.state.pool, self.app, after, PART).await?;
        self.after = rows.last().filter(|_| rows.len() as i64 == PART).map(|row| row.seq);
        let mut lines = Vec::new();
        for row in rows {
            serde_json::to_writer(&mut lines, &EventLine::from(row)).map_err(io::Error::from)?;
            lines.push(b'\n');
        }
        Ok(Some((lines.into(), self)))
    }
}
