//! Subscriptions that a gateway refuses for ever: suspended when they were never any good, and never for a key's fault.

use std::time::Duration;

use bellwire_core::lane::Gateway;
use bellwire_simulator::gateways::{Rule, RuleAction};
use bellwire_webpush::keys::SigningKey;
use serde_json::json;

use crate::support::app::TestApp;
use crate::support::counts;

fn refused(status: u16) -> Rule {
    Rule::always(RuleAction::Answer { status, headers: Default::default(), body: String::new() })
}

async fn state(app: &TestApp, subscription: &str) -> String {
    let shown = app.get(&format!("/v1/apps/shop/subscriptions/{subscription}")).await;
    shown["state"].as_str().unwrap().to_owned()
}

async fn send(app: &TestApp, subscription: &str, times: usize) {
    for _ in 0..times {
        app.send(json!({"subscriptions": [subscription]}), json!({})).await;
        app.run_until_idle().await;
    }
}

/// Lets another minute begin, in which the lane accepts something, and sweeps.
async fn pass_a_minute(app: &TestApp, accepted: &str) {
    app.advance(Duration::from_secs(61)).await;
    send(app, accepted, 1).await;
    app.sweep().await;
}

#[tokio::test]
async fn five_refusals_suspend_an_unproven_subscription() {
    let app = TestApp::start().await;
    let all = app.subscribe("fcm", 0..2).await;
    let (bad, good) = (&all[0].id, &all[1].id);
    app.simulator.add_rule(Rule { endpoints: Some([0].into()), ..refused(400) }).unwrap();
    send(&app, bad, 4).await;
    pass_a_minute(&app, good).await;
    assert_eq!(state(&app, bad).await, "active");
    send(&app, bad, 1).await;
    app.sweep().await;
    assert_eq!(state(&app, bad).await, "active", "the lane has not been seen to accept anything since");
    pass_a_minute(&app, good).await;
    assert_eq!(state(&app, bad).await, "suspended");
    let again = app.send(json!({"subscriptions": [bad]}), json!({})).await;
    assert_eq!(app.message(&again).await["counts"]["targeted"], 0);
    assert_eq!(state(&app, good).await, "active");
    app.finish().await;
}

#[tokio::test]
async fn foreign_key_subscription_stops_no_other() {
    let app = TestApp::start().await;
    let news = json!({"topics": ["news"]});
    let good = app.subscribe_with("fcm", 0..2, news.clone()).await;
    let key = SigningKey::generate();
    let strangers = app.subscribe_by(key.public(), "fcm", 100..130, news).await;
    let campaign = app.send(json!({"topic": "news"}), json!({})).await;
    app.run_until_idle().await;
    let accepted = counts(&[("targeted", 32), ("accepted", 2), ("awaiting_ack", 2), ("dead", 30)]);
    assert_eq!(app.counts(&campaign).await, accepted);
    for subscriber in &good {
        let code = app.send(json!({"subscriptions": [subscriber.id]}), json!({"tier": "transactional"})).await;
        app.run_until_idle().await;
        assert_eq!(app.delivery(&code, &subscriber.id).await["state"], "accepted");
    }
    pass_a_minute(&app, &good[0].id).await;
    for stranger in &strangers {
        assert_eq!(state(&app, &stranger.id).await, "suspended", "after the first refusal");
    }
    assert_eq!(state(&app, &good[1].id).await, "active");
    app.simulator.reset(); // which found fault with the strangers' key
    app.finish().await;
}

#[tokio::test]
async fn generally_refused_key_suspends_no_newcomer() {
    let app = TestApp::start().await;
    let all = app.subscribe("fcm", 0..2).await;
    let others = app.subscribe("mozilla", 0..1).await;
    send(&app, &all[0].id, 1).await;
    let rule = app.simulator.add_rule(Rule { gateway: Some(Gateway::Fcm), ..refused(403) }).unwrap();
    app.advance(Duration::from_secs(60)).await;
    send(&app, &all[1].id, 1).await;
    pass_a_minute(&app, &others[0].id).await;
    assert_eq!(state(&app, &all[1].id).await, "active", "another push service says nothing of this one");
    assert!(app.simulator.remove_rule(rule));
    pass_a_minute(&app, &all[0].id).await;
    assert_eq!(state(&app, &all[1].id).await, "active", "nobody got through at that time");
    app.finish().await;
}

#[tokio::test]
async fn one_that_was_accepted_before_is_never_suspended() {
    let app = TestApp::start().await;
    let all = app.subscribe("fcm", 0..2).await;
    send(&app, &all[0].id, 1).await;
    app.simulator.add_rule(Rule { endpoints: Some([0].into()), ..refused(400) }).unwrap();
    send(&app, &all[0].id, 12).await;
    pass_a_minute(&app, &all[1].id).await;
    assert_eq!(state(&app, &all[0].id).await, "active");
    app.finish().await;
}

#[tokio::test]
async fn an_acceptance_in_between_starts_the_count_anew() {
    let app = TestApp::start().await;
    let all = app.subscribe("fcm", 0..2).await;
    let only_first = Rule { endpoints: Some([0].into()), ..refused(400) };
    app.simulator.add_rule(Rule { attempts: Some([1, 4]), ..only_first.clone() }).unwrap();
    app.simulator.add_rule(Rule { attempts: Some([6, 9]), ..only_first }).unwrap();
    send(&app, &all[0].id, 9).await;
    pass_a_minute(&app, &all[1].id).await;
    assert_eq!(state(&app, &all[0].id).await, "active");
    app.finish().await;
}

#[tokio::test]
async fn nobody_is_suspended_while_the_whole_key_fails() {
    let app = TestApp::start().await;
    let all = app.subscribe("fcm", 0..1).await;
    app.simulator.add_rule(refused(403)).unwrap();
    send(&app, &all[0].id, 6).await;
    pass_a_minute(&app, &all[0].id).await;
    assert_eq!(state(&app, &all[0].id).await, "active", "nothing of this key was accepted of late");
    app.finish().await;
}

#[tokio::test]
async fn large_payload_does_not_suspend_a_subscription() {
    let app = TestApp::start().await;
    let all = app.subscribe("fcm", 0..2).await;
    app.simulator.add_rule(Rule { endpoints: Some([0].into()), ..refused(413) }).unwrap();
    send(&app, &all[0].id, 6).await;
    pass_a_minute(&app, &all[1].id).await;
    assert_eq!(state(&app, &all[0].id).await, "active");
    app.finish().await;
}
