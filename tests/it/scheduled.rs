//! Messages for later: nothing of them is due before their time, and they can be forgotten by their senders' own keys.

use std::time::Duration;

use axum::http::Method;
use bellwire_core::id::{AppId, MessageId, VapidKeyId};
use bellwire_core::lane::Gateway;
use bellwire_store::queue::lanes;
use chrono::TimeDelta;
use futures_util::future::{Either, select};
use serde_json::{Value, json};
use sqlx::{Postgres, Transaction};

use crate::support::app::{DAY, PATIENCE, Reply, scalar, until_waiting};
use crate::support::{START, TestApp};

const HOUR: Duration = Duration::from_secs(3600);

/// A time so far from [`START`], as JSON has it.
fn from_start(by: Duration) -> Value {
    json!(START + by)
}

/// Response to a send request.
async fn ask(app: &TestApp, to: Value, more: Value) -> Reply {
    let mut body = json!({"to": to, "content": {"title": "Hello"}});
    body.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    app.call(Method::POST, "/v1/apps/shop/messages", body).await
}

async fn cancel_by_key(app: &TestApp, key: &str) -> Reply {
    app.call(Method::POST, &format!("/v1/apps/shop/messages/by-key/{key}/cancel"), Value::Null).await
}

/// Commits `first` once `second` waits for it, or has come to its end without.
async fn commit_before<T>(app: &TestApp, first: Transaction<'_, Postgres>, second: impl Future<Output = T>) -> T {
    commit_once_waiting(app, first, second, 1).await
}

/// Commits `first` once so many sessions wait for locks, or `second` has ended.
async fn commit_once_waiting<T>(
    app: &TestApp, first: Transaction<'_, Postgres>, second: impl Future<Output = T>, n: i64,
) -> T {
    let (waiting, second) = (std::pin::pin!(until_waiting(&app.pool, n)), std::pin::pin!(second));
    match select(second, waiting).await {
        Either::Left((done, _)) => {
            first.commit().await.unwrap();
            done
        }
        Either::Right(((), second)) => {
            first.commit().await.unwrap();
            second.await
        }
    }
}

/// Begins to make the app's lane to a gateway, as a registration does that is not committed yet.
async fn begin_lane<'a>(app: &'a TestApp, gateway: Gateway) -> Transaction<'a, Postgres> {
    let (shop, key) = sqlx::query_as("SELECT app, id FROM vapid_keys").fetch_one(&app.pool).await.unwrap();
    let mut tx = app.pool.begin().await.unwrap();
    lanes::ensure(&mut tx, AppId(shop), VapidKeyId(key), gateway, app.clock.now()).await.unwrap();
    tx
}

#[tokio::test]
async fn scheduled_message_lives_from_its_time() {
    let app = TestApp::start().await;
    let one = app.subscribe("fcm", 0..1).await.remove(0);
    let later = json!({"send_at": from_start(2 * DAY), "ttl": 60, "tier": "transactional"});
    let sent = ask(&app, json!({"subscriptions": [one.id]}), later).await.ok(202);
    assert_eq!((&sent["state"], &sent["audience_estimate"]), (&json!("scheduled"), &json!(1)));
    let id = sent["id"].as_str().unwrap();

    app.advance(2 * DAY - Duration::from_secs(1)).await;
    let message = app.message(id).await;
    assert_eq!((&message["state"], &message["counts"]["queued"]), (&json!("scheduled"), &json!(1)));
    assert_eq!(
        (&message["accepted_at"], &message["expires_at"]),
        (&from_start(2 * DAY), &from_start(2 * DAY + HOUR / 60))
    );
    assert_eq!(message["received_at"], from_start(Duration::ZERO), "its request, a day and more ago");
    let story = app.get(&format!("/v1/apps/shop/messages/{id}/deliveries/{}/explain", one.id)).await;
    let says = |code: &str| story["story"].as_array().unwrap().iter().any(|sentence| sentence["code"] == code);
    assert!(says("waits_scheduled") && !says("waits_put_off"), "{story}");

    app.advance(Duration::from_secs(1)).await;
    assert_eq!(app.counts(id).await["accepted"], 1);
    assert_eq!(app.message(id).await["state"], "done");
    app.finish().await;
}

