//! Reads that tolerate lag use a standby while its lag is within the limit.

use axum::http::Method;
use bellwire_postgres::DATABASE;
use serde_json::{Value, json};

use super::{ask, on};
use crate::support::app::{DAY, PATIENCE};
use crate::support::{Cluster, Server, TempDir, TestApp};

/// A server that reads at a standby which may lag by so much.
async fn reading(app: &TestApp, standby: &Cluster, lag_max: &str) -> (TempDir, Server) {
    let dir = TempDir::new();
    let config = dir.path().join("bellwire.toml");
    let url = format!("postgres://postgres@{}/{DATABASE}", standby.host());
    std::fs::write(&config, format!("read_database_url = \"{url}\"\nread_lag_max = \"{lag_max}\"\n")).expect("a file");
    let mut server = Server::with(app, &["--config", config.to_str().expect("ASCII")]).await;
    server.until_said("reads that may lag go to this standby").await;
    (dir, server)
}

/// Number of subscriptions in a server's list.
async fn listed(app: &TestApp, server: &Server) -> usize {
    let list = ask(app, server.address, Method::GET, "/v1/apps/shop/subscriptions", Value::Null).await.ok(200);
    list["data"].as_array().expect("a list").len()
}

#[tokio::test(flavor = "multi_thread")]
async fn lists_read_from_standby_then_primary() {
    let (mut a, mut b) = (Cluster::place(), Cluster::place());
    a.init().await;
    let app = on(&[&a]).await;
    b.follow(&a, "b").await;
    let (_dir, mut server) = reading(&app, &b, "10m").await;
    b.execute("SELECT pg_wal_replay_pause()").await;
    b.until("SELECT pg_get_wal_replay_pause_state() = 'paused'").await;
    let subscriber = &app.subscribe("mozilla", 0..1).await[0];
    assert_eq!(listed(&app, &server).await, 0, "the standby has not heard of it");
    let path = format!("/v1/apps/shop/subscriptions/{}", subscriber.id);
    ask(&app, server.address, Method::GET, &path, Value::Null).await.ok(200);
    b.crash();
    server.until_said("the standby for reading cannot be used").await;
    assert_eq!(listed(&app, &server).await, 1);
    b.start().await;
    server.until_said("reads that may lag go to this standby").await;
    b.until("SELECT count(*) = 1 FROM bellwire.subscriptions").await;
    assert_eq!(listed(&app, &server).await, 1);
    server.terminate();
    assert!(server.end(PATIENCE).await.success());
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lagging_standby_is_not_read() {
    let (mut a, mut b) = (Cluster::place(), Cluster::place());
    a.init().await;
    let app = on(&[&a]).await;
    let subscriber = &app.subscribe("mozilla", 0..1).await[0];
    let message = app.send(json!({"subscriptions": [subscriber.id]}), json!({})).await;
    b.follow(&a, "b").await;
    let (_dir, mut server) = reading(&app, &b, "10m").await;
    let day = (app.clock.now() - DAY, app.clock.now() + DAY);
    let time = [day.0, day.1].map(|at| at.format("%Y-%m-%dT00:00:00Z").to_string());
    for path in [
        "/messages",
        "/subscriptions",
        &format!("/deliveries?message={message}"),
        &format!("/messages/{message}/deliveries"),
        "/dead-letters",
        "/dead-letters/groups?by=reason",
        "/events",
        "/audit-log",
        "/engagement",
        "/lost-subscriptions",
        &format!("/metrics?since={}&until={}&measures=accepted", time[0], time[1]),
        "/metrics/reliability",
        "/export",
    ] {
        let reply = ask(&app, server.address, Method::GET, &format!("/v1/apps/shop{path}"), Value::Null).await;
        assert_eq!(reply.status, 200, "{path}: {}", reply.json);
    }
    server.terminate();
    assert!(server.end(PATIENCE).await.success());

    let (_dir, again) = reading(&app, &b, "1s").await;
    server = again;
    b.execute("SELECT pg_wal_replay_pause()").await;
    app.subscribe("mozilla", 1..2).await;
    server.until_said("lags too far").await;
    assert_eq!(listed(&app, &server).await, 2);
    b.execute("SELECT pg_wal_replay_resume()").await;
    server.until_said("reads that may lag go to this standby").await;
    server.terminate();
    assert!(server.end(PATIENCE).await.success());
    app.worker(app.clock.clone()).await.run_until_idle().await;
    app.finish().await;
}
