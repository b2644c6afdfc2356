//! `/v1/audit-log` and `/v1/apps/{app}/audit-log`: actions of API keys, teammates and the command line.

use axum::extract::State;
use axum::http::Uri;
use axum::response::Response;
use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use utoipa::{IntoParams, ToSchema};

use super::ApiState;
use super::http::app_ref::AppRef;
use super::http::auth::{MayRead, Operator, Server};
use super::http::extract::{Query, UserId, named_app};
use super::http::paging::Paging;
use super::http::problem::Problem;
use super::http::routes::routes;
use super::users;
use bellwire_core::id::{ApiKeyId, AppId, EntryId, TeammateId};
use bellwire_core::request_time;
use bellwire_store::keys::audit::{self, ActorFilter, AuditAction, AuditFilter, AuditRow};
use bellwire_vault::Vault;
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list)).routes(routes!(list_of_app))
}

/// Entry of the audit log.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct AuditEntryResponse {
    /// Id of the entry.
    id: EntryId,
    /// Time of the action.
    at: DateTime<Utc>,
    /// App of the object. Null: the action concerns the server.
    app: Option<AppId>,
    /// Kind of the actor: `api_key`, `operator`, `teammate`, `local` for the command line, or `nobody` for a failed sign-in.
    actor_kind: String,
    /// Actor: the id of an API key or a teammate, `local` or `nobody`.
    actor: String,
    /// Address of the client. Null for the command line. An app's own log omits the addresses of operators.
    address: Option<String>,
    /// Action: `api_key.created`, `message.cancelled` …
    action: String,
    /// Object of the action: an id or a name. A user is shown as a pseudonymous label, the same in each entry.
    target: String,
    /// Number of objects affected. An action of several transactions has one entry for each, with the same target.
    n: i64,
    /// Further details of the action.
    #[schema(value_type = Object)]
    detail: Value,
}

impl From<AuditRow> for AuditEntryResponse {
    fn from(row: AuditRow) -> Self {
        let actor = row.actor();
        let AuditRow { id, at, app, actor_kind, actor: _, address, action, target, n, detail } = row;
        Self { id, at, app, actor_kind, actor, address, action, target, n, detail }
    }
}

/// Filter of an app's log.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AppAuditQuery {
    /// Actor: the id of an API key or a teammate, `local` for the command line, or `nobody` for failed sign-ins.
    #[serde(default, deserialize_with = "actor")]
    #[param(value_type = Option<String>)]
    actor: Option<ActorFilter>,
    /// Action: `api_key.created`, `message.cancelled` …
    #[param(inline)]
    action: Option<AuditAction>,
    /// User of the app who is the object of the action. The log stores only a label derived from the id, so entries of erased
    /// users are found, too.
    user_id: Option<String>,
    /// Earliest time of the actions, to the millisecond.
    #[serde(default, deserialize_with = "request_time::optional")]
    since: Option<DateTime<Utc>>,
    /// Time before which the actions happened.
    #[serde(default, deserialize_with = "request_time::optional")]
    until: Option<DateTime<Utc>>,
    /// Entries per page, 1 to 250; 50 by default.
    limit: Option<u16>,
    /// `iterator` or `prev_iterator` of another page.
    iterator: Option<String>,
}

/// Filter of the whole log.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct AuditQuery {
    /// Id or slug of the app. The id of a deleted app works, too.
    app: Option<String>,
    /// Actor: the id of an API key or a teammate, `local` for the command line, or `nobody` for failed sign-ins.
    #[serde(default, deserialize_with = "actor")]
    #[param(value_type = Option<String>)]
    actor: Option<ActorFilter>,
    /// Action: `api_key.created`, `message.cancelled` …
    #[param(inline)]
    action: Option<AuditAction>,
    /// User of `app` who is the object of the action. The log stores only a label derived from the id.
    user_id: Option<String>,
    /// Earliest time of the actions, to the millisecond.
    #[serde(default, deserialize_with = "request_time::optional")]
    since: Option<DateTime<Utc>>,
    /// Time before which the actions happened.
    #[serde(default, deserialize_with = "request_time::optional")]
    until: Option<DateTime<Utc>>,
    /// Entries per page, 1 to 250; 50 by default.
    limit: Option<u16>,
    /// `iterator` or `prev_iterator` of another page.
    iterator: Option<String>,
}

