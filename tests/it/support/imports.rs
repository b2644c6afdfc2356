//! Imports of subscriptions by the API.

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::Value;

use super::api::{LOOPBACK, Reply, TestApi};

pub const CSV: &str = "text/csv";

pub const NDJSON: &str = "application/x-ndjson";

/// Imports a file with the app's key.
pub async fn send_import(api: &TestApi, path: &str, kind: &str, body: impl Into<Body>) -> Reply {
    send_import_as(api, &api.key, path, kind, body).await
}

pub async fn send_import_as(api: &TestApi, key: &str, path: &str, kind: &str, body: impl Into<Body>) -> Reply {
    let request = Request::builder()
        .method(Method::POST)
        .uri(format!("/v1/apps/shop/imports{path}"))
        .header("authorization", format!("Bearer {key}"))
        .header("content-type", kind)
        .extension(LOOPBACK);
    api.send(request.body(body.into()).unwrap()).await
}

/// Imports a file of one line.
pub async fn import_line(api: &TestApi, line: Value) -> Value {
    send_import(api, "", NDJSON, format!("{line}\n")).await.ok(201)
}

/// Counts of an import: lines, added, known, left out, refused.
pub fn import_counts(import: &Value) -> [i64; 5] {
    ["lines", "added", "known", "left_out", "refused"].map(|name| import[name].as_i64().unwrap())
}

pub async fn list_subscriptions(api: &TestApi) -> Vec<Value> {
    api.get("/subscriptions?limit=250").await.ok(200)["data"].as_array().unwrap().clone()
}
