//! Reliability metrics of retries equal the real events.

use std::time::Duration;

use axum::http::Method;
use bellwire_core::delivery::Tier;
use bellwire_core::id::LaneId;
use bellwire_rules::policy::reliability::ReliabilityCount;
use bellwire_simulator::gateways::{Rule, RuleAction};
use bellwire_store::outcomes::reliability;
use serde_json::{Value, json};

use crate::support::app::TestApp;

fn failing(status: u16, attempts: [u32; 2]) -> Rule {
    let headers = [("retry-after".to_owned(), "1".to_owned())].into();
    let action = RuleAction::Answer { status, headers, body: String::new() };
    Rule { attempts: Some(attempts), ..Rule::always(action) }
}

fn sli<'a>(view: &'a Value, name: &str) -> &'a Value {
    let slis = view["slis"].as_array().unwrap_or_else(|| panic!("no slis in {view}"));
    slis.iter().find(|reading| reading["sli"] == name).unwrap_or_else(|| panic!("no {name} in {view}"))
}

/// Reliability metrics reach the database with the heartbeat, which uses the real clock. A stop writes the remaining ones at once.
async fn metrics(app: &TestApp) -> Value {
    app.dispatcher.stop(Duration::from_secs(10)).await;
    app.get("/v1/apps/shop/metrics/reliability").await
}

#[tokio::test]
async fn retries_show_in_lane_and_tier_slis() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..110).await;
    app.simulator.add_rule(failing(429, [1, 1])).unwrap();
    app.simulator.add_rule(Rule { endpoints: Some((0..10).collect()), ..failing(429, [1, 1]) }).unwrap();
    // Each throttling answer holds the lane for a while; in the end everybody has had a retry.
    let message = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    for _ in 0..240 {
        app.advance(Duration::from_secs(5)).await;
    }
    assert_eq!(app.counts(&message).await.get("accepted"), Some(&110));
    let view = metrics(&app).await;
    let promotional = &view["tiers"]["promotional"];
    let first = sli(promotional, "first_retry_success");
    assert_eq!((&first["samples"], &first["target"], &first["alert"]), (&json!(110), &json!(0.85), &json!(0.6)));
    assert!((first["value"].as_f64().unwrap() - 100.0 / 110.0).abs() < 1e-9, "{first}");
    assert_eq!(first["state"], "ok");
    let second = sli(promotional, "second_retry_success");
    assert_eq!((&second["samples"], &second["value"], &second["state"]), (&json!(10), &json!(1.0), &json!("unknown")));
    assert!(sli(promotional, "backoff_stretch")["value"].as_f64().unwrap() >= 1.0, "{view}");
    assert_eq!(sli(promotional, "ttl_expired_purges")["value"], json!(0.0));
    let by_attempts = |n: usize| promotional["attempts_to_success"][n]["n"].as_u64().unwrap();
    assert_eq!([by_attempts(0), by_attempts(1), by_attempts(2)], [0, 100, 10]);
    assert_eq!(view["lanes"][0]["gateway"], "fcm");
    let transactional = sli(&view["tiers"]["transactional"], "first_retry_success");
    assert_eq!((&transactional["samples"], &transactional["value"]), (&json!(0), &Value::Null));

    let until = async |at: chrono::DateTime<chrono::Utc>| {
        let path = format!("/v1/apps/shop/metrics/reliability?until={}", at.format("%Y-%m-%dT%H:%M:%SZ"));
        app.call(Method::GET, &path, Value::Null).await
    };
    let now = app.clock.now();
    let before = until(now - Duration::from_secs(1_800)).await.ok(200);
    assert_eq!(sli(&before["all"], "first_retry_success")["samples"], 0, "it had not begun");
    for unknown in [now + Duration::from_secs(60), now - Duration::from_secs(86_460)] {
        assert_eq!(until(unknown).await.status, 400, "{unknown}");
    }
    app.finish().await;
}

#[tokio::test]
async fn breached_sli_and_lasting_trips_alert() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..1).await;
    let now = app.clock.now();
    let watch = async |now| reliability::watch(&app.pool, now).await.unwrap();
    let (lane, tier) = (LaneId(1), Some(Tier::Promotional));
    let add = async |slis: &[(ReliabilityCount, u64)], now| {
        let rows = slis.iter().map(|(count, n)| (lane, tier, *count as i16, *n));
        reliability::add(&app.pool, rows, now).await.unwrap();
    };
    add(&[(ReliabilityCount::FirstRetries, 100), (ReliabilityCount::FirstAccepted, 60)], now).await;
    assert_eq!(watch(now).await, 0, "at the line is not past it");
    add(&[(ReliabilityCount::FirstRetries, 1)], now).await;
    assert_eq!((watch(now).await, watch(now).await), (1, 1));
    let alerts = app.operate(Method::GET, "/v1/alerts", Value::Null).await.ok(200);
    let alert = &alerts["data"][0];
    assert_eq!((&alert["kind"], &alert["n"]), (&json!("sli"), &json!(2)), "{alerts}");
    assert_eq!(alert["subject"], "first_retry_success lane 1 promotional");

    let hour = Duration::from_secs(3_600);
    for n in 1..=3 {
        let now = now + hour * n;
        let trips = "INSERT INTO breaker_trips (minute, lane, n) VALUES (date_trunc('minute', $1::timestamptz), 1, 6)";
        sqlx::query(trips).bind(now).execute(&app.pool).await.unwrap();
        assert_eq!(watch(now).await, usize::from(n == 3), "after {n} bad hours");
    }
    app.finish().await;
}

