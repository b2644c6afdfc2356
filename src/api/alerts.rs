//! `/v1/alerts`: problems that need an operator.

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::json;
use utoipa::ToSchema;

use super::ApiState;
use super::http::auth::{Operator, Watcher};
use super::http::extract::{PathId, Query};
use super::http::paging::{Page, Paging};
use super::http::problem::Problem;
use super::http::routes::routes;
use bellwire_core::id::{AlertId, AppId};
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::outcomes::alerts::{self, AlertKind, AlertRow};
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(resolve))
}

/// Alert for operators.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AlertResponse {
    /// Id of the alert.
    id: AlertId,
    /// App of the alert. Null: it concerns the whole server.
    app: Option<AppId>,
    /// Kind of the alert.
    kind: AlertKind,
    /// Subject of the alert: a key, message, lane or metric.
    subject: String,
    /// Description of the problem, as text to display.
    detail: String,
    /// Number of occurrences since the alert was opened.
    n: i64,
    /// Time at which the alert was opened.
    first_at: DateTime<Utc>,
    /// Time of the last occurrence.
    last_at: DateTime<Utc>,
    /// Time at which the alert was resolved. Null: it is open.
    resolved_at: Option<DateTime<Utc>>,
}

impl From<AlertRow> for AlertResponse {
    fn from(row: AlertRow) -> Self {
        let AlertRow { id, app, kind, subject, detail, n, first_at, last_at, resolved_at } = row;
        Self { id, app, kind, subject, detail, n, first_at, last_at, resolved_at }
    }
}

/// Lists all alerts: open ones first, each group from the newest alert.
#[utoipa::path(get, path = "/v1/alerts", tag = "Operations", responses((status = 200, body = Page<AlertResponse>)))]
pub(crate) async fn list(
    _: Watcher, State(state): State<ApiState>, uri: Uri, Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let cut = paging.cut()?;
    let rows = alerts::list(&state.pool, cut.ask()).await?;
    Ok(cut.page(rows, |row| row.id, AlertResponse::from).answer(&uri))
}

/// Resolves an alert. Its next occurrence opens a new one.
#[utoipa::path(post, path = "/v1/alerts/{alert}/resolve", tag = "Operations",
    responses((status = 200, body = AlertResponse)))]
pub(crate) async fn resolve(
    operator: Operator, State(state): State<ApiState>, PathId(id): PathId<AlertId>,
) -> Result<axum::Json<AlertResponse>, Problem> {
    let now = state.clock.now();
    let mut tx = state.begin().await?;
    let row = alerts::resolve(&mut *tx, id, now).await?.ok_or_else(|| Problem::not_found("alert"))?;
    if row.resolved_at == Some(now) {
        let entry = operator.caller.did(row.app, AuditAction::AlertResolved, id);
        entry.with(json!({"kind": row.kind, "subject": row.subject})).record(&mut tx, 1, now).await?;
    }
    tx.commit().await?;
    Ok(axum::Json(row.into()))
}
