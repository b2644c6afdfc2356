//! `/v1/metrics/reliability`: success of retries in an hour, by tier and lane. Prometheus reads the same metrics at `/metrics`.

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

/// Maximum age of an hour whose data are complete.
const AGO_MAX: TimeDelta = TimeDelta::days(1);
/// Maximum lanes in the response. Those in the worst state come first.
const LANES_MAX: usize = 100;

/// Options of the reliability metrics.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct MetricsQuery {
    /// Number of a lane: its metrics only.
    lane: Option<i32>,
    /// End of the hour (RFC 3339), within the last day. By default now.
    #[serde(default, deserialize_with = "request_time::optional")]
    until: Option<DateTime<Utc>>,
}

/// Bucket of a histogram.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HistogramBucket {
    /// Upper bound, included. Null: unbounded.
    up_to: Option<f64>,
    /// Number of values in the bucket.
    n: u64,
}

/// Reliability metrics of a group of lanes and tiers.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReliabilityFigures {
    /// The five reliability metrics with target and state.
    slis: Vec<MetricReading>,
    /// Accepted deliveries by the number of POSTs.
    attempts_to_success: Vec<HistogramBucket>,
    /// Accepted deliveries by the seconds since the acceptance of their message.
    delay_seconds: Vec<HistogramBucket>,
    /// Queue rows by the seconds between their due time and the claim.
    schedule_lag_seconds: Vec<HistogramBucket>,
    /// Queue rows that were changed or restored outside Bellwire. They are never sent.
    retry_token_failures: u64,
    /// Retries that were so late that their state was read again from the database.
    retry_tokens_late: u64,
    /// Deliveries accepted later than the tier's `sla_seconds`, and dead or expired ones.
    sla_missed: u64,
}

impl ReliabilityFigures {
    fn new(sums: &Sums, lanes: usize) -> Self {
        let classes = |ns: &[u64], ends: &mut dyn Iterator<Item = f64>| -> Vec<HistogramBucket> {
            ns.iter().map(|n| HistogramBucket { up_to: ends.next(), n: *n }).collect()
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
    /// App that the lane belongs to.
    app: AppId,
    /// Push service of the lane.
    gateway: Gateway,
    /// The five reliability metrics with target and state.
    slis: Vec<MetricReading>,
}

/// The reliability metrics of an hour.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ReliabilityResponse {
    /// Start of the hour.
    from: DateTime<Utc>,
    /// End of the hour.
    until: DateTime<Utc>,
    /// Metrics of all tiers and lanes together.
    all: ReliabilityFigures,
    /// Metrics by tier.
    tiers: BTreeMap<&'static str, ReliabilityFigures>,
    /// Metrics by lane, at most 100. Lanes in the worst state come first.
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
    state: &ApiState, app: Option<AppId>, query: &MetricsQuery,
) -> Result<Json<ReliabilityResponse>, Problem> {
    let now = state.clock.now();
    let until = query.until.unwrap_or(now);
    if !(now - AGO_MAX..=now).contains(&until) {
        return Err(Problem::invalid_parameter("until", "must be within the last 24 hours"));
    }
    let wanted = ReliabilityFilter { app, lane: query.lane.map(LaneId) };
    let from = until - reliability::WINDOW;
    let lanes = read(state.reads.pool(), wanted, from, until).await?;
    Ok(Json(ReliabilityResponse::new(&lanes, from, until)))
}

/// Returns the reliability metrics of all apps over an hour, by default the last one.
#[utoipa::path(get, path = "/v1/metrics/reliability", tag = "Operations",
    responses((status = 200, body = ReliabilityResponse)))]
pub(crate) async fn show_all(
    _: Watcher, State(state): State<ApiState>, Query(query): Query<MetricsQuery>,
) -> Result<Json<ReliabilityResponse>, Problem> {
    hour(&state, None, &query).await
}

/// Returns the reliability metrics of one app over an hour, by default the last one.
#[utoipa::path(get, path = "/v1/apps/{app}/metrics/reliability", tag = "Operations",
    responses((status = 200, body = ReliabilityResponse)))]
pub(crate) async fn show(
    server: Server<MayRead>, State(state): State<ApiState>, Query(query): Query<MetricsQuery>,
) -> Result<Json<ReliabilityResponse>, Problem> {
    hour(&state, Some(server.app.id), &query).await
}
