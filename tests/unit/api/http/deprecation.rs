//! Unit tests of `src/api/http/deprecation.rs`, which includes them.

use axum::body::Body;
use axum::response::IntoResponse;
use serde_json::json;
use tower::ServiceExt as _;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use super::*;
use crate::api::openapi;

#[utoipa::path(get, path = "/v1/old/{id}", tag = "Operations", responses((status = 200)), extensions(
    ("x-deprecation" = json!({"since": "2030-01-31T00:00:00Z", "sunset": "2031-01-31T12:30:00Z", "guide": "api"})),
))]
async fn old() -> impl IntoResponse {
    [(header::LINK, "</v1/old?iterator=2>; rel=\"next\"")]
}

#[utoipa::path(put, path = "/v1/old/{id}", tag = "Operations", responses((status = 200)))]
async fn current() {}

/// The headers that this module adds to a response, in their order.
async fn headers(router: &Router, method: Method) -> Vec<(String, String)> {
    let request = Request::builder().method(method).uri("/v1/old/7").body(Body::empty()).unwrap();
    let response = router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let values = ["deprecation", "sunset", "link"].map(|name| response.headers().get_all(name).iter());
    let text = |value: &HeaderValue| value.to_str().unwrap().to_owned();
    let named = ["deprecation", "sunset", "link"].into_iter().zip(values);
    named.flat_map(|(name, values)| values.map(move |value| (name.to_owned(), text(value)))).collect()
}

#[tokio::test]
async fn declared_operations_announce_their_end() {
    let (router, description) = OpenApiRouter::new().routes(routes!(old, current)).split_for_parts();
    let description = openapi::complete(description);
    let item = &description["paths"]["/v1/old/{id}"];
    assert_eq!((&item["get"]["deprecated"], &item["put"]["deprecated"]), (&json!(true), &json!(null)));
    let router = announce(router, &description);
    let expected = [
        ("deprecation", "@1896048000"),
        ("sunset", "Fri, 31 Jan 2031 12:30:00 GMT"),
        ("link", "</v1/old?iterator=2>; rel=\"next\""),
        ("link", "</docs/guides/api>; rel=\"deprecation sunset\"; type=\"text/html\""),
    ]
    .map(|(name, value)| (name.to_owned(), value.to_owned()));
    assert_eq!(headers(&router, Method::GET).await, expected);
    assert_eq!(headers(&router, Method::HEAD).await, expected);
    assert_eq!(headers(&router, Method::PUT).await, []);
}
