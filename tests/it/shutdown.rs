//! A clean stop releases unfinished work, and the next engine continues with it.

use std::time::Duration;

use bellwire_dispatch::DispatchConfig;
use bellwire_simulator::gateways::{Rule, RuleAction};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::app::{PATIENCE, scalar};
use crate::support::engine::without_engine;
use crate::support::simulator_rules::{held, hold_after, release, until_report};
use crate::support::{Server, Setup, TestApp, counts, seed, seed_together};

const LEASED: &str = "SELECT (SELECT count(*) FROM batches) + (SELECT count(*) FROM queue WHERE lease IS NOT NULL)";

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_finishes_attempts_and_releases_the_rest() {
    let dispatch = DispatchConfig { lane_limit_max: 32, batch_max: 50, ..DispatchConfig::default() };
    let app = TestApp::with(Setup { dispatch, ..Setup::default() }).await;
    let hang = Rule { endpoints: Some([0, 1, 2].into()), ..Rule::always(RuleAction::Hang) };
    let hang = app.simulator.add_rule(hang).unwrap();
    let hold = app.simulator.add_rule(Rule::always(RuleAction::Hold)).unwrap();
    seed_together(&app, "fcm", 0..300).await;
    let message = app.send(json!({"all": true}), json!({})).await;
    until_report(&app, |report| held(report) == 28 && report.unanswered == 3).await;

    // The stop has begun by the time that the held requests are let go.
    let stop = app.dispatcher.stop(Duration::from_secs(2));
    tokio::join!(biased; stop, async { assert!(app.simulator.remove_rule(hold)) });
    assert_eq!(scalar(&app.pool, LEASED).await, 0, "all leases are given back");
    let now = app.counts(&message).await;
    assert_eq!((now["accepted"], now["queued"]), (28, now["targeted"] - 28), "{now:?}");
    assert!(now["targeted"] <= 100, "only two batches fitted before the stop: {now:?}");
    assert_eq!(app.simulator.report().requests, 31, "nothing was begun after the stop");

    app.simulator.remove_rule(hang);
    app.worker(app.clock.clone()).await.run_until_idle().await;
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 300), ("accepted", 300), ("awaiting_ack", 300)]));
    let report = app.simulator.report();
    assert_eq!((report.repeats, report.duplicates), (3, 0), "only what hung was tried again");
    let counted = "SELECT count(*) FROM attempts WHERE attempt > 0 OR ending <> 1";
    assert_eq!(scalar(&app.pool, counted).await, 0, "what hung was not counted as an attempt");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_mid_campaign_repeats_nothing() {
    const N: u32 = 1_000;
    let app = without_engine().await;
    seed(&app, "wns", 0..N).await;
    let rules = hold_after(&app, 300);
    let mut server = Server::start(&app).await;
    let message = app.send(json!({"all": true}), json!({})).await;
    until_report(&app, |report| report.accepted >= 300 && held(report) >= 30).await;
    server.terminate();
    server.until_said("stopping").await;
    release(&app, rules);
    assert!(server.end(Duration::from_secs(20)).await.success());
    assert_eq!(scalar(&app.pool, LEASED).await, 0, "all leases are given back");
    let done = app.simulator.report().accepted;
    assert!(done < u64::from(N) / 2, "it went on delivering: {done}");
    assert_eq!(app.counts(&message).await["accepted"], i64::try_from(done).unwrap());

    let server = Server::start(&app).await;
    until_report(&app, |report| report.accepted >= u64::from(N)).await;
    server.terminate();
    assert!(server.end(Duration::from_secs(20)).await.success());
    // A cursor without recipients may remain.
    app.worker(app.clock.clone()).await.run_until_idle().await;
    assert_eq!(app.message(&message).await["state"], "done");
    let report = app.simulator.report();
    assert_eq!(report.deliveries, u64::from(N));
    assert_eq!(report.requests, u64::from(N));
    assert_eq!(report.repeats, 0);
    app.finish().await;
}

/// Reads a connection to its end.
async fn rest(stream: &mut TcpStream) -> String {
    let mut text = String::new();
    timeout(PATIENCE, stream.read_to_string(&mut text)).await.expect("it is closed").expect("it is closed in order");
    text
}

#[tokio::test(flavor = "multi_thread")]
async fn request_in_progress_completes_at_shutdown() {
    let app = without_engine().await;
    let to = app.subscribe("wns", 0..1).await;
    let mut server = Server::with(&app, &["--shutdown-deadline", "60s"]).await;
    let connect = async || TcpStream::connect(server.address).await.expect("it listens");
    let (mut unused, mut idle, mut half_head, mut half_body) =
        (connect().await, connect().await, connect().await, connect().await);
    idle.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
    let mut answer = [0; 16];
    idle.read_exact(&mut answer).await.unwrap();
    let body =
        json!({"to": {"subscriptions": [to[0].id]}, "content": {"title": "Late"}, "tier": "transactional"}).to_string();
    let head = format!(
        "POST /v1/apps/shop/messages HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\nExpect: 100-continue\r\n\r\n",
        app.key,
        body.len()
    );
    half_body.write_all(head.as_bytes()).await.unwrap();
    let mut go_on = [0; 25];
    half_body.read_exact(&mut go_on).await.unwrap(); // the body is being read
    half_body.write_all(&body.as_bytes()[..10]).await.unwrap();
    half_head.write_all(&head.as_bytes()[..40]).await.unwrap();
    // A later connection is answered: what was sent before has arrived.
    let mut probe = connect().await;
    probe.write_all(b"GET /healthz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await.unwrap();
    assert!(rest(&mut probe).await.starts_with("HTTP/1.1 200"));

    server.terminate();
    server.until_said("stopping").await;
    assert!(rest(&mut idle).await.ends_with("}"), "what sits in keep-alive is closed at once");
    assert_eq!(rest(&mut unused).await, "");
    while TcpStream::connect(server.address).await.is_ok() {} // new connections are refused soon afterwards

    half_body.write_all(&body.as_bytes()[10..]).await.unwrap();
    let answered = rest(&mut half_body).await;
    assert!(answered.starts_with("HTTP/1.1 202"), "{answered}");
    let message =
        answered.split("\"id\":\"").nth(1).and_then(|rest| rest.split('"').next()).expect("its id").to_owned();
    until_report(&app, |report| report.accepted == 1).await;
    let rest_of_head = head[40..].replace("Expect: 100-continue\r\n", "") + &body;
    half_head.write_all(rest_of_head.as_bytes()).await.unwrap();
    assert!(rest(&mut half_head).await.starts_with("HTTP/1.1 202"));
    assert!(server.end(PATIENCE).await.success());
    app.worker(app.clock.clone()).await.run_until_idle().await;
    assert_eq!(app.counts(&message).await["accepted"], 1);
    assert_eq!(app.simulator.report().deliveries, 2);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn closed_terminal_stops_the_server_cleanly() {
    let app = without_engine().await;
    let mut server = Server::at_a_terminal(&app).await;
    server.hang_up();
    server.until_said("stopping").await;
    assert!(server.end(PATIENCE).await.success());
    app.finish().await;
}
