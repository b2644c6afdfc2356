//! A VAPID key that push services refuse: held before it eats the base, tried by those alone whom it reached before.

use std::time::Duration;

use axum::http::Method;
use bellwire_core::id::LaneId;
use bellwire_core::lane::Gateway;
use bellwire_dispatch::DispatchConfig;
use bellwire_simulator::gateways::RuleAction;
use bellwire_store::queue::lanes;
use serde_json::{Value, json};

use crate::support::app::{Subscriber, scalar};
use crate::support::database::until_stored;
use crate::support::engine::advance_both;
use crate::support::lanes::lane_origin;
use crate::support::simulator_rules::rule_for;
use crate::support::{Setup, TestApp, counts, seed};

#[tokio::test(flavor = "multi_thread")]
async fn key_alert_persists_wherever_it_is_refused() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..1).await;
    app.subscribe("mozilla", 0..1).await;
    let [fcm, mozilla] =
        [app.lane("fcm").await, app.lane("mozilla").await].map(|lane| LaneId(lane.try_into().unwrap()));
    for (lane, everywhere) in [(fcm, false), (mozilla, true), (fcm, true)] {
        lanes::hold_key(&app.pool, lane, app.clock.now()).await.unwrap();
        let list = app.operate(Method::GET, "/v1/alerts", Value::Null).await.ok(200);
        assert_eq!(list["data"][0]["detail"].as_str().unwrap().contains("wherever it is used"), everywhere, "{list}");
    }
    app.finish().await;
}

const KEY_HELD: &str = "SELECT count(*) FROM lane_states WHERE origin = '*' AND key_held_until IS NOT NULL";