#[tokio::test]
async fn subscriber_in_new_lane_gets_scheduled_broadcast() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..1).await;
    let id = app.send(json!({"all": true}), json!({"send_at": from_start(HOUR)})).await;
    app.advance(HOUR / 2).await;
    app.subscribe("mozilla", 0..1).await;
    app.subscribe("fcm", 1..2).await;
    app.advance(HOUR / 2).await;
    app.clock.advance(HOUR);
    app.subscribe("fcm", 2..3).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&id).await["accepted"], 3, "but nobody who came later");
    app.finish().await;
}

/// Runs a send that has read the lanes, and waits before it stores its message, beside `other`. Both end once `other` waits, too, or has
/// ended.
async fn beside_open_send<T>(app: &TestApp, to: Value, other: impl Future<Output = T>) -> (String, T) {
    let mut gate = app.pool.begin().await.unwrap();
    sqlx::query("LOCK TABLE messages IN SHARE MODE").execute(&mut *gate).await.unwrap();
    let later = json!({"send_at": json!(app.clock.now() + HOUR)});
    let mut send = std::pin::pin!(ask(app, to, later));
    let waiting = std::pin::pin!(until_waiting(&app.pool, 1));
    assert!(matches!(select(send.as_mut(), waiting).await, Either::Right(_)), "it must wait for the table");
    let (sent, done) = tokio::join!(send, commit_once_waiting(app, gate, other, 2));
    (sent.ok(202)["id"].as_str().unwrap().to_owned(), done)
}

