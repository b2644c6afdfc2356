//! `/v1/apps/{app}/api-keys`: keys of an app's servers. The server's own keys (`/v1/api-keys`), of operators and scrapers,
//! are made on the command line only: see [`super::local_router`].

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use axum::routing::{delete, get};
use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use super::ApiState;
use super::auth::{MayManageKeys, MayRead, Operator, Server};
use super::extract::{At, Json, Query, is_plain_text};
use super::paging::{Page, Paging};
use super::problem::{Faults, Problem};
use crate::id::ApiKeyId;
use crate::store::api_keys::{self, ApiKey, Scope};

/// An API key, without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub struct ApiKeyView {
    /// Its id.
    #[schema(value_type = String)]
    id: ApiKeyId,
    /// Its name for people.
    name: String,
    /// The first characters of its secret.
    hint: String,
    /// What it may do.
    scopes: Vec<Scope>,
    /// When it was made.
    created_at: DateTime<Utc>,
    /// From when on it is not valid any more.
    expires_at: Option<DateTime<Utc>>,
    /// When it was revoked.
    revoked_at: Option<DateTime<Utc>>,
}

impl From<ApiKey> for ApiKeyView {
    fn from(key: ApiKey) -> Self {
        Self {
            id: ApiKeyId(key.id),
            name: key.name,
            hint: key.hint,
            scopes: key.scopes.iter().filter_map(|scope| Scope::from_name(scope)).collect(),
            created_at: key.created_at,
            expires_at: key.expires_at,
            revoked_at: key.revoked_at,
        }
    }
}

/// A new API key and its secret.
#[derive(Serialize, ToSchema)]
pub struct NewApiKeyView {
    #[serde(flatten)]
    key: ApiKeyView,
    /// What requests show as `Authorization: Bearer …`. Shown now and never again.
    secret: String,
}

/// A new API key.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewApiKey {
    /// Its name for people, 1 to 200 characters.
    name: String,
    /// What it may do: any of `send`, `read`, `subscribers`, `messages`, `policies`, `settings`, `keys`, `export`.
    scopes: Vec<Scope>,
    /// From when on it is not valid any more; never by default.
    expires_at: Option<DateTime<Utc>>,
}

/// Lists the app's API keys, the newest first, revoked ones included.
#[utoipa::path(get, path = "/v1/apps/{app}/api-keys", tag = "API keys",
    params(("app" = String, Path, description = "Id or slug"), Paging),
    security(("api_key" = ["read"])), responses((status = 200, body = Page<ApiKeyView>)))]
pub async fn list(
    server: Server<MayRead>,
    State(state): State<ApiState>,
    uri: Uri,
    Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    list_of(&state, Some(server.app.id), &uri, &paging).await
}

/// Makes an API key.
#[utoipa::path(post, path = "/v1/apps/{app}/api-keys", tag = "API keys",
    params(("app" = String, Path, description = "Id or slug")), request_body = NewApiKey,
    security(("api_key" = ["keys"])), responses((status = 201, body = NewApiKeyView)))]
pub async fn create(
    server: Server<MayManageKeys>,
    State(state): State<ApiState>,
    Json(body, _): Json<NewApiKey>,
) -> Result<(StatusCode, axum::Json<NewApiKeyView>), Problem> {
    create_for(&state, Some(server.app.id), body).await
}

/// Revokes an API key at once and for good.
#[utoipa::path(delete, path = "/v1/apps/{app}/api-keys/{api_key}", tag = "API keys",
    params(("app" = String, Path, description = "Id or slug"), ("api_key" = String, Path)),
    security(("api_key" = ["keys"])), responses((status = 204)))]
pub async fn revoke(
    server: Server<MayManageKeys>,
    State(state): State<ApiState>,
    At(id): At<ApiKeyId>,
) -> Result<StatusCode, Problem> {
    revoke_of(&state, Some(server.app.id), id).await
}

/// The same for the server's own keys.
pub(super) fn of_server() -> Router<ApiState> {
    Router::new()
        .route("/v1/api-keys", get(list_of_server).post(create_of_server))
        .route("/v1/api-keys/{api_key}", delete(revoke_of_server))
}

async fn list_of_server(
    _: Operator,
    State(state): State<ApiState>,
    uri: Uri,
    Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    list_of(&state, None, &uri, &paging).await
}

async fn create_of_server(
    _: Operator,
    State(state): State<ApiState>,
    Json(body, _): Json<NewApiKey>,
) -> Result<(StatusCode, axum::Json<NewApiKeyView>), Problem> {
    create_for(&state, None, body).await
}

async fn revoke_of_server(
    _: Operator,
    State(state): State<ApiState>,
    At(id): At<ApiKeyId>,
) -> Result<StatusCode, Problem> {
    revoke_of(&state, None, id).await
}

async fn list_of(state: &ApiState, app: Option<Uuid>, uri: &Uri, paging: &Paging) -> Result<Response, Problem> {
    let cut = paging.cut()?;
    let rows = api_keys::list(&state.pool, app, cut.before, cut.ask()).await?;
    Ok(cut.page(rows, |key| key.id, ApiKeyView::from).answer(uri))
}

async fn create_for(
    state: &ApiState,
    app: Option<Uuid>,
    mut body: NewApiKey,
) -> Result<(StatusCode, axum::Json<NewApiKeyView>), Problem> {
    let now = state.clock.now();
    let mut faults = Faults::default();
    faults.require(is_plain_text(&body.name, 200), "/name", "must be 1 to 200 characters without control characters");
    if app.is_none() {
        let one = matches!(body.scopes[..], [scope] if Scope::OF_SERVER.contains(&scope));
        faults.require(one, "/scopes", "must be `operator` or `metrics`, and that alone");
    } else {
        faults.require(!body.scopes.is_empty(), "/scopes", "must hold at least one scope");
        for (i, _) in body.scopes.iter().enumerate().filter(|(_, scope)| Scope::OF_SERVER.contains(scope)) {
            faults.refuse(format!("/scopes/{i}"), "is not for an app's keys: make the server's on the command line");
        }
    }
    faults.require(body.expires_at.is_none_or(|at| at > now), "/expires_at", "must be in the future");
    faults.finish()?;
    body.scopes.sort_by_key(|scope| scope.name());
    body.scopes.dedup();
    let (key, secret) =
        api_keys::create(&state.pool, &state.vault, app, &body.name, &body.scopes, body.expires_at, &state.clock)
            .await?;
    Ok((StatusCode::CREATED, axum::Json(NewApiKeyView { key: key.into(), secret })))
}

async fn revoke_of(state: &ApiState, app: Option<Uuid>, id: ApiKeyId) -> Result<StatusCode, Problem> {
    if api_keys::revoke(&state.pool, app, id.0, state.clock.now()).await? {
        return Ok(StatusCode::NO_CONTENT);
    }
    Err(Problem::not_found("API key"))
}