/// Reaches everybody once: from then on it is known that they were made with the app's key.
async fn prove(app: &TestApp) {
    app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM subscriptions WHERE NOT proven").await, 0);
    app.clock.advance(Duration::from_secs(60)); // what was accepted speaks for the key for a minute
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_key_is_held_until_a_probe_succeeds() {
    let dispatch = DispatchConfig { lane_limit_max: 16, batch_min: 20, batch_max: 20, ..DispatchConfig::default() };
    let app = TestApp::with(Setup { dispatch, ..Setup::default() }).await;
    seed(&app, "fcm", 0..200).await;
    seed(&app, "mozilla", 0..200).await;
    app.subscribe("apple", 0..1).await;
    prove(&app).await;
    let other = app.worker(app.clock.clone()).await;
    let before = app.simulator.report().requests;
    let refusals = [Gateway::Fcm, Gateway::Mozilla]
        .map(|gateway| app.simulator.add_rule(rule_for(gateway, RuleAction::Unauthorized)));
    let message = app.send(json!({"all": true}), json!({})).await;
    until_stored(&app, "SELECT count(*) / 3 FROM lane_states WHERE origin = '*' AND key_held_until IS NOT NULL").await;
    advance_both(&app, &other, Duration::from_secs(60)).await;
    let dead = app.counts(&message).await["dead"];
    assert!((19..100).contains(&dead), "{dead} of 401 died");
    // Both workers hold a lane after 20 refusals of their own at the latest, with a lane's limit of POSTs under way.
    let posted = i64::try_from(app.simulator.report().requests - before).unwrap();
    assert!(posted <= 2 * 2 * (20 + 15) + 1, "{posted} of 401 were sent");
    let lanes = [app.lane("fcm").await, app.lane("mozilla").await];
    for lane in lanes {
        assert_eq!(lane_origin(&app, lane, "*").await["held_reason"], "key_refused");
    }
    let list = app.operate(Method::GET, "/v1/alerts", Value::Null).await.ok(200);
    let alert = &list["data"][0];
    assert_eq!((&alert["kind"], &alert["resolved_at"]), (&json!("key_refused"), &Value::Null), "{list}");
    assert!(alert["subject"].as_str().unwrap().starts_with("vk_") && alert["app"].is_string(), "{list}");
    assert!(alert["detail"].as_str().unwrap().contains("wherever it is used"), "{list}");

    refusals.into_iter().for_each(|rule| assert!(app.simulator.remove_rule(rule.unwrap())));
    for _ in 0..12 {
        advance_both(&app, &other, Duration::from_secs(15)).await; // far less than the ten minutes of the hold
    }
    let end = counts(&[("targeted", 401), ("accepted", 401 - dead), ("awaiting_ack", 401 - dead), ("dead", dead)]);
    assert_eq!(app.counts(&message).await, end);
    for lane in lanes {
        assert_eq!(lane_origin(&app, lane, "*").await["held_until"], Value::Null);
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_key_is_held_at_that_gateway_only() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..60).await;
    app.subscribe("mozilla", 0..2).await;
    prove(&app).await;
    app.simulator.add_rule(rule_for(Gateway::Fcm, RuleAction::Unauthorized)).unwrap();
    let message = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    until_stored(&app, KEY_HELD).await;
    assert_eq!(scalar(&app.pool, KEY_HELD).await, 1);
    app.run_until_idle().await;
    let before = app.counts(&message).await;
    assert_eq!(before["accepted"], 2, "{before:?}");
    let requests = app.simulator.report().requests;
    for _ in 0..8 {
        app.advance(Duration::from_secs(15)).await;
    }
    let probes = app.simulator.report().requests - requests;
    assert!((4..=8).contains(&probes), "{probes} probes in two minutes");
    assert_eq!(app.counts(&message).await["dead"], before["dead"], "a probe that is refused is put off");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_push_service_cannot_hold_a_key() {
    let app = TestApp::start().await;
    seed(&app, "other", 0..60).await;
    app.subscribe("mozilla", 0..2).await;
    prove(&app).await;
    app.simulator.add_rule(rule_for(Gateway::Other, RuleAction::Unauthorized)).unwrap();
    let message = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    let alerts = "SELECT count(*) FROM alerts WHERE kind = 'key_refused' AND detail LIKE '%no lane is held%'";
    until_stored(&app, alerts).await;
    assert_eq!(scalar(&app.pool, KEY_HELD).await, 0);
    let all = counts(&[("targeted", 62), ("accepted", 2), ("awaiting_ack", 2), ("dead", 60)]);
    assert_eq!(app.counts(&message).await, all, "nobody waits for what a stranger says of the key");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn code_to_proven_subscriber_probes_a_held_key() {
    let app = TestApp::start().await;
    let known = app.subscribe("fcm", 0..1).await.remove(0);
    prove(&app).await;
    let new = app.subscribe("fcm", 1..2).await.remove(0);
    let (lane, now) = (app.lane("fcm").await, app.clock.now());
    lanes::hold_key(&app.pool, LaneId(lane as i32), now).await.unwrap();
    app.advance(Duration::from_secs(1)).await;
    let code = async |to: &Subscriber| {
        let code = app.send(json!({"subscriptions": [to.id]}), json!({"tier": "transactional"})).await;
        app.run_until_idle().await;
        code
    };
    let waits = code(&new).await;
    assert_eq!(app.delivery(&waits, &new.id).await["state"], "queued");
    let probe = code(&known).await;
    assert_eq!(app.delivery(&probe, &known.id).await["state"], "accepted");
    until_stored(&app, "SELECT count(*) FROM lane_states WHERE key_held_until IS NULL AND key_released_at IS NOT NULL")
        .await;
    app.advance(Duration::from_secs(60)).await;
    assert_eq!(app.delivery(&waits, &new.id).await["state"], "accepted");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn never_accepted_key_alerts_and_holds_nothing() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..30).await;
    app.simulator.add_rule(rule_for(Gateway::Fcm, RuleAction::Unauthorized)).unwrap();
    let message = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 30), ("dead", 30)]));
    until_stored(
        &app,
        "SELECT count(*) FROM alerts WHERE kind = 'key_refused' AND detail LIKE '%nothing was ever accepted%'",
    )
    .await;
    assert_eq!(scalar(&app.pool, KEY_HELD).await, 0);
    app.finish().await;
}
