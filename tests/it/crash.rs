//! After a crash of any process no delivery is lost, and repeats are recognisable.

use std::sync::Arc;
use std::time::Duration;

use bellwire_postgres::{Durability, Embedded, Options};
use bellwire_store::queue::claims::LEASE;
use serde_json::{Value, json};
use tokio::time::timeout;

use crate::support::app::{PATIENCE, scalar};
use crate::support::database::reconnect;
use crate::support::engine::{expire_leases, without_engine};
use crate::support::simulator_rules::{held, hold_after, release, until_report};
use crate::support::{Server, Setup, TempDir, TestApp, TestDatabase, counts, seed};

/// Deliveries leased to a dead process: open batches, and rows that were in flight when their batch closed.
const LEASED: &str = "SELECT coalesce((SELECT sum(cardinality(recipients)) FROM batches), 0)::bigint
                           + (SELECT count(*) FROM queue WHERE lease IS NOT NULL)";

#[tokio::test(flavor = "multi_thread")]
async fn killed_server_repeats_at_most_open_batches() {
    const N: u32 = 2_000;
    let app = without_engine().await;
    seed(&app, "fcm", 0..N).await;
    let rules = hold_after(&app, 400);
    let server = Server::start(&app).await;
    let message = app.send(json!({"all": true}), json!({})).await;
    until_report(&app, |report| report.accepted >= 400 && held(report) >= 30).await;
    server.kill().await;
    let leased = u64::try_from(scalar(&app.pool, LEASED).await).expect("a count");
    assert!((30..u64::from(N) / 2).contains(&leased), "{leased} were open in the middle of it");
    release(&app, rules);

    let server = Server::start(&app).await;
    expire_leases(&app.pool).await;
    let report = until_report(&app, |report| report.deliveries >= u64::from(N)).await;
    assert_eq!((report.deliveries, report.without_id), (u64::from(N), 0), "a repeat carries the id of the first");
    server.terminate();
    assert!(server.end(PATIENCE).await.success());
    app.worker(app.clock.clone()).await.run_until_idle().await;
    assert_eq!(app.counts(&message).await["accepted"], i64::from(N));
    let report = app.simulator.report();
    assert!(report.repeats <= leased, "{} repeats of {leased} that were open", report.repeats);
    app.finish().await;
}

async fn postgres_of_its_own(dir: &TempDir) -> Embedded {
    let options = Options {
        data_dir: dir.path().join("data"),
        search_path: std::env::var_os("PATH"),
        durability: Durability::Fast,
        ..Options::default()
    };
    tokio::task::spawn_blocking(move || Embedded::start(&options)).await.unwrap().expect("it starts")
}

/// Server in the middle of a campaign of 300, with its own Postgres: some responses have arrived, 31 requests are held.
async fn in_the_middle(dir: &TempDir) -> (Arc<Embedded>, TestApp, String, [u64; 2]) {
    let postgres = postgres_of_its_own(dir).await;
    let database = TestDatabase::of(&postgres).await;
    let dispatch = bellwire_dispatch::DispatchConfig { lane_limit_max: 32, ..Default::default() };
    let app = TestApp::with(Setup { database: Some(database), dispatch, ..Setup::default() }).await;
    seed(&app, "mozilla", 0..300).await;
    let rules = hold_after(&app, 60);
    let message = app.send(json!({"all": true}), json!({})).await;
    until_report(&app, |report| report.accepted == 60 && held(report) == 31).await;
    (Arc::new(postgres), app, message, rules)
}

#[tokio::test(flavor = "multi_thread")]
async fn batch_posts_start_after_a_durable_claim() {
    let dir = TempDir::new();
    let postgres = postgres_of_its_own(&dir).await;
    let app = TestApp::with(Setup { database: Some(TestDatabase::of(&postgres).await), ..Setup::default() }).await;
    // No result without a waiting client is written.
    for set in ["ALTER SYSTEM SET wal_writer_delay = '10s'", "SELECT pg_reload_conf()"] {
        sqlx::raw_sql(set).execute(&app.pool).await.expect("it is ours");
    }
    seed(&app, "fcm", 0..300).await;
    let rules = hold_after(&app, 1);
    let message = app.send(json!({"all": true}), json!({})).await;
    until_report(&app, |report| held(report) > 0).await;
    let postgres = Arc::new(postgres);
    blocking(&postgres, |postgres| postgres.kill()).await;
    blocking(&postgres, |postgres| postgres.restart().expect("it starts again")).await;
    reconnect(&app.pool).await;
    let sent = i64::try_from(app.simulator.report().requests).expect("a count");
    let targeted = app.counts(&message).await.get("targeted").copied().unwrap_or(0);
    assert!(targeted >= sent, "{sent} were sent, {targeted} are known");
    release(&app, rules);
    recover(&app, &message).await;
    app.finish().await;
}

/// Delivers the remaining rows, including those under leases of other workers.
async fn recover(app: &TestApp, message: &str) {
    reconnect(&app.pool).await;
    let idle = async { while app.dispatcher.run_until_idle().await.is_err() {} };
    timeout(PATIENCE, idle).await.expect("the engine recovers");
    app.advance(LEASE + Duration::from_secs(1)).await;
    let counts_now = app.counts(message).await;
    assert_eq!(counts_now, counts(&[("targeted", 300), ("accepted", 300), ("awaiting_ack", 300)]));
    assert_eq!(app.message(message).await["state"], Value::from("done"));
    assert_eq!(app.simulator.report().deliveries, 300);
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_restart_costs_no_delivery() {
    let dir = TempDir::new();
    let (postgres, app, message, rules) = in_the_middle(&dir).await;
    blocking(&postgres, |postgres| postgres.stop()).await;
    // The answers come while there is no Postgres to write them to.
    release(&app, rules);
    until_report(&app, |report| report.accepted >= 91).await;
    blocking(&postgres, |postgres| postgres.restart().expect("it starts again")).await;
    recover(&app, &message).await;
    assert_eq!(app.simulator.report().repeats, 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn postgres_crash_costs_no_delivery() {
    let dir = TempDir::new();
    let (postgres, app, message, rules) = in_the_middle(&dir).await;
    blocking(&postgres, |postgres| postgres.kill()).await;
    release(&app, rules);
    until_report(&app, |report| report.accepted >= 91).await;
    blocking(&postgres, |postgres| assert!(postgres.revive().expect("it comes back"))).await;
    recover(&app, &message).await;
    app.finish().await;
}

async fn blocking(postgres: &Arc<Embedded>, work: impl FnOnce(&Embedded) + Send + 'static) {
    let postgres = postgres.clone();
    tokio::task::spawn_blocking(move || work(&postgres)).await.expect("no panic");
}
