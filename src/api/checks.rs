//! `/v1/checks`: whether the server is set up right, for operators. `bellwire doctor` prints the same.

use std::time::Duration;

use axum::Json;
use axum::extract::State;
use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use super::ApiState;
use super::auth::Operator;
use super::routes::routes;
use crate::checks::{self, Finding};
use utoipa_axum::router::OpenApiRouter;

/// How often others are asked over the network, at most.
pub(super) const OTHERS_EVERY: Duration = Duration::from_secs(30);

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

/// Looks whether the server is set up right: settings, files, the database, upkeep, workers, lanes, push services, and the server as
/// browsers see it at its public URL. Nothing is changed.
///
/// What cannot be looked at within three seconds is told so. Files, disk and clock are those of the process that answers. Others are
/// asked over the network once in half a minute at most, and only those that settings or the program name.
#[utoipa::path(get, path = "/v1/checks", tag = "Operations", responses((status = 200, body = Findings)))]
pub(crate) async fn list(_: Operator, State(state): State<ApiState>) -> Json<Findings> {
    let (at, setup) = (state.clock.now(), &state.settings.setup);
    let outside = state.outside.get(&state.clock, checks::network::look(&state.pool, &state.gateways, setup));
    let (mut data, outside) = tokio::join!(checks::look(&state.pool, setup, at), outside);
    data.extend(outside);
    Json(Findings { at, data: checks::by_gravity(data) })
}
