//! `/v1/audit-log` and `/v1/apps/{app}/audit-log`: what people with keys did.

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::ApiState;
use super::auth::{MayRead, Operator, Server};
use super::extract::{AppRef, Query, named_app};
use super::paging::Paging;
use super::problem::Problem;
use crate::model::id::{ApiKeyId, AppId, EntryId};
use crate::store::keys::audit::{self, Action, Filter, Row};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The routes of this resource.
pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(list_of_app))
}

/// Something that somebody did.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct EntryView {
    /// Its id.
    #[schema(value_type = String)]
    id: EntryId,
    /// When.
    at: DateTime<Utc>,
    /// The app it was done to; null: the server.
    #[schema(value_type = Option<String>)]
    app: Option<AppId>,
    /// By what right: `api_key`, `operator`, or `local` for the command line.
    actor_kind: String,
    /// By whom: the id of an API key, or `local`.
    actor: String,
    /// Address of the client; null for the command line. An app's own log does not tell where operators are.
    address: Option<String>,
    /// What: `api_key.created`, `message.cancelled` …
    action: String,
    /// To what: an id, or a name. A user is told by a label only, which is the same each time.
    target: String,
    /// To how many. What was done in several transactions has an entry for each, with the same target.
    n: i64,
    /// What else is worth knowing.
    #[schema(value_type = Object)]
    detail: Value,
}

impl From<Row> for EntryView {
    fn from(row: Row) -> Self {
        let Row { id, at, app, actor_kind, actor, address, action, target, n, detail } = row;
        let (id, actor) = (EntryId(id), audit::name_of(actor));
        Self { id, at, app, actor_kind, actor, address, action, target, n, detail }
    }
}

/// Which entries of an app's log.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AppAuditQuery {
    /// By whom: the id of an API key, or `local` for the command line.
    #[serde(default, deserialize_with = "actor")]
    #[param(value_type = Option<String>)]
    actor: Option<Option<ApiKeyId>>,
    /// What: `api_key.created`, `message.cancelled` …
    #[param(inline)]
    action: Option<Action>,
    /// At this time or later, to the millisecond.
    since: Option<DateTime<Utc>>,
    /// Before this time.
    until: Option<DateTime<Utc>>,
    /// Entries per page, 1 to 250; 50 by default.
    limit: Option<u16>,
    /// `iterator` of the page before.
    iterator: Option<String>,
}

/// Which entries of the whole log.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditQuery {
    /// Of this app: its id or slug. The id of an app that is not there any more works, too.
    app: Option<String>,
    /// By whom: the id of an API key, or `local` for the command line.
    #[serde(default, deserialize_with = "actor")]
    #[param(value_type = Option<String>)]
    actor: Option<Option<ApiKeyId>>,
    /// What: `api_key.created`, `message.cancelled` …
    #[param(inline)]
    action: Option<Action>,
    /// At this time or later, to the millisecond.
    since: Option<DateTime<Utc>>,
    /// Before this time.
    until: Option<DateTime<Utc>>,
    /// Entries per page, 1 to 250; 50 by default.
    limit: Option<u16>,
    /// `iterator` of the page before.
    iterator: Option<String>,
}

fn actor<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Option<ApiKeyId>>, D::Error> {
    match Option::<String>::deserialize(deserializer)?.as_deref() {
        None => Ok(None),
        Some(audit::LOCAL) => Ok(Some(None)),
        Some(text) => match text.parse() {
            Ok(key) => Ok(Some(Some(key))),
            Err(_) => Err(serde::de::Error::custom("must be the id of an API key, `ak_…`, or `local`")),
        },
    }
}

impl AppAuditQuery {
    fn read(self, app: Option<AppId>) -> (Filter, Paging) {
        let Self { actor, action, since, until, limit, iterator } = self;
        let actor = actor.map(|key| key.map(|key| key.0));
        (Filter { app, actor, action, since, until }, Paging { limit, iterator })
    }
}

/// Lists what was done with keys and at the command line on this server, the latest first.
#[utoipa::path(get, path = "/v1/audit-log", tag = "Operations", params(AuditQuery),
    security(("api_key" = ["operator"])), responses((status = 200, body = super::paging::Page<EntryView>)))]
pub(crate) async fn list(
    _: Operator,
    State(state): State<ApiState>,
    uri: Uri,
    Query(query): Query<AuditQuery>,
) -> Result<Response, Problem> {
    let AuditQuery { app, actor, action, since, until, limit, iterator } = query;
    let app = match app.as_deref().map(AppRef::from) {
        None => None,
        Some(AppRef::Id(id)) => Some(id),
        Some(slug) => Some(named_app(&state, slug).await?.id),
    };
    let (filter, paging) = AppAuditQuery { actor, action, since, until, limit, iterator }.read(app);
    let cut = paging.cut()?;
    let rows = audit::list(&state.pool, &filter, cut.before, cut.ask()).await?;
    Ok(cut.page(rows, |row| row.id, EntryView::from).answer(&uri))
}

/// Lists what was done to an app with keys and at the command line, the latest first.
#[utoipa::path(get, path = "/v1/apps/{app}/audit-log", tag = "Apps",
    params(("app" = String, Path, description = "Id or slug"), AppAuditQuery),
    security(("api_key" = ["read"])), responses((status = 200, body = super::paging::Page<EntryView>)))]
pub(crate) async fn list_of_app(
    server: Server<MayRead>,
    State(state): State<ApiState>,
    uri: Uri,
    Query(query): Query<AppAuditQuery>,
) -> Result<Response, Problem> {
    let (filter, paging) = query.read(Some(server.app.id));
    let cut = paging.cut()?;
    let rows = audit::list(&state.pool, &filter, cut.before, cut.ask()).await?;
    let show = |row: Row| {
        let address = row.address.clone().filter(|_| row.actor_kind == "api_key");
        EntryView { address, ..EntryView::from(row) }
    };
    Ok(cut.page(rows, |row| row.id, show).answer(&uri))
}
