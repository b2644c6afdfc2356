//! Frequency caps: no user gets more than a cap allows, and each message counts once.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::http::Method;
use bellwire_core::clock::Clock;
use bellwire_simulator::gateways::{Rule, RuleAction};
use bellwire_store::queue::claims::LEASE;
use serde_json::{Value, json};

use crate::support::app::{DAY, scalar};
use crate::support::simulator_rules::{held, until_report};
use crate::support::{Moment, START, Setup, TestApp, counts, seed};

const HOUR: Duration = Duration::from_secs(3_600);
const MOMENT: Duration = Duration::from_millis(1);
const USES: &str = "SELECT count(*) FROM cap_uses";

async fn cap(app: &TestApp, caps: Value) {
    app.call(Method::PUT, "/v1/apps/shop/caps", json!({"caps": caps})).await.ok(200);
}

/// An app with these caps.
async fn capped(caps: Value) -> TestApp {
    let app = TestApp::start().await;
    cap(&app, caps).await;
    app
}

/// Sends to the user `ann` and lets the engine work. Returns how the message's deliveries ended.
async fn to_ann(app: &TestApp, more: Value) -> BTreeMap<String, i64> {
    let message = app.send(json!({"users": ["ann"]}), more).await;
    app.run_until_idle().await;
    ended(app, &message).await
}

/// The counts of a message, but for how its receipts stand.
async fn ended(app: &TestApp, message: &str) -> BTreeMap<String, i64> {
    let mut counts = app.counts(message).await;
    counts.remove("awaiting_ack");
    counts
}

fn all(ending: &str, n: i64) -> BTreeMap<String, i64> {
    counts(&[("targeted", n), (ending, n)])
}

