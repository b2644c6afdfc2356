//! `GET /v1/apps/{app}/config`: data that a page needs to subscribe.

use axum::extract::State;
use axum::http::{HeaderName, header};
use axum::response::IntoResponse;
use serde::Serialize;
use utoipa::ToSchema;

use crate::api::ApiState;
use crate::api::http::auth::{MayRead, RegistrationCaller};
use crate::api::http::problem::Problem;
use crate::api::http::routes::routes;
use crate::api::opt_in::{OfferedTopic, PromptSettings, offered};
use bellwire_core::base64url;
use bellwire_core::id::VapidKeyId;
use bellwire_store::audience::topics;
use bellwire_store::keys::{apps, vapid_keys};
use utoipa_axum::router::OpenApiRouter;

pub(in crate::api) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(show))
}

/// Data that a page needs to subscribe.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Config {
    /// Public VAPID key in base64url: `applicationServerKey` of `pushManager.subscribe`.
    application_server_key: String,
    /// Id of the VAPID key, which the page sends when it registers the subscription.
    vapid_key_id: VapidKeyId,
    /// Settings of `<bellwire-prompt>`.
    prompt: PromptSettings,
    /// Topics that visitors may choose in `<bellwire-preferences>`, in their order: the first 50 with `display` that anyone may join.
    topics: Vec<OfferedTopic>,
}

/// Lets browsers cache the response for a minute, so a new key reaches all pages within that time.
const CACHED: [(HeaderName, &str); 1] = [(header::CACHE_CONTROL, "max-age=60")];

/// Returns the data that a page needs to subscribe. A page whose subscription uses another VAPID key should subscribe again.
/// Requests from an origin that the app does not allow get 403 `origin_not_allowed`, here and on all routes for browsers.
#[utoipa::path(get, path = "/v1/apps/{app}/config", tag = "Subscriptions", security(()),
    responses((status = 200, body = Config)))]
pub(crate) async fn show(
    client: RegistrationCaller<MayRead>, State(state): State<ApiState>,
) -> Result<impl IntoResponse, Problem> {
    let key = vapid_keys::active(&state.pool, client.app.id).await?;
    let prompt = PromptSettings::restore(apps::read_prompt(&state.pool, client.app.id).await?);
    let topics = offered(topics::displayed(&state.pool, client.app.id).await?);
    let application_server_key = base64url::encode(&key.public_key);
    Ok((CACHED, axum::Json(Config { application_server_key, vapid_key_id: key.id, prompt, topics })))
}
