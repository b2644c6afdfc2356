//! Delivery policies at work: whose word holds for a delivery, what the service worker learns, and what a change does.

use std::time::Duration;

use axum::http::Method;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::SubscriptionId;
use bellwire_simulator::gateways::{Rule, RuleAction};
use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::app::Subscriber;

async fn put(app: &TestApp, place: &str, policy: Value) {
    app.call(Method::PUT, &format!("/v1/apps/shop/policies/{place}"), policy).await.ok(200);
}

/// A policy whose first retry comes after so many seconds, give or take jitter.
fn waiting(s: u32) -> Value {
    json!({"retries": 5, "retryDelay": (s * 1_000).to_string()})
}

/// Delay until a delivery is due, without the milliseconds of jitter between deliveries that fail together.
async fn due_in_s(app: &TestApp, message: &str, subscriber: &Subscriber) -> f64 {
    let delivery = app.delivery(message, &subscriber.id).await;
    let due_at: Timestamp = delivery["due_at"].as_str().unwrap_or_else(|| panic!("{delivery}")).parse().unwrap();
    ((due_at - app.clock.now()).as_seconds_f64() * 10.0).floor() / 10.0
}

/// The plaintexts that were delivered to a browser, as its service worker reads them.
fn plaintexts(app: &TestApp, subscriber: &Subscriber) -> Vec<Value> {
    let received = app.simulator.received(&subscriber.endpoint).unwrap();
    received.iter().map(|delivery| serde_json::from_slice(delivery.plaintext.as_ref().unwrap()).unwrap()).collect()
}

