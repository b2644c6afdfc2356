//! Metrics over time: measures × dimensions × range × step, from aggregates by minute, hour and day. The cost does not grow
//! with the number of deliveries.

mod chart;
mod filters;
mod measure;
mod pieces;
mod query;

use axum::Json;
use axum::extract::{RawQuery, State};
use chrono::{DateTime, DurationRound as _, TimeDelta, Utc};
use futures_util::TryStreamExt as _;
use serde::Serialize;
use serde_json::{Map, Value};
use sqlx::PgConnection;
use utoipa::ToSchema;

use super::ApiState;
use super::http::app_ref::AppRef;
use super::http::auth::{MayRead, Server, Watcher};
use super::http::extract::named_app;
use super::http::fair_semaphore::Busy;
use super::http::problem::{Problem, ProblemCode};
use super::http::routes::routes;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, MessageId};
use bellwire_core::lane::Gateway;
use bellwire_store::outcomes::rollups::{self, LaneOf, Piece, ROWS_MAX, RollupFilter, RollupRow};
use bellwire_store::transactions::begin_with;
use chart::{Chart, POINTS_MAX, Point, TooMany};
use measure::{Dimension, Measure};
use pieces::from_then_on;
use query::Query;
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(chart_all)).routes(routes!(chart))
}

/// Time after which figures of a moment are complete. No transaction takes longer.
const SETTLED_AFTER: TimeDelta = TimeDelta::seconds(60);

/// Tier number in aggregates of subscriptions, which have no tier.
const WITHOUT_TIER: i16 = 0;

/// Metrics over time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChartResponse {
    /// One point for each group and step, sorted by time and group. Steps without events are included.
    data: Vec<ChartPoint>,
    /// Description of the data.
    metadata: ChartMetadata,
}

/// One step of one group.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChartPoint {
    /// Start of the step in UTC. Absent without `step`.
    #[serde(skip_serializing_if = "Option::is_none")]
    time_bucket: Option<DateTime<Utc>>,
    /// Values of the group's dimensions, one for each of `by`.
    #[schema(value_type = Object)]
    dimensions: Map<String, Value>,
    /// Values of the measures. Null: no denominator, no measurement, or more receipts in the step than pushes that request
    /// receipts, because receipts arrive later.
    #[schema(value_type = Object)]
    metrics: Map<String, Value>,
}

/// Description of metrics over time.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ChartMetadata {
    /// Step of the request.
    step: Option<&'static str>,
    /// Start of the first step: `since`, rounded down to whole steps. Without `step`, it is rounded to stored minutes, hours or
    /// days.
    from: DateTime<Utc>,
    /// End of the last step: `until`, rounded up in the same way.
    until: DateTime<Utc>,
    /// Time until which the data are complete. Later values may still grow.
    complete_until: DateTime<Utc>,
    /// Number of points in `data`.
    row_count: usize,
}

impl From<Point> for ChartPoint {
    fn from(point: Point) -> Self {
        Self { time_bucket: point.at, dimensions: point.dimensions, metrics: point.metrics }
    }
}

