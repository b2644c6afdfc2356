//! `/v1/apps/{app}/api-keys`: API keys of an app. The server's own keys (`/v1/api-keys`), for operators and scrapers, are
//! created only on the command line: see [`super::local_router`].

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, Uri};
use axum::response::Response;
use axum::routing::{delete, get};
use chrono::{DateTime, NaiveDate, SecondsFormat, Utc};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use super::ApiState;
use super::http::auth::{MayManageKeys, MayRead, Operator, Server, unknown_key};
use super::http::caller::Caller;
use super::http::extract::{PathId, Query, is_plain_text};
use super::http::idempotency::{Instead, Making, Pending};
use super::http::paging::{Page, Paging};
use super::http::problem::{Faults, FieldError, Problem};
use super::http::routes::routes;
use bellwire_core::id::{ApiKeyId, AppId};
use bellwire_core::request_time;
use bellwire_core::scope::Scope;
use bellwire_store::keys::api_keys::{self, ApiKey, NewKey};
use utoipa_axum::router::OpenApiRouter;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(list, create)).routes(routes!(revoke))
}

/// An API key, without its secret.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ApiKeyResponse {
    /// Id of the key.
    id: ApiKeyId,
    /// Display name of the key.
    name: String,
    /// First characters of the secret, to recognise the key.
    hint: String,
    /// Scopes of the key.
    scopes: Vec<Scope>,
    /// Time of the creation.
    created_at: DateTime<Utc>,
    /// Time from which the key is invalid. Null: never.
    expires_at: Option<DateTime<Utc>>,
    /// Time of the revocation. Null: not revoked.
    revoked_at: Option<DateTime<Utc>>,
    /// Day (UTC) of the last request with this key. Null: never used.
    last_used_on: Option<NaiveDate>,
    /// Creator: the id of an API key or a teammate, or `local` for the command line.
    created_by: String,
}

impl From<ApiKey> for ApiKeyResponse {
    fn from(key: ApiKey) -> Self {
        let created_by = key.maker().name();
        Self {
            id: key.id,
            name: key.name,
            hint: key.hint,
            scopes: key.scopes.iter().filter_map(|scope| Scope::from_name(scope)).collect(),
            created_at: key.created_at,
            expires_at: key.expires_at,
            revoked_at: key.revoked_at,
            last_used_on: key.last_used_on,
            created_by,
        }
    }
}

/// A new API key and its secret.
#[derive(Serialize, ToSchema)]
pub(crate) struct CreatedApiKey {
    #[serde(flatten)]
    key: ApiKeyResponse,
    /// Secret for `Authorization: Bearer …`. It is shown only now.
    secret: String,
}

/// A new API key.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewApiKey {
    /// Display name of the key, 1 to 200 characters.
    name: String,
    /// Scopes of the key: any of `send`, `read`, `subscribers`, `messages`, `policies`, `settings`, `keys`, `export`.
    scopes: Vec<Scope>,
    /// Time from which the key is invalid. By default the expiry of the key that creates it.
    #[serde(default, deserialize_with = "request_time::optional")]
    expires_at: Option<DateTime<Utc>>,
}

/// Options of a revocation.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct RevokeQuery {
    /// Whether keys created with this key, directly or indirectly, stay valid. By default they are revoked, too.
    #[serde(default)]
    keep_descendants: bool,
}

/// Result of a revocation.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ApiKeysRevoked {
    /// Number of revoked keys: this one and, unless kept, its descendants. Keys that were revoked before are not counted.
    revoked: i64,
}

/// Lists the app's API keys, the newest first, revoked ones included.
#[utoipa::path(get, path = "/v1/apps/{app}/api-keys", tag = "API keys",
    responses((status = 200, body = Page<ApiKeyResponse>)))]
pub(crate) async fn list(
    server: Server<MayRead>, State(state): State<ApiState>, uri: Uri, Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    list_of(&state, Some(server.app.id), &uri, &paging).await
}

/// Creates an API key. The new key cannot have permissions that the creating key lacks, and cannot outlast that key. A key
/// created by a signed-in teammate has no such end.
#[utoipa::path(post, path = "/v1/apps/{app}/api-keys", tag = "API keys", request_body = NewApiKey,
    responses((status = 201, body = CreatedApiKey)))]
pub(crate) async fn create(
    server: Server<MayManageKeys>, State(state): State<ApiState>, Making(body, faults, pending): Making<NewApiKey>,
) -> Result<Response, Instead> {
    create_for(&state, Some(server.app.id), &server.caller, (body, faults), pending).await
}

/// Revokes an API key at once and permanently. Keys that were created with it (API and identity keys) are revoked, too, unless
/// `keep_descendants` is set: a thief may have created them. A key cannot revoke one with more permissions than its own.
#[utoipa::path(delete, path = "/v1/apps/{app}/api-keys/{api_key}", tag = "API keys",
    responses((status = 200, body = ApiKeysRevoked)))]
pub(crate) async fn revoke(
    server: Server<MayManageKeys>, State(state): State<ApiState>, PathId(id): PathId<ApiKeyId>,
    Query(query): Query<RevokeQuery>,
) -> Result<axum::Json<ApiKeysRevoked>, Problem> {
    revoke_of(&state, Some(server.app.id), &server.caller, id, query).await
}

