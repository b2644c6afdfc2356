//! `/v1/apps/{app}/export`: all data of an app, for import into another server. `…/exports` lists the exports made.

mod giving;
pub(crate) mod record;
mod run;
mod settings;

use axum::extract::{Request, State};
use axum::http::{HeaderValue, Uri, header};
use axum::response::{IntoResponse, Response};
use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::{IntoParams, ToSchema};
use utoipa_axum::router::OpenApiRouter;

use super::ApiState;
use super::http::auth::{MayExport, MayRead, Server};
use super::http::extract::Query;
use super::http::outgoing::Outgoing;
use super::http::paging::{Page, Paging};
use super::http::problem::Problem;
use super::http::routes::routes;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{ExportId, SubscriptionId};
use bellwire_core::named;
use bellwire_store::keys::audit::AuditAction;
use bellwire_store::operations::exports::{self, ExportRow, NewExport};
use giving::Giver;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(export)).routes(routes!(list))
}

/// Time without progress after which an export counts as crashed. Clients have a minute to read each part.
const LOST_AFTER: TimeDelta = TimeDelta::minutes(3);

named! {
    /// Contents of an export.
    #[derive(Default)]
    #[schema(as = ExportContents)]
    pub(crate) enum Contents {
        #[default]
        App = "app",
        Subscriptions = "subscriptions",
    }
}

named! {
    /// The form of an export.
    #[derive(Default)]
    #[schema(as = ExportFormat)]
    pub(crate) enum ExportFormat {
        /// A JSON object on each line, with its `type`.
        #[default]
        Ndjson = "ndjson",
        /// Comma-separated values (RFC 4180) under a line of names; subscriptions alone.
        Csv = "csv",
    }
}

named! {
    #[schema(as = ExportState)]
    pub(crate) enum ExportStatus {
        Running = "running",
        Complete = "complete",
        /// The client or the server disconnected: the received file is incomplete.
        BrokenOff = "broken_off",
    }
}

/// Export of an app.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Export)]
pub(crate) struct ExportView {
    /// Id of the export.
    id: ExportId,
    /// Time of its start.
    started_at: DateTime<Utc>,
    /// Time of its end. Null: running, or the server crashed.
    ended_at: Option<DateTime<Utc>>,
    /// State of the export.
    state: ExportStatus,
    /// Lines sent so far.
    lines: i64,
    /// Caller: the id of an API key or a teammate, or `local` for the command line.
    by: String,
}

impl ExportView {
    fn new(row: ExportRow, now: Timestamp) -> Self {
        let state = match row.ended_at {
            Some(_) if row.complete => ExportStatus::Complete,
            None if now < row.changed_at + LOST_AFTER => ExportStatus::Running,
            _ => ExportStatus::BrokenOff,
        };
        let ExportRow { id, started_at, ended_at, lines, actor: by, .. } = row;
        Self { id, started_at, ended_at, state, lines, by }
    }
}

/// Options of an export.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ExportQuery {
    /// `subscriptions`: only those. By default everything.
    #[param(inline)]
    only: Option<Contents>,
    /// Format; by default lines of JSON.
    #[param(inline)]
    format: Option<ExportFormat>,
    /// Whether CSV cells are the stored values. By default a cell that a spreadsheet would evaluate as a formula gets an
    /// apostrophe in front, and the column `neutralised` is `true`. An import removes the apostrophe.
    #[serde(default)]
    raw: bool,
    /// Continues after this subscription, the last one received. Settings and the header line are then omitted.
    after: Option<SubscriptionId>,
}

/// Lists the last 100 exports of an app, the newest first.
#[utoipa::path(get, path = "/v1/apps/{app}/exports", tag = "Apps", responses((status = 200, body = Page<ExportView>)))]
pub(crate) async fn list(
    server: Server<MayRead>, State(state): State<ApiState>, uri: Uri, Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    let cut = paging.cut()?;
    let rows = exports::list(&state.pool, server.app.id, cut.ask()).await?;
    let now = state.clock.now();
    Ok(cut.page(rows, |row| row.id, |row| ExportView::new(row, now)).answer(&uri))
}

/// Exports all data of an app.
///
/// `bellwire import` creates the same app on another server: settings, VAPID pairs, identity keys, topics, policies, segments,
/// templates, webhooks, draft and recurring campaigns, and subscriptions. Secrets and endpoint keys are not encrypted: the
/// holder of the file can send to these browsers.
///
/// Each line is a JSON object with its `type`. The last line is `{"type":"end","counts":{…}}`: a file without it is incomplete.
/// `after` continues after the last received subscription. The export is not a snapshot: concurrent changes may or may not be
/// included.
#[utoipa::path(get, path = "/v1/apps/{app}/export", tag = "Apps",
    responses((status = 200, content(
        (serde_json::Value = "application/x-ndjson"), (String = "text/csv")))))]
pub(crate) async fn export(
    server: Server<MayExport>, State(state): State<ApiState>, Query(query): Query<ExportQuery>, mut request: Request,
) -> Result<Response, Problem> {
    let (contents, format) = (query.only.unwrap_or_default(), query.format.unwrap_or_default());
    if format == ExportFormat::Csv && contents == Contents::App {
        return Err(Problem::invalid_parameter(
            "format",
            "`csv` takes `only=subscriptions`: an app does not fit into one table",
        ));
    }
    if query.raw && format != ExportFormat::Csv {
        return Err(Problem::invalid_parameter("raw", "is for `format=csv`: lines of JSON are the stored values"));
    }
    let place = state.place_to_transfer(server.app.id).await?;
    let (id, now) = (ExportId(state.clock.uuid()), state.clock.now());
    let actor = server.caller.actor().who.name();
    let new = NewExport { id, app: server.app.id, contents: contents.name(), format: format.name(), actor: &actor };
    let mut tx = state.begin().await?;
    exports::begin(&mut tx, new, now).await?;
    let detail = json!({"contents": contents, "format": format, "after": query.after});
    server.did(AuditAction::AppExported, id).with(detail).record(&mut tx, 1, now).await?;
    tx.commit().await?;
    tracing::info!(export = %id, "an app is being exported");
    let (media_type, suffix) = match format {
        ExportFormat::Ndjson => ("application/x-ndjson", "ndjson"),
        ExportFormat::Csv => ("text/csv; charset=utf-8; header=present", "csv"),
    };
    let file = format!("attachment; filename=\"{}-{}.{suffix}\"", server.app.slug, now.format("%Y-%m-%d"));
    let file = HeaderValue::try_from(file).map_err(|_| Problem::internal())?;
    let (to, body) = Outgoing::answering(&mut request, &state);
    Giver { state, app: server.app, id, contents, format, raw: query.raw, after: query.after, _place: place }.give(to);
    let headers = [
        (header::CONTENT_TYPE, HeaderValue::from_static(media_type)),
        (header::CONTENT_DISPOSITION, file),
        (header::CACHE_CONTROL, HeaderValue::from_static("no-store")),
    ];
    Ok((headers, body).into_response())
}