async fn charted(state: &ApiState, app: Option<AppId>, text: Option<String>) -> Result<Json<ChartResponse>, Problem> {
    let now = state.clock.now();
    let query = Query::read(&text.unwrap_or_default(), app.is_some(), state.settings.metrics_kept, now)?;
    let lanes = lanes(state, app, &query).await?;
    let messages = rollups::charted(state.reads.pool(), app, &query.filters.messages).await?;
    if let Some(message) = query.filters.messages.iter().find(|message| !messages.contains(message)) {
        let detail = format!(
            "there is no message {message} to more than 100 recipients; the deliveries of others can be listed"
        );
        return Err(Problem::invalid_parameter("message", detail));
    }
    let wanted = wanted(app, &query, &lanes, &messages);
    let _place = state.charts.take(app, state.settings.place_patience, &BUSY).await?;
    // One snapshot, so that what is active and what was won and lost add up.
    let mut tx = begin_with(state.reads.pool(), "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    let mut chart = Chart::new(&query, &lanes);
    for_each(&mut tx, &wanted, &query.pieces, |row| chart.add(row)).await?;
    if query.measures.contains(&Measure::SubscriptionsActive) {
        add_active(&mut tx, &mut chart, &wanted, query.until).await?;
    }
    let settled = now - SETTLED_AFTER;
    let oldest_note = rollups::oldest_note(&mut tx).await?.unwrap_or(settled);
    tx.commit().await?;
    let data: Vec<ChartPoint> = chart.finish()?.into_iter().map(ChartPoint::from).collect();
    let complete_until = settled.min(oldest_note).duration_trunc(TimeDelta::minutes(1)).unwrap_or(settled);
    let row_count = data.len();
    let Query { from, until, step, .. } = query;
    Ok(Json(ChartResponse { data, metadata: ChartMetadata { step, from, until, complete_until, row_count } }))
}

/// Response if too many charts are requested at a time. Each may read many rows.
const BUSY: Busy =
    Busy { code: ProblemCode::ChartsBusy, detail: "Too many charts are in progress. Try again shortly." };

/// Returns the rows to read, and the facts they count.
fn wanted(app: Option<AppId>, query: &Query, lanes: &[LaneOf], messages: &[MessageId]) -> RollupFilter {
    let filters = &query.filters;
    let spans = || query.measures.iter().map(|measure| measure.facts());
    let first = spans().map(|(first, _)| first).min().unwrap_or_default();
    let last = spans().map(|(_, last)| last).max().unwrap_or_default();
    RollupFilter {
        lanes: by_lane(app, query).then(|| lanes.iter().map(|lane| lane.lane).collect()),
        messages: messages.to_vec(),
        gateways: filters.gateways.clone(),
        tiers: filters.tiers.iter().map(|tier| tier.code()).collect(),
        facts: first..=last,
    }
}

/// Reads the rows of the pieces of a range, and calls a function with each.
async fn for_each(
    conn: &mut PgConnection, wanted: &RollupFilter, pieces: &[Piece],
    mut take: impl FnMut(&RollupRow) -> Result<(), TooMany>,
) -> Result<(), Problem> {
    let mut read = 0;
    for piece in pieces {
        let mut rows = rollups::read(conn, wanted, *piece);
        while let Some(row) = rows.try_next().await? {
            read += 1;
            if read > ROWS_MAX {
                return Err(TooMany::Rows.into());
            }
            take(&row)?;
        }
    }
    Ok(())
}

/// Whether the query needs aggregates by lane. Sums over all lanes are stored separately.
fn by_lane(app: Option<AppId>, query: &Query) -> bool {
    let filters = &query.filters;
    let told_apart = [Dimension::App, Dimension::Lane].iter().any(|dimension| query.dimensions.contains(dimension));
    let is_filtered = !filters.apps.is_empty() || !filters.lanes.is_empty() || !filters.messages.is_empty();
    app.is_some() || told_apart || is_filtered
}

async fn lanes(state: &ApiState, app: Option<AppId>, query: &Query) -> Result<Vec<LaneOf>, Problem> {
    let mut apps = Vec::new();
    for name in &query.filters.apps {
        let found = named_app(state, AppRef::from(name.as_str())).await;
        let refused = || Problem::invalid_parameter("app", format!("there is no app `{name}`"));
        apps.push(found.map_err(|problem| if problem.status == 404 { refused() } else { problem })?.id);
    }
    let mut lanes = rollups::lanes(state.reads.pool(), app, &query.filters.lanes).await?;
    lanes.retain(|lane| apps.is_empty() || apps.contains(&lane.app));
    let unknown = query.filters.lanes.iter().find(|number| !lanes.iter().any(|lane| lane.lane == **number));
    if let Some(number) = unknown {
        return Err(Problem::invalid_parameter("lane", format!("there is no lane {number}")));
    }
    let gateways = &query.filters.gateways;
    lanes.retain(|lane| gateways.is_empty() || gateways.contains(&lane.gateway));
    Ok(lanes)
}

/// Adds the number of active subscriptions at the end of the range: the current number, minus later gains and plus later
/// losses.
async fn add_active(
    conn: &mut PgConnection, chart: &mut Chart<'_>, shown: &RollupFilter, until: Timestamp,
) -> Result<(), Problem> {
    for (lane, n) in rollups::active(conn).await? {
        chart.add_active(lane, n)?;
    }
    let (first, last) = Measure::SubscriptionsActive.facts();
    let won_and_lost = RollupFilter { tiers: vec![WITHOUT_TIER], facts: first..=last, ..shown.clone() };
    for_each(conn, &won_and_lost, &from_then_on(until), |row| chart.undo(row)).await
}

impl From<TooMany> for Problem {
    fn from(too_many: TooMany) -> Self {
        let (parameter, detail) = match too_many {
            TooMany::Points => (
                "by",
                format!(
                    "there would be more than {POINTS_MAX} points, which is what one answer shows: ask for longer steps, \
                     fewer dimensions or a filter"
                ),
            ),
            TooMany::Rows => (
                "since",
                format!(
                    "more than {ROWS_MAX} rows would have to be read for this: ask for a shorter range, a filter, or a \
                     step that whole hours or days fit into"
                ),
            ),
        };
        Problem::invalid_parameter(parameter, detail)
    }
}

/// Returns metrics of all apps over time.
///
/// Times are in UTC; steps begin at whole minutes, hours and days. A list is `measures=accepted&measures=gone` or
/// `measures=accepted,gone`.
#[utoipa::path(get, path = "/v1/metrics", tag = "Operations",
    params(
        ("since" = Option<String>, Query, description = "Start of the range (RFC 3339); by default one hour before `until`"),
        ("until" = Option<String>, Query, description = "End of the range, excluded (RFC 3339); by default now"),
        ("step" = Option<String>, Query, description = "Length of a step: 1m, 5m, 10m, 15m, 30m, 1h, 2h, 3h, 4h, 6h, 12h \
          or 1d, at most 1,500 of them; absent: one sum for the whole range"),
        ("measures" = Vec<String>, Query, description = "What to show: ended, accepted, gone, expired, dead, cancelled, capped, \
          attempts, retried, acceptance_rate, gone_rate, error_rate, displayed, clicked, closed, receipts_asked, display_rate, click_rate, \
          latency_p50, latency_p90, latency_p95, latency_p99 (in seconds, within 19 %), subscriptions_won, subscriptions_lost, \
          subscriptions_active"),
        ("by" = Option<Vec<String>>, Query, description = "What to break it down by: app, lane, gateway, tier, message; \
          `ended` by outcome, `attempts` by status, `subscriptions_lost` by reason"),
        ("app" = Option<Vec<String>>, Query, description = "Only these apps, by id or slug"),
        ("lane" = Option<Vec<i32>>, Query, description = "Only these lanes, by number"),
        ("gateway" = Option<Vec<Gateway>>, Query, description = "Only these gateways"),
        ("tier" = Option<Vec<String>>, Query, description = "Only these tiers"),
        ("message" = Option<Vec<String>>, Query, description = "Only these messages, 20 at most, each to more than 100 \
          recipients"),
        ("outcome" = Option<Vec<String>>, Query, description = "Of `ended`, only these outcomes"),
        ("status" = Option<Vec<String>>, Query, description = "Of `attempts`, only these: 2xx, 3xx, gone, 429, 4xx, 5xx, \
          none"),
        ("reason" = Option<Vec<String>>, Query, description = "Of `subscriptions_lost`, only these: gone, unsubscribed, \
          replaced, expired, suspended, deleted")), responses((status = 200, body = ChartResponse)))]
