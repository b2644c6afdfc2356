//! Flow control: `/v1/apps/{app}/flow` for an app as a whole, `/v1/gateways/{lane}/flow` for one lane. Deliveries over the
//! limit wait within their time to live. `/v1/flow` shows the waiting deliveries of all apps.

use std::marker::PhantomData;
use std::time::Duration;

use axum::extract::{FromRequestParts, State};
use axum::http::StatusCode;
use axum::http::request::Parts;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::gateways::{LaneNumber, visible_lane};
use super::http::auth::{MayRead, MaySetPolicies, Needed, Onlooker, Operator, Server, Watcher};
use super::http::caller::Caller;
use super::http::draft::Draft;
use super::http::extract::PathId;
use super::http::problem::{Faults, Problem};
use super::http::routes::{Access, Argument, routes};
use super::{ApiState, Work};
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::duration;
use bellwire_core::id::{AppId, LaneId};
use bellwire_rules::policy::flow::Rate;
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::outcomes::reliability;
use bellwire_store::queue::flows::{self, Change, DueCounts};
use bellwire_store::queue::lanes;
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new()
        .routes(routes!(show_all))
        .routes(routes!(show_app, set_app, delete_app))
        .routes(routes!(pause_app))
        .routes(routes!(resume_app))
        .routes(routes!(reset_app))
        .routes(routes!(show_lane, set_lane, delete_lane))
        .routes(routes!(pause_lane))
        .routes(routes!(resume_lane))
        .routes(routes!(reset_lane))
}

/// Upper bound of `rate` and `parallelism`.
const MOST: u32 = 1_000_000;
const PERIOD_DEFAULT: Duration = Duration::from_secs(1);
const PERIOD_MIN: Duration = Duration::from_millis(1);
const PERIOD_MAX: Duration = Duration::from_secs(86_400);

/// Limits of a flow, and waiting deliveries.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FlowResponse {
    /// Maximum deliveries in each period, evenly spread. Null: unlimited.
    rate: Option<u32>,
    /// The period in seconds.
    period: Option<f64>,
    /// Maximum POSTs in flight. Null: unlimited.
    parallelism: Option<u32>,
    /// Whether sending is paused.
    paused: bool,
    /// Tiers held by the runaway guard.
    held: Vec<Tier>,
    /// Deliveries that are due and not sent. Deliveries before fan-out are estimated.
    waiting: i64,
    /// Whether counting stopped early, so that more may wait.
    waiting_or_more: bool,
    /// Time since the oldest waiting delivery became due, in seconds. Null: none waits.
    oldest_waiting_s: Option<f64>,
}

/// Waiting deliveries of all apps.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct QueueResponse {
    /// Deliveries that are due and not sent. Deliveries before fan-out are not counted.
    waiting: i64,
    /// Whether counting stopped early, so that more may wait.
    waiting_or_more: bool,
    /// Time since the oldest waiting delivery became due, in seconds. Null: none waits.
    oldest_waiting_s: Option<f64>,
}

/// Period: seconds, or a duration such as `1m30s`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Period {
    /// Seconds, at least 0.001.
    Seconds(f64),
    /// Duration such as `500ms`, `10s`, `1m` or `24h`.
    Text(String),
}

impl Period {
    fn read(&self) -> Option<Duration> {
        let period = match self {
            Self::Seconds(seconds) => Duration::try_from_secs_f64(*seconds).ok()?,
            Self::Text(text) => duration::parse_go(text.as_bytes())?,
        };
        (PERIOD_MIN..=PERIOD_MAX).contains(&period).then_some(period)
    }
}

/// Limits that replace the previous ones. A paused flow stays paused.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FlowRequest {
    /// Maximum deliveries in each period, 1 to 1,000,000.
    rate: Option<u32>,
    /// Period in seconds, or a duration such as `1m`: a millisecond to a day. One second by default.
    period: Option<Period>,
    /// Maximum POSTs in flight, 1 to 1,000,000.
    parallelism: Option<u32>,
}

