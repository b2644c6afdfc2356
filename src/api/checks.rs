//! `/v1/checks`: whether the server is set up right, for operators. `bellwire doctor` prints the same.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::ApiState;
use super::auth::Operator;
use crate::checks::{self, Finding};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The routes of this resource.
pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list))
}

/// What was looked at.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Findings {
    /// When.
    at: DateTime<Utc>,
    /// Everything that was looked at, the gravest first.
    data: Vec<Finding>,
}

/// Looks whether the server is set up right: settings, files, the database, upkeep, workers, lanes. Nothing is changed.
///
/// What cannot be looked at within three seconds is told so. Files, disk and clock are those of the process that answers.
#[utoipa::path(get, path = "/v1/checks", tag = "Operations",
    security(("api_key" = ["operator"])), responses((status = 200, body = Findings)))]
pub(crate) async fn list(_: Operator, State(state): State<ApiState>) -> Json<Findings> {
    let at = state.clock.now();
    Json(Findings { at, data: checks::look(&state.pool, &state.settings.setup, at).await })
}
