//! Explanations of real deliveries: every kind of end, and every reason to wait.

use std::time::Duration;

use axum::http::Method;
use bellwire_core::lane::Gateway;
use bellwire_simulator::gateways::{Rule, RuleAction};
use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::app::{DAY, Subscriber};
use crate::support::database::until_stored;
use crate::support::simulator_rules::rule_for;

async fn explain(app: &TestApp, message: &str, subscription: &str) -> Value {
    app.get(&format!("/v1/apps/shop/messages/{message}/deliveries/{subscription}/explain")).await
}

/// The sentence of that code.
#[track_caller]
fn sentence<'a>(explanation: &'a Value, code: &str) -> &'a Value {
    let story = explanation["story"].as_array().unwrap();
    story.iter().find(|told| told["code"] == code).unwrap_or_else(|| panic!("no {code} in {explanation:#}"))
}

fn codes(explanation: &Value) -> Vec<&str> {
    let story = explanation["story"].as_array().unwrap();
    let head = ["message_accepted", "addressed", "policy_in_force"];
    story.iter().map(|told| told["code"].as_str().unwrap()).filter(|code| !head.contains(code)).collect()
}

async fn one(app: &TestApp, gateway: &str) -> Subscriber {
    app.subscribe(gateway, 0..1).await.remove(0)
}

/// Sends to one subscription, lets the engine work, and explains.
async fn send(app: &TestApp, to: &Subscriber, more: Value) -> String {
    let message = app.send(json!({"subscriptions": [to.id]}), more).await;
    app.run_until_idle().await;
    message
}