impl FlowRequest {
    fn check(&self, mut faults: Faults) -> Result<Change, Problem> {
        for (member, value) in [("/rate", self.rate), ("/parallelism", self.parallelism)] {
            let fits = value.is_none_or(|n| (1..=MOST).contains(&n));
            faults.require(fits, member, "must be 1 to 1000000");
        }
        let period = self.period.as_ref().map_or(Some(PERIOD_DEFAULT), Period::read);
        let rule = "must be seconds or a duration such as `1m30s`, from a millisecond to a day";
        faults.require(period.is_some(), "/period", rule);
        faults.require(self.rate.is_some() || self.period.is_none(), "/period", "is allowed only with `rate`");
        let something = self.rate.is_some() || self.parallelism.is_some();
        faults.require(something, "", "must have `rate` or `parallelism`; DELETE lets anything through");
        faults.finish()?;
        let rate = self.rate.zip(period).map(|(n, period)| Rate { n, period });
        Ok(Change::Limits { rate, parallelism: self.parallelism })
    }
}

/// Flow of an app. The caller has been authorised for scope `S`, to read or to change it.
pub(crate) struct OfApp<S>(FlowScope, PhantomData<fn() -> S>);

/// Flow of one lane, for operators.
pub(crate) struct OfLane(FlowScope);

/// Flow of one lane, for callers that may read its app.
pub(crate) struct WatchedLane(Subject);

struct Subject {
    state: ApiState,
    app: AppId,
    /// Lane of the flow. `None`: the whole app.
    lane: Option<LaneId>,
}

struct FlowScope {
    caller: Caller,
    subject: Subject,
}

impl<S: Needed> FromRequestParts<ApiState> for OfApp<S> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        let Server { app, caller, .. } = Server::<S>::from_request_parts(parts, state).await?;
        let subject = Subject { state: state.clone(), app: app.id, lane: None };
        Ok(Self(FlowScope { caller, subject }, PhantomData))
    }
}

impl<S: Needed> Argument for OfApp<S> {
    const ACCESS: &'static [Access] = Server::<S>::ACCESS;
}

impl Argument for OfLane {
    const ACCESS: &'static [Access] = Operator::ACCESS;
}

impl Argument for WatchedLane {
    const ACCESS: &'static [Access] = Onlooker::ACCESS;
}

impl FromRequestParts<ApiState> for OfLane {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        let Operator { caller } = Operator::from_request_parts(parts, state).await?;
        Subject::of_lane(parts, state).await.map(|subject| Self(FlowScope { caller, subject }))
    }
}

impl FromRequestParts<ApiState> for WatchedLane {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        let onlooker = Onlooker::from_request_parts(parts, state).await?;
        let PathId(LaneNumber(lane)) = PathId::from_request_parts(parts, state).await?;
        let row = visible_lane(state, &onlooker, lane).await?;
        Ok(Self(Subject { state: state.clone(), app: row.app, lane: Some(lane) }))
    }
}

impl Subject {
    async fn of_lane(parts: &mut Parts, state: &ApiState) -> Result<Self, Problem> {
        let PathId(LaneNumber(lane)) = PathId::from_request_parts(parts, state).await?;
        let row = lanes::find(&state.pool, lane).await?.ok_or_else(|| Problem::not_found("lane"))?;
        Ok(Self { state: state.clone(), app: row.app, lane: Some(lane) })
    }

