//! `POST /v1/apps/{app}/link-check`: checks whether the target of a notification exists before it is sent.

use std::time::Duration;

use axum::extract::State;
use axum::http::header::{ACCEPT, LOCATION, USER_AGENT};
use axum::http::{HeaderMap, HeaderValue, Method};
use bytes::Bytes;
use serde::{Deserialize, Serialize};
use tokio::time::timeout;
use url::Url;
use utoipa::ToSchema;
use utoipa_axum::router::OpenApiRouter;

use super::ApiState;
use super::http::auth::{MaySend, Server};
use super::http::extract::Json;
use super::http::fair_semaphore::Busy;
use super::http::problem::{Problem, ProblemCode};
use super::http::routes::routes;
use bellwire_core::lane::Gateway;
use bellwire_core::subscription::Endpoint;
use bellwire_gateway::{Call, Reply};
use bellwire_rules::classify::Failure;
use bellwire_store::keys::apps::App;

pub(super) fn routes() -> OpenApiRouter<ApiState> {
    OpenApiRouter::new().routes(routes!(check))
}

/// Timeout of one response, and of reading all responses of a check.
const PATIENCE: Duration = Duration::from_secs(5);
const ALL_PATIENCE: Duration = Duration::from_secs(10);
/// Maximum redirects of one check.
const REDIRECTS_MAX: usize = 5;

const BUSY: Busy =
    Busy { code: ProblemCode::LinkChecksBusy, detail: "Too many link checks are in progress. Try again shortly." };

/// Link to check.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct LinkCheckRequest {
    /// `https:` URL, or a path on the app's first origin; at most 2,048 bytes.
    url: String,
}

/// Result of a link check.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct LinkCheckResponse {
    /// URL of the last request, after at most five redirects.
    url: String,
    /// HTTP status of the last response. Null: no response.
    status: Option<u16>,
    /// Reason for a missing response, such as `deadline`. Null: a response arrived.
    failure: Option<&'static str>,
}

/// Requests a link as a browser does, without cookies, within ten seconds. Only public hosts and the app's origins are
/// requested. If too many checks run, the response is 503 (`link_checks_busy`).
#[utoipa::path(post, path = "/v1/apps/{app}/link-check", tag = "Messages",
    responses((status = 200, body = LinkCheckResponse)))]
pub(crate) async fn check(
    server: Server<MaySend>, State(state): State<ApiState>, Json(body, _): Json<LinkCheckRequest>,
) -> Result<axum::Json<LinkCheckResponse>, Problem> {
    let site = server.app.origins.first().and_then(|origin| Url::parse(origin).ok());
    let parsed = Url::options().base_url(site.as_ref()).parse(&body.url);
    let mut url = parsed.map_err(|error| Problem::invalid_member("/url", format!("is not a URL: {error}")))?;
    let first = target(&state, &server.app, &mut url).map_err(|detail| Problem::invalid_member("/url", detail))?;
    let _place = state.link_checks.take(Some(server.app.id), state.settings.place_patience, &BUSY).await?;
    let mut checked = LinkCheckResponse { url: url.into(), status: None, failure: None };
    if timeout(ALL_PATIENCE, follow(&state, &server.app, first, &mut checked)).await.is_err() {
        checked.failure = Some(Failure::Deadline.name());
    }
    Ok(axum::Json(checked))
}

/// Requests a link and follows its redirects. `checked` describes the last request.
async fn follow(state: &ApiState, app: &App, mut endpoint: Endpoint, checked: &mut LinkCheckResponse) {
    for redirects in 0..=REDIRECTS_MAX {
        let headers = HeaderMap::from_iter([
            (ACCEPT, HeaderValue::from_static("*/*")),
            (USER_AGENT, HeaderValue::from_static(concat!("bellwire/", env!("CARGO_PKG_VERSION")))),
        ]);
        let call = Call { method: Method::GET, endpoint, headers, body: Bytes::new(), patience: PATIENCE };
        let reply = match state.gateways.call_if(call, || true).await {
            Ok(reply) => reply,
            Err(failure) => {
                (checked.status, checked.failure) = (None, Some(failure.name()));
                return;
            }
        };
        checked.status = Some(reply.status);
        let url = Url::parse(&checked.url).ok();
        let Some(mut next) = url.and_then(|url| redirect(&url, &reply)).filter(|_| redirects < REDIRECTS_MAX) else {
            return;
        };
        // Browsers follow a redirect to a server that this one must not ask.
        let Ok(allowed) = target(state, app, &mut next) else { return };
        (endpoint, checked.url) = (allowed, next.into());
    }
}

/// Returns the endpoint of a link, or the reason why it is not requested. A key for sending must not reach private servers, nor
/// use connections to push services. Hosts with a configured address count as private, unless they are the app's origins.
fn target(state: &ApiState, app: &App, url: &mut Url) -> Result<Endpoint, String> {
    url.set_fragment(None);
    let endpoint = Endpoint::parse(url.as_str()).map_err(|error| error.to_string())?;
    let gateway = state.gateways.recognise(&endpoint).map_err(|refused| refused.to_string())?;
    let is_own = app.origins.iter().any(|origin| *origin == url.origin().ascii_serialization());
    match gateway {
        Gateway::Other if is_own || !state.gateways.is_mapped(&endpoint) => Ok(endpoint),
        Gateway::Other => Err("its host is not on the public internet".to_owned()),
        _ => Err("its host belongs to a push service".to_owned()),
    }
}

/// Returns the target of a redirect. `None`: the response is not a redirect.
fn redirect(url: &Url, reply: &Reply) -> Option<Url> {
    let location = reply.headers.get(LOCATION).filter(|_| matches!(reply.status, 301 | 302 | 303 | 307 | 308))?;
    url.join(location.to_str().ok()?).ok()
}