#[tokio::test]
async fn deliveries_that_expire_before_their_retry_are_purges() {
    let app = TestApp::start().await;
    let to = json!({"subscriptions": [app.subscribe("fcm", 0..1).await[0].id]});
    app.simulator.add_rule(failing(503, [1, 100])).unwrap();
    let message = app.send(to, json!({"ttl": 3})).await;
    app.run_until_idle().await;
    app.advance(Duration::from_secs(60)).await;
    assert_eq!(app.counts(&message).await.get("expired"), Some(&1));
    let view = metrics(&app).await;
    let purges = sli(&view["all"], "ttl_expired_purges");
    assert_eq!((purges["value"].as_f64().unwrap() > 0.0, &purges["state"]), (true, &json!("unknown")));
    app.finish().await;
}

#[tokio::test]
async fn missed_slas_are_counted_with_an_event() {
    let app = TestApp::start().await;
    let path = "/v1/apps/shop/slas";
    let wanted = json!({"transactional": 5, "promotional": null, "engagement": null});
    assert_eq!(app.call(Method::PUT, path, json!({"transactional": 5})).await.ok(200), wanted);
    assert_eq!(app.get(path).await, wanted);
    for wrong in [0, 2_592_001] {
        let refused = app.call(Method::PUT, path, json!({"engagement": wrong})).await;
        assert_eq!((refused.status, &refused.json["errors"][0]["pointer"]), (422, &json!("/engagement")));
    }
    let all = app.subscribe("fcm", 0..2).await;
    app.simulator.add_rule(Rule { endpoints: Some([0].into()), ..failing(503, [1, 2]) }).unwrap();
    for to in &all {
        app.send(json!({"subscriptions": [to.id]}), json!({"tier": "transactional"})).await;
        app.run_until_idle().await;
    }
    app.advance(Duration::from_secs(1)).await;
    app.advance(Duration::from_secs(30)).await;
    let events = app.get("/v1/apps/shop/events").await;
    let missed: Vec<_> = events["data"].as_array().unwrap().iter().filter(|e| e["kind"] == "sla.missed").collect();
    assert_eq!((missed.len(), &missed[0]["data"]["sla_seconds"]), (1, &json!(5)), "{events}");
    // One dies at once, one expires while it is retried, one in a lane that is held, which maintenance finds.
    app.simulator.add_rule(Rule { endpoints: Some([0].into()), ..failing(400, [1, 1]) }).unwrap();
    app.simulator.add_rule(Rule { endpoints: Some([1].into()), ..failing(503, [1, 99]) }).unwrap();
    for to in &all {
        app.send(json!({"subscriptions": [to.id]}), json!({"tier": "transactional", "ttl": 4})).await;
        app.run_until_idle().await;
    }
    app.advance(Duration::from_secs(10)).await;
    let hold = format!("/v1/gateways/{}/hold", app.lane("fcm").await);
    app.operate(Method::POST, &hold, json!({"seconds": 3_600})).await.ok(200);
    app.send(json!({"subscriptions": [all[0].id]}), json!({"tier": "transactional", "ttl": 900})).await;
    app.run_until_idle().await;
    for _ in 0..8 {
        app.advance(Duration::from_secs(150)).await;
        app.sweep().await;
    }
    let view = metrics(&app).await;
    assert_eq!(view["tiers"]["transactional"]["sla_missed"], 4, "{view}");
    let events = app.get("/v1/apps/shop/events").await;
    let missed = events["data"].as_array().unwrap().iter().filter(|event| event["kind"] == "sla.missed");
    assert_eq!(missed.map(|event| event["count"].as_i64().unwrap()).sum::<i64>(), 4, "{events}");
    app.finish().await;
}

#[tokio::test]
async fn all_apps_reliability_is_for_operators() {
    let app = TestApp::start().await;
    assert_eq!(app.call(Method::GET, "/v1/metrics/reliability", Value::Null).await.status, 403);
    assert_eq!(app.call(Method::GET, "/v1/apps/shop/metrics/reliability?lane=x", Value::Null).await.status, 400);
    app.finish().await;
}
