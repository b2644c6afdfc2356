//! Runaway guard: an app that sends far more than its size explains is held until an operator releases it.

use std::time::Duration;

use axum::http::Method;
use bellwire::testkit::server::maintenance;
use bellwire_rules::policy::runaway::Guard;
use bellwire_store::queue::guards;
use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::app::scalar;

const GUARD: &str = "/v1/apps/shop/guard";
const RELEASE: &str = "/v1/apps/shop/guard/release";
const MINUTE: Duration = Duration::from_secs(60);

/// An app with three subscribers, of which ann is one, that may send eight deliveries in a quarter of an hour.
async fn small() -> TestApp {
    let app = TestApp::start().await;
    app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await;
    app.subscribe("fcm", 1..3).await;
    let set = app.operate(Method::PUT, GUARD, json!({"factor": 1, "floor": 5})).await.ok(200);
    assert_eq!((&set["limit"], &set["held"]), (&json!(8), &json!([])), "{set}");
    app
}

/// Sends so many messages to ann, and lets engine and maintenance work. Returns the last one's counts.
async fn send(app: &TestApp, n: usize, tier: &str) -> Value {
    let mut last = String::new();
    for _ in 0..n {
        last = app.send(json!({"users": ["ann"]}), json!({"tier": tier})).await;
    }
    app.run_until_idle().await;
    watch(app).await;
    app.run_until_idle().await;
    json!(app.counts(&last).await)
}

async fn watch(app: &TestApp) -> usize {
    maintenance::fold_metrics(&app.pool).await.expect("the database answers");
    guards::watch(&app.pool, Guard::DEFAULT, app.clock.now()).await.expect("the database answers")
}

fn waits(counts: &Value) -> bool {
    counts["queued"] == 1
}

#[tokio::test]
async fn oversending_app_is_held_until_release() {
    let app = small().await;
    assert!(!waits(&send(&app, 8, "promotional").await));
    assert_eq!(app.get(GUARD).await["sent"], json!({"transactional": 0, "other": 8}));
    assert_eq!(app.get(GUARD).await["held_at"], Value::Null);
    assert!(!waits(&send(&app, 1, "engagement").await), "the one that is too many");
    let held = app.get(GUARD).await;
    assert_eq!(held["held"], json!(["promotional", "engagement"]), "{held}");
    assert_eq!(app.get("/v1/apps/shop/flow").await["held"], held["held"]);
    assert!(waits(&send(&app, 1, "promotional").await));
    assert!(!waits(&send(&app, 1, "transactional").await), "a code is not stopped by a newsletter");

    // Everybody sees it.
    let alerts = app.operate(Method::GET, "/v1/alerts", Value::Null).await.ok(200);
    let alert = &alerts["data"][0];
    assert_eq!((&alert["kind"], &alert["resolved_at"], &alert["n"]), (&json!("runaway"), &Value::Null, &json!(1)));
    let detail = "shop is held: 9 promotional and engagement deliveries in 15 minutes are more than 8, which its 3 active \
                  subscriptions explain";
    assert_eq!(alert["detail"], detail);
    let checks = app.operate(Method::GET, "/v1/checks", Value::Null).await.ok(200);
    let found = checks["data"].as_array().unwrap().iter().find(|found| found["check"] == "runaway guard").unwrap();
    assert_eq!((&found["health"], &found["line"]), (&json!("failure"), &json!("bellwire app release shop")));
    let waiting = app.send(json!({"users": ["ann"]}), json!({})).await;
    let ann = sqlx::query_scalar::<_, String>("SELECT 'sub_' || id FROM subscriptions WHERE user_id = 'ann'");
    let ann = ann.fetch_one(&app.pool).await.unwrap();
    let told = app.get(&format!("/v1/apps/shop/messages/{waiting}/deliveries/{ann}/explain")).await;
    let codes: Vec<_> = told["story"].as_array().unwrap().iter().map(|told| &told["code"]).collect();
    assert!(codes.contains(&&json!("app_held")) && codes.contains(&&json!("next_open")), "{codes:?}");

    // What it sent so far is forgiven, what waits goes out, and it may run away again.
    let released = app.call(Method::POST, RELEASE, Value::Null).await.ok(200);
    assert_eq!((&released["held"], &released["sent"]["other"]), (&json!([]), &json!(0)), "{released}");
    app.run_until_idle().await;
    assert!(!waits(&json!(app.counts(&waiting).await)));
    assert_eq!(watch(&app).await, 0);
    let alerts = app.operate(Method::GET, "/v1/alerts", Value::Null).await.ok(200);
    assert!(alerts["data"][0]["resolved_at"].is_string(), "{alerts}");
    app.clock.advance(MINUTE);
    send(&app, 9, "promotional").await;
    assert!(waits(&send(&app, 1, "promotional").await));
    app.call(Method::POST, RELEASE, Value::Null).await.ok(200);
    app.run_until_idle().await;
    app.finish().await;
}

