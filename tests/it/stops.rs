//! Unsubscribe, cancel, pause: what was stopped is not sent, and every delivery is still accounted for.

mod browsers;

use std::time::{Duration, Instant};

use axum::http::Method;
use bellwire_core::delivery::Tier;
use bellwire_core::hook::WebhookKinds;
use bellwire_core::id::{AppId, LaneId, MessageId};
use bellwire_dispatch::DispatchConfig;
use bellwire_simulator::gateways::{Rule, RuleAction};
use bellwire_store::keys::audit::{self, Actor, AuditEntry};
use bellwire_store::outcomes::ledger::{self, ClaimableAt, Delivery, Fate, MessageOrigin, RowSettlement, Settlement};
use bellwire_store::queue::claims::{self, DueSpan, LEASE};
use bellwire_store::queue::steering::{self, MessageOrder, Steered};
use bellwire_store::queue::stops;
use serde_json::{Value, json};

use crate::support::app::{PATIENCE, Setup, Subscriber, TestApp, scalar, until_waiting};
use crate::support::engine::without_engine;
use crate::support::simulator_rules::{IN_FLIGHT, hold_all, release_until_idle};
use crate::support::{FaultProxy, Server, counts, seed_together};

async fn unsubscribe(app: &TestApp, subscriber: &Subscriber) {
    let path = format!("/v1/apps/shop/subscriptions/{}", subscriber.id);
    app.call(Method::DELETE, &path, Value::Null).await.ok(204);
}

#[tokio::test(flavor = "multi_thread")]
async fn cancelled_message_gets_no_later_push() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..100).await;
    let rule = hold_all(&app);
    let message = app.send(json!({"all": true}), json!({})).await;
    app.until_held(rule, IN_FLIGHT).await;
    assert_eq!(app.steer(&message, "cancel").await["state"], "cancelled");
    app.message(&message).await;
    release_until_idle(&app, rule).await;
    assert_eq!(app.rule(rule).0, IN_FLIGHT, "pushes begun");
    let end = counts(&[("targeted", 100), ("accepted", 31), ("awaiting_ack", 31), ("cancelled", 69)]);
    assert_eq!(app.counts(&message).await, end);
    app.call(Method::POST, &format!("/v1/apps/shop/messages/{message}/resume"), Value::Null).await.ok(409);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn cancel_stops_a_running_fan_out() {
    let dispatch = DispatchConfig { batch_min: 50, batch_max: 50, ..DispatchConfig::default() };
    let app = TestApp::with(Setup { dispatch, ..Setup::default() }).await;
    app.subscribe("mozilla", 0..200).await;
    let rule = hold_all(&app);
    let message = app.send(json!({"all": true}), json!({})).await;
    app.until_held(rule, IN_FLIGHT).await;
    let shown = app.message(&message).await;
    assert_eq!((&shown["state"], &shown["expanded"]), (&json!("sending"), &json!(false)), "{shown}");
    let shown = app.steer(&message, "cancel").await;
    assert_eq!((&shown["state"], &shown["expanded"]), (&json!("cancelled"), &json!(true)), "{shown}");
    release_until_idle(&app, rule).await;
    let end = app.counts(&message).await;
    assert!(end["targeted"] < 200 && end["accepted"] == 31 && end["cancelled"] == end["targeted"] - 31, "{end:?}");
    assert_eq!(app.rule(rule).0, IN_FLIGHT);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retries_of_a_cancelled_message_are_not_made() {
    let app = TestApp::start().await;
    app.subscribe("wns", 0..20).await;
    let rule = Rule::always(RuleAction::Throttled { retry_after_s: Some(5) });
    app.simulator.add_rule(rule).unwrap();
    let message = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    let requests = app.simulator.report().requests;
    app.steer(&message, "cancel").await;
    app.advance(Duration::from_secs(600)).await;
    assert_eq!(app.simulator.report().requests, requests);
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 20), ("cancelled", 20)]));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resumed_message_reaches_each_recipient_once() {
    let dispatch = DispatchConfig { batch_min: 50, batch_max: 50, ..DispatchConfig::default() };
    let app = TestApp::with(Setup { dispatch, ..Setup::default() }).await;
    seed_together(&app, "wns", 0..200).await;
    // The first ten of those that are in flight are asked to come back later.
    let later =
        RuleAction::Answer { status: 200, headers: vec![("x-wns-status".into(), "dropped".into())], body: "".into() };
    let rule = hold_all(&app);
    let message = app.send(json!({"all": true}), json!({"tier": "engagement"})).await;
    app.until_held(rule, IN_FLIGHT).await;
    let shown = app.steer(&message, "pause").await;
    assert_eq!((&shown["state"], &shown["expanded"]), (&json!("paused"), &json!(false)), "{shown}");
    release_until_idle(&app, rule).await;
    assert_eq!(app.rule(rule).0, IN_FLIGHT, "pushes begun");
    app.simulator.remove_rule(rule);
    app.advance(Duration::from_secs(3_600)).await;
    app.sweep().await;
    app.run_until_idle().await;
    let paused = app.counts(&message).await;
    assert_eq!((app.simulator.report().requests, paused["accepted"]), (IN_FLIGHT, 31));
    assert_eq!(paused["queued"], paused["targeted"] - 31, "{paused:?}");
    assert!(paused["targeted"] < 200);

    let retried = Rule { count: Some(10), ..Rule::always(later) };
    app.simulator.add_rule(retried).unwrap();
    assert_eq!(app.steer(&message, "resume").await["state"], "sending");
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await["retrying"], 10);
    app.steer(&message, "pause").await;
    app.advance(Duration::from_secs(3_600)).await;
    assert_eq!(app.counts(&message).await["retrying"], 10, "retries wait too");
    app.steer(&message, "resume").await;
    app.run_until_idle().await;
    let end = counts(&[("targeted", 200), ("accepted", 200), ("awaiting_ack", 200)]);
    assert_eq!(app.counts(&message).await, end);
    let report = app.simulator.report();
    assert_eq!((report.deliveries, report.requests), (200, 210));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_resumed_at_once_reaches_everybody_once() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..80).await;
    let rule = hold_all(&app);
    let message = app.send(json!({"all": true}), json!({})).await;
    app.until_held(rule, IN_FLIGHT).await;
    for turn in ["pause", "resume", "pause", "resume"] {
        app.steer(&message, turn).await;
        app.simulator.release(rule, 5);
        app.message(&message).await;
    }
    release_until_idle(&app, rule).await;
    app.sweep().await; // what a worker parked that had not heard of the resume
    app.run_until_idle().await;
    let end = counts(&[("targeted", 80), ("accepted", 80), ("awaiting_ack", 80)]);
    assert_eq!((app.counts(&message).await, app.simulator.report().requests), (end, 80));
    app.finish().await;
}

