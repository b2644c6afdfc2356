//! A push service that suddenly calls many working subscriptions gone is asked again before they are pruned. What was pruned can be
//! restored.

use std::time::Duration;

use axum::http::Method;
use bellwire_core::lane::Gateway;
use bellwire_dispatch::DispatchConfig;
use bellwire_simulator::gateways::{Rule, RuleAction};
use serde_json::{Value, json};

use crate::support::app::scalar;
use crate::support::engine::advance_both;
use crate::support::lanes::lane_origin;
use crate::support::simulator_rules::rule_for;
use crate::support::{Setup, TestApp, counts, seed};

const PRUNED: &str = "SELECT count(*) FROM subscriptions WHERE state = 'gone'";
const ACTIVE: &str = "SELECT count(*) FROM subscriptions WHERE state = 'active'";
const ALERTS: &str = "SELECT count(*) FROM alerts WHERE kind = 'mass_gone'";
const STEP: Duration = Duration::from_secs(16);

/// Sends to everybody once: from then on push services are known to have accepted a push to each.
async fn prove(app: &TestApp) {
    app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM subscriptions WHERE NOT proven").await, 0);
    app.clock.advance(Duration::from_secs(1));
}

fn gone(endpoints: impl IntoIterator<Item = u32>) -> Rule {
    Rule { endpoints: Some(endpoints.into_iter().collect()), ..rule_for(Gateway::Fcm, RuleAction::Gone) }
}

