//! Bellwire continues when its Postgres moves to another host, and warns when Postgres confirms no commits.

mod haproxy;
mod pgbouncer;
mod reads;

use std::net::SocketAddr;
use std::time::Duration;

use axum::body::Bytes;
use axum::http::{Method, Request};
use bellwire_core::clock::Clock;
use bellwire_postgres::DATABASE;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::{Value, json};

use crate::support::app::{PATIENCE, Reply};
use crate::support::database::reconnect;
use crate::support::simulator_rules::{held, hold_after, release, until_report};
use crate::support::{Cluster, Server, Setup, TestApp, TestDatabase, seed};

/// Test app on the first of these clusters; its processes have the addresses of all of them. Its own engine has stopped.
async fn on(clusters: &[&Cluster]) -> TestApp {
    let hosts: Vec<_> = clusters.iter().map(|cluster| cluster.host()).collect();
    let url = format!("postgres://postgres@{}/{DATABASE}?target_session_attrs=read-write", hosts.join(","));
    let database = Some(TestDatabase::at(clusters[0].options(DATABASE), url).await);
    let app = TestApp::with(Setup { database, clock: Some(Clock::system()), ..Setup::default() }).await;
    app.dispatcher.stop(Duration::ZERO).await;
    app
}

/// Leads the test itself to another host.
async fn lead_to(app: &mut TestApp, cluster: &Cluster) {
    app.database.lead_to(cluster.options(DATABASE));
    reconnect(&app.pool).await;
}

/// A request to a process with the app's key.
async fn ask(app: &TestApp, to: SocketAddr, method: Method, path: &str, body: Value) -> Reply {
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let request = Request::builder()
        .method(method)
        .uri(format!("http://{to}{path}"))
        .header("authorization", format!("Bearer {}", app.key))
        .header("content-type", "application/json");
    let body = if body.is_null() { Full::default() } else { Full::from(body.to_string()) };
    let response = client.request(request.body(body).expect("a request")).await.expect("an answer");
    let status = response.status().as_u16();
    let octets = response.into_body().collect().await.expect("a body").to_bytes();
    Reply { status, json: serde_json::from_slice(&octets).unwrap_or(Value::Null) }
}

/// Sends a message by way of a process.
async fn send(app: &TestApp, server: &Server, subscription: &str) -> Reply {
    let body = json!({"to": {"subscriptions": [subscription]}, "content": {"title": "x"}});
    ask(app, server.address, Method::POST, "/v1/apps/shop/messages", body).await
}

const GONE: &str = "no host of the database takes writes";
const FOUND: &str = "this host of the database takes writes";

