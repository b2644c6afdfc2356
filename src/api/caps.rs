//! `/v1/apps/{app}/caps`: frequency caps of promotional and engagement messages for each person.

use axum::extract::State;
use axum::http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;

use super::ApiState;
use super::http::auth::{MayRead, MaySetPolicies, Server};
use super::http::draft::Draft;
use super::http::problem::Problem;
use super::http::routes::routes;
use bellwire_rules::policy::caps::{Caps, WrittenCap};
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::queue::caps;
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(show, change, delete))
}

/// Frequency caps. A cap is the maximum number of messages to a person in a rolling window: to a user in all their browsers
/// together, to an anonymous person in one browser. Messages beyond a cap end as `capped`. Transactional messages have no caps.
#[derive(Debug, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct CapSettings {
    /// Caps, all of which apply: at most 12, and at most 4 over the same tiers. Empty: no caps.
    caps: Vec<WrittenCap>,
}

impl From<&Caps> for CapSettings {
    fn from(caps: &Caps) -> Self {
        Self { caps: caps.written() }
    }
}

/// Shows the app's frequency caps.
#[utoipa::path(get, path = "/v1/apps/{app}/caps", tag = "Policies", responses((status = 200, body = CapSettings)))]
pub(crate) async fn show(
    server: Server<MayRead>, State(state): State<ApiState>,
) -> Result<axum::Json<CapSettings>, Problem> {
    Ok(axum::Json((&caps::read(&state.pool, server.app.id).await?).into()))
}

/// Replaces the app's frequency caps. They apply within a minute, and count messages sent after the change. A cap over the same
/// tiers as before keeps its counts.
#[utoipa::path(put, path = "/v1/apps/{app}/caps", tag = "Policies", request_body = CapSettings, responses((status = 200, body = CapSettings)))]
pub(crate) async fn change(
    server: Server<MaySetPolicies>, State(state): State<ApiState>, Draft(body, mut faults, _): Draft<CapSettings>,
) -> Result<axum::Json<CapSettings>, Problem> {
    let caps = Caps::parse(&body.caps).unwrap_or_else(|errors| {
        errors.into_iter().for_each(|error| faults.refuse(format!("/caps{}", error.pointer), error.detail));
        Caps::default()
    });
    faults.finish()?;
    write(&server, &state, &caps).await?;
    Ok(axum::Json((&caps).into()))
}

/// Deletes the app's frequency caps.
#[utoipa::path(delete, path = "/v1/apps/{app}/caps", tag = "Policies", responses((status = 204)))]
pub(crate) async fn delete(
    server: Server<MaySetPolicies>, State(state): State<ApiState>,
) -> Result<StatusCode, Problem> {
    write(&server, &state, &Caps::default()).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn write(server: &Server<MaySetPolicies>, state: &ApiState, caps: &Caps) -> Result<(), Problem> {
    let (app, detail) = (server.app.id, json!(CapSettings::from(caps)));
    let mut tx = state.begin().await?;
    caps::write(&mut *tx, app, caps).await?;
    server.did(AuditAction::CapsChanged, app).with(detail).record(&mut tx, 1, state.clock.now()).await?;
    Ok(tx.commit().await?)
}
