//! Event stream: events reach listeners at once, in order, without gaps, limited to their permissions, and with bounded memory.

mod listeners;

use std::time::Duration;

use axum::http::Method;
use bellwire::testkit::live::LiveConfig;
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::app::PATIENCE;
use crate::support::engine::{advance_both, without_engine};
use crate::support::event_stream::{ReceivedEvent, SERVER_STREAM, SHORT_INTERVALS, listen, open_stream, raise_alert};
use crate::support::{Server, Setup, TestApp, seed};

const SHOP: &str = "/v1/apps/shop/events/stream";

async fn start() -> TestApp {
    TestApp::with(Setup { live: SHORT_INTERVALS, ..Setup::default() }).await
}

async fn write(app: &TestApp, n: u32, kind: &str) {
    let rows = format!(
        "INSERT INTO stream_events (at, app, kind, data)
         SELECT now(), (SELECT id FROM apps WHERE slug = 'shop'), '{kind}', jsonb_build_object('n', n) FROM generate_series(1, {n}) n"
    );
    sqlx::query(AssertSqlSafe(rows)).execute(&app.pool).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn listener_gets_its_apps_selected_events() {
    let app = start().await;
    app.subscribe("fcm", 0..1).await;
    let lane = app.lane("fcm").await;
    let mut operator = listen(&app, SERVER_STREAM).await;
    let mut shop = open_stream(&app.router, SHOP, &app.key, None).await.unwrap();
    let mut lanes = listen(&app, &format!("{SERVER_STREAM}?kinds=lane,alert.resolved")).await;
    raise_alert(&app, "a").await;
    let hold = json!({"seconds": 60, "reason": "for operators only"});
    app.operate(Method::POST, &format!("/v1/gateways/{lane}/hold"), hold).await.ok(200);
    let raised = operator.hear().await;
    assert_eq!((&*raised.name, &raised.data["app"]), ("alert.raised", &Value::Null));
    assert_eq!(raised.data["data"]["detail"], "something is late");
    for ear in [&mut operator, &mut shop, &mut lanes] {
        let held = ear.hear().await;
        assert_eq!((&*held.name, &held.data["data"]["lane"]), ("lane.held", &json!(lane)), "{held:?}");
        assert_eq!(held.data["data"]["reason"], "operator");
        assert!(held.id.is_some() && !held.data.to_string().contains("for operators only"), "{held:?}");
    }
    app.operate(Method::POST, &format!("/v1/gateways/{lane}/release"), Value::Null).await.ok(200);
    app.operate(Method::POST, &format!("/v1/gateways/{lane}/open"), json!({"seconds": 60})).await.ok(200);
    assert_eq!([&*shop.hear().await.name, &*shop.hear().await.name], ["lane.released", "lane.breaker"]);
    let alert = app.operate(Method::GET, "/v1/alerts", Value::Null).await.ok(200)["data"][0]["id"].clone();
    let resolve = format!("/v1/alerts/{}/resolve", alert.as_str().unwrap());
    app.operate(Method::POST, &resolve, Value::Null).await.ok(200);
    assert_eq!(lanes.until("alert.resolved").await.data["data"]["alert"], alert);
    for (query, status) in [("?kinds=nonsense", 400), ("?kinds=", 400), ("?kind=lane", 400)] {
        let (refused, problem) =
            open_stream(&app.router, &format!("{SHOP}{query}"), &app.key, None).await.err().unwrap();
        assert_eq!(refused, status, "{problem}");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_events_resume_despite_commit_order() {
    let app = start().await;
    let insert =
        "INSERT INTO stream_events (at, kind, data) VALUES (now(), 'alert.raised', jsonb_build_object('n', $1::int))";
    let mut ear = listen(&app, SERVER_STREAM).await;
    let mut slow = app.pool.begin().await.unwrap();
    sqlx::query(insert).bind(1).execute(&mut *slow).await.unwrap();
    sqlx::query(insert).bind(2).execute(&app.pool).await.unwrap();
    slow.commit().await.unwrap();
    let [first, second] = [ear.hear().await, ear.hear().await];
    assert_eq!([&first.data["data"]["n"], &second.data["data"]["n"]], [&json!(1), &json!(2)]);
    sqlx::query(insert).bind(3).execute(&app.pool).await.unwrap();
    assert_eq!(ear.hear().await.data["data"]["n"], 3);
    drop(ear);
    sqlx::query(insert).bind(4).execute(&app.pool).await.unwrap();
    let mut again = open_stream(&app.router, SERVER_STREAM, &app.operator, first.id.as_deref()).await.unwrap();
    for n in [2, 3, 4] {
        assert_eq!(again.hear().await.data["data"]["n"], n);
    }
    // What is not kept any more leaves a gap that is told.
    let aged = "UPDATE stream_events
                SET at = $1 - CASE WHEN data ->> 'n' IN ('1', '2') THEN interval '25 hours' ELSE interval '0' END";
    sqlx::query(aged).bind(app.clock.now()).execute(&app.pool).await.unwrap();
    app.keep_house().await;
    let mut late = open_stream(&app.router, SERVER_STREAM, &app.operator, first.id.as_deref()).await.unwrap();
    assert_eq!(late.hear().await.name, "gap");
    assert_eq!(late.hear().await.data["data"]["n"], 3);
    let mut astray = open_stream(&app.router, SERVER_STREAM, &app.operator, Some("999999999-1")).await.unwrap();
    assert_eq!(astray.hear().await.name, "gap");
    let (status, problem) =
        open_stream(&app.router, SERVER_STREAM, &app.operator, Some("nonsense")).await.err().unwrap();
    assert_eq!((status, &problem["errors"][0]["header"]), (400, &json!("Last-Event-ID")));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn resumed_listener_gets_all_selected_events() {
    let app = start().await;
    app.subscribe("fcm", 0..1).await;
    let mut ear = listen(&app, SERVER_STREAM).await;
    raise_alert(&app, "a").await;
    let first = ear.hear().await.id;
    drop(ear);
    write(&app, 2_500, "alert.raised").await;
    let hold = json!({"seconds": 60});
    app.operate(Method::POST, &format!("/v1/gateways/{}/hold", app.lane("fcm").await), hold).await.ok(200);
    for path in [SERVER_STREAM, SHOP] {
        let mut lanes =
            open_stream(&app.router, &format!("{path}?kinds=lane"), &app.operator, first.as_deref()).await.unwrap();
        assert_eq!(lanes.hear().await.name, "lane.held", "of {path}");
    }
    let mut alerts = open_stream(&app.router, SHOP, &app.operator, first.as_deref()).await.unwrap();
    for n in 1..=2_500 {
        assert_eq!(alerts.hear().await.data["data"]["n"], n, "all that was missed comes through one stream");
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_carries_resume_positions() {
    let app = start().await;
    let mut ear = listen(&app, SERVER_STREAM).await;
    raise_alert(&app, "a").await;
    ear.hear().await;
    let hello = ear.hello.clone();
    assert!(hello.as_ref().is_some_and(|id| id.ends_with("-0")), "{hello:?}");
    let mut again = open_stream(&app.router, SERVER_STREAM, &app.operator, hello.as_deref()).await.unwrap();
    assert_eq!(again.hear().await.data["data"]["subject"], "a", "without a gap");
    write(&app, 500, "alert.raised").await;
    write(&app, 500, "alert.raised").await;
    write(&app, 500, "alert.raised").await;
    let mut quick = open_stream(&app.router, SERVER_STREAM, &app.operator, hello.as_deref()).await.unwrap();
    let mut heard = 0;
    while heard < 1_501 {
        quick.hear().await;
        heard += 1;
    }
    let end = loop {
        let heard = ear.hear().await; // it has heard nothing meanwhile
        if heard.name == "end" {
            break heard;
        }
    };
    assert_eq!(end.data["reason"], "lagged");
    let mut late = open_stream(&app.router, SERVER_STREAM, &app.operator, end.id.as_deref()).await.unwrap();
    assert_eq!(late.hear().await.name, "alert.raised", "{end:?}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn position_of_another_cluster_is_a_gap() {
    let app = start().await;
    let restored = "INSERT INTO stream_events (xid, at, kind, data) VALUES ('999999999', now(), 'alert.raised', '{}')
                    RETURNING xid::text || '-' || seq";
    let restored: String = sqlx::query_scalar(restored).fetch_one(&app.pool).await.unwrap();
    let mut ear = open_stream(&app.router, SERVER_STREAM, &app.operator, Some(&restored)).await.unwrap();
    assert_eq!(ear.hear().await.name, "gap");
    raise_alert(&app, "a").await;
    assert_eq!(ear.hear().await.data["data"]["subject"], "a");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn stored_events_arrive_while_outcomes_fail() {
    let app = start().await;
    let mut ear = listen(&app, SERVER_STREAM).await;
    sqlx::query("ALTER TABLE rollup_notes RENAME TO away").execute(&app.pool).await.unwrap();
    for subject in ["a", "b"] {
        raise_alert(&app, subject).await;
        assert_eq!(ear.hear().await.data["data"]["subject"], subject);
    }
    sqlx::query("ALTER TABLE away RENAME TO rollup_notes").execute(&app.pool).await.unwrap();
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn event_backlog_is_read_without_pause() {
    let live = LiveConfig { every: Duration::from_secs(3), ..SHORT_INTERVALS };
    let app = TestApp::with(Setup { live, ..Setup::default() }).await;
    let mut ear = listen(&app, SERVER_STREAM).await;
    write(&app, 1_000, "alert.raised").await;
    ear.hear().await;
    let began = tokio::time::Instant::now();
    for n in 2..=1_000 {
        assert_eq!(ear.hear().await.data["data"]["n"], n);
    }
    assert!(began.elapsed() < live.every, "{:?}", began.elapsed());
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_apps_campaigns_hide_how_anothers_stand() {
    let app = start().await;
    seed(&app, "fcm", 0..150).await;
    let other = json!({"slug": "other", "name": "Other", "subject": "mailto:ops@example.com"});
    app.operate(Method::POST, "/v1/apps", other).await.ok(201);
    app.operate(Method::POST, "/v1/apps/shop/flow/pause", Value::Null).await.ok(200);
    let message = app.send(json!({"all": true}), json!({})).await;
    let many = "WITH other AS (SELECT id FROM apps WHERE slug = 'other'),
                     sent AS (
                       INSERT INTO messages
                       SELECT (jsonb_populate_record(m, jsonb_build_object('app', (SELECT id FROM other), 'id',
                         'ffffffff-ffff-7fff-8fff-' || lpad(n::text, 12, '0')))).*
                       FROM messages m, generate_series(1, 1100) n RETURNING id, app)
                INSERT INTO campaigns_in_motion SELECT id, app FROM sent";
    sqlx::query(many).execute(&app.pool).await.unwrap();
    let mut ear = open_stream(&app.router, SHOP, &app.key, None).await.unwrap();
    assert_eq!(ear.until("message.progress").await.data["data"]["message"], json!(message));
    drop(ear);
    sqlx::query("DELETE FROM messages WHERE app <> (SELECT id FROM apps WHERE slug = 'shop')")
        .execute(&app.pool)
        .await
        .unwrap();
    app.operate(Method::POST, "/v1/apps/shop/flow/resume", Value::Null).await.ok(200);
    app.run_until_idle().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn campaign_progress_is_streamed_from_all_replicas() {
    let app = start().await;
    seed(&app, "fcm", 0..150).await;
    let mut ear = open_stream(&app.router, SHOP, &app.key, None).await.unwrap();
    app.operate(Method::POST, "/v1/apps/shop/flow/pause", Value::Null).await.ok(200); // it must not be over before it is paused
    let message = app.send(json!({"all": true}), json!({})).await;
    let progress = ear.until("message.progress").await;
    assert_eq!((&progress.data["data"]["message"], &progress.id), (&json!(message), &None));
    // A worker that has not heard of the resume parks what it holds, until the next sweep.
    for order in ["pause", "resume"] {
        app.steer(&message, order).await;
        app.run_until_idle().await;
    }
    app.operate(Method::POST, "/v1/apps/shop/flow/resume", Value::Null).await.ok(200);
    let other = app.worker(app.clock.clone()).await;
    for _ in 0..10 {
        advance_both(&app, &other, Duration::from_secs(1)).await; // what was resumed comes spread out
    }
    // How it goes may be told before what was stored earlier, which waits for transactions that began before it.
    let (mut accepted, mut orders, mut progress) = (0, Vec::new(), Value::Null);
    while orders.len() < 2 || progress["accepted"] != 150 {
        let ReceivedEvent { name, data, .. } = ear.hear().await;
        match &*name {
            "outcomes" => accepted += data["data"]["accepted"].as_i64().unwrap(),
            "message.paused" | "message.resumed" => orders.push((name, data["data"]["message"].clone())),
            "message.progress" => progress = data["data"].clone(),
            _ => {}
        }
    }
    assert_eq!(orders, ["message.paused", "message.resumed"].map(|name| (name.to_owned(), json!(message))));
    assert_eq!(progress["waiting"], 0);
    // A later listener gets the state of campaigns before new events.
    let mut late = open_stream(&app.router, SHOP, &app.key, None).await.unwrap();
    assert_eq!(late.hear().await.data["data"]["accepted"], 150);
    app.sweep().await;
    let done = late.until("message.done").await;
    assert_eq!((&done.data["data"]["state"], &done.data["data"]["accepted"]), (&json!("done"), &json!(150)));
    while accepted < 150 {
        accepted += ear.until("outcomes").await.data["data"]["accepted"].as_i64().unwrap();
    }
    assert_eq!(accepted, 150);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_listener_is_told_and_disconnected() {
    let app = start().await;
    let mut slow = listen(&app, SERVER_STREAM).await;
    let mut quick = listen(&app, SERVER_STREAM).await;
    write(&app, 1, "alert.raised").await;
    let first = slow.hear().await;
    quick.hear().await;
    for _ in 0..3 {
        write(&app, 500, "alert.raised").await;
        for n in 1..=500 {
            assert_eq!(quick.hear().await.data["data"]["n"], n, "whoever keeps up hears all of them");
        }
    }
    let end = slow.hear().await;
    assert_eq!((&*end.name, &end.data["reason"]), ("end", &json!("lagged")));
    assert!(slow.next().await.is_none(), "it is its last word");
    let mut again = open_stream(&app.router, SERVER_STREAM, &app.operator, first.id.as_deref()).await.unwrap();
    for n in (0..3).flat_map(|_| 1..=500) {
        assert_eq!(again.hear().await.data["data"]["n"], n);
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_listener_gets_heartbeats() {
    let live = LiveConfig { heartbeat: Duration::from_millis(20), ..SHORT_INTERVALS };
    let app = TestApp::with(Setup { live, ..Setup::default() }).await;
    let mut ear = listen(&app, SERVER_STREAM).await;
    while ear.comments < 3 {
        let octets = timeout(PATIENCE, ear.body.next()).await.unwrap().unwrap().unwrap();
        ear.comments += usize::from(octets.starts_with(b":"));
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_notifies_listeners_without_waiting() {
    let app = without_engine().await;
    let mut server = Server::with(&app, &["--shutdown-deadline", "60s"]).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    let request = format!("GET {SERVER_STREAM} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\r\n", app.operator);
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut heard = String::new();
    let mut octets = [0; 4_096];
    while !heard.contains("listening") {
        let n = timeout(PATIENCE, stream.read(&mut octets)).await.unwrap().unwrap();
        assert!(n > 0, "{heard}");
        heard += std::str::from_utf8(&octets[..n]).unwrap();
    }
    server.terminate();
    server.until_said("stopping").await;
    timeout(Duration::from_secs(10), stream.read_to_string(&mut heard)).await.expect("it ends at once").unwrap();
    assert!(heard.contains("event: end") && heard.contains("stopping"), "{heard}");
    assert!(server.end(Duration::from_secs(20)).await.success(), "long before the deadline");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn streamed_events_are_kept_one_day() {
    let app = start().await;
    raise_alert(&app, "a").await;
    app.clock.advance(Duration::from_secs(24 * 3_600 - 1));
    app.keep_house().await;
    let told = "SELECT count(*) FROM stream_events";
    assert_eq!(crate::support::app::scalar(&app.pool, told).await, 1);
    app.clock.advance(Duration::from_secs(2));
    app.keep_house().await;
    assert_eq!(crate::support::app::scalar(&app.pool, told).await, 0);
    app.finish().await;
}
