//! `/v1/checks`: checks of the server's setup, for operators. `bellwire doctor` prints the same.

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::ApiState;
use super::http::auth::Operator;
use super::http::paging::Page;
use super::http::routes::routes;
use crate::checks::{self, CheckResult};
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list))
}

/// Result of all checks.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct CheckResults {
    /// Time of the checks.
    at: DateTime<Utc>,
    /// Results of the checks, the most severe first.
    #[serde(flatten)]
    page: Page<CheckResult>,
}

/// Checks the setup of the server: settings, files, database, maintenance, workers, lanes, push services, and the public URL as
/// browsers reach it. Nothing is changed.
///
/// A check that takes longer than three seconds is reported as timed out. Files, disk and clock are those of the process that
/// responds. Network checks run at most every 30 seconds, and only for hosts in the settings or built into the program.
#[utoipa::path(get, path = "/v1/checks", tag = "Operations", responses((status = 200, body = CheckResults)))]
pub(crate) async fn list(_: Operator, State(state): State<ApiState>) -> Json<CheckResults> {
    let (at, setup) = (state.clock.now(), &state.settings.setup);
    let outside = state.outside.get(&state.clock, checks::network::look(&state.pool, &state.gateways, setup));
    let (mut data, outside) = tokio::join!(checks::look(&state.pool, setup, at), outside);
    data.extend(outside);
    Json(CheckResults { at, page: Page::complete(checks::by_gravity(data)) })
}
