//! `maxReceivesPerSecond`: one subscription gets so many deliveries a second, and what exceeds it waits.

use std::time::Duration;

use bellwire_core::clock::Clock;
use serde_json::{Value, json};

use crate::support::app::{TestApp, scalar};
use crate::support::{START, counts};

/// A policy that limits to so many a second.
fn throttled(per_second: u32) -> Value {
    json!({"tier": "transactional", "ttl": 3600, "policy": {"throttlePolicy": {"maxReceivesPerSecond": per_second}}})
}

fn posts(app: &TestApp) -> u64 {
    app.simulator.report().requests
}

#[tokio::test]
async fn what_exceeds_the_rate_waits_for_its_turn() {
    let app = TestApp::start().await;
    let to = json!({"subscriptions": [app.subscribe("fcm", 0..1).await[0].id]});
    let mut messages = Vec::new();
    for _ in 0..20 {
        messages.push(app.send(to.clone(), throttled(2)).await);
    }
    app.run_until_idle().await;
    assert_eq!(posts(&app), 1);
    app.advance(Duration::from_millis(250)).await;
    let shown =
        app.get(&format!("/v1/apps/shop/policies/subscriptions/{}", to["subscriptions"][0].as_str().unwrap())).await;
    assert_eq!(shown["backlog"], json!({"waiting": 19, "throttled": 19, "oldest_s": 0.25}));
    app.advance(Duration::from_millis(249)).await;
    assert_eq!(posts(&app), 1);
    app.advance(Duration::from_millis(1)).await;
    assert_eq!(posts(&app), 2);
    // One turn every half second, for any number of polls.
    for turn in 3..=20 {
        app.advance(Duration::from_millis(499)).await;
        assert_eq!(posts(&app), turn - 1, "before turn {turn}");
        app.advance(Duration::from_millis(1)).await;
        assert_eq!(posts(&app), turn);
    }
    for message in &messages {
        assert_eq!(app.counts(message).await.get("accepted"), Some(&1));
    }
    app.finish().await;
}

#[tokio::test]
async fn throttled_backlog_leaves_spread_out() {
    let app = TestApp::start().await;
    let to = json!({"subscriptions": [app.subscribe("fcm", 0..1).await[0].id]});
    for _ in 0..9 {
        app.send(to.clone(), throttled(1)).await;
    }
    app.run_until_idle().await;
    assert_eq!(posts(&app), 1);
    app.advance(Duration::from_secs(12)).await; // every turn that was given has passed
    assert_eq!(posts(&app), 2);
    for second in 1..=7 {
        app.advance(Duration::from_secs(1)).await;
        assert_eq!(posts(&app), 2 + second);
    }
    app.finish().await;
}

#[tokio::test]
async fn replicas_share_the_rate_over_a_long_run() {
    let app = TestApp::start().await;
    let other_clock = Clock::stub(START);
    let other = app.worker(other_clock.clone()).await;
    let to = json!({"subscriptions": [app.subscribe("fcm", 0..1).await[0].id]});
    for _ in 0..300 {
        app.send(to.clone(), throttled(3)).await;
    }
    app.run_until_idle().await;
    let step = Duration::from_millis(200);
    for _ in 0..300 {
        app.clock.advance(step);
        other_clock.advance(step);
        other.run_until_idle().await;
        app.run_until_idle().await;
    }
    let (got, planned) = (posts(&app) as f64, 3.0 * 60.0);
    assert!((got - planned).abs() <= planned * 0.05, "{got} in a minute, planned {planned}");
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM queue").await, 300 - got as i64, "nothing is lost");
    app.finish().await;
}

#[tokio::test]
async fn throttled_delivery_expiring_early_takes_no_slot() {
    let app = TestApp::start().await;
    let to = json!({"subscriptions": [app.subscribe("fcm", 0..1).await[0].id]});
    let brief = json!({"ttl": 2, "policy": {"throttlePolicy": {"maxReceivesPerSecond": 1}}});
    let mut ended = Vec::new();
    for _ in 0..3 {
        ended.push(app.send(to.clone(), brief.clone()).await);
        app.run_until_idle().await;
    }
    let last = app.send(to, throttled(1)).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&ended[2]).await, counts(&[("targeted", 1), ("expired", 1)]));
    app.advance(Duration::from_secs(1)).await;
    assert_eq!(app.counts(&ended[1]).await.get("accepted"), Some(&1));
    app.advance(Duration::from_secs(1)).await;
    assert_eq!(app.counts(&last).await.get("accepted"), Some(&1), "the turn that nobody took is its");
    app.finish().await;
}

#[tokio::test]
async fn a_large_audience_waits_by_subscription() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..120).await;
    let first = app.send(json!({"all": true}), throttled(1)).await;
    let second = app.send(json!({"all": true}), throttled(1)).await;
    app.run_until_idle().await;
    assert_eq!(posts(&app), 120);
    app.advance(Duration::from_secs(1)).await;
    assert_eq!(posts(&app), 240);
    for message in [first, second] {
        assert_eq!(app.counts(&message).await.get("accepted"), Some(&120));
    }
    app.finish().await;
}
