//! `GET /v1/apps/{app}/config`: what a page needs to subscribe.

use axum::extract::State;
use axum::http::{HeaderName, header};
use axum::response::IntoResponse;
use serde::Serialize;
use utoipa::ToSchema;

use super::ApiState;
use super::auth::{Client, MayRead};
use super::problem::Problem;
use crate::model::base64url;
use crate::model::id::VapidKeyId;
use crate::store::keys::vapid_keys;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

/// The routes of this resource.
pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(show))
}

/// What a page needs to subscribe.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Config {
    /// What to call `pushManager.subscribe` with, in base64url.
    application_server_key: String,
    /// Its id, to be handed back with the subscription.
    #[schema(value_type = String)]
    vapid_key_id: VapidKeyId,
}

/// How long a browser may take it for current: a new key reaches everybody within a minute.
const CACHED: [(HeaderName, &str); 1] = [(header::CACHE_CONTROL, "max-age=60")];

/// Shows what a page needs to subscribe. A page whose subscription was made with another key should subscribe anew. A page
/// of an origin that the app does not let in is answered 403 `origin_not_allowed`, here and by all routes for browsers.
#[utoipa::path(get, path = "/v1/apps/{app}/config", tag = "Subscriptions",
    params(("app" = String, Path, description = "Id or slug")),
    security((), ("browser_token" = []), ("api_key" = ["read"])), responses((status = 200, body = Config)))]
pub(crate) async fn show(client: Client<MayRead>, State(state): State<ApiState>) -> Result<impl IntoResponse, Problem> {
    let key = vapid_keys::active(&state.pool, client.app.id).await?;
    let application_server_key = base64url::encode(&key.public_key);
    Ok((CACHED, axum::Json(Config { application_server_key, vapid_key_id: key.id })))
}
