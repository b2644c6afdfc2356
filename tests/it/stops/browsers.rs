//! Browsers that unsubscribe, return, or change users.

use std::time::Duration;

use axum::http::Method;
use bellwire_core::delivery::Tier;
use bellwire_simulator::gateways::{Rule, RuleAction};
use bellwire_store::queue::claims::LEASE;
use serde_json::json;

use super::unsubscribe;
use crate::support::app::{Subscriber, TestApp};
use crate::support::engine::{claim_and_crash, until_changes_read};
use crate::support::simulator_rules::{IN_FLIGHT, hold_all, release_until_idle};
use crate::support::{citus, counts};

/// Number of accepted and of cancelled deliveries of these messages to a subscription.
async fn endings(app: &TestApp, messages: &[String], subscription: &str) -> (u64, u64) {
    let (mut accepted, mut cancelled) = (0, 0);
    for message in messages {
        app.message(message).await;
        let delivery = app.delivery(message, subscription).await;
        match delivery["state"].as_str() {
            Some("accepted") => accepted += 1,
            Some("cancelled") => cancelled += 1,
            _ => panic!("{delivery}"),
        }
    }
    (accepted, cancelled)
}

#[tokio::test(flavor = "multi_thread")]
async fn unsubscribed_browser_gets_no_later_push() {
    let app = TestApp::start().await;
    let leaver = app.subscribe("fcm", 0..1).await.remove(0);
    let rule = hold_all(&app);
    let mut messages = Vec::new();
    for _ in 0..40 {
        messages.push(app.send(json!({"subscriptions": [leaver.id]}), json!({})).await);
    }
    app.until_held(rule, IN_FLIGHT).await;
    unsubscribe(&app, &leaver).await;
    for message in &messages {
        app.message(message).await;
    }
    release_until_idle(&app, rule).await;
    assert_eq!(app.rule(rule).0, IN_FLIGHT, "pushes begun");
    assert_eq!(endings(&app, &messages, &leaver.id).await, (IN_FLIGHT, 40 - IN_FLIGHT), "what was in flight was taken");
    let later = json!({"to": {"all": true}, "payload": "x"});
    let later = app.call(Method::POST, "/v1/apps/shop/messages", later).await.ok(202);
    assert_eq!((&later["audience_estimate"], &later["state"]), (&json!(0), &json!("done")));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unsubscribed_browser_leaves_the_waiting_line() {
    let app = TestApp::start().await;
    let mut others = app.subscribe("fcm", 0..60).await;
    let leavers = others.split_off(50);
    let send = async |to: &[Subscriber]| {
        let ids: Vec<&str> = to.iter().map(|subscriber| subscriber.id.as_str()).collect();
        app.send(json!({"subscriptions": ids}), json!({})).await
    };
    let rule = hold_all(&app);
    let to_others = send(&others).await;
    app.until_held(rule, IN_FLIGHT).await; // and no more may be
    let message = send(&leavers).await;
    for leaver in &leavers {
        unsubscribe(&app, leaver).await;
        app.message(&message).await;
    }
    release_until_idle(&app, rule).await;
    let accepted = counts(&[("targeted", 50), ("accepted", 50), ("awaiting_ack", 50)]);
    assert_eq!((app.counts(&to_others).await, app.rule(rule).0), (accepted, 50));
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 10), ("cancelled", 10)]));
    for leaver in &leavers {
        assert!(app.simulator.received(&leaver.endpoint).unwrap().is_empty());
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn returned_browser_gets_only_later_messages() {
    let app = TestApp::start().await;
    let browser = app.subscribe("fcm", 0..1).await.remove(0);
    let rule = hold_all(&app);
    let mut before = Vec::new();
    for _ in 0..40 {
        before.push(app.send(json!({"subscriptions": [browser.id]}), json!({})).await);
    }
    app.until_held(rule, IN_FLIGHT).await;
    unsubscribe(&app, &browser).await;
    assert_eq!(app.come_back("fcm", 0).await, browser.id);
    let code = app.send(json!({"subscriptions": [browser.id]}), json!({"tier": "transactional"})).await;
    release_until_idle(&app, rule).await;
    assert_eq!(app.delivery(&code, &browser.id).await["state"], "accepted");
    assert_eq!(endings(&app, &before, &browser.id).await, (IN_FLIGHT, 40 - IN_FLIGHT));
    assert_eq!(app.rule(rule).0, IN_FLIGHT + 1, "pushes begun");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn code_reaches_a_returned_browser() {
    let app = TestApp::start().await;
    let all = app.subscribe("fcm", 0..4).await;
    let state = async |id: &str| app.get(&format!("/v1/apps/shop/subscriptions/{id}")).await["state"].clone();
    let to = |index: usize| json!({"subscriptions": [all[index].id]});
    let code = json!({"tier": "transactional"});
    app.send(to(3), code.clone()).await; // so that the key is known to work
    unsubscribe(&app, &all[0]).await;
    let once = |index, action, n| Rule { endpoints: Some([index].into()), count: Some(n), ..Rule::always(action) };
    app.simulator.add_rule(once(1, RuleAction::Answer { status: 410, headers: vec![], body: "".into() }, 1)).unwrap();
    app.send(to(1), code.clone()).await;
    app.simulator.add_rule(once(2, RuleAction::BadRequest, 5)).unwrap();
    for _ in 0..5 {
        app.send(to(2), code.clone()).await;
        app.run_until_idle().await;
    }
    // Others were accepted in that minute, and are in a later one.
    app.clock.advance(Duration::from_secs(60));
    app.send(to(3), code.clone()).await;
    app.run_until_idle().await;
    app.sweep().await;
    for (index, ended) in [(0, "unsubscribed"), (1, "gone"), (2, "suspended")] {
        assert_eq!(state(&all[index].id).await, ended);
        assert_eq!(app.come_back("fcm", u32::try_from(index).unwrap()).await, all[index].id);
        let again = app.send(to(index), code.clone()).await;
        app.run_until_idle().await;
        assert_eq!(app.delivery(&again, &all[index].id).await["state"], "accepted", "after it was {ended}");
        assert_eq!(state(&all[index].id).await, "active");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn departed_user_gets_only_broadcasts() {
    let app = TestApp::start().await;
    let browser = app.subscribe_with("fcm", 0..1, json!({"user_id": "ann", "topics": ["news"]})).await.remove(0);
    let rule = hold_all(&app);
    let mut to_ann = Vec::new();
    for _ in 0..40 {
        to_ann.push(app.send(json!({"users": ["ann"]}), json!({})).await);
    }
    let news = app.send(json!({"topic": "news"}), json!({})).await;
    app.until_held(rule, IN_FLIGHT).await;
    let path = format!("/v1/apps/shop/subscriptions/{}", browser.id);
    app.call(Method::PATCH, &path, json!({"user_id": null})).await.ok(200);
    app.call(Method::PATCH, &path, json!({"user_id": "bob"})).await.ok(200);
    let to_bob = app.send(json!({"users": ["bob"]}), json!({})).await;
    until_changes_read(&app).await;
    release_until_idle(&app, rule).await;
    assert_eq!(endings(&app, &to_ann, &browser.id).await, (IN_FLIGHT, 40 - IN_FLIGHT));
    for message in [&news, &to_bob] {
        assert_eq!(app.delivery(message, &browser.id).await["state"], "accepted");
    }
    assert_eq!(app.rule(rule).0, IN_FLIGHT + 2, "pushes begun");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unsubscribed_deliveries_of_dead_workers_are_cancelled() {
    let app = TestApp::start().await;
    app.dispatcher.stop(Duration::ZERO).await;
    let all = app.subscribe("fcm", 0..120).await;
    let single = app.send(json!({"subscriptions": [all[0].id, all[1].id, all[2].id]}), json!({})).await;
    let campaign = app.send(json!({"all": true}), json!({})).await;
    claim_and_crash(&app, Tier::Promotional).await;
    unsubscribe(&app, &all[0]).await;
    unsubscribe(&app, &all[1]).await;
    app.clock.advance(Duration::from_secs(1));
    assert_eq!(app.come_back("fcm", 1).await, all[1].id);
    assert_eq!(app.counts(&single).await, counts(&[("targeted", 3), ("dispatching", 3)]), "left to their worker");
    app.clock.advance(LEASE);
    app.worker(app.clock.clone()).await.run_until_idle().await;
    let end = |n: i64| counts(&[("targeted", n), ("accepted", n - 2), ("awaiting_ack", n - 2), ("cancelled", 2)]);
    assert_eq!(app.counts(&single).await, end(3));
    let campaign = app.counts(&campaign).await;
    // Where a batch lies in one shard, it may have held neither of them.
    let is_held = campaign == end(120) || citus::cluster().is_some();
    assert!(is_held && campaign["accepted"] == 118, "{campaign:?}");
    for stopped in &all[..2] {
        assert!(app.simulator.received(&stopped.endpoint).unwrap().is_empty(), "it was stopped, back or not");
    }
    app.finish().await;
}
