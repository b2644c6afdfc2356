//! `/v1/alerts`: problems that need an operator.

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use serde_json::json;

use super::ApiState;
use super::http::auth::{Operator, Watcher};
use super::http::extract::{PathId, Query};
use super::http::paging::{Page, Paging};
use super::http::problem::Problem;
use super::http::routes::routes;
use bellwire_core::id::AlertId;
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::outcomes::alerts::{self, AlertRow};
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(resolve))
}

/// Lists all alerts: open ones first, each group from the newest alert.
#[utoipa::path(get, path = "/v1/alerts", tag = "Operations", responses((status = 200, body = Page<AlertRow>)))]
pub(crate) async fn list(
    _: Watcher, State(state): State<ApiState>, uri: Uri, Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let cut = paging.cut()?;
    let rows = alerts::list(&state.pool, cut.ask()).await?;
    Ok(cut.page(rows, |row| row.id, |row| row).answer(&uri))
}

/// Resolves an alert. Its next occurrence opens a new one.
#[utoipa::path(post, path = "/v1/alerts/{alert}/resolve", tag = "Operations",
    responses((status = 200, body = AlertRow)))]
pub(crate) async fn resolve(
    operator: Operator, State(state): State<ApiState>, PathId(id): PathId<AlertId>,
) -> Result<axum::Json<AlertRow>, Problem> {
    let now = state.clock.now();
    let mut tx = state.begin().await?;
    let row = alerts::resolve(&mut *tx, id, now).await?.ok_or_else(|| Problem::not_found("alert"))?;
    if row.resolved_at == Some(now) {
        let entry = operator.caller.did(row.app, AuditAction::AlertResolved, id);
        entry.with(json!({"kind": row.kind, "subject": row.subject})).record(&mut tx, 1, now).await?;
    }
    tx.commit().await?;
    Ok(axum::Json(row))
}