#[tokio::test(flavor = "multi_thread")]
async fn promoted_standby_continues_the_campaign() {
    const N: u32 = 2_000;
    let (mut a, mut b) = (Cluster::place(), Cluster::place());
    a.init().await;
    let mut app = on(&[&a, &b]).await;
    seed(&app, "fcm", 0..N).await;
    b.follow(&a, "b").await;
    a.wait_for_standbys("b").await;
    a.until("SELECT EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')").await;
    let rules = hold_after(&app, 400);
    let mut server = Server::start(&app).await;
    let message = app.send(json!({"all": true}), json!({})).await;
    until_report(&app, |report| report.accepted >= 400 && held(report) >= 30).await;
    a.crash();
    server.until_said(GONE).await;
    release(&app, rules);
    b.promote();
    server.until_said(FOUND).await;
    let report = until_report(&app, |report| report.deliveries >= u64::from(N)).await;
    assert_eq!((report.deliveries, report.without_id), (u64::from(N), 0));
    server.terminate();
    assert!(server.end(PATIENCE).await.success());
    lead_to(&mut app, &b).await;
    app.worker(app.clock.clone()).await.run_until_idle().await;
    assert_eq!(app.counts(&message).await["accepted"], i64::from(N));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn returning_primary_is_not_written_to() {
    let (mut a, mut b) = (Cluster::place(), Cluster::place());
    a.init().await;
    let mut app = on(&[&a, &b]).await;
    b.follow(&a, "b").await;
    let mut server = Server::with(&app, &[]).await;
    a.crash();
    server.until_said(GONE).await;
    b.promote();
    server.until_said(FOUND).await;
    a.start().await;
    let said = server.until_said("more than one host of the database takes writes").await;
    assert!(said.contains("timeline 1") && said.contains("timeline 2"), "{said}");
    lead_to(&mut app, &b).await;
    let subscriber = &app.subscribe("mozilla", 0..1).await[0];
    send(&app, &server, &subscriber.id).await.ok(202);
    until_report(&app, |report| report.accepted == 1).await;
    b.until("SELECT count(*) = 0 FROM bellwire.queue").await;
    b.until("SELECT max(beat_at) > clock_timestamp() - interval '2 seconds' FROM bellwire.workers").await;
    a.until("SELECT NOT EXISTS (SELECT FROM bellwire.workers WHERE beat_at > pg_postmaster_start_time())").await;

    a.crash();
    b.execute("CHECKPOINT").await; // what is rewound looks there for the timeline
    a.rewind(&b).await;
    a.until("SELECT pg_is_in_recovery() AND EXISTS (SELECT FROM bellwire.messages)").await;
    b.crash();
    server.until_said(GONE).await;
    a.promote();
    server.until_said(FOUND).await;
    lead_to(&mut app, &a).await;
    send(&app, &server, &subscriber.id).await.ok(202);
    until_report(&app, |report| report.accepted == 2).await;
    server.terminate();
    assert!(server.end(PATIENCE).await.success());
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unconfirmed_commit_is_reported() {
    let mut a = Cluster::place();
    a.init().await;
    let app = on(&[&a]).await;
    let subscriber = &app.subscribe("mozilla", 0..1).await[0];
    a.wait_for_standbys("nobody").await;
    let mut server = Server::launch(&app, &[]);
    let said = server.until_said("Postgres does not confirm commits, waiting").await;
    assert!(said.contains("nobody"), "{said}");
    a.wait_for_standbys("").await;
    server.until_started().await;

    a.wait_for_standbys("ANY 1 (nobody, noone)").await;
    let reply = send(&app, &server, &subscriber.id).await;
    assert_eq!((reply.status, &reply.json["code"]), (503, &json!("commits_unconfirmed")));
    assert_eq!(send(&app, &server, &subscriber.id).await.status, 503, "at once");
    ask(&app, server.address, Method::GET, "/v1/apps/shop/topics", Value::Null).await.ok(200);
    let said = server.until_said("Postgres does not confirm commits: it waits").await;
    assert!(said.contains("ANY 1 (nobody, noone)"), "{said}");
    a.wait_for_standbys("").await;
    server.until_said("Postgres confirms commits again").await;
    send(&app, &server, &subscriber.id).await.ok(202);
    until_report(&app, |report| report.accepted >= 1).await;
    server.terminate();
    assert!(server.end(PATIENCE).await.success());
    app.worker(app.clock.clone()).await.run_until_idle().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_stay_known_after_postgres_restart() {
    // By these names others see that it is there, and end what is left of it when it falls silent. The heartbeat has one of them.
    const KNOWN: &str =
        "SELECT count(*) > 1 FROM bellwire.workers w JOIN pg_stat_activity a ON a.application_name = w.session";
    let mut a = Cluster::place();
    a.init().await;
    let app = on(&[&a]).await;
    let mut server = Server::start(&app).await;
    a.until(KNOWN).await;
    a.crash();
    server.until_said(GONE).await;
    a.start().await;
    server.until_said(FOUND).await;
    a.until(KNOWN).await;
    server.terminate();
    assert!(server.end(PATIENCE).await.success());
    reconnect(&app.pool).await;
    app.finish().await;
}
