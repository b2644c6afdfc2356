//! What the log shows is changed while servers run, for a while, and follows a request and its deliveries by their ids.

use std::time::Duration;

use axum::http::Method;
use serde_json::{Value, json};

use crate::otlp::call;
use crate::support::app::PATIENCE;
use crate::support::server::Server;
use crate::support::{Setup, TestApp};
use bellwire::testkit::model::clock::Clock;

async fn log_level(app: &TestApp, method: Method, body: Value) -> Value {
    app.operate(method, "/v1/log-level", body).await.ok(200)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_level_is_set_for_a_time_and_falls_back() {
    let app = TestApp::start().await;
    let nothing = json!({"filter": null, "set_at": null, "until": null});
    assert_eq!(log_level(&app, Method::GET, Value::Null).await, nothing);
    let set = log_level(&app, Method::PUT, json!({"filter": "info, bellwire::dispatch=debug", "seconds": 60})).await;
    assert_eq!(set["filter"], "info,bellwire::dispatch=debug");
    assert_eq!(log_level(&app, Method::GET, Value::Null).await, set);
    app.clock.advance(Duration::from_secs(61));
    assert_eq!(log_level(&app, Method::GET, Value::Null).await, nothing);
    log_level(&app, Method::PUT, json!({"filter": "debug"})).await;
    assert_eq!(log_level(&app, Method::DELETE, Value::Null).await, nothing);
    assert_eq!(log_level(&app, Method::GET, Value::Null).await, nothing);
    let told = app.operate(Method::GET, "/v1/audit-log?limit=3", Value::Null).await.ok(200);
    let actions: Vec<_> = told["data"].as_array().unwrap().iter().map(|entry| entry["action"].clone()).collect();
    assert_eq!(actions, ["log_level.reset", "log_level.set", "log_level.set"]);
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
async fn a_running_server_logs_more_at_once_and_a_delivery_is_followed_by_its_ids() {
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
    assert_eq!(call(server.address, Method::POST, "/v1/apps/shop/messages", &headers, body).await, 202);
    let line: Value = serde_json::from_str(&server.until_said("a message was taken").await).unwrap();
    let message = line["message_id"].as_str().expect("an id").to_owned();
    assert_eq!(line["span"]["id"], "from-the-shop-7", "{line}");
    let line: Value = serde_json::from_str(&server.until_said("a push service answered").await).unwrap();
    let of = &line["span"];
    assert_eq!(
        (&of["name"], &of["message_id"], &of["attempt"]),
        (&json!("delivery"), &json!(message), &json!(1)),
        "{line}"
    );
    assert!(of["delivery"].as_str().is_some_and(|id| id.len() == 22), "{line}");

    log_level(&app, Method::DELETE, Value::Null).await;
    server.until_said("the log shows what this process was started with").await;
    server.kill().await;
    app.finish().await;
}
