//! `POST /v1/apps/{app}/link-check`: whether the target of a notification exists, before it is sent.

use std::time::Duration;

use axum::extract::State;
use axum::http::header::{ACCEPT, LOCATION, USER_AGENT};
use axum::http::{HeaderMap, HeaderValue, Method};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use url::Url;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use super::ApiState;
use super::http::auth::{MaySend, Server};
use super::http::extract::Json;
use super::http::problem::Problem;
use super::http::routes::routes;
use bellwire_core::subscription::Endpoint;
use bellwire_gateway::{Call, Reply};

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(check))
}

/// Timeout of one response.
const PATIENCE: Duration = Duration::from_secs(5);
/// Redirects of one check.
const REDIRECTS_MAX: usize = 5;

/// Link to check.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkCheckRequest {
    /// `https:` URL, or a path on the app's first origin; at most 2,048 octets.
    url: String,
}

/// Result of a link check.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LinkCheckResponse {
    /// URL of the last request: redirects are followed, five at most.
    url: String,
    /// HTTP status of the last response. Null: there was none.
    status: Option<u16>,
    /// Reason without a response, such as `timeout`.
    failure: Option<&'static str>,
}

/// Requests a link as a browser would, without cookies. Only public servers are asked.
#[utoipa::path(post, path = "/v1/apps/{app}/link-check", tag = "Messages",
    responses((status = 200, body = LinkCheckResponse)))]
pub(crate) async fn check(
    server: Server<MaySend>,
    State(state): State<ApiState>,
    Json(body, _): Json<LinkCheckRequest>,
) -> Result<axum::Json<LinkCheckResponse>, Problem> {
    let site = server.app.origins.first().and_then(|origin| Url::parse(origin).ok());
    let parsed = Url::options().base_url(site.as_ref()).parse(&body.url);
    let mut url = parsed.map_err(|error| Problem::invalid_member("/url", format!("is not a URL: {error}")))?;
    for redirects in 0.. {
        url.set_fragment(None);
        let endpoint = Endpoint::parse(url.as_str());
        let endpoint = endpoint.map_err(|error| Problem::invalid_member("/url", error.to_string()))?;
        if let Err(refused) = state.gateways.recognise(&endpoint) {
            return Err(Problem::invalid_member("/url", refused.to_string()));
        }
        let headers = HeaderMap::from_iter([
            (ACCEPT, HeaderValue::from_static("*/*")),
            (USER_AGENT, HeaderValue::from_static(concat!("bellwire/", env!("CARGO_PKG_VERSION")))),
        ]);
        let call = Call { method: Method::GET, endpoint, headers, body: Bytes::new(), patience: PATIENCE };
        let (status, failure, next) = match state.gateways.call_if(call, || true).await {
            Err(failure) => (None, Some(failure.name()), None),
            Ok(reply) => (Some(reply.status), None, redirect(&url, &reply)),
        };
        match next.filter(|_| redirects < REDIRECTS_MAX) {
            Some(next) => url = next,
            None => return Ok(axum::Json(LinkCheckResponse { url: url.into(), status, failure })),
        }
    }
    Err(Problem::internal())
}

/// Returns the target of a redirect.
fn redirect(url: &Url, reply: &Reply) -> Option<Url> {
    let location = reply.headers.get(LOCATION).filter(|_| (300..400).contains(&reply.status))?;
    url.join(location.to_str().ok()?).ok()
}
