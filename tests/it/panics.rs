//! A panic is counted and logged, and stops only its own work: tests inject panics into the work on a delivery, row, batch or request.
#![cfg(debug_assertions)] // no program that is built for release has such places

use std::time::Duration;

use axum::http::Method;
use bellwire_dispatch::DispatchConfig;
use bellwire_store::queue::claims::LEASE;
use bellwire_telemetry::panics::{counted, inject, injected, watch_too};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::{Setup, TestApp, counts, seed_together};

/// Delay of scheduled messages.
const LATER: Duration = Duration::from_secs(60);
const AFTER_LEASE: Duration = LEASE.saturating_add(Duration::from_secs(1));

/// Set-up with one POST at a time: a held permit blocks all others.
fn one_at_a_time() -> Setup {
    Setup { dispatch: DispatchConfig { lane_limit_max: 1, ..DispatchConfig::default() }, ..Setup::default() }
}

async fn send_later(app: &TestApp, to: Value) -> (String, Uuid) {
    let message = app.send(to, json!({"send_at": app.clock.now() + LATER})).await;
    let id = message.trim_start_matches("msg_").parse().expect("an id");
    (message, id)
}

/// A delivery that panics there once leaves the lane to others, and goes out when its lease is over.
async fn given_up_alone(place: &'static str) {
    let app = TestApp::with(one_at_a_time()).await;
    let subscribers = app.subscribe("fcm", 0..2).await;
    let (first, id) = send_later(&app, json!({"subscriptions": [subscribers[0].id]})).await;
    inject(place, id, 1);
    app.advance(LATER).await;
    assert_eq!((injected(place, id), app.simulator.report().requests), (0, 0), "it panicked, and was not sent");
    let second = app.send(json!({"subscriptions": [subscribers[1].id]}), json!({})).await;
    app.run_until_idle().await;
    let accepted = counts(&[("targeted", 1), ("accepted", 1), ("awaiting_ack", 1)]);
    assert_eq!(app.counts(&second).await, accepted, "its permit was given back");
    app.advance(AFTER_LEASE).await;
    assert_eq!(app.counts(&first).await, accepted, "it was claimed once more");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn panicking_post_ends_one_delivery() {
    given_up_alone("post").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn panicking_preparation_ends_one_delivery() {
    given_up_alone("prepare").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_delivery_that_always_panics_ends_as_dead() {
    let app = TestApp::start().await;
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    let (message, id) = send_later(&app, json!({"subscriptions": [subscriber.id]})).await;
    inject("prepare", id, 100);
    app.advance(LATER).await;
    for _ in 0..5 {
        app.advance(AFTER_LEASE).await;
    }
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 1), ("dead", 1)]));
    assert!(injected("prepare", id) > 90, "it was not tried for ever");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn panicking_row_settlement_affects_no_other() {
    let app = TestApp::start().await;
    let subscribers = app.subscribe("fcm", 0..2).await;
    let (poisoned, id) = send_later(&app, json!({"subscriptions": [subscribers[0].id]})).await;
    let (other, _) = send_later(&app, json!({"subscriptions": [subscribers[1].id]})).await;
    // As often as it may be tried together with the other, and once alone.
    inject("settle a row", id, 2);
    app.advance(LATER).await;
    let accepted = counts(&[("targeted", 1), ("accepted", 1), ("awaiting_ack", 1)]);
    assert_eq!(app.counts(&other).await, accepted);
    inject("settle a row", id, 0);
    app.advance(AFTER_LEASE).await;
    assert_eq!(app.counts(&poisoned).await, accepted, "rows are settled still");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn panicking_batch_settlement_waits_for_the_lease() {
    const N: u32 = 120;
    let dispatch = DispatchConfig { batch_min: 200, batch_max: 200, ..DispatchConfig::default() };
    let app = TestApp::with(Setup { dispatch, ..Setup::default() }).await;
    seed_together(&app, "fcm", 0..N).await;
    let (message, id) = send_later(&app, json!({"all": true})).await;
    inject("settle a batch", id, 1);
    app.advance(LATER).await;
    assert_eq!((injected("settle a batch", id), app.counts(&message).await.get("accepted")), (0, None));
    app.advance(AFTER_LEASE).await;
    let all = counts(&[("targeted", N.into()), ("accepted", N.into()), ("awaiting_ack", N.into())]);
    assert_eq!(app.counts(&message).await, all, "it was renewed no longer, and leased once more");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn panicking_request_gets_its_id_and_counts() {
    watch_too();
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..1).await;
    let message = app.send(json!({"all": true}), json!({})).await;
    let before = counted();
    inject("show a message", message.trim_start_matches("msg_").parse().expect("an id"), 1);
    let path = format!("/v1/apps/shop/messages/{message}");
    let reply = app.call_with(Method::GET, &path, &app.key, Value::Null, &[("x-request-id", "abc-1")]).await;
    assert_eq!((reply.status, &reply.json["code"]), (500, &json!("internal")), "{}", reply.json);
    assert_eq!(reply.json["request_id"], "abc-1");
    assert!(!reply.json.to_string().contains("panic"), "what happened is for the log: {}", reply.json);
    assert!(counted() > before);
    let shown = app.metrics.render();
    let total = shown.lines().find_map(|line| line.strip_prefix("bellwire_panics_total ")).expect("it is shown");
    assert!(total.parse::<u64>().expect("a number") > before, "{total}");
    app.run_until_idle().await;
    app.message(&message).await;
    app.finish().await;
}