fn actor<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<ActorFilter>, D::Error> {
    let Some(text) = Option::<String>::deserialize(deserializer)? else { return Ok(None) };
    let kind = [audit::LOCAL, audit::NOBODY].into_iter().find(|kind| *kind == text).map(ActorFilter::Kind);
    let key = || text.parse::<ApiKeyId>().ok().map(|key| ActorFilter::Id(key.0));
    let teammate = || text.parse::<TeammateId>().ok().map(|teammate| ActorFilter::Id(teammate.0));
    let rule = "must be the id of an API key or a teammate, `ak_…` or `tm_…`, or `local`, or `nobody`";
    kind.or_else(key).or_else(teammate).map(Some).ok_or_else(|| serde::de::Error::custom(rule))
}

impl AppAuditQuery {
    fn read(self, vault: &Vault, app: Option<AppId>) -> Result<(AuditFilter, Paging), Problem> {
        let Self { actor, action, user_id, since, until, limit, iterator } = self;
        let target = match (user_id, app) {
            (None, _) => None,
            (Some(user), Some(app)) => {
                let UserId(user) = user.parse().map_err(|rule| Problem::invalid_parameter("user_id", rule))?;
                Some(users::label(vault, app, &user))
            }
            (Some(_), None) => return Err(Problem::invalid_parameter("user_id", "goes together with `app`")),
        };
        Ok((AuditFilter { app, actor, action, target, since, until }, Paging { limit, iterator }))
    }
}

/// Lists all actions on this server by API keys, teammates and the command line, the latest first.
#[utoipa::path(get, path = "/v1/audit-log", tag = "Operations",
    responses((status = 200, body = super::http::paging::Page<AuditEntryResponse>)))]
pub(crate) async fn list(
    _: Operator, State(state): State<ApiState>, uri: Uri, Query(query): Query<AuditQuery>,
) -> Result<Response, Problem> {
    let AuditQuery { app, actor, action, user_id, since, until, limit, iterator } = query;
    let app = match app.as_deref().map(AppRef::from) {
        None => None,
        Some(AppRef::Id(id)) => Some(id),
        Some(slug) => Some(named_app(&state, slug).await?.id),
    };
    let query = AppAuditQuery { actor, action, user_id, since, until, limit, iterator };
    let (filter, paging) = query.read(&state.vault, app)?;
    let cut = paging.cut()?;
    let rows = audit::list(state.reads.pool(), &filter, cut.ask()).await?;
    Ok(cut.page(rows, |row| row.id, AuditEntryResponse::from).answer(&uri))
}

/// Lists all actions on an app by API keys, teammates and the command line, the latest first.
#[utoipa::path(get, path = "/v1/apps/{app}/audit-log", tag = "Apps",
    responses((status = 200, body = super::http::paging::Page<AuditEntryResponse>)))]
pub(crate) async fn list_of_app(
    server: Server<MayRead>, State(state): State<ApiState>, uri: Uri, Query(query): Query<AppAuditQuery>,
) -> Result<Response, Problem> {
    let (filter, paging) = query.read(&state.vault, Some(server.app.id))?;
    let cut = paging.cut()?;
    let rows = audit::list(state.reads.pool(), &filter, cut.ask()).await?;
    let show = |row: AuditRow| {
        let address = row.address.clone().filter(|_| row.actor_kind == "api_key");
        AuditEntryResponse { address, ..AuditEntryResponse::from(row) }
    };
    Ok(cut.page(rows, |row| row.id, show).answer(&uri))
}
