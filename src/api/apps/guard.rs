//! `/v1/apps/{app}/guard`: the runaway guard, which holds an app that sends far more than its size explains.
//! `/v1/apps/{app}/guard/release` releases the app.

use axum::extract::State;
use axum::http::StatusCode;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use crate::api::http::auth::{MayChangeSettings, MayRead, MaySetPolicies, Server};
use crate::api::http::draft::Draft;
use crate::api::http::problem::{Faults, Problem};
use crate::api::http::routes::routes;
use crate::api::{ApiState, Work};
use bellwire_core::delivery::Tier;
use bellwire_core::id::AppId;
use bellwire_core::scope::Scope;
use bellwire_rules::policy::runaway::{FACTOR_MAX, FLOOR_MAX, Flood};
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::queue::flows;
use bellwire_store::queue::guards::{self, Set};
use utoipa_axum::router::OpenApiRouter;

pub(in crate::api) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(show, change, delete)).routes(routes!(release))
}

/// Runaway guard of an app.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GuardResponse {
    /// Deliveries allowed for each active subscription in a quarter of an hour. Null: the server's setting. 0: unlimited.
    factor: Option<i32>,
    /// Deliveries allowed in addition to `factor`. Null: the server's setting.
    floor: Option<i64>,
    /// Number of deliveries in a quarter of an hour above which the guard holds the app, computed from `factor` and `floor`.
    /// Null: unlimited.
    limit: Option<u64>,
    /// Deliveries in the last quarter of an hour, or since the last release if that is shorter.
    sent: SentDeliveries,
    /// Held tiers. Their messages wait until an operator releases the app or their time to live ends.
    held: Vec<Tier>,
    /// Start of the hold. Null: not held.
    held_at: Option<DateTime<Utc>>,
}

/// Delivery counts. One-time codes (transactional) are counted and held separately.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct SentDeliveries {
    /// Number of transactional deliveries.
    transactional: u64,
    /// Number of promotional and engagement deliveries.
    other: u64,
}

/// Limits of the guard. Absent limits are the server's settings.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GuardRequest {
    /// Deliveries allowed for each active subscription in a quarter of an hour, 0 to 1,000. 0: unlimited.
    factor: Option<i64>,
    /// Deliveries allowed in addition to `factor`, 0 to 1,000,000,000.
    floor: Option<i64>,
}

impl GuardRequest {
    fn check(&self, mut faults: Faults) -> Result<Set, Problem> {
        let factor =
            self.factor.map(|factor| i32::try_from(factor).ok().filter(|_| (0..=FACTOR_MAX).contains(&factor)));
        faults.require(factor != Some(None), "/factor", &format!("must be 0 to {FACTOR_MAX}"));
        let fits = self.floor.is_none_or(|floor| (0..=FLOOR_MAX).contains(&floor));
        faults.require(fits, "/floor", &format!("must be 0 to {FLOOR_MAX}"));
        faults.finish()?;
        Ok(Set { factor: factor.flatten(), floor: self.floor })
    }
}

async fn view(state: &ApiState, app: AppId) -> Result<axum::Json<GuardResponse>, Problem> {
    let (pool, now) = (&state.pool, state.clock.now());
    let set = guards::read(pool, app).await?;
    let size = guards::subscriptions(pool, app).await?;
    let mut sent = SentDeliveries::default();
    for found in guards::sent(pool, app, now).await? {
        match found.flood {
            Flood::Transactional => sent.transactional = found.deliveries,
            Flood::Other => sent.other = found.deliveries,
        }
    }
    let flow = flows::find(pool, app, None).await?;
    Ok(axum::Json(GuardResponse {
        factor: set.factor,
        floor: set.floor,
        limit: set.or(state.settings.guard).limit(size),
        sent,
        held_at: flow.as_ref().and_then(|flow| flow.held_at),
        held: flow.map(|flow| flow.held).unwrap_or_default(),
    }))
}

/// Returns the limits of the guard and the current hold.
#[utoipa::path(get, path = "/v1/apps/{app}/guard", tag = "Flow control", responses((status = 200, body = GuardResponse)))]
pub(crate) async fn show(
    server: Server<MayRead>, State(state): State<ApiState>,
) -> Result<axum::Json<GuardResponse>, Problem> {
    view(&state, server.app.id).await
}

/// Replaces the limits of the guard. Raising a limit requires an operator's key. A held app stays held until it is released.
#[utoipa::path(put, path = "/v1/apps/{app}/guard", tag = "Flow control", request_body = GuardRequest, responses((status = 200, body = GuardResponse)))]
pub(crate) async fn change(
    server: Server<MayChangeSettings>, State(state): State<ApiState>, Draft(body, faults, _): Draft<GuardRequest>,
) -> Result<axum::Json<GuardResponse>, Problem> {
    write(&server, &state, body.check(faults)?).await?;
    view(&state, server.app.id).await
}

/// Resets the guard to the server's settings. If that raises a limit, it requires an operator's key.
#[utoipa::path(delete, path = "/v1/apps/{app}/guard", tag = "Flow control", responses((status = 204)))]
pub(crate) async fn delete(
    server: Server<MayChangeSettings>, State(state): State<ApiState>,
) -> Result<StatusCode, Problem> {
    write(&server, &state, Set::default()).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn write(server: &Server<MayChangeSettings>, state: &ApiState, set: Set) -> Result<(), Problem> {
    let (app, servers) = (server.app.id, state.settings.guard);
    let before = guards::read(&state.pool, app).await?.or(servers);
    if set.or(servers).is_looser_than(before) && !server.caller.may(Scope::Operator) {
        return Err(Problem::forbidden("Only operators can raise the limits of a guard."));
    }
    let mut tx = state.begin().await?;
    guards::write(&mut tx, app, set).await?;
    let detail = json!({"factor": set.factor, "floor": set.floor});
    server.did(AuditAction::GuardChanged, app).with(detail).record(&mut tx, 1, state.clock.now()).await?;
    Ok(tx.commit().await?)
}

/// Releases a held app and resolves the alert. The count of deliveries starts at 0, and waiting deliveries are sent. Does
/// nothing if the app is not held.
#[utoipa::path(post, path = "/v1/apps/{app}/guard/release", tag = "Flow control",
    responses((status = 200, body = GuardResponse)))]
pub(crate) async fn release(
    server: Server<MaySetPolicies>, State(state): State<ApiState>,
) -> Result<axum::Json<GuardResponse>, Problem> {
    let (app, now) = (server.app.id, state.clock.now());
    let mut tx = state.begin().await?;
    let flow = guards::release(&mut tx, app, now).await?;
    if flow.is_some() {
        server.did(AuditAction::AppReleased, app).record(&mut tx, 1, now).await?;
    }
    tx.commit().await?;
    if let Some(flow) = flow {
        (state.engine.tell)(Work::Flow(flow));
    }
    view(&state, app).await
}