#[tokio::test(flavor = "multi_thread")]
async fn service_that_errs_for_a_moment_prunes_nobody() {
    for action in [RuleAction::Gone, RuleAction::NotFound] {
        let app = TestApp::start().await;
        seed(&app, "fcm", 0..300).await;
        prove(&app).await;
        let fault = app.simulator.add_rule(rule_for(Gateway::Fcm, action)).unwrap();
        let message = app.send(json!({"all": true}), json!({})).await;
        app.run_until_idle().await;
        app.advance(STEP).await;
        assert_eq!([scalar(&app.pool, PRUNED).await, scalar(&app.pool, ALERTS).await], [0, 1]);
        let lane = app.lane("fcm").await;
        assert_eq!(lane_origin(&app, lane, "*").await["held_reason"], "mass_gone");
        assert_eq!(app.counts(&message).await.get("gone"), None);

        assert!(app.simulator.remove_rule(fault));
        for _ in 0..2 {
            app.advance(STEP).await;
        }
        let all = counts(&[("targeted", 300), ("accepted", 300), ("awaiting_ack", 300)]);
        assert_eq!(app.counts(&message).await, all);
        assert_eq!([scalar(&app.pool, PRUNED).await, scalar(&app.pool, ALERTS).await], [0, 1]);
        assert_eq!(lane_origin(&app, lane, "*").await["held_until"], Value::Null);
        assert_eq!(scalar(&app.pool, "SELECT count(*) FROM gone_suspects").await, 0);
        app.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn confirmed_purge_of_two_fifths_goes_through() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..200).await;
    prove(&app).await;
    app.simulator.add_rule(gone(0..80)).unwrap();
    let message = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    let began = app.clock.now();
    while app.clock.now() < began + Duration::from_secs(840) {
        app.advance(Duration::from_secs(60)).await;
    }
    let waiting = app.counts(&message).await;
    assert_eq!((waiting.get("accepted"), waiting.get("gone"), scalar(&app.pool, PRUNED).await), (Some(&120), None, 0));
    for _ in 0..2 {
        app.advance(Duration::from_secs(60)).await;
    }
    let all = counts(&[("targeted", 200), ("accepted", 120), ("awaiting_ack", 120), ("gone", 80)]);
    assert_eq!(app.counts(&message).await, all);
    assert_eq!([scalar(&app.pool, PRUNED).await, scalar(&app.pool, ALERTS).await], [80, 1]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn purge_of_a_whole_lane_ends() {
    for n in [3, 20] {
        let app = TestApp::start().await;
        seed(&app, "fcm", 0..n).await;
        prove(&app).await;
        app.simulator.add_rule(rule_for(Gateway::Fcm, RuleAction::Gone)).unwrap();
        let message = app.send(json!({"all": true}), json!({})).await;
        app.run_until_idle().await;
        assert_eq!(scalar(&app.pool, PRUNED).await, 0, "of {n}");
        let confirm = async || {
            for _ in 0..140 {
                app.advance(Duration::from_secs(15)).await; // 35 minutes
            }
        };
        confirm().await;
        let n = i64::from(n);
        assert_eq!(app.counts(&message).await, counts(&[("targeted", n), ("gone", n)]));
        // Subscriptions pruned before the alarm are active again. Their next push ends them.
        app.send(json!({"all": true}), json!({})).await;
        confirm().await;
        assert_eq!(scalar(&app.pool, PRUNED).await, n);
        app.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn few_gone_subscriptions_are_pruned_at_once() {
    for (n, dead) in [(400, 20), (400, 4), (5, 1), (2, 1)] {
        let app = TestApp::start().await;
        seed(&app, "fcm", 0..n).await;
        prove(&app).await;
        app.simulator.add_rule(gone((0..n).step_by((n / dead) as usize).take(dead as usize))).unwrap();
        let message = app.send(json!({"all": true}), json!({})).await;
        app.run_until_idle().await;
        let (all, dead) = (i64::from(n), i64::from(dead));
        let pairs = [("targeted", all), ("accepted", all - dead), ("awaiting_ack", all - dead), ("gone", dead)];
        assert_eq!(app.counts(&message).await, counts(&pairs), "{dead} of {n}");
        assert_eq!([scalar(&app.pool, PRUNED).await, scalar(&app.pool, ALERTS).await], [dead, 0]);
        app.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn delivery_that_cannot_wait_expires() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..30).await;
    prove(&app).await;
    app.simulator.add_rule(rule_for(Gateway::Fcm, RuleAction::Gone)).unwrap();
    let message = app.send(json!({"all": true}), json!({"ttl": 10})).await;
    app.run_until_idle().await;
    app.advance(STEP).await;
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 30), ("expired", 30)]));
    assert_eq!(scalar(&app.pool, PRUNED).await, 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_count_together_and_restore_the_first() {
    let dispatch = DispatchConfig { lane_limit_max: 4, batch_min: 2, batch_max: 4, ..DispatchConfig::default() };
    let app = TestApp::with(Setup { dispatch, ..Setup::default() }).await;
    seed(&app, "fcm", 0..60).await;
    prove(&app).await;
    let other = app.worker(app.clock.clone()).await;
    let fault = app.simulator.add_rule(rule_for(Gateway::Fcm, RuleAction::Gone)).unwrap();
    let message = app.send(json!({"all": true}), json!({})).await;
    for _ in 0..4 {
        advance_both(&app, &other, STEP).await;
    }
    assert_eq!([scalar(&app.pool, PRUNED).await, scalar(&app.pool, ALERTS).await], [0, 1]);
    assert!(app.simulator.remove_rule(fault));
    for _ in 0..20 {
        advance_both(&app, &other, STEP).await;
    }
    let found = app.counts(&message).await;
    let gone = found.get("gone").copied().unwrap_or(0);
    assert!(gone < 30, "{gone} deliveries ended before the alarm");
    assert_eq!(found["accepted"], 60 - gone, "{found:?}");
    assert_eq!([scalar(&app.pool, ACTIVE).await, scalar(&app.pool, PRUNED).await], [60, 0]);
    let again = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle_with(&other).await;
    assert_eq!(app.counts(&again).await["accepted"], 60);
    app.finish().await;
}

/// Restores pruned subscriptions with this request body.
async fn restore(app: &TestApp, body: Value) -> Value {
    app.call(Method::POST, "/v1/apps/shop/subscriptions/restore", body).await.ok(200)
}

#[tokio::test(flavor = "multi_thread")]
async fn restore_brings_back_by_lane_and_time() {
    let app = TestApp::start().await;
    let since = app.clock.now();
    let fcm = app.subscribe_with("fcm", 0..6, json!({"topics": ["news"]})).await;
    app.subscribe("mozilla", 0..3).await;
    let fault = app.simulator.add_rule(Rule::always(RuleAction::Gone)).unwrap();
    app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(scalar(&app.pool, PRUNED).await, 9, "none of them ever accepted a push");
    let left = format!("/v1/apps/shop/subscriptions/{}", fcm[0].id);
    app.call(Method::DELETE, &left, Value::Null).await.ok(204);
    assert!(app.simulator.remove_rule(fault));
    app.clock.advance(Duration::from_secs(60));

    let lane = app.lane("fcm").await;
    let early =
        json!({"lane": lane, "since": since - Duration::from_secs(60), "until": since - Duration::from_secs(1)});
    assert_eq!(restore(&app, early).await["restored"], 0);
    let tried = restore(&app, json!({"lane": lane, "since": since, "dry_run": true})).await;
    assert_eq!(tried, json!({"dry_run": true, "restored": 5, "more": false}));
    assert_eq!(scalar(&app.pool, ACTIVE).await, 0);
    let done = restore(&app, json!({"lane": lane, "since": since})).await;
    assert_eq!(done, json!({"dry_run": false, "restored": 5, "more": false}));
    assert_eq!(app.get(&left).await["state"], "unsubscribed");
    let message = app.send(json!({"topic": "news"}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await["accepted"], 5);
    assert_eq!(restore(&app, json!({"since": since})).await["restored"], 3, "all other lanes");
    assert_eq!([scalar(&app.pool, ACTIVE).await, scalar(&app.pool, PRUNED).await], [8, 0]);
    app.call(Method::POST, "/v1/apps/shop/subscriptions/restore", json!({"lane": lane + 99, "since": since}))
        .await
        .ok(422);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn import_restores_pruned_ones_when_told() {
    let app = TestApp::start().await;
    let subscribers = app.subscribe("fcm", 0..4).await;
    let mut lines = Vec::new();
    for index in 0..4 {
        let minted = app.simulator.mint("fcm.bellwire.test", index, Some(&app.application_server_key)).unwrap();
        let keys = json!({"p256dh": minted.p256dh, "auth": minted.auth});
        lines.push(json!({"subscription": {"endpoint": minted.endpoint, "keys": keys}}));
    }
    app.simulator.add_rule(rule_for(Gateway::Fcm, RuleAction::Gone)).unwrap();
    app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(scalar(&app.pool, PRUNED).await, 4);
    app.call(Method::DELETE, &format!("/v1/apps/shop/subscriptions/{}", subscribers[0].id), Value::Null).await.ok(204);
    let counts = |import: &Value| {
        ["added", "known", "left_out", "restored", "pruned"].map(|name| import[name].as_i64().unwrap())
    };
    let import = app.call(Method::POST, "/v1/apps/shop/imports", json!(lines)).await.ok(201);
    assert_eq!(counts(&import), [0, 0, 4, 0, 3]);
    let tried =
        app.call(Method::POST, "/v1/apps/shop/imports?restore_pruned=true&dry_run=true", json!(lines)).await.ok(201);
    assert_eq!((counts(&tried), scalar(&app.pool, ACTIVE).await), ([0, 3, 1, 3, 0], 0));
    let import = app.call(Method::POST, "/v1/apps/shop/imports?restore_pruned=true", json!(lines)).await.ok(201);
    assert_eq!((counts(&import), scalar(&app.pool, ACTIVE).await), ([0, 3, 1, 3, 0], 3));
    app.finish().await;
}
