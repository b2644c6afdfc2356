//! Flow control: `/v1/apps/{app}/flow` for an app as a whole, `/v1/gateways/{lane}/flow` for one lane. What exceeds it
//! waits, while its time to live runs; nothing is lost.

use std::time::Duration;

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::auth::{Caller, MayRead, MaySetPolicies, Operator, Server};
use super::extract::{At, Json};
use super::gateways::LaneNumber;
use super::problem::{Faults, Problem};
use super::{ApiState, Work};
use crate::classify::retry_after;
use crate::model::clock::Timestamp;
use crate::model::id::{AppId, LaneId};
use crate::policy::flow::Rate;
use crate::store::keys::audit::Action;
use crate::store::queue::flows::{self, Change, Waiting};
use crate::store::queue::lanes;

/// The highest rate, and the highest parallelism.
const MOST: u32 = 1_000_000;
const PERIOD_DEFAULT: Duration = Duration::from_secs(1);
const PERIOD_MIN: Duration = Duration::from_millis(1);
const PERIOD_MAX: Duration = Duration::from_secs(86_400);

/// What is let through, and what waits.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FlowView {
    /// Deliveries in each period at most, evenly spread; null: any number.
    rate: Option<u32>,
    /// The period in seconds.
    period: Option<f64>,
    /// POSTs at a time at most; null: any number.
    parallelism: Option<u32>,
    /// Whether nothing is let through.
    paused: bool,
    /// Deliveries that are due and were not sent yet: an estimate, as far as they still have to be fanned out.
    waiting: i64,
    /// Whether there are more of them than were counted.
    waiting_or_more: bool,
    /// For how long the oldest of them has been due, in seconds.
    oldest_waiting_s: Option<f64>,
}

/// A period: seconds, or a duration such as `1m30s`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub(crate) enum Period {
    /// Seconds, at least a thousandth.
    Seconds(f64),
    /// `500ms`, `10s`, `1m`, `24h`.
    Text(String),
}

impl Period {
    fn read(&self) -> Option<Duration> {
        let period = match self {
            Self::Seconds(seconds) => Duration::try_from_secs_f64(*seconds).ok()?,
            Self::Text(text) => retry_after::duration(text.as_bytes())?,
        };
        (PERIOD_MIN..=PERIOD_MAX).contains(&period).then_some(period)
    }
}

/// What to let through. It replaces what was; whether it is paused stays.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FlowBody {
    /// Deliveries in each period, 1 to 1,000,000.
    rate: Option<u32>,
    /// Seconds, or a duration such as `1m`: a millisecond to a day. One second by default.
    period: Option<Period>,
    /// POSTs at a time, 1 to 1,000,000.
    parallelism: Option<u32>,
}

impl FlowBody {
    fn check(&self) -> Result<Change, Problem> {
        let mut faults = Faults::default();
        for (member, value) in [("/rate", self.rate), ("/parallelism", self.parallelism)] {
            let fits = value.is_none_or(|n| (1..=MOST).contains(&n));
            faults.require(fits, member, "must be 1 to 1000000");
        }
        let period = self.period.as_ref().map_or(Some(PERIOD_DEFAULT), Period::read);
        let rule = "must be seconds or a duration such as `1m30s`, from a millisecond to a day";
        faults.require(period.is_some(), "/period", rule);
        faults.require(self.rate.is_some() || self.period.is_none(), "/period", "may stand only beside `rate`");
        let something = self.rate.is_some() || self.parallelism.is_some();
        faults.require(something, "", "must have `rate` or `parallelism`; DELETE lets anything through");
        faults.finish()?;
        let rate = self.rate.zip(period).map(|(n, period)| Rate { n, period });
        Ok(Change::Limits { rate, parallelism: self.parallelism })
    }
}

async fn show(state: &ApiState, app: AppId, lane: Option<LaneId>) -> Result<axum::Json<FlowView>, Problem> {
    let flow = flows::find(&state.pool, app, lane).await?;
    let now = state.clock.now();
    let Waiting { deliveries, or_more, oldest_due_at } = flows::waiting(&state.pool, app, lane, now).await?;
    let rate = flow.as_ref().and_then(|flow| flow.rate);
    let seconds = |time: Timestamp| (now - time).to_std().unwrap_or_default().as_secs_f64();
    Ok(axum::Json(FlowView {
        rate: rate.map(|rate| rate.n),
        period: rate.map(|rate| rate.period.as_secs_f64()),
        parallelism: flow.as_ref().and_then(|flow| flow.parallelism),
        paused: flow.is_some_and(|flow| flow.paused),
        waiting: deliveries,
        waiting_or_more: or_more,
        oldest_waiting_s: oldest_due_at.map(seconds),
    }))
}