    async fn show(&self) -> Result<axum::Json<FlowResponse>, Problem> {
        let Self { state, app, lane } = self;
        let flow = flows::find(&state.pool, *app, *lane).await?;
        let now = state.clock.now();
        let DueCounts { deliveries, or_more, oldest_due_at } = flows::waiting(&state.pool, *app, *lane, now).await?;
        let rate = flow.as_ref().and_then(|flow| flow.rate);
        Ok(axum::Json(FlowResponse {
            rate: rate.map(|rate| rate.n),
            period: rate.map(|rate| rate.period.as_secs_f64()),
            parallelism: flow.as_ref().and_then(|flow| flow.parallelism),
            paused: flow.as_ref().is_some_and(|flow| flow.paused),
            held: flow.map(|flow| flow.held).unwrap_or_default(),
            waiting: deliveries,
            waiting_or_more: or_more,
            oldest_waiting_s: oldest_due_at.map(|at| seconds_between(at, now)),
        }))
    }
}

fn seconds_between(earlier: Timestamp, later: Timestamp) -> f64 {
    (later - earlier).to_std().unwrap_or_default().as_secs_f64()
}

impl FlowScope {
    /// Commits a change, and notifies dispatch before the response.
    async fn change(&self, change: Change) -> Result<(), Problem> {
        let Self { caller, subject: Subject { state, app, lane } } = self;
        let (action, detail) = match change {
            Change::Limits { rate, parallelism } => {
                let period_s = rate.map(|rate| rate.period.as_secs_f64());
                let rate = rate.map(|rate| rate.n);
                (AuditAction::FlowSet, json!({"rate": rate, "period": period_s, "parallelism": parallelism}))
            }
            Change::Clear => (AuditAction::FlowRemoved, json!({})),
            Change::Paused(true) => (AuditAction::FlowPaused, json!({})),
            Change::Paused(false) => (AuditAction::FlowResumed, json!({})),
            Change::Reset => (AuditAction::FlowReset, json!({})),
        };
        let target = lane.map_or_else(|| app.to_string(), |lane| format!("lane:{lane}"));
        let now = state.clock.now();
        let mut tx = state.begin().await?;
        let flow = flows::change(&mut *tx, state.clock.uuid(), *app, *lane, change, now).await?;
        caller.did(Some(*app), action, target).with(detail).record(&mut tx, 1, now).await?;
        tx.commit().await?;
        (state.engine.tell)(Work::Flow(flow));
        Ok(())
    }

    async fn change_and_show(&self, change: Change) -> Result<axum::Json<FlowResponse>, Problem> {
        self.change(change).await?;
        self.subject.show().await
    }

    async fn clear(&self) -> Result<StatusCode, Problem> {
        self.change(Change::Clear).await?;
        Ok(StatusCode::NO_CONTENT)
    }
}

/// Returns the waiting deliveries of all apps.
#[utoipa::path(get, path = "/v1/flow", tag = "Flow control", responses((status = 200, body = QueueResponse)))]
pub(crate) async fn show_all(_: Watcher, State(state): State<ApiState>) -> Result<axum::Json<QueueResponse>, Problem> {
    let now = state.clock.now();
    let due = reliability::due(&state.pool, now).await?;
    Ok(axum::Json(QueueResponse {
        waiting: due.deliveries,
        waiting_or_more: due.deliveries >= reliability::DUE_MAX,
        oldest_waiting_s: due.oldest_at.map(|at| seconds_between(at, now)),
    }))
}

/// Returns the limits and the waiting deliveries of an app.
#[utoipa::path(get, path = "/v1/apps/{app}/flow", tag = "Flow control", responses((status = 200, body = FlowResponse)))]
pub(crate) async fn show_app(OfApp(scope, _): OfApp<MayRead>) -> Result<axum::Json<FlowResponse>, Problem> {
    scope.subject.show().await
}

/// Sets the limits of an app.
#[utoipa::path(put, path = "/v1/apps/{app}/flow", tag = "Flow control", request_body = FlowRequest, responses((status = 200, body = FlowResponse)))]
pub(crate) async fn set_app(
    OfApp(scope, _): OfApp<MaySetPolicies>, Draft(body, faults, _): Draft<FlowRequest>,
) -> Result<axum::Json<FlowResponse>, Problem> {
    scope.change_and_show(body.check(faults)?).await
}

