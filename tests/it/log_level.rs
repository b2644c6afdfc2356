//! The log level is changed temporarily while servers run, and log lines follow a request and its deliveries by their ids.

use std::time::Duration;

use axum::http::Method;
use serde_json::{Value, json};

use crate::support::app::PATIENCE;
use crate::support::http::request_status;
use crate::support::server::Server;
use crate::support::{Setup, TestApp};
use bellwire_core::clock::Clock;

async fn log_level(app: &TestApp, method: Method, body: Value) -> Value {
    app.operate(method, "/v1/log-level", body).await.ok(200)
}

#[tokio::test(flavor = "multi_thread")]
async fn log_level_is_set_temporarily() {
    let app = TestApp::start().await;
    let nothing = json!({"filter": null, "set_at": null, "until": null});
    assert_eq!(log_level(&app, Method::GET, Value::Null).await, nothing);
    let set = log_level(&app, Method::PUT, json!({"filter": "info, bellwire_dispatch=debug", "seconds": 60})).await;
    assert_eq!(set["filter"], "info,bellwire_dispatch=debug");
    assert_eq!(log_level(&app, Method::GET, Value::Null).await, set);
    app.clock.advance(Duration::from_secs(61));
    assert_eq!(log_level(&app, Method::GET, Value::Null).await, nothing);
    log_level(&app, Method::PUT, json!({"filter": "debug"})).await;
    assert_eq!(log_level(&app, Method::DELETE, Value::Null).await, nothing);
    assert_eq!(log_level(&app, Method::GET, Value::Null).await, nothing);
    for (action, n) in [("log_level.set", 2), ("log_level.reset", 1)] {
        let path = format!("/v1/audit-log?action={action}");
        let told = app.operate(Method::GET, &path, Value::Null).await.ok(200);
        assert_eq!(told["data"].as_array().map(Vec::len), Some(n), "{action}: {told}");
    }
    for (body, pointer) in [
        (json!({"filter": "h2=trace"}), "/filter"),
        (json!({"filter": "loud"}), "/filter"),
        (json!({"filter": "debug", "seconds": 59}), "/seconds"),
        (json!({"filter": "debug", "seconds": 86_401}), "/seconds"),
    ] {
        let refused = app.operate(Method::PUT, "/v1/log-level", body).await.ok(422);
        assert_eq!(refused["errors"][0]["pointer"], pointer, "{refused}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn raised_log_level_follows_a_delivery() {
    let app = TestApp::with(Setup { clock: Some(Clock::system()), ..Setup::default() }).await;
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    app.dispatcher.stop(PATIENCE).await;
    let mut server = Server::with(&app, &["--log", "warn,bellwire::server=info"]).await;
    log_level(&app, Method::PUT, json!({"filter": "debug", "seconds": 600})).await;
    let told = server.until_said("the log shows what an operator asked for").await;
    assert!(told.contains("\"filter\":\"debug\""), "{told}");

    let bearer = format!("Bearer {}", app.key);
    let headers = [("authorization", bearer.as_str()), ("x-request-id", "from-the-shop-7")];
    let body = json!({"to": {"subscriptions": [subscriber.id]}, "content": {"title": "Hello"}});
    assert_eq!(request_status(server.address, Method::POST, "/v1/apps/shop/messages", &headers, body).await, 202);
    // The push service may answer before the request is.
    let (mut taken, mut answered) = (None, None);
    while taken.is_none() || answered.is_none() {
        let line: Value = serde_json::from_str(&server.until_said("message_id").await).expect("a line of JSON");
        match line["message"].as_str() {
            Some("a message was taken") => taken = Some(line),
            Some("a push service answered") => answered = Some(line),
            _ => {}
        }
    }
    let (taken, answered) = (taken.expect("both"), answered.expect("both"));
    assert_eq!(taken["span"]["id"], "from-the-shop-7", "{taken}");
    let of = &answered["span"];
    assert_eq!((&of["name"], &of["attempt"]), (&json!("delivery"), &json!(1)), "{answered}");
    assert!(taken["message_id"].is_string() && of["message_id"] == taken["message_id"], "{taken} {answered}");
    assert!(of["delivery"].as_str().is_some_and(|id| id.len() == 22), "{answered}");

    log_level(&app, Method::DELETE, Value::Null).await;
    server.until_said("the log shows what this process was started with").await;
    server.kill().await;
    app.finish().await;
}