#[tokio::test(flavor = "multi_thread")]
async fn scheduled_message_reaches_lane_created_meanwhile() {
    for to in [json!({"all": true}), json!({"topic": "news"}), json!({"segment": "tag('x')"})] {
        let app = TestApp::start().await;
        app.call(Method::PUT, "/v1/apps/shop/topics/news", json!({})).await.ok(201);
        let details = json!({"topics": ["news"], "tags": ["x"]});
        app.subscribe_with("fcm", 0..1, details.clone()).await;

        let creating = begin_lane(&app, Gateway::Mozilla).await;
        let sent =
            commit_before(&app, creating, ask(&app, to.clone(), json!({"send_at": from_start(HOUR)}))).await.ok(202);
        app.subscribe_with("mozilla", 0..20, details.clone()).await;
        app.advance(HOUR).await;
        assert_eq!(app.counts(sent["id"].as_str().unwrap()).await["accepted"], 21, "{to}: the lane came first");

        let creating = app.subscribe_with("wns", 0..20, details.clone());
        let (id, _) = beside_open_send(&app, to.clone(), creating).await;
        app.advance(HOUR).await;
        assert_eq!(app.counts(&id).await["accepted"], 41, "{to}: the message came first");
        app.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn topic_stays_while_scheduled_message_is_stored() {
    let app = TestApp::start().await;
    app.call(Method::PUT, "/v1/apps/shop/topics/news", json!({})).await.ok(201);
    let removal = app.call(Method::DELETE, "/v1/apps/shop/topics/news", Value::Null);
    let (id, removed) = beside_open_send(&app, json!({"topic": "news"}), removal).await;
    assert_eq!(removed.status, 409, "the message is scheduled for this topic");
    app.subscribe_with("fcm", 0..1, json!({"topics": ["news"]})).await;
    app.advance(HOUR).await;
    assert_eq!(app.counts(&id).await["accepted"], 1);
    app.finish().await;
}

#[tokio::test]
async fn scheduled_message_creates_missing_topic() {
    let app = TestApp::start().await;
    let later = || json!({"send_at": json!(app.clock.now() + HOUR)});
    let refused = ask(&app, json!({"topic": "news"}), later()).await.ok(422);
    assert_eq!(refused["errors"][0]["pointer"], "/to/topic");
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM topics").await, 0, "browsers of this app create no topics");

    app.call(Method::PATCH, "/v1/apps/shop", json!({"browsers_may": ["create_topics"]})).await.ok(200);
    let sent = ask(&app, json!({"topic": "news"}), later()).await.ok(202);
    assert_eq!((&sent["state"], &sent["warnings"][0]["pointer"]), (&json!("scheduled"), &json!("/to/topic")));
    app.clock.advance(HOUR / 2);
    app.subscribe_with("fcm", 0..2, json!({"topics": ["news"]})).await;
    app.advance(HOUR / 2).await;
    assert_eq!(app.counts(sent["id"].as_str().unwrap()).await["accepted"], 2);

    let at_once = ask(&app, json!({"topic": "nwes"}), json!({})).await.ok(202);
    assert_eq!(at_once["state"], "done");
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM topics").await, 1, "a message that is due creates none");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_lane_inherits_the_state_of_scheduled_messages() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..1).await;
    for (order, gateway, name) in
        [("cancel", Gateway::Mozilla, "mozilla"), ("pause", Gateway::Wns, "wns"), ("resume", Gateway::Apple, "apple")]
    {
        let send_at = json!(app.clock.now() + HOUR);
        let id = app.send(json!({"all": true}), json!({"send_at": send_at})).await;
        if order == "resume" {
            app.steer(&id, "pause").await;
        }
        let registering = begin_lane(&app, gateway).await;
        commit_before(&app, registering, app.steer(&id, order)).await;
        app.subscribe(name, 0..1).await;
        app.advance(HOUR).await;
        let all = scalar(&app.pool, "SELECT count(*) FROM subscriptions").await;
        let accepted = app.message(&id).await["counts"]["accepted"].clone();
        assert_eq!(accepted, if order == "resume" { all } else { 0 }, "{order}");
        if order == "pause" {
            app.steer(&id, "resume").await;
            app.run_until_idle().await;
            assert_eq!(app.counts(&id).await["accepted"], all);
        }
        assert_eq!(scalar(&app.pool, "SELECT count(*) FROM cursors").await, 0, "{order}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn new_lane_waits_for_a_concurrent_order() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..1).await;
    let id = app.send(json!({"all": true}), json!({"send_at": from_start(HOUR)})).await;
    for (gateway, statements) in [
        ("mozilla", ["UPDATE messages SET state = 'paused'", "UPDATE cursors SET due_at = 'infinity'"]),
        ("wns", ["UPDATE messages SET state = 'cancelled'", "DELETE FROM cursors"]),
    ] {
        let mut turning = app.pool.begin().await.unwrap();
        for statement in statements {
            sqlx::query(statement).execute(&mut *turning).await.unwrap();
        }
        commit_before(&app, turning, app.subscribe(gateway, 0..1)).await;
        assert_eq!(scalar(&app.pool, "SELECT count(*) FROM cursors WHERE due_at < 'infinity'").await, 0, "{gateway}");
    }
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM cursors").await, 0);
    app.advance(HOUR).await;
    assert_eq!(app.message(&id).await["counts"]["targeted"], 0);
    app.finish().await;
}

#[tokio::test]
async fn skipped_cursor_sends_nothing_cancelled_or_paused() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..1).await;
    app.subscribe("mozilla", 0..1).await;
    for (order, left) in [("cancel", 0), ("pause", 2)] {
        let send_at = json!(app.clock.now() + HOUR);
        let message = app.send(json!({"all": true}), json!({"send_at": send_at})).await;
        app.steer(&message, order).await;
        let id: MessageId = message.parse().unwrap();
        for statement in [
            "DELETE FROM cursors WHERE message = $1",
            "INSERT INTO cursors (message, lane, tier, topic, after, due_at)
             SELECT m.id, l.id, m.tier, m.topic, '00000000-0000-0000-0000-000000000000', m.accepted_at
             FROM messages m, lanes l WHERE m.id = $1",
        ] {
            sqlx::query(statement).bind(id.0).execute(&app.pool).await.unwrap();
        }
        app.advance(HOUR).await;
        assert_eq!(app.message(&message).await["counts"]["targeted"], 0, "{order}");
        assert_eq!(scalar(&app.pool, "SELECT count(*) FROM cursors").await, left, "{order}");
        if order == "pause" {
            app.steer(&message, "resume").await;
            app.run_until_idle().await;
            assert_eq!(app.counts(&message).await["accepted"], 2);
        }
    }
    app.finish().await;
}

#[tokio::test]
async fn scheduled_broadcast_waits_without_recipients() {
    let app = TestApp::start().await;
    app.call(Method::PUT, "/v1/apps/shop/topics/news", json!({})).await.ok(201);
    let mut sent = Vec::new();
    for (to, key) in
        [(json!({"all": true}), "a"), (json!({"topic": "news"}), "b"), (json!({"segment": "tag('x')"}), "c")]
    {
        let later = json!({"send_at": from_start(HOUR), "key": key});
        let message = ask(&app, to.clone(), later.clone()).await.ok(202);
        assert_eq!(message["state"], "scheduled", "{to}");
        app.sweep().await;
        let shown = app.message(message["id"].as_str().unwrap()).await;
        assert_eq!((&shown["state"], &shown["expanded"]), (&json!("scheduled"), &json!(false)), "{to}");
        assert_eq!(ask(&app, to, later).await.ok(409)["code"], "message_key_taken");
        sent.push(message["id"].as_str().unwrap().to_owned());
    }
    assert_eq!(app.get("/v1/apps/shop/messages?state=scheduled").await["data"].as_array().unwrap().len(), 3);
    assert_eq!(app.call(Method::DELETE, "/v1/apps/shop/topics/news", Value::Null).await.status, 409);
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM stream_events WHERE kind = 'message.done'").await, 0);

    app.clock.advance(HOUR / 2);
    app.subscribe_with("fcm", 0..1, json!({"topics": ["news"], "tags": ["x"]})).await;
    app.advance(HOUR / 2).await;
    app.sweep().await;
    for message in &sent {
        assert_eq!(app.counts(message).await["accepted"], 1);
        assert_eq!(app.message(message).await["state"], "done");
    }
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM campaigns_in_motion").await, 0);
    app.finish().await;
}

#[tokio::test]
async fn scheduled_message_is_steerable_without_recipients() {
    let app = TestApp::start().await;
    let remind = |by: Duration| json!({"send_at": from_start(by), "key": "a"});
    let first = ask(&app, json!({"all": true}), remind(HOUR)).await.ok(202);
    assert_eq!(cancel_by_key(&app, "a").await.ok(200)["id"], first["id"]);
    app.sweep().await;
    let done = "SELECT count(*) FROM stream_events WHERE kind = 'message.done' AND data ->> 'state' = 'cancelled'";
    assert_eq!(scalar(&app.pool, done).await, 1);
    let second = ask(&app, json!({"all": true}), remind(HOUR)).await.ok(202)["id"].as_str().unwrap().to_owned();
    let paused = app.steer(&second, "pause").await;
    assert_eq!(paused["state"], "paused");
    app.subscribe("fcm", 0..1).await;
    app.advance(HOUR).await;
    assert_eq!(app.message(&second).await["counts"]["targeted"], 0);
    app.steer(&second, "resume").await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&second).await["accepted"], 1);
    assert_eq!(app.message(first["id"].as_str().unwrap()).await["counts"]["targeted"], 0);
    app.finish().await;
}

