//! Deprecated operations: `deprecated` in the description, and `Deprecation` (RFC 9745), `Sunset` (RFC 8594) and a link to
//! the guide in each response.
//!
//! An operation declares all of it in its `utoipa::path`:
//! `extensions(("x-deprecation" = json!({"since": "2030-01-31T00:00:00Z", "sunset": "2031-01-31T00:00:00Z", "guide": "api"})))`.

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Router;
use axum::extract::{MatchedPath, Request, State};
use axum::http::{HeaderName, HeaderValue, Method, header};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;
use serde::Deserialize;
use serde_json::Value;

use crate::api::docs::guides;
use bellwire_core::clock::Timestamp;

const DECLARATION: &str = "x-deprecation";

#[derive(Deserialize)]
struct Deprecation {
    since: Timestamp,
    /// Earliest time at which the operation is removed.
    sunset: Timestamp,
    /// Name of the guide that describes the replacement.
    guide: String,
}

type Headers = [(HeaderName, HeaderValue); 3];

impl Deprecation {
    fn headers(&self) -> Headers {
        let guide = format!("<{}{}>; rel=\"deprecation sunset\"; type=\"text/html\"", guides::ROOT, self.guide);
        [
            (HeaderName::from_static("deprecation"), format!("@{}", self.since.timestamp())),
            (HeaderName::from_static("sunset"), self.sunset.format("%a, %d %b %Y %H:%M:%S GMT").to_string()),
            (header::LINK, guide),
        ]
        .map(|(name, value)| (name, HeaderValue::try_from(value).expect("graphic ASCII")))
    }
}

/// Marks an operation with a declaration as deprecated.
pub(crate) fn describe(operation: &mut Value) {
    if operation.get(DECLARATION).is_some() {
        operation["deprecated"] = true.into();
    }
}

/// Adds the headers to the responses of deprecated operations. Without any the router stays as it is.
pub(crate) fn announce<S: Clone + Send + Sync + 'static>(router: Router<S>, description: &Value) -> Router<S> {
    let mut deprecated = BTreeMap::new();
    for (path, item) in description["paths"].as_object().into_iter().flatten() {
        for (method, operation) in item.as_object().into_iter().flatten() {
            if let Some(declared) = operation.get(DECLARATION) {
                let declared: Deprecation = serde_json::from_value(declared.clone()).expect("a valid declaration");
                deprecated.insert(format!("{} {path}", method.to_uppercase()), declared.headers());
            }
        }
    }
    if deprecated.is_empty() {
        return router;
    }
    router.layer(from_fn_with_state(Arc::new(deprecated), add_headers))
}

async fn add_headers(
    State(deprecated): State<Arc<BTreeMap<String, Headers>>>, request: Request, next: Next,
) -> Response {
    let path = request.extensions().get::<MatchedPath>().map_or("", MatchedPath::as_str);
    let method = if request.method() == Method::HEAD { &Method::GET } else { request.method() };
    let headers = deprecated.get(&format!("{method} {path}")).cloned();
    let mut response = next.run(request).await;
    for (name, value) in headers.into_iter().flatten() {
        response.headers_mut().append(name, value);
    }
    response
}

#[cfg(test)]
#[path = "../../../tests/unit/api/http/deprecation.rs"]
mod tests;