/// A server whose gateways fail the first request to each endpoint from now on.
async fn failing_first(app: &TestApp) -> u64 {
    app.simulator.add_rule(Rule { attempts: Some([1, 1]), ..Rule::always(RuleAction::ServerError) }).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_delay_comes_from_the_first_layer() {
    let app = TestApp::start().await;
    let subscribers = app.subscribe_with("other", 0..4, json!({"topics": ["news"]})).await;
    put(&app, "tiers/engagement", waiting(40)).await;
    put(&app, "topics/news", waiting(30)).await;
    let topic = json!({"topic": "news"});
    for (to, more, expected_s) in [
        (topic.clone(), json!({"policy": waiting(10)}), 10.0),
        (topic.clone(), json!({}), 30.0),
        (topic, json!({"policy": {"throttlePolicy": {"maxReceivesPerSecond": 100}}}), 30.0),
        // The topic's policy applies to messages to the topic, not to all messages to its subscribers.
        (json!({"subscriptions": [subscribers[0].id]}), json!({}), 40.0),
        (json!({"all": true}), json!({}), 40.0),
    ] {
        let rule = failing_first(&app).await;
        let mut body = json!({"tier": "engagement"});
        body.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        let message = app.send(to.clone(), body).await;
        app.run_until_idle().await;
        assert_eq!(due_in_s(&app, &message, &subscribers[0]).await, expected_s, "{to} {more}");
        app.simulator.remove_rule(rule);
        app.advance(Duration::from_secs(60)).await;
        let counts = app.counts(&message).await;
        assert_eq!(counts["accepted"], counts["targeted"], "{counts:?}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscription_policy_counts_unless_topic_forbids() {
    let app = TestApp::start().await;
    let subscribers = app.subscribe_with("other", 0..4, json!({"topics": ["news"]})).await;
    put(&app, &format!("subscriptions/{}", subscribers[0].id), waiting(20)).await;
    put(&app, "topics/news", waiting(30)).await;
    let send = async |to: Value, more: Value| {
        let rule = failing_first(&app).await;
        let message = app.send(to, more).await;
        app.run_until_idle().await;
        let waits = (due_in_s(&app, &message, &subscribers[0]).await, due_in_s(&app, &message, &subscribers[1]).await);
        app.simulator.remove_rule(rule);
        app.advance(Duration::from_secs(60)).await;
        assert_eq!(app.counts(&message).await["accepted"], 4);
        waits
    };
    let topic = json!({"topic": "news"});
    assert_eq!(send(topic.clone(), json!({})).await, (20.0, 30.0));
    assert_eq!(
        send(topic.clone(), json!({"policy": waiting(10)})).await,
        (10.0, 10.0),
        "the message's own comes first"
    );
    let mut strict = waiting(30);
    strict["disableSubscriptionOverrides"] = json!(true);
    put(&app, "topics/news", strict).await;
    assert_eq!(send(topic, json!({})).await, (30.0, 30.0));
    let (own, default) = send(json!({"all": true}), json!({})).await;
    assert_eq!(own, 20.0, "the topic's word is for messages that are addressed to it");
    assert!((1.6..=2.4).contains(&default), "{default}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn changed_tier_policy_applies_within_a_minute() {
    let app = TestApp::start().await;
    let subscriber = app.subscribe("other", 0..1).await.remove(0);
    let rule = app.simulator.add_rule(Rule::always(RuleAction::ServerError)).unwrap();
    put(&app, "tiers/2", waiting(30)).await;
    let message = app.send(json!({"subscriptions": [subscriber.id]}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(due_in_s(&app, &message, &subscriber).await, 30.0);
    put(&app, "tiers/2", waiting(500)).await;
    app.advance(Duration::from_secs(30)).await;
    assert_eq!(due_in_s(&app, &message, &subscriber).await, 30.0, "the message was opened less than a minute ago");
    app.advance(Duration::from_secs(30)).await;
    assert_eq!(due_in_s(&app, &message, &subscriber).await, 500.0);
    // Taken away, the built-in default holds, by which two more retries were left.
    app.call(Method::DELETE, "/v1/apps/shop/policies/tiers/2", Value::Null).await.ok(204);
    app.advance(Duration::from_secs(500)).await;
    let wait_s = due_in_s(&app, &message, &subscriber).await;
    assert!((12.8..=19.2).contains(&wait_s), "the guide's fourth retry: {wait_s}");
    app.simulator.remove_rule(rule);
    app.advance(Duration::from_secs(20)).await;
    assert_eq!(app.counts(&message).await["accepted"], 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lowered_retry_maximum_ends_deliveries() {
    let app = TestApp::start().await;
    let subscriber = app.subscribe("other", 0..1).await.remove(0);
    app.simulator.add_rule(Rule::always(RuleAction::ServerError)).unwrap();
    let message = app.send(json!({"subscriptions": [subscriber.id]}), json!({"policy": waiting(100)})).await;
    app.run_until_idle().await;
    app.call(Method::PATCH, "/v1/apps/shop", json!({"max_retries": 2})).await.ok(200);
    app.advance(Duration::from_secs(100)).await;
    assert_eq!(app.counts(&message).await["retrying"], 1, "the first of two");
    app.advance(Duration::from_secs(100)).await;
    assert_eq!(app.counts(&message).await["dead"], 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_stored_policy_stops_no_delivery() {
    let app = TestApp::start().await;
    let subscriber = app.subscribe_with("other", 0..1, json!({"topics": ["news"]})).await.remove(0);
    put(&app, "topics/news", waiting(30)).await;
    put(&app, "tiers/2", waiting(40)).await;
    sqlx::query("UPDATE topics SET policy = '{\"retries\": \"many\"}'").execute(&app.pool).await.unwrap();
    failing_first(&app).await;
    let message = app.send(json!({"topic": "news"}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(due_in_s(&app, &message, &subscriber).await, 40.0, "the next place's word counts");
    app.advance(Duration::from_secs(40)).await;
    assert_eq!(app.counts(&message).await["accepted"], 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn service_worker_sees_attempt_and_raw_marker() {
    let app = TestApp::start().await;
    let subscriber = app.subscribe_with("mozilla", 0..1, json!({"topics": ["news"]})).await.remove(0);
    let labelled = json!({"requestPolicy": {"headerContentType": "application/json"}});
    put(&app, "topics/news", labelled).await;
    let to = json!({"topic": "news"});
    let own = json!({"requestPolicy": {"headerContentType": "text/csv; note=\"a;b\""}});
    for body in [
        json!({"to": to, "content": {"title": "Hello"}}),
        json!({"to": to, "payload": "{}"}),
        json!({"to": to, "payload": "a,b", "policy": own}),
        json!({"to": to, "payload": "x".repeat(3_833)}),
        json!({"to": {"all": true}, "payload": "plain"}),
    ] {
        let rule = failing_first(&app).await;
        app.call(Method::POST, "/v1/apps/shop/messages", body).await.ok(202);
        app.run_until_idle().await;
        app.simulator.remove_rule(rule);
        app.advance(Duration::from_secs(3)).await;
    }
    let read = plaintexts(&app, &subscriber);
    let stamps = [&read[0]["notification"]["data"]["bellwire"], &read[1]["bellwire"], &read[2]["bellwire"]];
    assert_eq!(stamps.map(|stamp| stamp["retried"].as_u64()), [Some(1); 3], "{read:?}");
    let types: Vec<_> = read[1..].iter().map(|raw| raw["bellwire"]["content_type"].as_str()).collect();
    assert_eq!(types, [Some("application/json"), Some("text/csv; note=\"a;b\""), None, None]);
    assert_eq!(read[0]["notification"]["data"]["bellwire"].get("content_type"), None);
    assert_eq!(read[3]["payload"].as_str().map(str::len), Some(3_833), "a label never takes the payload's place");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topics_policy_holds_for_large_audiences_too() {
    let app = TestApp::start().await;
    let subscribers = app.subscribe_with("fcm", 0..101, json!({"topics": ["news"]})).await;
    put(&app, "topics/news", json!({"requestPolicy": {"headerContentType": "application/json"}})).await;
    let body = json!({"to": {"topic": "news"}, "payload": "{}"});
    app.call(Method::POST, "/v1/apps/shop/messages", body).await.ok(202);
    app.run_until_idle().await;
    for subscriber in &subscribers {
        assert_eq!(plaintexts(&app, subscriber)[0]["bellwire"]["content_type"], "application/json");
    }
    app.finish().await;
}

/// The statement that stores a message returns the app's policy, so no policy of an earlier message is used.
#[tokio::test(flavor = "multi_thread")]
async fn single_send_uses_the_current_app_policy() {
    let app = TestApp::start().await;
    let browser = app.subscribe("fcm", 0..1).await.remove(0);
    let send = async |tier: &str| {
        let message = app.send(json!({"subscriptions": [browser.id]}), json!({"tier": tier})).await;
        app.run_until_idle().await;
        app.delivery(&message, &browser.id).await["state"].clone()
    };
    let say = async |what: &str, body: Value| {
        app.call(Method::PUT, &format!("/v1/apps/shop/{what}"), body).await.ok(200);
    };
    say("caps", json!({"caps": [{"max": 1, "window": "1d", "tiers": ["promotional"]}]})).await;
    assert_eq!(send("promotional").await, "accepted");
    assert_eq!(send("promotional").await, "capped");
    assert_eq!(send("engagement").await, "accepted", "the cap is for another tier");
    say("caps", json!({"caps": []})).await;
    say("calendar", json!({"timezone": "Europe/Berlin", "quiet_hours": {"from": "22:00", "to": "10:30"}})).await;
    assert_eq!(send("promotional").await, "queued");
    assert_eq!(send("transactional").await, "accepted", "it never waits for a time of day");
    say("calendar", json!({"timezone": "Asia/Tokyo", "quiet_hours": {"from": "22:00", "to": "10:30"}})).await;
    app.simulator.add_rule(Rule::always(RuleAction::ServerError)).unwrap();
    put(&app, "tiers/engagement", waiting(10)).await;
    assert_eq!(send("engagement").await, "retrying");
    app.call(Method::PATCH, "/v1/apps/shop", json!({"max_retries": 0})).await.ok(200);
    assert_eq!(send("engagement").await, "dead");
    app.call(Method::DELETE, "/v1/apps/shop/policies/tiers/engagement", Value::Null).await.ok(204);
    assert_eq!(send("engagement").await, "retrying", "the maximum is for policies that count retries");
    app.finish().await;
}

#[tokio::test]
async fn app_policy_survives_a_refused_neighbour() {
    let app = TestApp::start().await;
    let browsers = app.subscribe("fcm", 0..2).await;
    app.call(Method::DELETE, &format!("/v1/apps/shop/subscriptions/{}", browsers[0].id), Value::Null).await.ok(204);
    put(&app, "tiers/transactional", waiting(10)).await;
    app.simulator.add_rule(Rule::always(RuleAction::ServerError)).unwrap();
    let to = |id: &str| json!({"to": {"subscriptions": [id]}, "tier": "transactional", "content": {"title": "A code"}});
    let unknown = SubscriptionId(uuid::Uuid::from_u128(1)).to_string();
    for first in [&unknown, &browsers[0].id] {
        let batch = json!({"messages": [to(first), to(&browsers[1].id)]});
        let sent = app.call(Method::POST, "/v1/apps/shop/messages/batch", batch).await.ok(200);
        app.run_until_idle().await;
        let message = sent["results"][1]["message"]["id"].as_str().unwrap();
        assert_eq!(due_in_s(&app, message, &browsers[1]).await, 10.0, "{first}");
    }
    app.finish().await;
}
