//! Events whose receivers fail, hang or no longer exist, and events of a sender that dies.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::http::Method;
use bellwire_core::clock::Clock;
use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Stage, URL, at, events, id_of, three_retries, types};
use crate::support::app::{DAY, PATIENCE, until_waiting};
use crate::support::push_service::Pushed;
use crate::support::webhooks::webhook_sender;
use crate::support::{Server, Setup, seed};

#[tokio::test(flavor = "multi_thread")]
async fn crash_before_recording_resends_the_same_id() {
    let stage = Stage::set().await;
    let webhook = stage.webhook(URL, &["delivery.accepted"], json!({})).await;
    stage.post(&webhook, "/test", Value::Null).await;
    stage.receiver.hold(true);
    let mut running = JoinSet::from_iter(stage.sender.begin().await.unwrap());
    stage.receiver.until_pushed(1).await;
    running.shutdown().await; // as the process ends
    stage.receiver.hold(false);
    let next = webhook_sender(&stage.app);
    next.run_until_idle().await.unwrap();
    assert_eq!(stage.receiver.pushed().len(), 1, "its lease holds still");
    stage.app.clock.advance(Duration::from_secs(60));
    next.run_until_idle().await.unwrap();
    let requests = stage.receiver.pushed();
    assert_eq!(requests.len(), 2);
    assert_eq!(requests[0].header("webhook-id"), requests[1].header("webhook-id"));
    assert_eq!(requests[0].body, requests[1].body);
    assert_eq!(types(&requests[1..]), [("webhook.test".to_owned(), 1)].into());
    stage.app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_server_repeats_unrecorded_webhooks() {
    const N: usize = 20;
    let stage = Stage::with(Setup { clock: Some(Clock::system()), ..Setup::default() }).await;
    let app = &stage.app;
    stage.webhook(URL, &["delivery.accepted"], json!({"max_events": 1})).await;
    app.subscribe("fcm", 0..N as u32).await;
    app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    stage.receiver.hold(true);
    let server = Server::start(app).await;
    stage.receiver.until_pushed(8).await;
    server.kill().await;
    let (killed, before) = (Instant::now(), stage.receiver.pushed().len());
    stage.receiver.hold(false);

    let server = Server::start(app).await;
    stage.receiver.until_pushed(before + N).await;
    assert!(killed.elapsed() < Duration::from_secs(55), "its worker is missed long before its leases run out");
    server.terminate();
    assert!(server.end(PATIENCE).await.success());
    let ids = |requests: &[Pushed]| -> BTreeSet<String> {
        requests.iter().map(|request| request.header("webhook-id").to_owned()).collect()
    };
    let requests = stage.receiver.pushed();
    let (first, again) = requests.split_at(before);
    assert_eq!((ids(first).len(), ids(again).len()), (before, N));
    assert!(ids(first).is_subset(&ids(again)), "a repeat has the id of the first");
    let of = |request: &Pushed| events(request)[0]["data"]["subscription"].to_string();
    assert_eq!(again.iter().map(of).collect::<BTreeSet<_>>().len(), N, "everything is told");
    stage.app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failing_webhook_is_disabled_with_an_alert() {
    let stage = Stage::set().await;
    let often = json!({"policy": {"baseDelayMs": 7_200_000, "maxDelayMs": 7_200_000, "maxAttempts": 100}});
    let webhook = stage.webhook(URL, &["delivery.accepted"], often).await;
    stage.post(&webhook, "/test", Value::Null).await;
    stage.receiver.answer_next(&[503; 200]);
    stage.tell().await;
    for hours in 0..200 {
        let shown = stage.shown(&webhook).await;
        if shown["state"] == "disabled" {
            assert_eq!(shown["disabled_why"], "failing");
            assert!((5 * 24..6 * 24).contains(&hours), "after {hours} hours");
            break;
        }
        stage.tell_after(Duration::from_secs(3_600)).await;
    }
    let alerts = stage.app.operate(Method::GET, "/v1/alerts", Value::Null).await.ok(200);
    assert_eq!((&alerts["data"][0]["kind"], &alerts["data"][0]["subject"]), (&json!("webhook"), &webhook["id"]));
    let refused = stage.app.call(Method::POST, &at(&webhook, "/test"), Value::Null).await;
    assert_eq!((refused.status, &refused.json["code"]), (409, &json!("webhook_disabled")));
    let requests = stage.receiver.pushed().len();
    stage.tell_after(DAY).await;
    assert_eq!(stage.receiver.pushed().len(), requests, "nothing is sent to it");

    stage.receiver.forget_answers();
    let enabled = stage.app.call(Method::PATCH, &at(&webhook, ""), json!({"enabled": true})).await.ok(200);
    assert_eq!((&enabled["state"], &enabled["failing_since"]), (&json!("active"), &Value::Null));
    stage.tell().await;
    assert_eq!(stage.shown(&webhook).await["pending"], 0, "what waited was sent");
    stage.receiver.answer_next(&[410]);
    stage.post(&webhook, "/test", Value::Null).await;
    stage.tell().await;
    let shown = stage.shown(&webhook).await;
    assert_eq!((&shown["state"], &shown["disabled_why"]), (&json!("disabled"), &json!("gone")));
    stage.app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_breaker_uses_no_retries() {
    let stage = Stage::set().await;
    let webhook = stage.webhook(URL, &["delivery.accepted"], json!({"max_events": 1})).await;
    seed(&stage.app, "fcm", 0..50).await;
    stage.app.send(json!({"all": true}), json!({})).await;
    stage.app.run_until_idle().await;
    stage.receiver.answer_next(&[503; 200]);
    stage.tell().await;
    assert_eq!(stage.receiver.pushed().len(), 50, "it has taken nothing for less than 30 s");
    stage.tell_after(Duration::from_secs(30)).await;
    let tried = stage.receiver.pushed().len();
    assert!((55..=66).contains(&tried), "{tried} of 50 were tried");
    let shown = stage.shown(&webhook).await;
    assert_eq!((&shown["breaker"], &shown["pending"]), (&json!("open"), &json!(50)));
    webhook_sender(&stage.app).run_until_idle().await.unwrap();
    assert_eq!(stage.receiver.pushed().len(), tried, "other replicas know of it");
    stage.receiver.forget_answers();
    stage.tell_after(Duration::from_secs(10)).await;
    stage.tell_after(Duration::from_secs(30)).await;
    let shown = stage.shown(&webhook).await;
    assert_eq!((&shown["breaker"], &shown["pending"], &shown["failed"]), (&json!("closed"), &json!(0), &json!(0)));
    stage.app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_backlog_is_bounded_with_an_alert() {
    let stage = Stage::set().await;
    let app = &stage.app;
    let webhook = stage.webhook(URL, &["delivery.accepted"], json!({})).await;
    sqlx::query(
        "INSERT INTO webhook_deliveries (id, webhook, state, events, body, subscriptions, due_at, created_at, ended_at)
         SELECT gen_random_uuid(), $1, 'failed', 1, 'x', '{}', $2, $2, $2 FROM generate_series(1, 4999)",
    )
    .bind(id_of(&webhook))
    .bind(app.clock.now())
    .execute(&app.pool)
    .await
    .unwrap();
    seed(app, "fcm", 0..150).await;
    app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    stage.tell().await;
    assert_eq!(events(&stage.receiver.pushed()[0]).len(), 100, "there was room for one request");
    assert_eq!(stage.shown(&webhook).await["dropped_events"], 50);
    let alerts = app.operate(Method::GET, "/v1/alerts", Value::Null).await.ok(200);
    assert_eq!(alerts["data"][0]["kind"], "webhook");
    stage.app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_deletion_waits_for_packing() {
    let stage = Stage::set().await;
    let [leaving, staying] = [
        stage.webhook(URL, &["delivery.accepted"], json!({})).await,
        stage.webhook(URL, &["delivery.accepted"], json!({})).await,
    ];
    seed(&stage.app, "fcm", 0..1).await;
    stage.app.send(json!({"all": true}), json!({})).await;
    stage.app.run_until_idle().await;
    // Who holds the notes stops the round right after it has looked who is told.
    let mut held = stage.app.pool.begin().await.unwrap();
    sqlx::query("SELECT FROM webhook_notes FOR UPDATE").execute(&mut *held).await.unwrap();
    let delete = async {
        until_waiting(&stage.app.pool, 1).await;
        let path = at(&leaving, "");
        let release = async {
            until_waiting(&stage.app.pool, 2).await;
            held.rollback().await.unwrap();
        };
        let (reply, ()) = tokio::join!(stage.app.call(Method::DELETE, &path, Value::Null), release);
        reply.ok(204);
    };
    tokio::join!(stage.pack(), delete);
    assert_eq!(stage.shown(&staying).await["pending"], 1);
    stage.app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn webhook_metrics_appear_and_expire() {
    let stage = Stage::set().await;
    let webhook = stage.webhook(URL, &["delivery.accepted"], three_retries()).await;
    let counted = |outcome: &str, n: u64| {
        let line = format!("bellwire_webhook_requests_total{{outcome=\"{outcome}\"}} {n}");
        assert!(stage.app.metrics.render().lines().any(|written| written == line), "{line}");
    };
    stage.post(&webhook, "/test", Value::Null).await;
    stage.receiver.answer_next(&[500; 4]);
    stage.tell().await;
    counted("retried", 1);
    for _ in 0..3 {
        stage.tell_after(Duration::from_secs(10)).await;
    }
    stage.tell_after(Duration::from_secs(60)).await;
    stage.post(&webhook, "/test", Value::Null).await;
    stage.tell().await;
    counted("retried", 3);
    counted("failed", 1);
    counted("delivered", 1);
    assert_eq!(stage.sender.remembered(), 1);
    stage.tell_after(DAY).await;
    assert_eq!(stage.sender.remembered(), 0, "nothing was due for it");
    stage.app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_takes_a_third_gets_everything() {
    let stage = Stage::set().await;
    let retries = json!({"healthyRetryPolicy": {"numRetries": 50, "minDelayTarget": 10, "maxDelayTarget": 10}});
    let one_by_one = json!({"max_events": 1, "policy": retries});
    let webhook = stage.webhook(URL, &["delivery.accepted"], one_by_one).await;
    seed(&stage.app, "fcm", 0..100).await;
    stage.app.send(json!({"all": true}), json!({})).await;
    stage.app.run_until_idle().await;
    // 36 of 100, in runs that are as long as chance makes them.
    let mut randomness = 1_u64;
    let mut statuses = std::iter::repeat_with(|| {
        randomness = randomness.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        if (randomness >> 33) % 100 < 36 { 201 } else { 503 }
    });
    stage.receiver.answer_next(&statuses.by_ref().take(2_000).collect::<Vec<_>>());
    stage.tell().await;
    assert_eq!(stage.receiver.pushed().len(), 100, "all of them are tried at once");
    for _ in 0..50 {
        stage.tell_after(Duration::from_secs(29)).await;
        let shown = stage.shown(&webhook).await;
        assert_eq!(shown["breaker"], "closed");
        if shown["pending"] == 0 {
            break;
        }
    }
    let requests = stage.receiver.pushed();
    let counts = |id: &str| {
        let of = requests.iter().filter(|request| request.header("webhook-id") == id);
        of.map(|request| request.header("webhook-retry-count").parse().unwrap()).collect::<Vec<usize>>()
    };
    for request in &requests {
        let counts = counts(request.header("webhook-id"));
        assert!(counts.iter().copied().eq(0..counts.len()), "{counts:?}");
    }
    assert_eq!(stage.shown(&webhook).await["pending"], 0, "{} requests", requests.len());
    stage.app.finish().await;
}