pub(crate) async fn chart_all(
    _: Watcher, State(state): State<ApiState>, RawQuery(query): RawQuery,
) -> Result<Json<ChartResponse>, Problem> {
    charted(&state, None, query).await
}

/// Returns metrics of one app over time.
///
/// The parameters are those of `/v1/metrics`, without the dimension and the filter `app`.
#[utoipa::path(get, path = "/v1/apps/{app}/metrics", tag = "Operations",
    params(
        ("since" = Option<String>, Query, description = "Start of the range (RFC 3339); by default one hour before `until`"),
        ("until" = Option<String>, Query, description = "End of the range, excluded (RFC 3339); by default now"),
        ("step" = Option<String>, Query, description = "Length of a step; absent: one sum for the whole range"),
        ("measures" = Vec<String>, Query, description = "What to show"),
        ("by" = Option<Vec<String>>, Query, description = "What to break it down by"),
        ("lane" = Option<Vec<i32>>, Query, description = "Only these lanes, by number"),
        ("gateway" = Option<Vec<String>>, Query, description = "Only these gateways"),
        ("tier" = Option<Vec<String>>, Query, description = "Only these tiers"),
        ("message" = Option<Vec<String>>, Query, description = "Only these messages"),
        ("outcome" = Option<Vec<String>>, Query, description = "Of `ended`, only these outcomes"),
        ("status" = Option<Vec<String>>, Query, description = "Of `attempts`, only these"),
        ("reason" = Option<Vec<String>>, Query, description = "Of `subscriptions_lost`, only these")),
    responses((status = 200, body = ChartResponse)))]
pub(crate) async fn chart(
    server: Server<MayRead>, State(state): State<ApiState>, RawQuery(query): RawQuery,
) -> Result<Json<ChartResponse>, Problem> {
    charted(&state, Some(server.app.id), query).await
}