#[tokio::test]
async fn capped_delivery_names_its_cap_and_end() {
    let app = capped(json!([{"max": 2, "window": "1d"}, {"max": 5, "window": "7d"}])).await;
    let ann = &app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await[0];
    for _ in 0..2 {
        assert_eq!(to_ann(&app, json!({})).await, all("accepted", 1));
        app.advance(HOUR).await;
    }
    let message = app.send(json!({"users": ["ann"]}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(ended(&app, &message).await, all("capped", 1));
    let delivery = app.delivery(&message, &ann.id).await;
    let attempt = &delivery["attempts"][0];
    assert_eq!((&delivery["state"], &attempt["status"]), (&json!("capped"), &Value::Null), "{delivery}");
    let story = app.get(&format!("/v1/apps/shop/messages/{message}/deliveries/{}/explain", ann.id)).await;
    let told = story["story"].as_array().unwrap().iter().find(|told| told["code"] == "ended_capped");
    let told = told.unwrap_or_else(|| panic!("{story}"));
    let cap = json!({"tiers": ["promotional", "engagement"], "max": 2, "window": "1d"});
    assert_eq!(told["facts"]["cap"], cap, "{told}");
    assert_eq!(told["facts"]["free_at"], json!(START + DAY), "{told}");
    assert_eq!(app.simulator.report().requests, 2);
    app.finish().await;
}

#[tokio::test]
async fn a_window_rolls_to_the_millisecond() {
    let app = capped(json!([{"max": 1, "window": "1h"}])).await;
    app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await;
    assert_eq!(to_ann(&app, json!({})).await, all("accepted", 1));
    app.advance(HOUR - MOMENT).await;
    assert_eq!(to_ann(&app, json!({})).await, all("capped", 1));
    app.advance(MOMENT).await;
    assert_eq!(to_ann(&app, json!({})).await, all("accepted", 1));
    app.finish().await;
}

#[tokio::test]
async fn user_counts_once_for_all_browsers() {
    let app = capped(json!([{"max": 1, "window": "1h"}])).await;
    for gateway in ["fcm", "mozilla", "apple"] {
        app.subscribe_with(gateway, 0..1, json!({"user_id": "ann"})).await;
    }
    assert_eq!(to_ann(&app, json!({})).await, all("accepted", 3));
    // One of them waits in a lane that is held until the cap lets more through. What was refused to the others is to it, too.
    let lane = app.lane("mozilla").await;
    let hold = json!({"seconds": 7200, "reason": "a test"});
    app.operate(Method::POST, &format!("/v1/gateways/{lane}/hold"), hold).await.ok(200);
    let second = app.send(json!({"users": ["ann"]}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(ended(&app, &second).await, counts(&[("targeted", 3), ("queued", 1), ("capped", 2)]));
    app.advance(HOUR).await;
    app.operate(Method::POST, &format!("/v1/gateways/{lane}/release"), Value::Null).await.ok(200);
    app.advance(HOUR * 2).await;
    assert_eq!(ended(&app, &second).await, all("capped", 3));
    assert_eq!(to_ann(&app, json!({})).await, all("accepted", 3));
    app.finish().await;
}

#[tokio::test]
async fn transactional_messages_count_against_no_cap() {
    let app = capped(json!([{"max": 1, "window": "1h"}, {"tiers": ["promotional"], "max": 2, "window": "1d"}])).await;
    let ann = &app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await[0];
    let promotional = || json!({"tier": "promotional"});
    assert_eq!(to_ann(&app, promotional()).await, all("accepted", 1));
    assert_eq!(to_ann(&app, json!({"tier": "engagement"})).await, all("capped", 1));
    // Refused by the cap over both, it takes no place of the other one.
    assert_eq!(to_ann(&app, promotional()).await, all("capped", 1));
    for _ in 0..3 {
        assert_eq!(to_ann(&app, json!({"tier": "transactional"})).await, all("accepted", 1));
    }
    app.advance(HOUR).await;
    assert_eq!(to_ann(&app, promotional()).await, all("accepted", 1));
    app.advance(HOUR).await;
    let last = app.send(json!({"users": ["ann"]}), promotional()).await;
    app.run_until_idle().await;
    let attempt = &app.delivery(&last, &ann.id).await["attempts"][0];
    assert!(attempt["reason"].as_str().is_some_and(|why| why.starts_with("2 promotional in 1d until ")), "{attempt}");
    assert_eq!(to_ann(&app, json!({"tier": "engagement"})).await, all("accepted", 1), "the other cap has room");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_campaign_leaves_out_who_has_had_enough() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..120).await;
    let free = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(scalar(&app.pool, USES).await, 0, "an app without caps pays for none");
    cap(&app, json!([{"max": 1, "window": "1d"}])).await;
    // A user has three browsers, some of which are in one batch.
    app.subscribe_with("fcm", 120..122, json!({"user_id": "ann"})).await;
    app.subscribe_with("apple", 0..1, json!({"user_id": "ann"})).await;
    let first = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    let second = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(ended(&app, &free).await, all("accepted", 120));
    assert_eq!(ended(&app, &first).await, all("accepted", 123));
    assert_eq!(ended(&app, &second).await, all("capped", 123));
    assert_eq!(scalar(&app.pool, USES).await, 121, "a row a person");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_share_a_cap() {
    let app = capped(json!([{"max": 2, "window": "1d"}])).await;
    let other = app.worker(app.clock.clone()).await;
    for user in 0..60 {
        for gateway in ["fcm", "mozilla"] {
            app.subscribe_with(gateway, user..user + 1, json!({"user_id": format!("user-{user}")})).await;
        }
    }
    for _ in 0..5 {
        app.send(json!({"all": true}), json!({})).await;
    }
    app.run_until_idle_with(&other).await;
    let wrong = "SELECT count(*) FROM (
        SELECT s.user_id FROM attempts a JOIN subscriptions s ON s.shard = a.shard AND s.id = a.subscription WHERE a.ending = 1
        GROUP BY s.user_id HAVING count(*) <> 4 OR count(DISTINCT a.message) <> 2) wrong";
    assert_eq!(scalar(&app.pool, wrong).await, 0, "each user gets two messages, in both browsers");
    assert_eq!(scalar(&app.pool, "SELECT sum(accepted)::bigint FROM message_counts").await, 240);
    assert_eq!(scalar(&app.pool, "SELECT sum(capped)::bigint FROM message_counts").await, 360);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn first_of_several_claimed_messages_passes_the_cap() {
    let app = capped(json!([{"max": 2, "window": "1d"}])).await;
    app.subscribe_with("fcm", 0..2, json!({"user_id": "ann"})).await;
    app.dispatcher.stop(Duration::ZERO).await;
    let mut messages = Vec::new();
    for _ in 0..4 {
        messages.push(app.send(json!({"users": ["ann"]}), json!({})).await);
        app.clock.advance(MOMENT);
    }
    app.worker(app.clock.clone()).await.run_until_idle().await;
    for (message, ending) in messages.iter().zip(["accepted", "accepted", "capped", "capped"]) {
        assert_eq!(ended(&app, message).await, all(ending, 2));
    }
    app.finish().await;
}

#[tokio::test]
async fn a_retry_that_succeeds_later_counts_once() {
    let app = capped(json!([{"max": 1, "window": "1d"}])).await;
    app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await;
    let failing = Rule { count: Some(1), ..Rule::always(RuleAction::Unavailable { retry_after_s: None }) };
    app.simulator.add_rule(failing).unwrap();
    let first = app.send(json!({"users": ["ann"]}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(ended(&app, &first).await, all("retrying", 1));
    assert_eq!(to_ann(&app, json!({})).await, all("capped", 1), "the first one has the place");
    app.advance(Duration::from_secs(60)).await;
    assert_eq!(ended(&app, &first).await, all("accepted", 1));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn reservation_of_a_lost_worker_counts_once() {
    let app = capped(json!([{"max": 1, "window": "1d"}])).await;
    app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await;
    let hold = app.simulator.add_rule(Rule { count: Some(1), ..Rule::always(RuleAction::Hold) }).unwrap();
    let first = app.send(json!({"users": ["ann"]}), json!({})).await;
    until_report(&app, |report| held(report) == 1).await;
    let other = app.worker(Clock::stub(START + LEASE + Duration::from_secs(1))).await;
    other.run_until_idle().await;
    assert_eq!(ended(&app, &first).await, all("accepted", 1), "whoever takes over finds its place");
    other.dispatcher.stop(Duration::ZERO).await;
    app.simulator.remove_rule(hold);
    app.run_until_idle().await;
    assert_eq!(ended(&app, &first).await, all("accepted", 1));
    assert_eq!(to_ann(&app, json!({})).await, all("capped", 1));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unconfirmed_reservation_is_found_again() {
    let app = TestApp::with(Setup { through_proxy: true, ..Setup::default() }).await;
    cap(&app, json!([{"max": 1, "window": "1d"}])).await;
    app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await;
    app.proxy().cut_at(Moment::After, "COMMIT");
    let first = app.send(json!({"users": ["ann"]}), json!({})).await;
    app.run_until_idle().await;
    app.advance(LEASE + Duration::from_secs(1)).await;
    assert_eq!(app.proxy().sprung(), 1);
    assert_eq!(ended(&app, &first).await, all("accepted", 1));
    assert_eq!(to_ann(&app, json!({})).await, all("capped", 1));
    app.finish().await;
}

#[tokio::test]
async fn cancelled_delivery_uses_no_cap() {
    let app = capped(json!([{"max": 1, "window": "1d"}])).await;
    app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await;
    app.call(Method::POST, "/v1/apps/shop/flow/pause", Value::Null).await.ok(200);
    let first = app.send(json!({"users": ["ann"]}), json!({})).await;
    app.run_until_idle().await;
    app.steer(&first, "cancel").await;
    app.call(Method::POST, "/v1/apps/shop/flow/resume", Value::Null).await.ok(200);
    app.run_until_idle().await;
    assert_eq!(ended(&app, &first).await, all("cancelled", 1));
    assert_eq!(to_ann(&app, json!({})).await, all("accepted", 1));
    app.finish().await;
}

#[tokio::test]
async fn quiet_hours_delay_the_cap_reservation() {
    let app = capped(json!([{"max": 1, "window": "1h"}])).await;
    let calendar = json!({"timezone": "UTC", "quiet_hours": {"from": "00:00", "to": "23:00"}});
    app.call(Method::PUT, "/v1/apps/shop/calendar", calendar).await.ok(200);
    app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await;
    assert_eq!(to_ann(&app, json!({"ttl": 200_000})).await, all("queued", 1));
    assert_eq!(scalar(&app.pool, USES).await, 0);
    app.finish().await;
}

#[tokio::test]
async fn a_replay_counts_with_what_it_replays() {
    let app = capped(json!([{"max": 1, "window": "1d"}])).await;
    app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await;
    let refusing = RuleAction::Answer { status: 400, headers: Vec::new(), body: String::new() };
    app.simulator.add_rule(Rule { count: Some(1), ..Rule::always(refusing) }).unwrap();
    assert_eq!(to_ann(&app, json!({})).await, all("dead", 1));
    let replayed = app.call(Method::POST, "/v1/apps/shop/dead-letters/replay", json!({"filter": {}})).await.ok(200);
    app.run_until_idle().await;
    assert_eq!(ended(&app, replayed["messages"][0].as_str().unwrap()).await, all("accepted", 1));
    assert_eq!(to_ann(&app, json!({})).await, all("capped", 1));
    app.finish().await;
}

#[tokio::test]
async fn what_counts_is_forgotten_with_whoever_is_erased() {
    let app = capped(json!([{"max": 1, "window": "1d"}])).await;
    let browser = &app.subscribe("fcm", 0..1).await[0];
    app.send(json!({"subscriptions": [browser.id]}), json!({})).await;
    app.run_until_idle().await;
    app.come_back_with("fcm", 0, json!({"user_id": "ann"})).await;
    app.subscribe_with("fcm", 1..2, json!({"user_id": "ben"})).await;
    assert_eq!(to_ann(&app, json!({})).await, all("accepted", 1));
    app.send(json!({"users": ["ben"]}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(scalar(&app.pool, USES).await, 3);
    app.call(Method::DELETE, "/v1/apps/shop/users/ann", Value::Null).await.ok(200);
    assert_eq!(scalar(&app.pool, USES).await, 1, "ben's");
    app.finish().await;
}

#[tokio::test]
async fn outdated_cap_counts_are_cleared() {
    let app = capped(json!([{"max": 1, "window": "30d"}])).await;
    app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await;
    assert_eq!(to_ann(&app, json!({})).await, all("accepted", 1));
    app.advance(DAY * 30 - MOMENT).await;
    app.keep_house().await;
    assert_eq!(to_ann(&app, json!({})).await, all("capped", 1));
    app.advance(MOMENT * 2).await;
    app.keep_house().await;
    assert_eq!(scalar(&app.pool, USES).await, 0);
    assert_eq!(to_ann(&app, json!({})).await, all("accepted", 1));
    app.finish().await;
}

#[tokio::test]
async fn caps_are_replaced_whole_with_named_mistakes() {
    let app = TestApp::start().await;
    let path = "/v1/apps/shop/caps";
    assert_eq!(app.get(path).await, json!({"caps": []}));
    let caps = json!({"caps": [{"max": 2, "window": "24h"}, {"tiers": ["engagement"], "max": 1, "window": "12h"}]});
    app.call(Method::PUT, path, caps).await.ok(200);
    let shown = json!({"caps": [
        {"tiers": ["promotional", "engagement"], "max": 2, "window": "1d"},
        {"tiers": ["engagement"], "max": 1, "window": "12h"},
    ]});
    assert_eq!(app.get(path).await, shown);
    let wrong = json!({"caps": [{"max": 0, "window": "1d"}, {"tiers": ["transactional"], "max": 1, "window": "1y"}]});
    let refused = app.call(Method::PUT, path, wrong).await.ok(422);
    let pointers: Vec<_> = refused["errors"].as_array().unwrap().iter().map(|error| &error["pointer"]).collect();
    assert_eq!(pointers, ["/caps/0/max", "/caps/1/tiers", "/caps/1/window"]);
    assert_eq!(app.get(path).await, shown);
    app.call(Method::PUT, path, json!({"caps": []})).await.ok(200);
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM apps WHERE caps IS NOT NULL").await, 0);
    app.finish().await;
}

#[tokio::test]
async fn what_the_guide_shows_can_be_done() {
    let guide = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/frequency.md")).expect("the guide");
    let after = |mark: &str, end: char| -> Value {
        let body = guide.split(mark).nth(1).and_then(|rest| rest.split(end).next());
        serde_json::from_str(body.expect("it stands there")).expect("JSON")
    };
    let app = TestApp::start().await;
    app.call(Method::PUT, "/v1/apps/shop/caps", after("-d '", '\'')).await.ok(200);
    app.operate(Method::PUT, "/v1/apps/shop/guard", after("guard` with `", '`')).await.ok(200);
    for path in ["caps", "guard", "engagement?days=28"] {
        assert!(guide.contains(path), "{path}");
        app.get(&format!("/v1/apps/shop/{path}")).await;
    }
    app.finish().await;
}
