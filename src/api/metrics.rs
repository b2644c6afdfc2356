//! `/v1/metrics/reliability`: how well retries do, over the last hour or an earlier one, by tier and lane. Prometheus reads the
//! same at `/metrics`.

use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::ApiState;
use super::http::auth::{MayRead, Server, Watcher};
use super::http::extract::Query;
use super::http::problem::Problem;
use super::http::routes::routes;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{AppId, LaneId};
use bellwire_core::lane::Gateway;
use bellwire_core::request_time;
use bellwire_rules::policy::reliability::{self, DELAYS_S, LaneSums, MetricReading, ReliabilityCount, Sums};
use bellwire_store::outcomes::reliability::{ReliabilityFilter, read};
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(show_all)).routes(routes!(show))
}

/// Maximum age of an hour, which is still stored as a whole.
const AGO_MAX: TimeDelta = TimeDelta::days(1);
/// Lanes shown at most: those in the worst state come first.
const LANES_MAX: usize = 100;

/// Metrics to return.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct MetricsQuery {
    /// Lane of the metrics.
    lane: Option<i32>,
    /// The hour that ended then (RFC 3339), within the last day; by default the last one.
    #[serde(default, deserialize_with = "request_time::optional")]
    until: Option<DateTime<Utc>>,
}

/// One class of a histogram.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Class {
    /// Upper end, included. Null: no end.
    up_to: Option<f64>,
    /// Number of values in it.
    n: u64,
}

/// The reliability metrics of some lanes and tiers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReliabilityFigures {
    /// The five reliability metrics with target and state.
    slis: Vec<MetricReading>,
    /// Accepted deliveries by how many POSTs it took.
    attempts_to_success: Vec<Class>,
    /// Accepted deliveries by how many seconds after their message was accepted.
    delay_seconds: Vec<Class>,
    /// Queue rows by how many seconds later than scheduled they were claimed.
    schedule_lag_seconds: Vec<Class>,
    /// Queue rows that were changed or restored by hand: never sent.
    retry_token_failures: u64,
    /// Retries that came so late that their state was read again.
    retry_tokens_late: u64,
    /// Deliveries accepted later than the tier's `sla_seconds`, dead or expired.
    sla_missed: u64,
}

impl ReliabilityFigures {
    fn new(sums: &Sums, lanes: usize) -> Self {
        let classes = |ns: &[u64], ends: &mut dyn Iterator<Item = f64>| -> Vec<Class> {
            ns.iter().map(|n| Class { up_to: ends.next(), n: *n }).collect()
        };
        let attempts = sums.attempts_to_success();
        let last = attempts.len() - 1;
        Self {
            slis: reliability::read(sums, lanes).into(),
            attempts_to_success: classes(attempts, &mut (1..=last).map(|n| n as f64)),
            delay_seconds: classes(sums.delay(), &mut DELAYS_S.into_iter()),
            schedule_lag_seconds: classes(sums.lag(), &mut DELAYS_S.into_iter()),
            retry_token_failures: sums.of(ReliabilityCount::TokenFailures),
            retry_tokens_late: sums.of(ReliabilityCount::TokensLate),
            sla_missed: sums.of(ReliabilityCount::SlaMissed),
        }
    }
}

/// The reliability metrics of one lane.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LaneReliability {
    /// Number of the lane.
    lane: i32,
    /// The app it belongs to.
    app: AppId,
    /// The push service it leads to.
    gateway: Gateway,
    /// The five reliability metrics with target and state.
    slis: Vec<MetricReading>,
}

/// The reliability metrics of an hour.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReliabilityResponse {
    /// Start of the time.
    from: DateTime<Utc>,
    /// End of the time.
    until: DateTime<Utc>,
    /// All of it together.
    all: ReliabilityFigures,
    /// Metrics by tier.
    tiers: BTreeMap<&'static str, ReliabilityFigures>,
    /// By lane: those in the worst state first, a hundred at most.
    lanes: Vec<LaneReliability>,
}

impl ReliabilityResponse {
    fn new(lanes: &[LaneSums], from: DateTime<Utc>, until: DateTime<Utc>) -> Self {
        let (mut all, mut tiers) = (Sums::default(), BTreeMap::<Tier, Sums>::new());
        let mut shown = Vec::new();
        for lane in lanes {
            let mut of_lane = Sums::default();
            for (tier, sums) in &lane.tiers {
                of_lane.merge(sums);
                tier.iter().for_each(|tier| tiers.entry(*tier).or_default().merge(sums));
            }
            all.merge(&of_lane);
            let slis = reliability::read(&of_lane, 1).to_vec();
            shown.push(LaneReliability { lane: lane.lane.0, app: lane.app, gateway: lane.gateway, slis });
        }
        shown.sort_by_key(|lane| std::cmp::Reverse(lane.slis.iter().map(|reading| reading.state).max()));
        shown.truncate(LANES_MAX);
        let tiers = Tier::ALL.into_iter().map(|tier| {
            let sums = tiers.remove(&tier).unwrap_or_default();
            (tier.name(), ReliabilityFigures::new(&sums, lanes.len()))
        });
        Self { from, until, all: ReliabilityFigures::new(&all, lanes.len()), tiers: tiers.collect(), lanes: shown }
    }
}

async fn hour(
    state: &ApiState,
    app: Option<AppId>,
    query: &MetricsQuery,
) -> Result<Json<ReliabilityResponse>, Problem> {
    let now = state.clock.now();
    let until = query.until.unwrap_or(now);
    if !(now - AGO_MAX..=now).contains(&until) {
        return Err(Problem::invalid_parameter("until", "must lie within the last 24 hours"));
    }
    let wanted = ReliabilityFilter { app, lane: query.lane.map(LaneId) };
    let from = until - reliability::WINDOW;
    let lanes = read(state.reads.pool(), wanted, from, until).await?;
    Ok(Json(ReliabilityResponse::new(&lanes, from, until)))
}

/// The reliability metrics of all apps over an hour, the last one by default.
#[utoipa::path(get, path = "/v1/metrics/reliability", tag = "Operations",
    responses((status = 200, body = ReliabilityResponse)))]
pub(crate) async fn show_all(
    _: Watcher,
    State(state): State<ApiState>,
    Query(query): Query<MetricsQuery>,
) -> Result<Json<ReliabilityResponse>, Problem> {
    hour(&state, None, &query).await
}

/// The reliability metrics of one app over an hour, the last one by default.
#[utoipa::path(get, path = "/v1/apps/{app}/metrics/reliability", tag = "Operations",
    responses((status = 200, body = ReliabilityResponse)))]
pub(crate) async fn show(
    server: Server<MayRead>,
    State(state): State<ApiState>,
    Query(query): Query<MetricsQuery>,
) -> Result<Json<ReliabilityResponse>, Problem> {
    hour(&state, Some(server.app.id), &query).await
}
