//! Redirects from the listener at port 80 to HTTPS.

use axum::Router;
use axum::extract::Request;
use axum::http::uri::Authority;
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use url::Url;

/// Redirects to the same path at `public_url`, or without it to the requested host at `port`.
pub fn router(public_url: Option<&Url>, port: u16) -> Router {
    let origin = public_url.map(|url| url.origin().ascii_serialization());
    Router::new().fallback(move |request: Request| {
        let target = target(origin.as_deref(), port, &request);
        async move { target.map_or_else(|| StatusCode::BAD_REQUEST.into_response(), moved) }
    })
}

/// Builds the redirect. It keeps the method, so that a client that POSTs a secret without TLS fails instead of sending a GET.
fn moved(location: HeaderValue) -> Response {
    (StatusCode::PERMANENT_REDIRECT, [(header::LOCATION, location)]).into_response()
}

fn target(origin: Option<&str>, port: u16, request: &Request) -> Option<HeaderValue> {
    let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let path = if path.starts_with('/') { path } else { "/" };
    let text = match origin {
        Some(origin) => format!("{origin}{path}"),
        None => {
            let asked: Authority = request.headers().get(header::HOST)?.to_str().ok()?.parse().ok()?;
            let port = if port == 443 { String::new() } else { format!(":{port}") };
            format!("https://{}{port}{path}", asked.host())
        }
    };
    HeaderValue::try_from(text).ok()
}

#[cfg(test)]
#[path = "../../../../tests/crates/net/unit/http_server/redirect.rs"]
mod tests;
