//! Adds `Location` to responses about created resources (RFC 9110 section 15.3.2), replayed ones included.

use axum::body::{Body, to_bytes};
use axum::http::{HeaderValue, Method, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::problem::Problem;

/// Adds the header to a 201: the path of the request for `PUT`, otherwise the collection and the id in the body.
pub(crate) async fn add(method: &Method, path: &str, response: Response) -> Response {
    if response.status() != StatusCode::CREATED || response.headers().contains_key(header::LOCATION) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    // The handler has built it in memory.
    let Ok(octets) = to_bytes(body, usize::MAX).await else { return Problem::internal().into_response() };
    let created = serde_json::from_slice(&octets).unwrap_or(Value::Null);
    let location = if method == Method::PUT { path.to_owned() } else { of_created(path, &created) };
    parts.headers.extend(HeaderValue::try_from(location).ok().map(|location| (header::LOCATION, location)));
    Response::from_parts(parts, Body::from(octets))
}

fn of_created(path: &str, created: &Value) -> String {
    let id = ["/id", "/teammate/id"].iter().find_map(|pointer| created.pointer(pointer)?.as_str());
    let collection = match path.strip_suffix("/clone").and_then(|original| original.rsplit_once('/')) {
        Some((collection, _)) => collection,
        None => path,
    };
    match id.filter(|_| path != "/v1/session") {
        Some(id) => format!("{collection}/{id}"),
        None => path.to_owned(),
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/api/http/location.rs"]
mod tests;
