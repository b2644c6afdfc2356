//! `/healthz` and `/readyz`, for whoever looks after the process.

use axum::extract::State;
use axum::http::StatusCode;
use serde::Serialize;
use utoipa::ToSchema;

use super::ApiState;
use super::problem::Problem;
use crate::store;

/// All is well.
#[derive(Debug, Serialize, ToSchema)]
pub struct Well {
    /// `ok`
    status: &'static str,
}

const WELL: axum::Json<Well> = axum::Json(Well { status: "ok" });

/// Whether the process answers at all.
#[utoipa::path(get, path = "/healthz", tag = "Operations", responses((status = 200, body = Well)))]
pub async fn alive() -> axum::Json<Well> {
    WELL
}

/// Whether requests can be served: the database answers, and its schema is this program's.
#[utoipa::path(get, path = "/readyz", tag = "Operations", responses((status = 200, body = Well)))]
pub async fn ready(State(state): State<ApiState>) -> Result<axum::Json<Well>, Problem> {
    store::database_now(&state.pool).await?;
    // Asked until it is right for the first time: nothing but a newer program changes it afterwards.
    let options = state.pool.connect_options();
    state.schema_checked.get_or_try_init(|| store::check_schema(&options)).await.map_err(|error| {
        tracing::warn!(error = %error, "not ready");
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "schema_differs", "The database's schema is not this program's.")
    })?;
    Ok(WELL)
}
