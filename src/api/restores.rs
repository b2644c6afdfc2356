//! `/v1/apps/{app}/subscriptions/restore`: reactivates subscriptions that their push service reported as gone.

use axum::extract::State;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use super::ApiState;
use super::http::auth::{MayChangeSubscribers, Server};
use super::http::extract::Json;
use super::http::problem::{Faults, Problem};
use super::http::routes::routes;
use bellwire_core::id::LaneId;
use bellwire_core::request_time;
use bellwire_store::audience::restoring::{self, Pruned};
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::queue::lanes;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(restore))
}

/// Maximum subscriptions that one request restores, plus at most one chunk.
const RESTORED_MAX: u64 = 10_000;

/// Subscriptions to restore, by the time at which they were pruned (reported as gone).
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct RestoreRequest {
    /// Number of the lane. By default all lanes of the app.
    lane: Option<i32>,
    /// Start of the period in which they were pruned.
    #[serde(deserialize_with = "request_time::required")]
    since: DateTime<Utc>,
    /// End of that period. By default now.
    #[serde(default, deserialize_with = "request_time::optional")]
    until: Option<DateTime<Utc>>,
    /// Whether to count only, without restoring.
    #[serde(default)]
    dry_run: bool,
}

/// Result of a restore.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct RestoreResponse {
    /// Whether this was a dry run, which only counts.
    dry_run: bool,
    /// Restored subscriptions; with `dry_run`, those that would be restored.
    restored: u64,
    /// Whether more subscriptions may match. Repeat the request to restore them.
    more: bool,
}

/// Reactivates subscriptions that their push service reported as gone (404 or 410) in a period, up to 10,000 per request. They
/// are in their topics again, and get messages accepted from now on. Never restored: unsubscribed, erased or replaced
/// subscriptions, and those whose endpoint the browser has registered again. A subscription that is gone after all is pruned
/// again by the next message.
#[utoipa::path(post, path = "/v1/apps/{app}/subscriptions/restore", tag = "Subscriptions",
    responses((status = 200, body = RestoreResponse)))]
pub(crate) async fn restore(
    server: Server<MayChangeSubscribers>, State(state): State<ApiState>, Json(request, _): Json<RestoreRequest>,
) -> Result<axum::Json<RestoreResponse>, Problem> {
    let now = state.clock.now();
    let RestoreRequest { lane, since, dry_run, .. } = request;
    let until = request.until.unwrap_or(now);
    let mut faults = Faults::default();
    faults.require(since <= until, "/until", "must not be before `since`");
    let lane = lane.map(LaneId);
    if let Some(lane) = lane {
        let found = lanes::find(&state.pool, lane).await?;
        faults.require(
            found.is_some_and(|row| row.app == server.app.id),
            "/lane",
            "must be the number of a lane of this app",
        );
    }
    faults.finish()?;
    let pruned = Pruned { app: server.app.id, lane, since, until };
    let (restored, more) = if dry_run {
        (restoring::count(&state.pool, &state.vault, &pruned, now).await?, false)
    } else {
        let target = lane.map_or_else(|| server.app.id.to_string(), |lane| format!("lane:{lane}"));
        let entry =
            server.did(AuditAction::SubscriptionsRestored, target).with(json!({"since": since, "until": until}));
        restoring::restore(&state.pool, &state.vault, &pruned, RESTORED_MAX, &entry, now).await?
    };
    Ok(axum::Json(RestoreResponse { dry_run, restored, more }))
}