/// Removes the limits of an app.
#[utoipa::path(delete, path = "/v1/apps/{app}/flow", tag = "Flow control", responses((status = 204)))]
pub(crate) async fn delete_app(OfApp(scope, _): OfApp<MaySetPolicies>) -> Result<StatusCode, Problem> {
    scope.clear().await
}

/// Pauses sending of an app until it is resumed.
#[utoipa::path(post, path = "/v1/apps/{app}/flow/pause", tag = "Flow control",
    responses((status = 200, body = FlowResponse)))]
pub(crate) async fn pause_app(OfApp(scope, _): OfApp<MaySetPolicies>) -> Result<axum::Json<FlowResponse>, Problem> {
    scope.change_and_show(Change::Paused(true)).await
}

/// Resumes sending of an app within its limits.
#[utoipa::path(post, path = "/v1/apps/{app}/flow/resume", tag = "Flow control",
    responses((status = 200, body = FlowResponse)))]
pub(crate) async fn resume_app(OfApp(scope, _): OfApp<MaySetPolicies>) -> Result<axum::Json<FlowResponse>, Problem> {
    scope.change_and_show(Change::Paused(false)).await
}

/// Resets the used rate of an app: a new period begins.
#[utoipa::path(post, path = "/v1/apps/{app}/flow/reset", tag = "Flow control",
    responses((status = 200, body = FlowResponse)))]
pub(crate) async fn reset_app(OfApp(scope, _): OfApp<MaySetPolicies>) -> Result<axum::Json<FlowResponse>, Problem> {
    scope.change_and_show(Change::Reset).await
}

/// Returns the limits and the waiting deliveries of a lane.
#[utoipa::path(get, path = "/v1/gateways/{lane}/flow", tag = "Flow control",
    responses((status = 200, body = FlowResponse)))]
pub(crate) async fn show_lane(watched: WatchedLane) -> Result<axum::Json<FlowResponse>, Problem> {
    watched.0.show().await
}

/// Sets the limits of a lane. The limits of its app apply, too.
#[utoipa::path(put, path = "/v1/gateways/{lane}/flow", tag = "Flow control", request_body = FlowRequest,
    responses((status = 200, body = FlowResponse)))]
pub(crate) async fn set_lane(
    OfLane(scope): OfLane, Draft(body, faults, _): Draft<FlowRequest>,
) -> Result<axum::Json<FlowResponse>, Problem> {
    scope.change_and_show(body.check(faults)?).await
}

/// Removes the limits of a lane. The limits of its app still apply.
#[utoipa::path(delete, path = "/v1/gateways/{lane}/flow", tag = "Flow control", responses((status = 204)))]
pub(crate) async fn delete_lane(OfLane(scope): OfLane) -> Result<StatusCode, Problem> {
    scope.clear().await
}

/// Pauses sending of a lane until it is resumed.
#[utoipa::path(post, path = "/v1/gateways/{lane}/flow/pause", tag = "Flow control",
    responses((status = 200, body = FlowResponse)))]
pub(crate) async fn pause_lane(OfLane(scope): OfLane) -> Result<axum::Json<FlowResponse>, Problem> {
    scope.change_and_show(Change::Paused(true)).await
}

/// Resumes sending of a lane within its limits.
#[utoipa::path(post, path = "/v1/gateways/{lane}/flow/resume", tag = "Flow control",
    responses((status = 200, body = FlowResponse)))]
pub(crate) async fn resume_lane(OfLane(scope): OfLane) -> Result<axum::Json<FlowResponse>, Problem> {
    scope.change_and_show(Change::Paused(false)).await
}

/// Resets the used rate of a lane: a new period begins.
#[utoipa::path(post, path = "/v1/gateways/{lane}/flow/reset", tag = "Flow control",
    responses((status = 200, body = FlowResponse)))]
pub(crate) async fn reset_lane(OfLane(scope): OfLane) -> Result<axum::Json<FlowResponse>, Problem> {
    scope.change_and_show(Change::Reset).await
}