#[tokio::test]
async fn replacement_gets_the_scheduled_message_once() {
    let app = TestApp::start().await;
    let old = app.subscribe("fcm", 0..1).await.remove(0);
    let id = app.send(json!({"all": true}), json!({"send_at": from_start(HOUR)})).await;
    app.clock.advance(HOUR / 2);
    app.subscribe_with("fcm", 1..2, json!({"replaces": {"id": old.id}})).await;
    app.run_until_idle().await;
    assert_eq!(app.message(&id).await["counts"]["targeted"], 0);
    app.advance(HOUR / 2).await;
    assert_eq!(app.counts(&id).await["accepted"], 1);
    app.finish().await;
}

#[tokio::test]
async fn scheduled_message_without_recipients_is_done() {
    let app = TestApp::start().await;
    let id = app.send(json!({"all": true}), json!({"send_at": from_start(HOUR)})).await;
    app.advance(HOUR).await;
    app.sweep().await;
    assert_eq!(app.message(&id).await["state"], "done");
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM stream_events WHERE kind = 'message.done'").await, 1);
    app.subscribe("fcm", 0..1).await;
    app.run_until_idle().await;
    assert_eq!(app.message(&id).await["counts"]["targeted"], 0);
    app.finish().await;
}

#[tokio::test]
async fn erasure_from_scheduled_message_blocks_no_sweep() {
    let app = TestApp::start().await;
    app.subscribe_with("fcm", 0..1, json!({"user_id": "bob"})).await;
    let id = app.send(json!({"users": ["ann", "bob"]}), json!({"send_at": from_start(2 * DAY)})).await;
    app.call(Method::DELETE, "/v1/apps/shop/users/ann", Value::Null).await.ok(200);
    app.clock.advance(Duration::from_secs(301));
    tokio::time::timeout(PATIENCE, app.sweep()).await.expect("a sweep comes to an end");
    let early = "SELECT count(*) FROM messages WHERE look_at < accepted_at";
    assert_eq!(scalar(&app.pool, early).await, 0, "nothing looks at it again before it is due");
    app.advance(2 * DAY).await;
    assert_eq!(app.counts(&id).await["accepted"], 1);
    app.finish().await;
}

