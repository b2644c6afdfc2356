//! The pages under `/docs`.

use std::collections::BTreeSet;

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::json;
use tower::ServiceExt as _;

use super::TestApi;
use super::walk::{description, operations};

/// Status and content of a page.
async fn page(api: &TestApi, path: &str) -> (u16, String) {
    let request = Request::get(path).body(Body::empty()).unwrap();
    let response = api.router.clone().oneshot(request).await.unwrap();
    let status = response.status().as_u16();
    if response.headers()["content-type"].to_str().unwrap().starts_with("text/html") && path.starts_with("/docs") {
        let policy = response.headers()["content-security-policy"].to_str().unwrap();
        assert!(policy.starts_with("default-src 'none'; style-src 'self';"), "{path}: {policy}");
    }
    let octets = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (status, String::from_utf8(octets.to_vec()).unwrap())
}

fn links(html: &str) -> impl Iterator<Item = &str> {
    html.split("href=\"").skip(1).map(|rest| rest.split('"').next().unwrap())
}

#[tokio::test]
async fn each_operation_has_a_page_without_dead_links() {
    let api = TestApi::start().await;
    let (mut open, mut seen) = (vec!["/docs/".to_owned()], BTreeSet::new());
    while let Some(path) = open.pop() {
        if !seen.insert(path.clone()) {
            continue;
        }
        let (status, html) = page(&api, &path).await;
        assert_eq!(status, 200, "{path}");
        if path.starts_with("/docs/") && !path.ends_with(".css") {
            assert!(!html.contains("<script"), "{path}");
            open.extend(links(&html).map(str::to_owned));
        }
    }
    let description = description(&api).await;
    for (path, method, operation) in operations(&description) {
        let page = format!("/docs/operations/{}", operation["operationId"].as_str().unwrap());
        assert!(seen.contains(&page), "{method} {path}: nothing leads to {page}");
    }
    for missing in ["/docs/operations/x", "/docs/schemas/x", "/docs/problems/x", "/docs/problems/%ff"] {
        assert_eq!(page(&api, missing).await.0, 404, "{missing}");
    }
}

#[tokio::test]
async fn problem_type_links_to_its_page() {
    let api = TestApi::start().await;
    for (path, body) in [("/topics", json!({"name": "!"})), ("/nothing", json!({})), ("/messages", json!({}))] {
        let problem = api.call(Method::POST, &format!("/v1/apps/shop{path}"), Some(&api.key), Some(body)).await.json;
        let (status, html) = page(&api, problem["type"].as_str().unwrap()).await;
        assert_eq!(status, 200, "{problem}");
        assert!(html.contains(problem["code"].as_str().unwrap()) && html.contains("What to do"), "{html}");
    }
}
