//! Policies that are set as their topic is created.

use axum::http::Method;
use serde_json::{Value, json};

use crate::support::api::TestApi;

fn guide(attempts: u32) -> Value {
    json!({ "maxAttempts": attempts })
}

#[tokio::test]
async fn topic_is_created_with_its_policy() {
    let api = TestApi::start().await;
    let create = async |name: &str, body: Value| api.put(&format!("/topics/{name}"), body).await;
    let made = create("news", json!({"policy": guide(4)})).await.ok(201);
    assert_eq!(made["name"], "news");
    assert_eq!(api.get("/policies/topics/news").await.ok(200)["policy"], guide(4));
    create("plain", json!({"policy": null})).await.ok(201);
    assert_eq!(api.get("/policies/topics/plain").await.ok(200)["policy"], Value::Null);

    let refused = create("sport", json!({"policy": guide(400)})).await.ok(422);
    let pointers: Vec<_> = refused["errors"].as_array().unwrap().iter().map(|error| &error["pointer"]).collect();
    assert_eq!(pointers, ["/policy/maxAttempts"]);
    let made = api.post("/api-keys", json!({"name": "n", "scopes": ["subscribers"]})).await.ok(201);
    let subscribers = made["secret"].as_str().unwrap().to_owned();
    let body = json!({"policy": guide(4)});
    let forbidden = api.call(Method::PUT, "/v1/apps/shop/topics/offers", Some(&subscribers), Some(body)).await;
    assert_eq!((forbidden.status, &forbidden.json["code"]), (403, &json!("forbidden")));
    assert_eq!(api.get("/topics").await.ok(200)["data"].as_array().unwrap().len(), 2, "nothing was created");
}