#[tokio::test]
async fn sweep_ends_beside_an_abandoned_message() {
    let app = TestApp::start().await;
    let one = app.subscribe("fcm", 0..1).await.remove(0);
    let later = json!({"send_at": from_start(HOUR), "ttl": 240});
    let id = app.send(json!({"subscriptions": [one.id]}), later).await;
    app.steer(&id, "pause").await;
    app.clock.advance(HOUR + Duration::from_secs(300)); // a minute after it expired, and the first look at it
    tokio::time::timeout(PATIENCE, app.sweep()).await.expect("a sweep comes to an end");
    app.clock.advance(Duration::from_secs(1));
    app.sweep().await;
    assert_eq!(app.counts(&id).await["expired"], 1);
    app.finish().await;
}

#[tokio::test]
async fn resumed_scheduled_message_stays_scheduled() {
    let app = TestApp::start().await;
    let one = app.subscribe("fcm", 0..1).await.remove(0);
    for to in [json!({"all": true}), json!({"subscriptions": [one.id]})] {
        let send_at = json!(app.clock.now() + HOUR);
        let id = app.send(to, json!({"send_at": send_at})).await;
        assert_eq!(app.steer(&id, "pause").await["state"], "paused");
        assert_eq!(app.steer(&id, "resume").await["state"], "scheduled");
        app.run_until_idle().await;
        assert_eq!(app.message(&id).await["counts"]["accepted"], 0);
        app.advance(HOUR).await;
        assert_eq!(app.counts(&id).await["accepted"], 1);
    }
    app.finish().await;
}

