//! Subscriptions that move to another app are reached there, by the keys that they were made with.

use axum::body::Body;
use axum::http::{Method, Request};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::TestApp;

#[tokio::test(flavor = "multi_thread")]
async fn imported_subscription_uses_its_own_key() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..2).await;
    let left = app.subscribe("mozilla", 0..1).await.remove(0);
    app.call(Method::DELETE, &format!("/v1/apps/shop/subscriptions/{}", left.id), Value::Null).await.ok(204);
    let request = Request::get("/v1/apps/shop/export").body(Body::empty()).unwrap();
    let answer = app.local.clone().oneshot(request).await.unwrap();
    let file = axum::body::to_bytes(answer.into_body(), usize::MAX).await.expect("it ends well");
    let lines = serde_json::Deserializer::from_slice(&file).into_iter::<Value>();
    let lines: Vec<Value> = lines.collect::<Result<_, _>>().expect("lines of JSON");

    let new = json!({"slug": "twin", "name": "twin", "subject": "mailto:push@example.com"});
    app.operate(Method::POST, "/v1/apps", new).await.ok(201);
    let pair = lines.iter().find(|line| line["type"] == "vapid_key").expect("the pair");
    // Not the key that new subscriptions of this app get.
    let retired = json!({"private_key": pair["private_key"], "state": "retired"});
    app.operate(Method::POST, "/v1/apps/twin/vapid-keys", retired).await.ok(201);
    let import = app.operate(Method::POST, "/v1/apps/twin/imports", lines.into()).await.ok(201);
    assert_eq!((&import["added"], &import["refused"]), (&json!(2), &json!(0)), "{import}");

    let message = json!({"to": {"all": true}, "content": {"title": "Hello", "body": "World"}});
    let sent = app.operate(Method::POST, "/v1/apps/twin/messages", message).await.ok(202);
    app.run_until_idle().await;
    let path = format!("/v1/apps/twin/messages/{}", sent["id"].as_str().unwrap());
    let counts = app.operate(Method::GET, &path, Value::Null).await.ok(200)["counts"].clone();
    assert_eq!((&counts["targeted"], &counts["accepted"]), (&json!(2), &json!(2)), "{counts}");
    app.finish().await;
}