/// The next request is answered so, those after it as usual.
fn once(action: RuleAction) -> Rule {
    Rule { count: Some(1), ..Rule::always(action) }
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_story_names_response_policy_and_time() {
    let app = TestApp::start().await;
    let to = one(&app, "fcm").await;
    app.simulator.add_rule(once(RuleAction::ServerError)).unwrap();
    let policy = json!({"policy": {"retries": 4, "retryDelay": "pow(2, retried) * 3000"}});
    let message = send(&app, &to, policy).await;
    let told = explain(&app, &message, &to.id).await;
    assert_eq!((&told["state"], codes(&told)), (&json!("retrying"), vec!["answered", "waits_for_retry", "next_post"]));
    assert_eq!(sentence(&told, "policy_in_force")["facts"]["set_by"], "message");
    let delivery = app.delivery(&message, &to.id).await;
    let first = &delivery["attempts"][0];
    let answered = sentence(&told, "answered");
    assert_eq!((&answered["facts"]["status"], &answered["facts"]["gateway"]), (&json!(500), &json!("fcm")));
    assert_eq!((&answered["facts"]["words"], &answered["at"]), (&first["reason"], &first["at"]));
    assert_eq!(answered["facts"]["took_ms"], first["took_ms"]);
    let waits = sentence(&told, "waits_for_retry");
    assert_eq!((&waits["at"], &waits["facts"]["nominal_s"]), (&delivery["due_at"], &json!(3.0)));
    assert!(waits["text"].as_str().unwrap().contains("by `pow(2, retried) * 3000` ms with retried = 0"), "{waits}");

    app.advance(Duration::from_millis(3_900)).await;
    // It left as long before its answer as that took, which is real time: late within the second of a claim, or too soon.
    let took_ms = app.delivery(&message, &to.id).await["attempts"][1]["took_ms"].as_f64().unwrap();
    let retry = if took_ms <= 900.0 { "retry_by_policy" } else { "retry_sooner" };
    let told = explain(&app, &message, &to.id).await;
    let story = ["answered", retry, "answered", "ended_accepted", "next_nothing"];
    assert_eq!((&told["state"], codes(&told)), (&json!("accepted"), story.to_vec()));
    let waited_s = sentence(&told, retry)["facts"]["waited_s"].as_f64().unwrap();
    assert!((waited_s + took_ms / 1e3 - 3.9).abs() < 5e-4, "{waited_s} s, {took_ms} ms");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_is_not_shown_as_policy() {
    let app = TestApp::start().await;
    let to = one(&app, "fcm").await;
    app.simulator.add_rule(once(RuleAction::Throttled { retry_after_s: Some(90) })).unwrap();
    let message = send(&app, &to, json!({})).await;
    until_stored(&app, "SELECT count(*) FROM subscription_holds").await;
    let told = explain(&app, &message, &to.id).await;
    assert_eq!(codes(&told), ["answered", "waits_for_retry", "subscription_held", "next_post"]);
    let waits = &sentence(&told, "waits_for_retry");
    assert_eq!(waits["facts"]["waited_s"], 90.0);
    assert!(waits["text"].as_str().unwrap().contains("the push service asked for a later time"), "{waits}");
    app.advance(Duration::from_secs(92)).await;
    let told = explain(&app, &message, &to.id).await;
    assert_eq!(codes(&told), ["answered", "retry_later", "answered", "ended_accepted", "next_nothing"]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_end_says_why() {
    let app = TestApp::start().await;
    let refused = RuleAction::Answer { status: 400, headers: Vec::new(), body: "no such thing".into() };
    let subscribers = app.subscribe("fcm", 0..7).await;
    let cases = [
        (Some(refused), json!({}), vec!["answered", "ended_dead", "dead_letter", "next_nothing"]),
        (Some(RuleAction::Gone), json!({}), vec!["answered", "ended_gone", "dead_letter", "next_nothing"]),
        (
            Some(RuleAction::ServerError),
            json!({"ttl": 1}),
            vec!["answered", "ended_expired", "dead_letter", "next_nothing"],
        ),
        (
            Some(RuleAction::ServerError),
            json!({"policy": {"retries": 0}}),
            vec!["policy_when_it_died", "answered", "ended_dead", "dead_letter", "next_nothing"],
        ),
        (None, json!({}), vec!["answered", "ended_accepted", "next_nothing"]),
    ];
    for (to, (action, more, expected)) in subscribers.iter().zip(cases) {
        let rule = action.map(|action| app.simulator.add_rule(once(action)).unwrap());
        let message = send(&app, to, more).await;
        let told = explain(&app, &message, &to.id).await;
        let codes: Vec<_> = codes(&told).into_iter().filter(|code| expected.contains(code)).collect();
        assert_eq!(codes, expected, "{told:#}");
        rule.map(|rule| app.simulator.remove_rule(rule));
    }
    let [unsubscribed, cancelled] = [&subscribers[5], &subscribers[6]];
    let waits = json!({"subscriptions": [unsubscribed.id, cancelled.id]});
    let lane = app.lane("fcm").await;
    app.operate(Method::POST, &format!("/v1/gateways/{lane}/hold"), Value::Null).await.ok(200);
    let message = app.send(waits, json!({})).await;
    app.run_until_idle().await;
    app.call(Method::DELETE, &format!("/v1/apps/shop/subscriptions/{}", unsubscribed.id), Value::Null).await.ok(204);
    let path = format!("/v1/apps/shop/messages/{message}/deliveries/{}/cancel", cancelled.id);
    app.call(Method::POST, &path, Value::Null).await.ok(200);
    for (to, reason) in [(unsubscribed, "unsubscribed"), (cancelled, "delivery cancelled")] {
        let told = explain(&app, &message, &to.id).await;
        assert_eq!((&told["state"], codes(&told)), (&json!("cancelled"), vec!["ended_cancelled", "next_nothing"]));
        assert_eq!(sentence(&told, "ended_cancelled")["facts"]["reason"], reason);
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_payload_made_smaller_says_what_it_lost() {
    let app = TestApp::start().await;
    let to = one(&app, "fcm").await;
    app.simulator.add_rule(once(RuleAction::TooLarge)).unwrap();
    let content = json!({"title": "T", "body": "x".repeat(900)});
    let message = send(&app, &to, json!({"content": content})).await;
    let told = explain(&app, &message, &to.id).await;
    assert_eq!(codes(&told), ["answered", "retry_smaller", "answered", "ended_accepted", "next_nothing"]);
    assert_eq!(sentence(&told, "retry_smaller")["facts"]["without"], "padding");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_delivery_names_its_obstacle() {
    let app = TestApp::start().await;
    let to = one(&app, "fcm").await;
    let lane = app.lane("fcm").await;
    let steer = async |verb: &str, body: Value| {
        app.operate(Method::POST, &format!("/v1/gateways/{lane}/{verb}"), body).await.ok(200);
        app.run_until_idle().await;
    };
    steer("hold", json!({"seconds": 600, "reason": "secret plans"})).await;
    let message = send(&app, &to, json!({"ttl": 86_400})).await;
    let told = explain(&app, &message, &to.id).await;
    assert_eq!(sentence(&told, "lane_held")["facts"]["reason"], "operator");
    assert!(!told.to_string().contains("secret plans"), "an operator's words are not for apps");
    steer("release", Value::Null).await;

    app.call(Method::POST, "/v1/apps/shop/flow/pause", Value::Null).await.ok(200);
    let message = send(&app, &to, json!({"ttl": 86_400})).await;
    let told = explain(&app, &message, &to.id).await;
    assert_eq!(codes(&told), ["waits_for_turn", "flow_paused", "next_open"]);
    app.call(Method::POST, "/v1/apps/shop/flow/resume", Value::Null).await.ok(200);
    app.run_until_idle().await;

    steer("open", json!({"seconds": 600})).await;
    let message = send(&app, &to, json!({"ttl": 60})).await;
    let told = explain(&app, &message, &to.id).await;
    sentence(&told, "breaker_open");
    sentence(&told, "next_expires");
    steer("close", Value::Null).await;
    app.advance(Duration::from_secs(5)).await;
    assert_eq!(explain(&app, &message, &to.id).await["state"], "accepted");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_delivery_names_hours_throttle_or_pause() {
    let app = TestApp::start().await;
    let to = one(&app, "fcm").await;
    let calendar = json!({"timezone": "Europe/Berlin", "quiet_hours": {"from": "22:00", "to": "10:30"}});
    app.call(Method::PUT, "/v1/apps/shop/calendar", calendar).await.ok(200);
    let message = send(&app, &to, json!({})).await;
    let told = explain(&app, &message, &to.id).await;
    assert_eq!(codes(&told), ["waits_for_hours", "next_post"]);
    assert_eq!(sentence(&told, "waits_for_hours")["at"], app.delivery(&message, &to.id).await["due_at"]);

    let policy = json!({"tier": "transactional", "policy": {"throttlePolicy": {"maxReceivesPerSecond": 2}}});
    send(&app, &to, policy.clone()).await;
    let second = send(&app, &to, policy).await;
    let told = explain(&app, &second, &to.id).await;
    assert_eq!(codes(&told), ["waits_for_throttle", "next_post"]);
    assert_eq!(sentence(&told, "waits_for_throttle")["facts"]["max_receives_per_second"], 2);

    app.steer(&message, "pause").await;
    let told = explain(&app, &message, &to.id).await;
    assert_eq!(codes(&told), ["waits_paused", "next_open"]);
    app.steer(&message, "cancel").await;
    app.advance(Duration::from_secs(1)).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leased_delivery_is_shown_as_leased() {
    let app = TestApp::start().await;
    let to = one(&app, "fcm").await;
    let rule = app.simulator.add_rule(Rule::always(RuleAction::Hold)).unwrap();
    let message = app.send(json!({"subscriptions": [to.id]}), json!({})).await;
    let (_, told) = tokio::join!(app.run_until_idle(), async {
        app.until_held(rule, 1).await;
        let told = explain(&app, &message, &to.id).await;
        app.simulator.release(rule, 1);
        told
    });
    assert_eq!((&told["state"], codes(&told)), (&json!("dispatching"), vec!["held_by_worker", "next_open"]));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unaddressed_subscription_gets_the_reason() {
    let app = TestApp::start().await;
    let early = app.subscribe_with("fcm", 0..1, json!({"topics": ["news"]})).await.remove(0);
    let outsider = app.subscribe("fcm", 1..2).await.remove(0);
    app.subscribe_with("fcm", 2..150, json!({"topics": ["news"]})).await;
    // Taking a batch writes there: no batch may be taken before the query.
    let mut hold = app.pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE message_counts IN EXCLUSIVE MODE").execute(&mut *hold).await.unwrap();
    let waits = app.send(json!({"topic": "news"}), json!({})).await;
    app.clock.advance(Duration::from_secs(1));
    let late = app.subscribe_with("fcm", 150..151, json!({"topics": ["news"]})).await.remove(0);
    let told = explain(&app, &waits, &early.id).await;
    assert_eq!((&told["state"], codes(&told)), (&json!("queued"), vec!["not_fanned_out", "next_post"]));
    for (to, why) in [(&outsider, "is not a member of topic news"), (&late, "after the message was accepted")] {
        let told = explain(&app, &waits, &to.id).await;
        assert_eq!((&told["state"], codes(&told)), (&json!("none"), vec!["not_targeted"]));
        assert!(sentence(&told, "not_targeted")["text"].as_str().unwrap().contains(why), "{told:#}");
    }
    hold.rollback().await.unwrap();
    app.run_until_idle().await;
    assert_eq!(explain(&app, &waits, &early.id).await["state"], "accepted");
    let nobody = format!("sub_0000{}", &early.id[8..]);
    let path = format!("/v1/apps/shop/messages/{waits}/deliveries/{nobody}/explain");
    app.call(Method::GET, &path, Value::Null).await.ok(404);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_retention_took_is_called_deleted() {
    let app = TestApp::start().await;
    let to = one(&app, "fcm").await;
    let message = send(&app, &to, json!({})).await;
    for _ in 0..3 {
        app.clock.advance(Duration::from_secs(301));
        app.sweep().await;
    }
    sentence(&explain(&app, &message, &to.id).await, "content_deleted");
    let rule = app.simulator.add_rule(Rule::always(RuleAction::BadRequest)).unwrap();
    let dead = send(&app, &to, json!({})).await;
    app.simulator.remove_rule(rule);
    app.clock.advance(DAY * 37);
    let now = app.clock.now();
    let kept =
        bellwire::testkit::server::maintenance::Retention { archive: DAY * 60, ..crate::support::app::RETENTION };
    bellwire::testkit::server::maintenance::tend_partitions(&app.pool, now, kept).await.unwrap();
    let told = explain(&app, &message, &to.id).await;
    assert_eq!((&told["state"], codes(&told)), (&json!("none"), vec!["content_deleted", "history_deleted"]));
    let told = explain(&app, &dead, &to.id).await;
    assert_eq!(told["state"], "dead", "its letter is kept, and tells of it");
    assert_eq!(sentence(&told, "ended_dead")["facts"]["reason"], "bad_request");
    bellwire::testkit::server::maintenance::keep_house(&app.pool, now, crate::support::app::RETENTION).await.unwrap();
    sqlx::query("DELETE FROM messages").execute(&app.pool).await.unwrap();
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replaced_delivery_points_to_the_successor() {
    let app = TestApp::start().await;
    let old = one(&app, "fcm").await;
    app.simulator.add_rule(once(RuleAction::ServerError)).unwrap();
    let message = send(&app, &old, json!({})).await;
    let new = app.subscribe_with("fcm", 1..2, json!({"replaces": {"id": old.id}})).await.remove(0);
    let told = explain(&app, &message, &old.id).await;
    assert_eq!(sentence(&told, "handed_on")["facts"]["subscription"], new.id.as_str());
    let told = explain(&app, &message, &new.id).await;
    assert_eq!(sentence(&told, "attempts_elsewhere")["facts"], json!({"attempts": 1, "is_successor": true}));
    app.advance(Duration::from_secs(3)).await;
    assert_eq!(explain(&app, &message, &new.id).await["state"], "accepted");
    // The attempt that failed was the old one's, and stays there.
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn outage_story_names_the_breaker_to_owner() {
    let app = TestApp::start().await;
    let subscribers = app.subscribe("fcm", 0..8).await;
    let rule = app.simulator.add_rule(rule_for(Gateway::Fcm, RuleAction::ServerError)).unwrap();
    let to: Vec<_> = subscribers.iter().map(|to| &to.id).collect();
    let message = app.send(json!({"subscriptions": to}), json!({})).await;
    app.run_until_idle().await;
    until_stored(&app, "SELECT count(*) FROM lane_states WHERE breaker = 'open'").await;
    let told = explain(&app, &message, &subscribers[0].id).await;
    sentence(&told, "breaker_open");
    app.simulator.remove_rule(rule);

    let new = json!({"slug": "other", "name": "Other", "subject": "mailto:ops@example.com"});
    app.operate(Method::POST, "/v1/apps", new).await.ok(201);
    let path = format!("/v1/apps/other/messages/{message}/deliveries/{}/explain", subscribers[0].id);
    app.operate(Method::GET, &path, Value::Null).await.ok(404);
    for _ in 0..30 {
        app.advance(Duration::from_secs(10)).await;
    }
    assert_eq!(explain(&app, &message, &subscribers[0].id).await["state"], "accepted");
    app.finish().await;
}