#[tokio::test]
async fn cancelled_reminder_is_swept_no_more() {
    let app = TestApp::start().await;
    app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await;
    let remind = json!({"send_at": from_start(30 * DAY), "key": "booking/7"});
    let first = ask(&app, json!({"users": ["ann"]}), remind.clone()).await.ok(202);
    let again = ask(&app, json!({"users": ["ann"]}), remind.clone()).await.ok(409);
    assert_eq!(again["code"], "message_key_taken");
    assert!(again["detail"].as_str().unwrap().contains(first["id"].as_str().unwrap()), "{again}");
    assert_eq!(app.get("/v1/apps/shop/messages/by-key/booking%2F7").await["key"], "booking/7");

    let cancelled = cancel_by_key(&app, "booking%2F7").await.ok(200);
    assert_eq!((&cancelled["id"], &cancelled["state"]), (&first["id"], &json!("cancelled")));
    let watched = "SELECT count(*) FROM messages WHERE state = 'cancelled' AND NOT never_began";
    assert_eq!(scalar(&app.pool, watched).await, 0);
    app.sweep().await;
    app.clock.advance(Duration::from_secs(600));
    app.sweep().await;
    app.clock.advance(Duration::from_secs(600));
    app.sweep().await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM messages WHERE content IS NOT NULL").await, 0, "nor kept");

    let second = ask(&app, json!({"users": ["ann"]}), remind).await.ok(202);
    assert_ne!(first["id"], second["id"], "the key is free again");
    assert_eq!(cancel_by_key(&app, "booking%2F8").await.status, 404);
    app.advance(30 * DAY).await;
    assert_eq!(app.counts(second["id"].as_str().unwrap()).await["accepted"], 1);
    assert_eq!(cancel_by_key(&app, "booking%2F7").await.ok(409)["code"], "message_done");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_sends_with_one_key_accept_one() {
    let app = TestApp::start().await;
    app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await;
    let later = || json!({"send_at": from_start(HOUR), "key": "one"});
    let sends = (0..8).map(|_| ask(&app, json!({"users": ["ann"]}), later()));
    let replies = futures_util::future::join_all(sends).await;
    assert_eq!(replies.iter().filter(|reply| reply.status == 202).count(), 1, "{replies:?}");

    let message = |key: &str| json!({"to": {"users": ["ann"]}, "content": {"title": "x"}, "key": key});
    let batch = json!({"messages": [message("one"), message("two"), message("two"), message("three")]});
    let batch = app.call(Method::POST, "/v1/apps/shop/messages/batch", batch).await.ok(200);
    let mut statuses: Vec<_> =
        batch["results"].as_array().unwrap().iter().map(|result| result["status"].as_u64()).collect();
    statuses[1..3].sort(); // a batch is written in parts, any of which may be the first
    assert_eq!(statuses, [Some(409), Some(202), Some(409), Some(202)]);
    app.advance(HOUR).await;
    app.finish().await;
}

#[tokio::test]
async fn future_partition_exists_in_advance() {
    let app = TestApp::start().await;
    let one = app.subscribe("fcm", 0..1).await.remove(0);
    let id = app.send(json!({"subscriptions": [one.id]}), json!({"send_at": from_start(60 * DAY)})).await;
    app.keep_house().await;
    let day = (START + TimeDelta::days(60)).format("%Y%m%d").to_string();
    let there: i64 =
        sqlx::query_scalar("SELECT count(*) FROM pg_class WHERE relname IN ('attempts_' || $1, 'receipts_' || $1)")
            .bind(day)
            .fetch_one(&app.pool)
            .await
            .unwrap();
    assert_eq!(there, 2);
    app.steer(&id, "cancel").await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM attempts_default").await, 0);
    app.finish().await;
}

#[tokio::test]
async fn time_and_key_faults_are_pointed_to() {
    let app = TestApp::start().await;
    for (more, pointer) in [
        (json!({"send_at": from_start(91 * DAY)}), "/send_at"),
        (json!({"send_at": "2020-01-01T00:00:00Z"}), "/send_at"),
        (json!({"send_at": "2027-02-01T09:00:00"}), "/send_at"),
        (json!({"send_at": "2027-02-01T09:00:00", "timezone": "Mars/Olympus"}), "/timezone"),
        (json!({"key": "a\u{7}"}), "/key"),
        (json!({"key": ""}), "/key"),
    ] {
        let refused = ask(&app, json!({"all": true}), more.clone()).await.ok(422);
        assert_eq!(refused["errors"][0]["pointer"], pointer, "{more}: {refused}");
    }
    app.finish().await;
}