#[tokio::test]
async fn flood_of_codes_holds_only_codes() {
    let app = small().await;
    send(&app, 9, "transactional").await;
    assert_eq!(app.get(GUARD).await["held"], json!(["transactional"]));
    assert!(waits(&send(&app, 1, "transactional").await));
    assert!(!waits(&send(&app, 1, "promotional").await));
    app.call(Method::POST, RELEASE, Value::Null).await.ok(200);
    app.run_until_idle().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_replicas_hold_the_app() {
    let app = small().await;
    let other = app.worker(app.clock.clone()).await;
    send(&app, 9, "promotional").await;
    // The other one works by itself: it may have some of the nine still, and hears of a hold within a second.
    app.run_until_idle_with(&other).await;
    watch(&app).await;
    app.run_until_idle_with(&other).await;
    let waiting = app.send(json!({"all": true}), json!({})).await;
    other.run_until_idle().await;
    let late = app.worker(app.clock.clone()).await;
    late.run_until_idle().await;
    assert_eq!(json!(app.counts(&waiting).await), json!({"targeted": 3, "queued": 3}));
    assert_eq!(watch(&app).await, 0, "it is held once");
    app.call(Method::POST, RELEASE, Value::Null).await.ok(200);
    app.run_until_idle_with(&late).await;
    assert_eq!(app.counts(&waiting).await["accepted"], 3);
    app.finish().await;
}

#[tokio::test]
async fn sends_older_than_fifteen_minutes_are_ignored() {
    let app = small().await;
    send(&app, 8, "promotional").await;
    app.clock.advance(MINUTE * 15);
    assert!(!waits(&send(&app, 8, "promotional").await));
    assert_eq!(app.get(GUARD).await["held"], json!([]));
    app.finish().await;
}

#[tokio::test]
async fn app_tightens_its_guard_operators_loosen_it() {
    let app = small().await;
    app.call(Method::PUT, GUARD, json!({"factor": 1, "floor": 4})).await.ok(200);
    for looser in [json!({"factor": 0}), json!({"factor": 1, "floor": 5}), json!({})] {
        app.call(Method::PUT, GUARD, looser).await.ok(403);
    }
    let refused = app.operate(Method::PUT, GUARD, json!({"factor": 1001, "floor": -1})).await.ok(422);
    let pointers: Vec<_> = refused["errors"].as_array().unwrap().iter().map(|error| &error["pointer"]).collect();
    assert_eq!(pointers, ["/factor", "/floor"]);
    let off = app.operate(Method::PUT, GUARD, json!({"factor": 0})).await.ok(200);
    assert_eq!((&off["limit"], &off["floor"]), (&Value::Null, &Value::Null));
    assert!(!waits(&send(&app, 20, "promotional").await));
    assert_eq!(watch(&app).await, 0);
    let servers = app.operate(Method::PUT, GUARD, json!({})).await.ok(200);
    assert_eq!(servers["limit"], 10_030, "what the server has: 10 times three, and 10,000");
    // There is nothing to release, and no worker is notified.
    app.call(Method::POST, RELEASE, Value::Null).await.ok(200);
    let released = "SELECT count(*) FROM audit_log WHERE action = 'app.released'";
    assert_eq!(scalar(&app.pool, released).await, 0);
    app.finish().await;
}