pub(super) fn of_server() -> Router<ApiState> {
    Router::new()
        .route("/v1/api-keys", get(list_of_server).post(create_of_server))
        .route("/v1/api-keys/{api_key}", delete(revoke_of_server))
}

async fn list_of_server(
    _: Operator, State(state): State<ApiState>, uri: Uri, Query(paging): Query<Paging>,
) -> Result<Response, Problem> {
    list_of(&state, None, &uri, &paging).await
}

async fn create_of_server(
    operator: Operator, State(state): State<ApiState>, Making(body, faults, pending): Making<NewApiKey>,
) -> Result<Response, Instead> {
    create_for(&state, None, &operator.caller, (body, faults), pending).await
}

async fn revoke_of_server(
    operator: Operator, State(state): State<ApiState>, PathId(id): PathId<ApiKeyId>, Query(query): Query<RevokeQuery>,
) -> Result<axum::Json<ApiKeysRevoked>, Problem> {
    revoke_of(&state, None, &operator.caller, id, query).await
}

async fn list_of(state: &ApiState, app: Option<AppId>, uri: &Uri, paging: &Paging) -> Result<Response, Problem> {
    let cut = paging.cut()?;
    let rows = api_keys::list(&state.pool, app, cut.ask()).await?;
    Ok(cut.page(rows, |key| key.id, ApiKeyResponse::from).answer(uri))
}

async fn create_for(
    state: &ApiState, app: Option<AppId>, maker: &Caller, (mut body, mut faults): (NewApiKey, Faults), pending: Pending,
) -> Result<Response, Instead> {
    faults.require(is_plain_text(&body.name, 200), "/name", "must be 1 to 200 characters without control characters");
    if app.is_none() {
        let one = matches!(body.scopes[..], [scope] if Scope::OF_SERVER.contains(&scope));
        faults.require(one, "/scopes", "must be `operator` or `metrics`, and that alone");
    } else {
        faults.require(!body.scopes.is_empty(), "/scopes", "must hold at least one scope");
        for (i, _) in body.scopes.iter().enumerate().filter(|(_, scope)| Scope::OF_SERVER.contains(scope)) {
            faults.refuse(
                format!("/scopes/{i}"),
                "is only for keys of the server, which are created on the command line",
            );
        }
    }
    faults.require(body.expires_at.is_none_or(|at| at > state.clock.now()), "/expires_at", "must be in the future");
    faults.finish()?;
    check_descent(maker, &body)?;
    body.scopes.sort_by_key(|scope| scope.name());
    body.scopes.dedup();
    let expires_at = body.expires_at.or_else(|| maker.expires_at());
    let new = NewKey { app, name: &body.name, scopes: &body.scopes, expires_at };
    let mut once = pending.begin(state).await?;
    let made = api_keys::make(once.conn(), &state.vault, new, maker.actor(), &state.clock).await?;
    let (key, secret) = made.ok_or_else(unknown_key)?;
    once.finish(state, StatusCode::CREATED, &CreatedApiKey { key: key.into(), secret }).await
}

/// Checks that a new key has no more permissions than its creator, and does not outlast it.
fn check_descent(maker: &Caller, body: &NewApiKey) -> Result<(), Problem> {
    let mut excess = Vec::new();
    for (i, scope) in body.scopes.iter().enumerate().filter(|(_, scope)| !maker.may(**scope)) {
        let detail = format!("takes a key that has the scope `{}` itself", scope.name());
        excess.push(FieldError::member(format!("/scopes/{i}"), detail));
    }
    if let (Some(wanted), Some(end)) = (body.expires_at, maker.expires_at())
        && wanted > end
    {
        let end = end.to_rfc3339_opts(SecondsFormat::AutoSi, true);
        excess.push(FieldError::member(
            "/expires_at",
            format!("must not be later than {end}, when your own key expires"),
        ));
    }
    if excess.is_empty() {
        return Ok(());
    }
    let mut problem = Problem::forbidden("A key can create only keys with at most its own permissions and lifetime.");
    problem.errors = excess;
    Err(problem)
}

async fn revoke_of(
    state: &ApiState, app: Option<AppId>, by: &Caller, id: ApiKeyId, RevokeQuery { keep_descendants }: RevokeQuery,
) -> Result<axum::Json<ApiKeysRevoked>, Problem> {
    let target = api_keys::find(&state.pool, app, id).await?.ok_or_else(|| Problem::not_found("API key"))?;
    // Keys created by a key have no more scopes than their creator.
    if target.scopes.iter().any(|scope| Scope::from_name(scope).is_none_or(|scope| !by.may(scope))) {
        return Err(Problem::forbidden("A key can revoke only keys with at most its own permissions."));
    }
    let now = state.clock.now();
    let _changing = state.known_keys.changing();
    let revoked = api_keys::revoke(&state.pool, app, id, keep_descendants, by.actor(), now).await?;
    revoked.map(|revoked| axum::Json(ApiKeysRevoked { revoked })).ok_or_else(|| Problem::not_found("API key"))
}