async fn change(
    state: &ApiState,
    caller: &Caller,
    app: AppId,
    lane: Option<LaneId>,
    change: Change,
) -> Result<(), Problem> {
    let (action, detail) = match change {
        Change::Limits { rate, parallelism } => {
            let period_s = rate.map(|rate| rate.period.as_secs_f64());
            let rate = rate.map(|rate| rate.n);
            (Action::FlowSet, json!({"rate": rate, "period": period_s, "parallelism": parallelism}))
        }
        Change::Clear => (Action::FlowRemoved, json!({})),
        Change::Paused(true) => (Action::FlowPaused, json!({})),
        Change::Paused(false) => (Action::FlowResumed, json!({})),
        Change::Reset => (Action::FlowReset, json!({})),
    };
    let target = lane.map_or_else(|| app.to_string(), |lane| format!("lane:{}", lane.0));
    let now = state.clock.now();
    let mut tx = state.pool.begin().await?;
    let flow = flows::change(&mut *tx, state.clock.uuid(), app, lane, change, now).await?;
    caller.did(Some(app), action, target).with(detail).record(&mut tx, 1, now).await?;
    tx.commit().await?;
    (state.engine.tell)(Work::Flow(flow));
    Ok(())
}

async fn change_and_show(
    state: &ApiState,
    caller: &Caller,
    app: AppId,
    lane: Option<LaneId>,
    to: Change,
) -> Result<axum::Json<FlowView>, Problem> {
    change(state, caller, app, lane, to).await?;
    show(state, app, lane).await
}

/// The app whose lane it is.
async fn owner(state: &ApiState, LaneNumber(lane): LaneNumber) -> Result<(AppId, Option<LaneId>), Problem> {
    let row = lanes::find(&state.pool, lane).await?.ok_or_else(|| Problem::not_found("lane"))?;
    Ok((row.app, Some(lane)))
}

/// Shows what is let through of an app as a whole, and what waits.
#[utoipa::path(get, path = "/v1/apps/{app}/flow", tag = "Flow control",
    params(("app" = String, Path, description = "Id or slug")),
    security(("api_key" = ["read"])), responses((status = 200, body = FlowView)))]
pub(crate) async fn show_app(
    server: Server<MayRead>,
    State(state): State<ApiState>,
) -> Result<axum::Json<FlowView>, Problem> {
    show(&state, server.app.id, None).await
}

/// Sets what is let through of an app as a whole.
#[utoipa::path(put, path = "/v1/apps/{app}/flow", tag = "Flow control",
    params(("app" = String, Path, description = "Id or slug")), request_body = FlowBody,
    security(("api_key" = ["policies"])), responses((status = 200, body = FlowView)))]
pub(crate) async fn set_app(
    server: Server<MaySetPolicies>,
    State(state): State<ApiState>,
    Json(body, _): Json<FlowBody>,
) -> Result<axum::Json<FlowView>, Problem> {
    change_and_show(&state, &server.caller, server.app.id, None, body.check()?).await
}

/// Lets anything of an app through.
#[utoipa::path(delete, path = "/v1/apps/{app}/flow", tag = "Flow control",
    params(("app" = String, Path, description = "Id or slug")),
    security(("api_key" = ["policies"])), responses((status = 204)))]
pub(crate) async fn clear_app(
    server: Server<MaySetPolicies>,
    State(state): State<ApiState>,
) -> Result<StatusCode, Problem> {
    change(&state, &server.caller, server.app.id, None, Change::Clear).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lets nothing of an app through until it is resumed.
#[utoipa::path(post, path = "/v1/apps/{app}/flow/pause", tag = "Flow control",
    params(("app" = String, Path, description = "Id or slug")),
    security(("api_key" = ["policies"])), responses((status = 200, body = FlowView)))]
pub(crate) async fn pause_app(
    server: Server<MaySetPolicies>,
    State(state): State<ApiState>,
) -> Result<axum::Json<FlowView>, Problem> {
    change_and_show(&state, &server.caller, server.app.id, None, Change::Paused(true)).await
}

/// Lets through again what an app's limits allow.
#[utoipa::path(post, path = "/v1/apps/{app}/flow/resume", tag = "Flow control",
    params(("app" = String, Path, description = "Id or slug")),
    security(("api_key" = ["policies"])), responses((status = 200, body = FlowView)))]