/// Pushes one message after another until the engine has read another process's change. Returns the time.
async fn trickle(app: &TestApp, rule: u64, message: &str, since: Instant) -> Duration {
    let mut last = since;
    while app.dispatcher.load().waiting > 0 {
        let begun = app.rule(rule).0;
        assert!(app.simulator.release(rule, 1) && since.elapsed() < PATIENCE, "{:?}", app.dispatcher.load());
        app.message(message).await;
        while app.rule(rule).0 == begun && app.dispatcher.load().waiting > 0 {
            tokio::task::yield_now().await;
        }
        if app.rule(rule).0 > begun {
            last = Instant::now();
        }
    }
    last - since
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_from_another_process_takes_a_second() {
    let dispatch = DispatchConfig { lane_limit_max: 32, ..DispatchConfig::default() };
    let app = TestApp::with(Setup { dispatch, ..Setup::default() }).await;
    app.subscribe("fcm", 0..240).await;
    let now = app.clock.now();
    for order in [MessageOrder::Pause, MessageOrder::Cancel] {
        let rule = hold_all(&app);
        let message = app.send(json!({"all": true}), json!({})).await;
        app.until_held(rule, IN_FLIGHT).await;
        let id: MessageId = message.parse().unwrap();
        let app_id = sqlx::query_scalar("SELECT app FROM messages WHERE id = $1").bind(id.0).fetch_one(&app.pool).await;
        // As another replica does it: this engine is told by the table only.
        let entry = AuditEntry::new(Actor::LOCAL, None, audit::AuditAction::MessagePaused, id);
        let steered = steering::steer(&app.pool, app_id.unwrap(), id, order, &entry, now).await.unwrap();
        assert!(matches!(steered, Steered::Now { .. }), "{steered:?}");
        let took = trickle(&app, rule, &message, Instant::now()).await;
        assert!(took < Duration::from_secs(1), "{order:?}: pushes began until {took:?} after the answer");
        release_until_idle(&app, rule).await;
        let end = app.counts(&message).await;
        let begun = i64::try_from(app.rule(rule).0).unwrap();
        let standing = if order == MessageOrder::Pause { "queued" } else { "cancelled" };
        assert_eq!((end["accepted"], end[standing]), (begun, end["targeted"] - begun), "{order:?}: {end:?}");
        app.simulator.remove_rule(rule);
        if order == MessageOrder::Pause {
            app.steer(&message, "resume").await;
            app.run_until_idle().await;
            assert_eq!(app.counts(&message).await["accepted"], 240);
        }
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_account_adds_up_at_every_moment() {
    let dispatch = DispatchConfig { batch_min: 50, batch_max: 60, ..DispatchConfig::default() };
    let app = TestApp::with(Setup { dispatch, ..Setup::default() }).await;
    let mut subscribers = app.subscribe("fcm", 0..150).await;
    subscribers.extend(app.subscribe("mozilla", 0..150).await);
    for (from, to, action) in [
        (0.0, 0.1, RuleAction::Gone),
        (0.1, 0.2, RuleAction::Unavailable { retry_after_s: Some(1) }),
        (0.2, 0.3, RuleAction::BadRequest),
        (0.3, 0.4, RuleAction::Reset { code: 7 }),
    ] {
        let first = Rule { share: Some([from, to]), attempts: Some([1, 1]), ..Rule::always(action) };
        app.simulator.add_rule(first).unwrap();
    }
    app.simulator.add_rule(Rule { delay_ms: 20, ..Rule::default() }).unwrap();
    let message = app.send(json!({"all": true}), json!({})).await;
    let (mut looks, mut targeted, mut steps) = (0, 0, ["pause", "resume"].into_iter());
    let ended = loop {
        let shown = app.message(&message).await; // which checks the sum
        let counts = &shown["counts"];
        let now = counts["targeted"].as_i64().unwrap();
        assert!(targeted <= now && now <= 300, "the audience only grows");
        (looks, targeted) = (looks + 1, now);
        let moving =
            ["queued", "dispatching", "retrying"].iter().map(|part| counts[part].as_i64().unwrap()).sum::<i64>();
        match looks {
            5 | 10 => drop(app.steer(&message, steps.next().unwrap()).await),
            12 => unsubscribe(&app, subscribers.last().unwrap()).await,
            // Not only when it is expanded: a breaker that opened before waits for the clock.
            _ if looks > 12 && counts["dispatching"] == 0 => {
                if moving == 0 && shown["expanded"] == true {
                    break counts.clone();
                }
                app.sweep().await; // what was parked by a worker that had not heard of the resume
                app.clock.advance(Duration::from_millis(300));
            }
            _ => {}
        }
        tokio::task::yield_now().await;
    };
    app.run_until_idle().await;
    assert_eq!(ended["targeted"], app.message(&message).await["counts"]["targeted"]);
    let ended = |name: &str| ended[name].as_i64().unwrap();
    assert!(ended("gone") > 0 && ended("dead") > 0 && ended("accepted") > 150, "every kind of ending took part");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn returning_worker_obeys_an_earlier_stop() {
    let dispatch = DispatchConfig { lane_limit_max: 32, ..DispatchConfig::default() };
    let app = TestApp::with(Setup { dispatch, ..Setup::default() }).await;
    seed_together(&app, "fcm", 0..240).await;
    let rule = hold_all(&app);
    let message = app.send(json!({"all": true}), json!({})).await;
    app.until_held(rule, IN_FLIGHT).await;
    let id: MessageId = message.parse().unwrap();
    let app_id = sqlx::query_scalar("SELECT app FROM messages WHERE id = $1").bind(id.0).fetch_one(&app.pool).await;
    let a_minute_ago = app.clock.now() - Duration::from_secs(60);
    let entry = AuditEntry::new(Actor::LOCAL, None, audit::AuditAction::MessageCancelled, id);
    steering::steer(&app.pool, app_id.unwrap(), id, MessageOrder::Cancel, &entry, a_minute_ago).await.unwrap();
    let took = trickle(&app, rule, &message, Instant::now()).await;
    assert!(took < Duration::from_secs(1), "pushes began until {took:?} after the worker could hear of it");
    release_until_idle(&app, rule).await;
    let (end, begun) = (app.counts(&message).await, i64::try_from(app.rule(rule).0).unwrap());
    assert_eq!((end["accepted"], end["cancelled"]), (begun, end["targeted"] - begun), "{end:?}");
    app.finish().await;
}

#[tokio::test]
async fn late_committed_stop_is_never_missed() {
    let app = TestApp::start().await;
    let insert = "INSERT INTO stops (at, kind, target) VALUES ($1, 'cancel', gen_random_uuid()) RETURNING target";
    let first = stops::read(&app.pool, None).await.unwrap();
    assert_eq!(first.stops, []);
    let mut late = app.pool.begin().await.unwrap();
    let slow: uuid::Uuid = sqlx::query_scalar(insert).bind(app.clock.now()).fetch_one(&mut *late).await.unwrap();
    let quick: uuid::Uuid = sqlx::query_scalar(insert).bind(app.clock.now()).fetch_one(&app.pool).await.unwrap();
    let targets = |reading: &stops::StopsRead| reading.stops.iter().map(|stop| stop.target).collect::<Vec<_>>();
    let before = stops::read(&app.pool, Some(&first.horizon)).await.unwrap();
    assert_eq!(targets(&before), [quick]);
    app.clock.advance(Duration::from_secs(600));
    late.commit().await.unwrap();
    let after = stops::read(&app.pool, Some(&before.horizon)).await.unwrap();
    assert_eq!(targets(&after), [slow], "and none is read again");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn row_parked_after_the_resume_is_sent() {
    let app = TestApp::start().await;
    app.dispatcher.stop(Duration::ZERO).await;
    let to = app.subscribe("fcm", 0..1).await.remove(0).id;
    let message = app.send(json!({"subscriptions": [to]}), json!({})).await;
    let lane = LaneId(i32::try_from(scalar(&app.pool, "SELECT id::bigint FROM lanes").await).unwrap());
    let (now, lease, tier) = (app.clock.now(), app.clock.uuid(), Tier::Promotional);
    let row = claims::claim_rows(&app.pool, DueSpan::all(lane, tier, now), 1, lease, now + LEASE * 10)
        .await
        .unwrap()
        .remove(0);
    app.steer(&message, "pause").await;
    app.steer(&message, "resume").await;
    app.clock.advance(Duration::from_secs(61));
    app.sweep().await;
    let delivery = Delivery {
        subscription: row.recipient.subscription,
        message: row.message,
        app: AppId(sqlx::query_scalar("SELECT app FROM messages").fetch_one(&app.pool).await.unwrap()),
        lane,
        tier,
        life: row.recipient.life,
        proven: true,
        origin: MessageOrigin {
            free_at: app.clock.now(),
            enveloped: true,
            charted: false,
            heard: WebhookKinds::default(),
        },
        sla: None,
    };
    let settlement = Settlement::new(delivery, Fate::Deferred(ClaimableAt::Parked));
    let parked = [RowSettlement { lease, settlement }];
    assert_eq!(ledger::settle_rows(&app.pool, &app.vault, &parked, app.clock.now()).await.unwrap(), 0, "it is its own");
    app.worker(app.clock.clone()).await.run_until_idle().await;
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 1), ("accepted", 1), ("awaiting_ack", 1)]));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stops_are_read_while_dispatch_waits() {
    let app = without_engine().await;
    let proxy = FaultProxy::start().await;
    let gone = app.subscribe("fcm", 0..1).await.remove(0);
    app.simulator.add_rule(Rule::always(RuleAction::Gone)).unwrap();
    let mut slow = app.pool.begin().await.unwrap();
    sqlx::query("SET LOCAL idle_in_transaction_session_timeout = 0").execute(&mut *slow).await.unwrap();
    sqlx::query("SELECT FROM subscriptions FOR UPDATE").execute(&mut *slow).await.unwrap();
    // One of its connections is for dispatch: the settling has it, and waits.
    let args = ["--roles", "worker", "--database-connections", "6"];
    let server = Server::on(&app, &args, &proxy.url(&app.database.name)).await;
    app.send(json!({"subscriptions": [gone.id]}), json!({})).await;
    until_waiting(&app.pool, 1).await;
    proxy.take_runs();
    let read = proxy.until_run("/* read_stops */", 10);
    tokio::time::timeout(Duration::from_secs(8), read).await.expect("stops are read five times a second");
    slow.rollback().await.unwrap();
    server.terminate();
    assert!(server.end(PATIENCE).await.success());
    app.finish().await;
}
