//! `/healthz` and `/readyz`, for process managers. They need no authentication, so they cost almost nothing.

use axum::extract::State;
use serde::Serialize;
use utoipa::ToSchema;

use super::ApiState;
use super::http::problem::{Problem, ProblemCode};
use super::http::routes::routes;
use bellwire_store as store;
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(alive)).routes(routes!(ready))
}

/// The process is healthy.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HealthResponse {
    /// Always `ok`.
    status: &'static str,
}

const WELL: axum::Json<HealthResponse> = axum::Json(HealthResponse { status: "ok" });

/// Responds while the process runs.
#[utoipa::path(get, path = "/healthz", tag = "Operations", responses((status = 200, body = HealthResponse)))]
pub(crate) async fn alive() -> axum::Json<HealthResponse> {
    WELL
}

/// Reports whether requests can be served: the database responds, and its schema is this program's. Reads the database at most
/// once a second.
#[utoipa::path(get, path = "/readyz", tag = "Operations", responses((status = 200, body = HealthResponse)))]
pub(crate) async fn ready(State(state): State<ApiState>) -> Result<axum::Json<HealthResponse>, Problem> {
    state.readiness.get(&state.clock, check(&state)).await.map(|()| WELL)
}

async fn check(state: &ApiState) -> Result<(), Problem> {
    store::database_now(&state.pool).await?;
    // Asked until it is right for the first time: nothing but a newer program changes it afterwards.
    let options = state.pool.connect_options();
    let checked = state.schema_checked.get_or_try_init(|| store::check_schema(&options)).await;
    checked.copied().map_err(|error| {
        tracing::warn!(error = %error, "not ready");
        Problem::new(ProblemCode::SchemaDiffers, "The database schema is of another version than this program.")
    })
}