pub(crate) async fn resume_app(
    server: Server<MaySetPolicies>,
    State(state): State<ApiState>,
) -> Result<axum::Json<FlowView>, Problem> {
    change_and_show(&state, &server.caller, server.app.id, None, Change::Paused(false)).await
}

/// Forgets what was used of an app's rate: the period begins anew.
#[utoipa::path(post, path = "/v1/apps/{app}/flow/reset", tag = "Flow control",
    params(("app" = String, Path, description = "Id or slug")),
    security(("api_key" = ["policies"])), responses((status = 200, body = FlowView)))]
pub(crate) async fn reset_app(
    server: Server<MaySetPolicies>,
    State(state): State<ApiState>,
) -> Result<axum::Json<FlowView>, Problem> {
    change_and_show(&state, &server.caller, server.app.id, None, Change::Reset).await
}

/// Shows what is let through of a lane, and what waits.
#[utoipa::path(get, path = "/v1/gateways/{lane}/flow", tag = "Flow control", params(("lane" = i32, Path)),
    security(("api_key" = ["operator"])), responses((status = 200, body = FlowView)))]
pub(crate) async fn show_lane(
    _: Operator,
    State(state): State<ApiState>,
    At(lane): At<LaneNumber>,
) -> Result<axum::Json<FlowView>, Problem> {
    let (app, lane) = owner(&state, lane).await?;
    show(&state, app, lane).await
}

/// Sets what is let through of a lane, beside what its app is allowed.
#[utoipa::path(put, path = "/v1/gateways/{lane}/flow", tag = "Flow control", params(("lane" = i32, Path)),
    request_body = FlowBody, security(("api_key" = ["operator"])), responses((status = 200, body = FlowView)))]
pub(crate) async fn set_lane(
    operator: Operator,
    State(state): State<ApiState>,
    At(lane): At<LaneNumber>,
    Json(body, _): Json<FlowBody>,
) -> Result<axum::Json<FlowView>, Problem> {
    let (app, lane) = owner(&state, lane).await?;
    change_and_show(&state, &operator.caller, app, lane, body.check()?).await
}

/// Lets anything through a lane that its app is allowed.
#[utoipa::path(delete, path = "/v1/gateways/{lane}/flow", tag = "Flow control", params(("lane" = i32, Path)),
    security(("api_key" = ["operator"])), responses((status = 204)))]
pub(crate) async fn clear_lane(
    operator: Operator,
    State(state): State<ApiState>,
    At(lane): At<LaneNumber>,
) -> Result<StatusCode, Problem> {
    let (app, lane) = owner(&state, lane).await?;
    change(&state, &operator.caller, app, lane, Change::Clear).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Lets nothing through a lane until it is resumed.
#[utoipa::path(post, path = "/v1/gateways/{lane}/flow/pause", tag = "Flow control", params(("lane" = i32, Path)),
    security(("api_key" = ["operator"])), responses((status = 200, body = FlowView)))]
pub(crate) async fn pause_lane(
    operator: Operator,
    State(state): State<ApiState>,
    At(lane): At<LaneNumber>,
) -> Result<axum::Json<FlowView>, Problem> {
    let (app, lane) = owner(&state, lane).await?;
    change_and_show(&state, &operator.caller, app, lane, Change::Paused(true)).await
}

/// Lets through again what a lane's limits allow.
#[utoipa::path(post, path = "/v1/gateways/{lane}/flow/resume", tag = "Flow control", params(("lane" = i32, Path)),
    security(("api_key" = ["operator"])), responses((status = 200, body = FlowView)))]
pub(crate) async fn resume_lane(
    operator: Operator,
    State(state): State<ApiState>,
    At(lane): At<LaneNumber>,
) -> Result<axum::Json<FlowView>, Problem> {
    let (app, lane) = owner(&state, lane).await?;
    change_and_show(&state, &operator.caller, app, lane, Change::Paused(false)).await
}

/// Forgets what was used of a lane's rate: the period begins anew.
#[utoipa::path(post, path = "/v1/gateways/{lane}/flow/reset", tag = "Flow control", params(("lane" = i32, Path)),
    security(("api_key" = ["operator"])), responses((status = 200, body = FlowView)))]
pub(crate) async fn reset_lane(
    operator: Operator,
    State(state): State<ApiState>,
    At(lane): At<LaneNumber>,
) -> Result<axum::Json<FlowView>, Problem> {
    let (app, lane) = owner(&state, lane).await?;
    change_and_show(&state, &operator.caller, app, lane, Change::Reset).await
}
