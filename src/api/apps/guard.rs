//! `/v1/apps/{app}/guard`: what holds an app that sends far more than its size explains; `/v1/apps/{app}/guard/release` lets it go.

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

/// Guard against an app that sends far more than its size explains.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct GuardResponse {
    /// Deliveries for each active subscription; null: as the server has it; 0: nothing is too much.
    factor: Option<i32>,
    /// Deliveries beside those; null: as the server has it.
    floor: Option<i64>,
    /// Current result of both: more deliveries within a quarter of an hour hold the app. Null: unlimited.
    limit: Option<u64>,
    /// Deliveries within the last quarter of an hour, or since its last release, according to metrics over time.
    sent: SentDeliveries,
    /// Held tiers, until an operator releases the app. Their messages wait within their time to live.
    held: Vec<Tier>,
    /// Start of the hold.
    held_at: Option<DateTime<Utc>>,
}

/// Deliveries, as they are counted and held: one-time codes apart from all others.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct SentDeliveries {
    /// Number of transactional deliveries.
    transactional: u64,
    /// Promotional ones and those for engagement.
    other: u64,
}

/// Limits of the guard. Absent ones are those of the server.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct GuardRequest {
    /// Deliveries for each active subscription within a quarter of an hour, 0 to 1,000; 0: any number is right.
    factor: Option<i64>,
    /// Deliveries beside those, 0 to 1,000,000,000.
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

/// Shows what holds the app, and whether it does.
#[utoipa::path(get, path = "/v1/apps/{app}/guard", tag = "Flow control", responses((status = 200, body = GuardResponse)))]
pub(crate) async fn show(
    server: Server<MayRead>,
    State(state): State<ApiState>,
) -> Result<axum::Json<GuardResponse>, Problem> {
    view(&state, server.app.id).await
}

/// Replaces what holds the app. Allowing for more than before takes an operator's key. An app that is held stays so until it is
/// released.
#[utoipa::path(put, path = "/v1/apps/{app}/guard", tag = "Flow control", request_body = GuardRequest, responses((status = 200, body = GuardResponse)))]
pub(crate) async fn change(
    server: Server<MayChangeSettings>,
    State(state): State<ApiState>,
    Draft(body, faults, _): Draft<GuardRequest>,
) -> Result<axum::Json<GuardResponse>, Problem> {
    write(&server, &state, body.check(faults)?).await?;
    view(&state, server.app.id).await
}

/// Resets the guard of the app to that of the server. Allowing for more than before takes an operator's key.
#[utoipa::path(delete, path = "/v1/apps/{app}/guard", tag = "Flow control", responses((status = 204)))]
pub(crate) async fn delete(
    server: Server<MayChangeSettings>,
    State(state): State<ApiState>,
) -> Result<StatusCode, Problem> {
    write(&server, &state, Set::default()).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn write(server: &Server<MayChangeSettings>, state: &ApiState, set: Set) -> Result<(), Problem> {
    let (app, servers) = (server.app.id, state.settings.guard);
    let before = guards::read(&state.pool, app).await?.or(servers);
    if set.or(servers).is_looser_than(before) && !server.caller.may(Scope::Operator) {
        return Err(Problem::forbidden("A guard is made to allow for more by operators only."));
    }
    let mut tx = state.begin().await?;
    guards::write(&mut tx, app, set).await?;
    let detail = json!({"factor": set.factor, "floor": set.floor});
    server.did(AuditAction::GuardChanged, app).with(detail).record(&mut tx, 1, state.clock.now()).await?;
    Ok(tx.commit().await?)
}

/// Releases an app that is held, and resolves the alert. What it sent so far counts no longer; what waits goes out, unless it is
/// cancelled before. An app that is not held stays as it is.
#[utoipa::path(post, path = "/v1/apps/{app}/guard/release", tag = "Flow control",
    responses((status = 200, body = GuardResponse)))]
pub(crate) async fn release(
    server: Server<MaySetPolicies>,
    State(state): State<ApiState>,
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
