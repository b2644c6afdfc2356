//! Subscriptions that a gateway refuses for ever: suspended when they were never any good, and never for a key's fault.

use bellwire::simulator::{Action, Rule};
use serde_json::json;

use crate::support::app::TestApp;

fn refused(status: u16) -> Rule {
    Rule::always(Action::Answer { status, headers: Default::default(), body: String::new() })
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
    app.sweep().await;
}

#[tokio::test]
async fn five_refusals_in_a_row_suspend_what_was_never_accepted() {
    let app = TestApp::start().await;
    let all = app.subscribe("fcm", 0..2).await;
    let (bad, good) = (&all[0].id, &all[1].id);
    app.simulator.add_rule(Rule { endpoints: Some([0].into()), ..refused(400) }).unwrap();
    send(&app, good, 1).await;
    send(&app, bad, 4).await;
    assert_eq!(state(&app, bad).await, "active");
    send(&app, bad, 1).await;
    assert_eq!(state(&app, bad).await, "suspended");
    let again = app.send(json!({"subscriptions": [bad]}), json!({})).await;
    assert_eq!(app.message(&again).await["counts"]["targeted"], 0);
    assert_eq!(state(&app, good).await, "active");
    app.finish().await;
}

#[tokio::test]
async fn one_that_was_accepted_before_is_never_suspended() {
    let app = TestApp::start().await;
    let all = app.subscribe("fcm", 0..2).await;
    send(&app, &all[0].id, 1).await;
    app.simulator.add_rule(Rule { endpoints: Some([0].into()), ..refused(400) }).unwrap();
    send(&app, &all[0].id, 12).await;
    send(&app, &all[1].id, 1).await;
    assert_eq!(state(&app, &all[0].id).await, "active");
    app.finish().await;
}

#[tokio::test]
async fn an_acceptance_in_between_starts_the_count_anew() {
    let app = TestApp::start().await;
    let all = app.subscribe("fcm", 0..2).await;
    send(&app, &all[1].id, 1).await;
    let only_first = Rule { endpoints: Some([0].into()), ..refused(403) };
    app.simulator.add_rule(Rule { attempts: Some([1, 4]), ..only_first.clone() }).unwrap();
    app.simulator.add_rule(Rule { attempts: Some([6, 9]), ..only_first }).unwrap();
    send(&app, &all[0].id, 9).await;
    assert_eq!(state(&app, &all[0].id).await, "active");
    app.finish().await;
}

#[tokio::test]
async fn nobody_is_suspended_while_the_whole_key_fails() {
    let app = TestApp::start().await;
    let all = app.subscribe("fcm", 0..1).await;
    app.simulator.add_rule(refused(403)).unwrap();
    send(&app, &all[0].id, 6).await;
    assert_eq!(state(&app, &all[0].id).await, "active", "nothing of this key was accepted of late");
    app.finish().await;
}

#[tokio::test]
async fn a_payload_too_large_is_not_the_subscriptions_fault() {
    let app = TestApp::start().await;
    let all = app.subscribe("fcm", 0..2).await;
    send(&app, &all[1].id, 1).await;
    app.simulator.add_rule(Rule { endpoints: Some([0].into()), ..refused(413) }).unwrap();
    send(&app, &all[0].id, 6).await;
    assert_eq!(state(&app, &all[0].id).await, "active");
    app.finish().await;
}
