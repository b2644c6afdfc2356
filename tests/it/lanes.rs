//! Shared state of lanes, and orders of operators: breakers and their probes, holds, refused keys, payload limits.

use std::time::Duration;

use axum::http::Method;
use bellwire_core::id::{LaneId, MessageId};
use bellwire_core::lane::Gateway;
use bellwire_dispatch::DispatchConfig;
use bellwire_rules::policy::breaker::{BreakerState, Snapshot};
use bellwire_simulator::gateways::{Rule, RuleAction};
use bellwire_store::operations::workers;
use bellwire_store::outcomes::alerts::{self, Alert, AlertKind};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::support::app::{PATIENCE, scalar};
use crate::support::database::until_stored;
use crate::support::engine::advance_both;
use crate::support::lanes::lane_origin;
use crate::support::simulator_rules::rule_for;
use crate::support::{Setup, TestApp, counts, seed};

async fn order(app: &TestApp, lane: i64, order: &str, body: Value) -> Value {
    app.operate(Method::POST, &format!("/v1/gateways/{lane}/{order}"), body).await.ok(200)
}

#[tokio::test(flavor = "multi_thread")]
async fn outage_with_two_engines_costs_only_probes() {
    const RETRIES: &str = "SELECT coalesce(sum(retries), 0)::bigint FROM queue";
    const TRIPS: &str = "SELECT coalesce(sum(n), 0)::bigint FROM breaker_trips";
    let dispatch = DispatchConfig { lane_limit_max: 16, batch_min: 20, batch_max: 20, ..DispatchConfig::default() };
    let app = TestApp::with(Setup { dispatch, ..Setup::default() }).await;
    seed(&app, "fcm", 0..300).await;
    let other = app.worker(app.clock.clone()).await;
    let outage = app.simulator.add_rule(rule_for(Gateway::Fcm, RuleAction::ServerError)).unwrap();
    let message = app.send(json!({"all": true}), json!({})).await;
    until_stored(&app, "SELECT count(*) FROM lane_states WHERE breaker = 'open'").await;
    advance_both(&app, &other, Duration::from_secs(1)).await;
    assert_eq!([app.dispatcher.load().broken, other.dispatcher.load().broken], [1, 1], "both know");

    let (before, retries, trips) =
        (app.simulator.report().requests, scalar(&app.pool, RETRIES).await, scalar(&app.pool, TRIPS).await);
    for _ in 0..130 {
        advance_both(&app, &other, Duration::from_secs(5)).await;
    }
    until_stored(&app, "SELECT count(*) FROM lane_states WHERE breaker = 'open'").await;
    let probes = i64::try_from(app.simulator.report().requests - before).unwrap();
    let reopened = scalar(&app.pool, TRIPS).await - trips;
    assert_eq!(probes, 3 * reopened, "three probes before each opening, and nothing else");
    assert!((9..=12).contains(&reopened), "30 s, then a minute each time: {reopened}");
    assert_eq!(scalar(&app.pool, RETRIES).await, retries + probes, "only what was sent used up an attempt");
    assert_eq!(app.message(&message).await["counts"]["dead"], 0);
    let lane = app.lane("fcm").await;
    let view = app.operate(Method::GET, &format!("/v1/gateways/{lane}"), Value::Null).await.ok(200);
    assert_eq!(view["trips_last_hour"], trips + reopened);
    assert!(lane_origin(&app, lane, "https://").await["open_s"] == 60.0);

    app.simulator.remove_rule(outage);
    for _ in 0..150 {
        advance_both(&app, &other, Duration::from_secs(5)).await;
    }
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 300), ("accepted", 300), ("awaiting_ack", 300)]));
    let report = app.simulator.report();
    assert_eq!((report.deliveries, report.duplicates), (300, 0));
    assert_eq!([app.dispatcher.load().broken, other.dispatcher.load().broken], [0, 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn local_network_fault_breaks_one_worker_only() {
    let app = TestApp::start().await;
    app.dispatcher.stop(Duration::ZERO).await;
    let to = json!({"subscriptions": [app.subscribe("fcm", 0..1).await.remove(0).id]});
    let lane = app.lane("fcm").await;
    let mut sent = Vec::new();
    for _ in 0..5 {
        sent.push(app.send(to.clone(), json!({"ttl": 86_400})).await);
    }
    let deceived = app.worker_without_trust().await;
    deceived.run_until_idle().await;
    until_stored(&app, "SELECT count(*) FROM lane_states WHERE breaker = 'open'").await;
    let view = lane_origin(&app, lane, "https://").await;
    assert_eq!((&view["breaker"], view["breaker_of"].is_string()), (&json!("open"), true));

    let other = app.worker(app.clock.clone()).await;
    sent.push(app.send(to.clone(), json!({"ttl": 86_400})).await);
    other.run_until_idle().await;
    assert_eq!([deceived.dispatcher.load().broken, other.dispatcher.load().broken], [1, 0]);
    assert_eq!(app.message(&sent[5]).await["counts"]["accepted"], 1, "the others go on");
    deceived.dispatcher.stop(Duration::ZERO).await;
    assert_eq!(lane_origin(&app, lane, "https://").await["breaker"], "closed", "who saw it otherwise is gone");
    for _ in 0..5 {
        app.clock.advance(Duration::from_secs(60));
        other.run_until_idle().await;
    }
    for message in sent {
        assert_eq!(app.message(&message).await["counts"]["accepted"], 1);
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_worker_probes_until_it_crashes() {
    let app = TestApp::start().await;
    let now = app.clock.now();
    let known =
        Snapshot { state: BreakerState::Open { until: now }, open_for: Duration::from_secs(30), changed_at: now };
    let [one, other] = [1, 2].map(Uuid::from_u128);
    let ask = async |worker, known, at| {
        workers::lease_probe(&app.pool, LaneId(7), "https://push.example", worker, known, at).await.unwrap()
    };
    let second = Duration::from_secs(1);
    assert_eq!(ask(one, known, now + second).await, Some(now + 16 * second));
    let half_open = Snapshot { state: BreakerState::HalfOpen, changed_at: now + second, ..known };
    assert_eq!(ask(other, known, now + 20 * second).await, None, "it has not heard of the last change");
    assert_eq!(ask(other, half_open, now + 2 * second).await, None, "another one probes");
    assert_eq!(ask(one, half_open, now + 2 * second).await, Some(now + 17 * second), "it may ask again");
    let half_open = Snapshot { changed_at: now + 2 * second, ..half_open };
    assert_eq!(ask(other, half_open, now + 17 * second).await, Some(now + 32 * second), "the first has died");
    let told = workers::lane_states(&app.pool, one, None).await.unwrap();
    assert_eq!(told[0].breaker, Some(Snapshot { changed_at: now + 17 * second, ..half_open }));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_hold_and_release_reach_all_engines() {
    let app = TestApp::start().await;
    let other = app.worker(app.clock.clone()).await;
    let subscriber = app.subscribe("wns", 0..1).await.remove(0);
    app.subscribe("mozilla", 0..1).await;
    let lane = app.lane("wns").await;
    let view = order(&app, lane, "hold", json!({"seconds": 120, "reason": "moving house"})).await;
    let held = &view["origins"][0];
    assert_eq!(
        (&held["origin"], &held["held_reason"], &held["held_note"]),
        (&json!("*"), &json!("operator"), &json!("moving house"))
    );
    app.run_until_idle_with(&other).await; // engines hear of orders within a second
    let message = app.send(json!({"all": true}), json!({"tier": "transactional"})).await;
    advance_both(&app, &other, Duration::from_secs(119)).await;
    assert_eq!(app.message(&message).await["counts"]["accepted"], 1, "the other lane is not concerned");
    order(&app, lane, "hold", json!({"seconds": 120})).await; // the later word, for longer
    advance_both(&app, &other, Duration::from_secs(60)).await;
    assert_eq!(app.message(&message).await["counts"]["queued"], 1);
    order(&app, lane, "release", Value::Null).await;
    advance_both(&app, &other, Duration::ZERO).await;
    assert_eq!(app.delivery(&message, &subscriber.id).await["state"], "accepted");
    assert_eq!(lane_origin(&app, lane, "*").await["held_until"], Value::Null);

    // A release ends a gateway's hold, too; a later answer holds again.
    for _ in 0..2 {
        let headers = vec![("x-wns-status".into(), "appthrottled".into()), ("retry-after".into(), "3600".into())];
        let throttled = RuleAction::Answer { status: 406, headers, body: String::new() };
        let rule = app.simulator.add_rule(Rule { count: Some(1), ..rule_for(Gateway::Wns, throttled) }).unwrap();
        app.send(json!({"subscriptions": [subscriber.id]}), json!({"ttl": 86_400})).await;
        app.run_until_idle().await;
        until_stored(&app, "SELECT count(*) FROM lane_states WHERE held_until IS NOT NULL").await;
        advance_both(&app, &other, Duration::from_secs(5)).await;
        assert!(app.dispatcher.load().held + other.dispatcher.load().held > 0);
        assert_eq!(lane_origin(&app, lane, "https://").await["held_reason"], "throttled");
        app.simulator.remove_rule(rule);
        order(&app, lane, "release", json!({"origin": "*"})).await;
        advance_both(&app, &other, Duration::from_secs(5)).await;
        assert_eq!([app.dispatcher.load().held, other.dispatcher.load().held], [0, 0]);
    }
    advance_both(&app, &other, Duration::from_secs(3_600)).await; // the deliveries that were throttled themselves
    assert_eq!(app.simulator.report().accepted, 4);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_committed_lane_order_is_still_heard() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..1).await;
    app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    let mut slow = app.pool.begin().await.unwrap();
    let hold = "INSERT INTO lane_states (lane, origin, held_at, held_until, reason, changed_at)
                SELECT id, '*', $1, $1 + interval '1 hour', 'operator', $1 FROM lanes";
    sqlx::query(hold).bind(app.clock.now()).execute(&mut *slow).await.unwrap();
    app.advance(Duration::from_secs(60)).await; // it has heard what was changed until now
    slow.commit().await.unwrap();
    let heard = async {
        while app.dispatcher.load().held == 0 {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, heard).await.expect("the engine hears of it");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn release_resumes_deferred_deliveries_of_all_engines() {
    let app = TestApp::start().await;
    let other = app.worker(app.clock.clone()).await;
    let subscribers = app.subscribe("fcm", 0..40).await;
    let lane = app.lane("fcm").await;
    let send = async |tier: &str, n: usize| {
        let to = json!({"subscriptions": [subscribers[n].id]});
        app.send(to, json!({"tier": tier, "ttl": 3_600})).await
    };
    let accepted = async |messages: &[String]| {
        let mut n = 0;
        for message in messages {
            n += app.message(message).await["counts"]["accepted"].as_i64().unwrap();
        }
        n
    };
    for (shut, opened) in [("hold", "release"), ("open", "close"), ("open", "probe")] {
        order(&app, lane, shut, json!({"seconds": 3_600})).await;
        app.run_until_idle_with(&other).await;
        let code = [send("transactional", 0).await];
        let mut news = Vec::new();
        for n in 0..40 {
            news.push(send("promotional", n).await);
        }
        advance_both(&app, &other, Duration::from_secs(3)).await;
        assert_eq!(scalar(&app.pool, "SELECT count(*) FROM queue WHERE due_at > scheduled_at").await, 41, "put off");
        order(&app, lane, opened, Value::Null).await;
        advance_both(&app, &other, Duration::ZERO).await;
        assert_eq!(accepted(&code).await, 1, "{opened}: what is urgent goes at once");
        let at_once = accepted(&news).await;
        assert!(at_once < 10, "{opened}: the rest does not come all at once: {at_once}");
        advance_both(&app, &other, Duration::from_secs(2)).await;
        assert_eq!(accepted(&news).await, 40, "{opened}");
    }
    // A shorter hold in the place of a longer one counts, too.
    order(&app, lane, "hold", json!({"seconds": 3_600})).await;
    app.run_until_idle_with(&other).await;
    let code = [send("transactional", 0).await];
    advance_both(&app, &other, Duration::ZERO).await;
    order(&app, lane, "hold", json!({"seconds": 10})).await;
    advance_both(&app, &other, Duration::from_secs(9)).await;
    assert_eq!(accepted(&code).await, 0);
    advance_both(&app, &other, Duration::from_secs(1)).await;
    assert_eq!(accepted(&code).await, 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn release_of_one_origin_resumes_only_it() {
    // More than two transactions make due.
    const PUT_OFF: i64 = 25_000;
    let app = TestApp::start().await;
    let to = json!({"subscriptions": [app.subscribe("wns", 0..1).await[0].id]});
    let message = app.send(to, json!({})).await;
    app.run_until_idle().await;
    let lane = app.lane("wns").await;
    // So that no worker claims these made-up rows.
    app.call(Method::POST, "/v1/apps/shop/flow/pause", Value::Null).await.ok(200);
    let [held, released] = ["am3p", "db5p"].map(|host| format!("https://{host}.notify.windows.com"));
    for origin in [&held, &released] {
        order(&app, lane, "hold", json!({"origin": origin, "seconds": 3_600})).await;
    }
    let put_off = "INSERT INTO queue (shard, subscription, message, lane, tier, due_at, scheduled_at, token)
                   SELECT 1, gen_random_uuid(), $1, $2, 2, $3 + interval '30 s', $3, '' FROM generate_series(1, $4)";
    let id: MessageId = message.parse().unwrap();
    let insert = sqlx::query(put_off).bind(id.0).bind(i32::try_from(lane).unwrap()).bind(app.clock.now()).bind(PUT_OFF);
    insert.execute(&app.pool).await.unwrap();
    order(&app, lane, "release", json!({"origin": released})).await;
    until_stored(&app, "SELECT (count(*) = 0)::int::bigint FROM queue WHERE due_at >= scheduled_at + interval '30 s'")
        .await;
    sqlx::query("DELETE FROM queue").execute(&app.pool).await.unwrap();
    assert_eq!(app.counts(&message).await["accepted"], 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_in_a_held_lane_expire() {
    let app = TestApp::start().await;
    let to = json!({"subscriptions": [app.subscribe("fcm", 0..1).await[0].id]});
    let lane = app.lane("fcm").await;
    order(&app, lane, "hold", json!({"seconds": 86_400})).await;
    app.run_until_idle().await;
    let (brief, lasting) = (app.send(to.clone(), json!({"ttl": 900})).await, app.send(to, json!({})).await);
    app.run_until_idle().await;
    for _ in 0..6 {
        app.advance(Duration::from_secs(150)).await;
        app.sweep().await;
    }
    assert_eq!(app.counts(&brief).await, counts(&[("targeted", 1), ("queued", 1)]), "just at its end");
    for _ in 0..2 {
        app.advance(Duration::from_secs(31)).await;
        app.sweep().await;
    }
    assert_eq!(app.counts(&brief).await, counts(&[("targeted", 1), ("expired", 1)]), "a minute after");
    assert_eq!(app.counts(&lasting).await, counts(&[("targeted", 1), ("queued", 1)]));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn forced_breaker_is_shared_and_closes_by_probes() {
    let app = TestApp::start().await;
    let other = app.worker(app.clock.clone()).await;
    app.subscribe("fcm", 0..30).await;
    let lane = app.lane("fcm").await;
    let send = async || app.send(json!({"all": true}), json!({"tier": "transactional", "ttl": 3_600})).await;
    assert_eq!(order(&app, lane, "open", json!({"seconds": 600})).await["origins"][0]["breaker"], "open");
    app.run_until_idle_with(&other).await;
    let message = send().await;
    advance_both(&app, &other, Duration::from_secs(10)).await;
    assert_eq!(app.simulator.report().requests, 0);
    // A gateway that is still down sees three probes, and is left alone again.
    let down = app.simulator.add_rule(rule_for(Gateway::Fcm, RuleAction::ServerError)).unwrap();
    order(&app, lane, "close", Value::Null).await;
    for _ in 0..3 {
        advance_both(&app, &other, Duration::from_secs(1)).await;
    }
    assert_eq!(app.simulator.report().requests, 3);
    let another = send().await;
    advance_both(&app, &other, Duration::from_secs(2)).await;
    assert_eq!(app.simulator.report().requests, 3);
    until_stored(&app, "SELECT count(*) FROM lane_states WHERE breaker = 'open' AND origin <> '*'").await;
    app.simulator.remove_rule(down);
    order(&app, lane, "probe", Value::Null).await;
    for _ in 0..130 {
        advance_both(&app, &other, Duration::from_secs(5)).await;
    }
    for message in [message, another] {
        assert_eq!(app.counts(&message).await, counts(&[("targeted", 30), ("accepted", 30), ("awaiting_ack", 30)]));
    }
    assert_eq!(lane_origin(&app, lane, "https://").await["breaker"], "closed");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn orders_are_checked() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..1).await;
    let lane = app.lane("fcm").await;
    for (path, body, status, place) in [
        ("999/hold".to_owned(), json!({}), 404, ""),
        ("fcm/hold".to_owned(), json!({}), 400, ""),
        (format!("{lane}/explode"), json!({}), 404, ""),
        (format!("{lane}/hold"), json!({"seconds": 0}), 422, "/seconds"),
        (format!("{lane}/hold"), json!({"seconds": 2_592_001}), 422, "/seconds"),
        (format!("{lane}/hold"), json!({"until": "2020-01-01T00:00:00Z"}), 422, "/until"),
        (format!("{lane}/open"), json!({"origin": "push.example"}), 422, "/origin"),
        (format!("{lane}/open"), json!({"origin": "https://updates.push.services.mozilla.com"}), 422, "/origin"),
        (format!("{lane}/hold"), json!({"origin": "https://fcm.googleapi.com"}), 422, "/origin"),
        (format!("{lane}/open"), json!({"reason": "why not"}), 422, "/reason"),
        (format!("{lane}/close"), json!({"seconds": 5}), 422, "/seconds"),
        (format!("{lane}/release"), json!({"origins": "*"}), 422, "/origins"),
    ] {
        let refused = app.operate(Method::POST, &format!("/v1/gateways/{path}"), body.clone()).await;
        assert_eq!(refused.status, status, "{path} {body}: {}", refused.json);
        assert_eq!(refused.json["errors"][0]["pointer"].as_str().unwrap_or_default(), place, "{path} {body}");
    }
    let path = format!("/v1/gateways/{lane}/hold");
    assert_eq!(app.call(Method::POST, &path, Value::Null).await.status, 403, "an app's key is not enough");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn open_alerts_are_counted_and_listed_first() {
    let app = TestApp::start().await;
    let mut conn = app.pool.acquire().await.unwrap();
    let raise = async |conn: &mut sqlx::PgConnection, subject: &str| {
        let alert = Alert { app: None, kind: AlertKind::Tampered, subject, detail: "a row was changed by hand" };
        app.clock.advance(Duration::from_secs(1));
        alerts::raise(conn, &alert, app.clock.now()).await.unwrap()
    };
    assert!(raise(&mut conn, "one").await && raise(&mut conn, "two").await && !raise(&mut conn, "one").await);
    let list = async |query: &str| app.operate(Method::GET, &format!("/v1/alerts{query}"), Value::Null).await.ok(200);
    let names = |page: &Value| -> Vec<(String, i64)> {
        let row = |row: &Value| (row["subject"].as_str().unwrap().to_owned(), row["n"].as_i64().unwrap());
        page["data"].as_array().unwrap().iter().map(row).collect()
    };
    let all = list("").await;
    assert_eq!(names(&all), [("two".to_owned(), 1), ("one".to_owned(), 2)]);
    let resolve = format!("/v1/alerts/{}/resolve", all["data"][0]["id"].as_str().unwrap());
    let resolved = app.operate(Method::POST, &resolve, Value::Null).await.ok(200);
    assert!(resolved["resolved_at"].is_string());
    assert!(raise(&mut conn, "two").await, "what was resolved and happens again is new");
    app.operate(Method::POST, "/v1/alerts/al_00000000-0000-7000-8000-000000000000/resolve", Value::Null).await.ok(404);
    // Page by page: the open ones, then the resolved one.
    let (mut query, mut walked) = ("?limit=1".to_owned(), Vec::new());
    loop {
        let page = list(&query).await;
        walked.extend(names(&page));
        let Some(iterator) = page["iterator"].as_str() else { break };
        query = format!("?limit=1&iterator={iterator}");
    }
    assert_eq!(walked, [("two".to_owned(), 1), ("one".to_owned(), 2), ("two".to_owned(), 1)]);
    app.run_until_idle().await;
    assert!(app.metrics.render().contains("bellwire_alerts_open{kind=\"tampered\"} 2"));
    assert_eq!(app.call(Method::GET, "/v1/alerts", Value::Null).await.status, 403);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn payload_limit_is_remembered_until_disproved() {
    let app = TestApp::start().await;
    let other = app.worker(app.clock.clone()).await;
    let subscribers = app.subscribe("mozilla", 0..6).await;
    // The first is a phone: nothing large gets through to it.
    let phone = Rule { endpoints: Some([0].into()), attempts: Some([1, 2]), ..Rule::always(RuleAction::TooLarge) };
    app.simulator.add_rule(phone).unwrap();
    let image = format!("https://example.com/{}", "i".repeat(1_500));
    let content =
        json!({"content": {"title": "T", "body": "b".repeat(2_000), "url": "https://example.com/", "image": image}});
    // How often a delivery was attempted, and what is kept of the last attempt.
    let send = async |index: usize| {
        let message = app.send(json!({"subscriptions": [subscribers[index].id]}), content.clone()).await;
        app.run_until_idle_with(&other).await;
        let delivery = app.delivery(&message, &subscribers[index].id).await;
        assert_eq!(delivery["state"], "accepted", "{delivery}");
        let attempts = delivery["attempts"].as_array().unwrap().clone();
        (attempts.len(), attempts.last().unwrap()["reason"].as_str().unwrap_or_default().to_owned())
    };
    assert_eq!(send(0).await, (3, String::new()), "leaving out the padding is not enough");
    until_stored(&app, "SELECT count(*) FROM lane_states WHERE payload_max = 2744").await;
    let lane = app.lane("mozilla").await;
    assert_eq!(lane_origin(&app, lane, "https://").await["payload_max"], 2_744);
    assert_eq!(send(1).await, (1, "sent without image: more than this gateway takes".to_owned()));
    // The other engine knows it, too.
    app.dispatcher.stop(Duration::ZERO).await;
    assert_eq!(send(2).await, (1, "sent without image: more than this gateway takes".to_owned()));
    let received = app.simulator.received(&subscribers[2].endpoint).unwrap();
    assert!(received[0].plaintext.as_ref().unwrap().len() <= 2_744);
    // Something larger is taken, which cannot be made smaller: so much for that limit.
    app.clock.advance(Duration::from_secs(61));
    let raw = json!({"to": {"subscriptions": [subscribers[3].id]}, "payload": "r".repeat(3_500)});
    let raw = app.call(Method::POST, "/v1/apps/shop/messages", raw).await.ok(202)["id"].as_str().unwrap().to_owned();
    other.run_until_idle().await;
    assert_eq!(app.delivery(&raw, &subscribers[3].id).await["state"], "accepted");
    assert_eq!(send(4).await, (1, String::new()));
    app.finish().await;
}
