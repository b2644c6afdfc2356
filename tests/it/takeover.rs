//! A dead or frozen worker is detected within seconds, by counting heartbeats and without a clock. Other workers take over its deliveries.

use std::time::Duration;

use bellwire_core::clock::Clock;
use bellwire_core::delivery::Tier;
use bellwire_core::id::LaneId;
use bellwire_dispatch::DispatchConfig;
use bellwire_simulator::gateways::{Rule, RuleAction};
use bellwire_store::operations::takeover::{TakenOver, end_silent};
use bellwire_store::queue::claims::{self, DueSpan, LEASE, TakeBatchResult};
use serde_json::json;
use tokio::time::{Instant, timeout};
use uuid::Uuid;

use crate::support::app::{PATIENCE, scalar};
use crate::support::engine::{without_engine, without_engine_on};
use crate::support::server::any_says;
use crate::support::simulator_rules::{held, hold_after, release, until_report};
use crate::support::{FaultProxy, START, Server, Setup, TestApp, TestDatabase, seed};

/// Log message of a worker that ended another one.
const MISSED: &str = "worker missed its heartbeat";
/// Log message of the ended worker.
const BACK: &str = "it begins anew";
/// Looks after which a worker is missed, and some more.
const LOOKS: i64 = 6;
/// Waits until that is so in the test's database.
async fn until_so(app: &TestApp, sql: &'static str) {
    let so = async { while scalar(&app.pool, sql).await == 0 {} };
    timeout(PATIENCE, so).await.unwrap_or_else(|_| panic!("it never was so: {sql}"));
}

/// Server in the middle of a campaign to `n` and of `codes` codes, which holds all of them; and the rules that hold the requests.
async fn in_the_middle(app: &TestApp, n: u32, codes: u32) -> (Server, Vec<String>, [u64; 2]) {
    seed(app, "fcm", 0..n).await;
    let named = app.subscribe("apple", 0..codes).await;
    let rules = hold_after(app, 100);
    let server = Server::start(app).await;
    let mut messages = vec![app.send(json!({"all": true}), json!({})).await];
    for subscriber in &named {
        let to = json!({"subscriptions": [subscriber.id]});
        messages.push(app.send(to, json!({"tier": "transactional"})).await);
    }
    until_report(app, |report| report.accepted >= 100 && held(report) >= 30 + u64::from(codes)).await;
    (server, messages, rules)
}

/// Checks that each of so many deliveries of these messages is accepted, once.
async fn check_accepted(app: &TestApp, messages: &[String], n: i64) {
    let mut accepted = 0;
    for message in messages {
        let counts = app.counts(message).await;
        accepted += counts["accepted"];
        assert_eq!(counts["accepted"], counts["targeted"], "{counts:?}");
    }
    assert_eq!(accepted, n);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_servers_work_is_taken_over_early() {
    const N: u32 = 1_000;
    const CODES: u32 = 10;
    let app = without_engine().await;
    let (server, messages, rules) = in_the_middle(&app, N, CODES).await;
    let mut other = Server::start(&app).await;
    until_so(&app, "SELECT (count(*) = 2)::int::bigint FROM workers").await;
    let killed = Instant::now();
    server.kill().await;
    release(&app, rules);
    other.until_said(MISSED).await;
    let missed = killed.elapsed();
    let all = u64::from(N + 2 * CODES); // the campaign is for those, too, who get codes
    let report = until_report(&app, |report| report.deliveries >= all).await;
    // Three to four seconds where nothing else runs; a lease takes thirty.
    assert!(missed < LEASE / 2, "missed after {missed:?}");
    assert_eq!((report.deliveries, report.without_id), (all, 0), "a repeat carries the id of the first");
    other.terminate();
    assert!(other.end(PATIENCE).await.success());
    app.worker(app.clock.clone()).await.run_until_idle().await;
    check_accepted(&app, &messages, all.cast_signed()).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn woken_server_settles_nothing_taken_over() {
    const N: u32 = 600;
    let app = without_engine().await;
    let (frozen, mut messages, rules) = in_the_middle(&app, N, 5).await;
    let mut other = Server::start(&app).await;
    until_so(&app, "SELECT (count(*) = 2)::int::bigint FROM workers").await;
    frozen.freeze();
    other.until_said(MISSED).await;
    // Its sessions are ended: their locks are released.
    let sessions = "SELECT (count(DISTINCT application_name) = 1)::int::bigint FROM pg_stat_activity
                    WHERE datname = current_database() AND application_name LIKE 'bellwire %'";
    until_so(&app, sessions).await;
    release(&app, rules);
    let all = u64::from(N + 2 * 5);
    until_report(&app, |report| report.deliveries >= all).await;
    until_so(&app, "SELECT (count(*) = 0)::int::bigint FROM (SELECT FROM batches UNION ALL SELECT FROM queue) waiting")
        .await;
    let before = app.simulator.report().requests;

    let mut woken = frozen;
    woken.wake();
    woken.until_said(BACK).await;
    until_so(&app, "SELECT (count(*) = 2)::int::bigint FROM workers").await;
    // It works on: with the other one gone, it delivers alone.
    other.terminate();
    assert!(other.end(PATIENCE).await.success());
    messages.push(app.send(json!({"all": true}), json!({})).await);
    let again = u64::from(N + 5);
    until_report(&app, |report| report.deliveries >= all + again).await;
    woken.terminate();
    assert!(woken.end(PATIENCE).await.success());
    app.worker(app.clock.clone()).await.run_until_idle().await;
    check_accepted(&app, &messages, (all + again).cast_signed()).await;
    let sent = app.simulator.report().requests - before;
    assert_eq!(sent, again, "nothing of what it held was sent after it woke");
    app.finish().await;
}

/// Waits until each of two workers has beaten so often from now on.
async fn until_beaten(app: &TestApp, times: i64) {
    let beats = "SELECT coalesce(min(beats), 0) FROM workers HAVING count(*) = 2";
    let now = || async { sqlx::query_scalar::<_, i64>(beats).fetch_optional(&app.pool).await.unwrap().unwrap_or(0) };
    let wanted = now().await + times;
    let beaten = async { while now().await < wanted {} };
    timeout(PATIENCE, beaten).await.expect("both live, and none of them anew");
}

#[tokio::test(flavor = "multi_thread")]
async fn frozen_postgres_makes_no_worker_dead() {
    let app = TestApp::start().await;
    let other = app.worker(app.clock.clone()).await;
    until_beaten(&app, 2).await;
    let mut still = app.pool.begin().await.unwrap();
    sqlx::query("SET LOCAL idle_in_transaction_session_timeout = 0").execute(&mut *still).await.unwrap();
    sqlx::query("LOCK TABLE workers IN ACCESS EXCLUSIVE MODE").execute(&mut *still).await.unwrap();
    // Longer than it takes to miss one.
    let waited = "SELECT (count(*) >= 2)::int::bigint FROM pg_stat_activity
                  WHERE datname = current_database() AND wait_event_type = 'Lock' AND clock_timestamp() - query_start > '6 s'";
    until_so(&app, waited).await;
    let ids = "SELECT count(DISTINCT id) FROM workers";
    still.rollback().await.unwrap();
    until_beaten(&app, LOOKS).await;
    assert_eq!(scalar(&app.pool, ids).await, 2);
    assert_eq!([&app.metrics, &other.metrics].map(|metrics| metrics.workers_ended.get()), [0, 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn wrong_clocks_do_not_change_liveness() {
    /// No more, so that gateways take what it signs.
    const OFF: Duration = Duration::from_secs(6 * 3_600);
    const N: u32 = 100;
    for clock in [Clock::stub(START + OFF), Clock::stub(START - OFF)] {
        let dispatch = DispatchConfig { lane_limit_max: 16, batch_min: 20, batch_max: 20, ..DispatchConfig::default() };
        let app = TestApp::with(Setup { dispatch, ..Setup::default() }).await;
        seed(&app, "fcm", 0..N).await;
        let other = app.worker(clock).await;
        until_beaten(&app, LOOKS).await;
        assert_eq!([&app.metrics, &other.metrics].map(|metrics| metrics.workers_ended.get()), [0, 0]);
        let hold = app.simulator.add_rule(Rule::always(RuleAction::Hold)).unwrap();
        let message = app.send(json!({"all": true}), json!({"ttl": 7 * 86_400})).await;
        until_report(&app, |report| held(report) >= 15).await;
        drop(other); // without a word
        let ended = async {
            while app.metrics.workers_ended.get() == 0 {
                scalar(&app.pool, "SELECT 1::bigint").await;
            }
        };
        timeout(PATIENCE, ended).await.expect("it is missed");
        assert_eq!(scalar(&app.pool, "SELECT count(*) FROM workers").await, 1);
        app.simulator.remove_rule(hold);
        app.advance(Duration::from_secs(600)).await; // what was held for too long is tried again
        until_report(&app, |report| report.deliveries >= N.into()).await;
        app.run_until_idle().await;
        let counts = app.counts(&message).await;
        assert_eq!((counts["targeted"], counts["accepted"]), (N.into(), N.into()), "{counts:?}");
        app.finish().await;
    }
}

/// A lease of a worker.
fn lease_of(worker: Uuid, fresh: Uuid) -> Uuid {
    let mut octets = fresh.into_bytes();
    octets[12..].copy_from_slice(&worker.as_bytes()[12..]);
    Uuid::from_bytes(octets)
}

#[tokio::test(flavor = "multi_thread")]
async fn ended_workers_rows_are_due_at_once() {
    let app = TestApp::start().await;
    app.dispatcher.stop(Duration::ZERO).await;
    seed(&app, "fcm", 0..200).await;
    let named = app.subscribe("apple", 0..4).await;
    let ids: Vec<&str> = named.iter().map(|subscriber| subscriber.id.as_str()).collect();
    app.send(json!({"subscriptions": ids}), json!({"tier": "transactional"})).await;
    let lane = async |gateway: &str| LaneId(i32::try_from(app.lane(gateway).await).unwrap());
    let (fcm, apple, now, pool) = (lane("fcm").await, lane("apple").await, app.clock.now(), &app.pool);
    let [silent, alive] = [app.clock.uuid(), app.clock.uuid()];
    for worker in [silent, alive] {
        sqlx::query("INSERT INTO workers (id, started_at, beat_at, version, beats) VALUES ($1, $2, $2, '0.0.1', 7)")
            .bind(worker)
            .bind(now)
            .execute(pool)
            .await
            .unwrap();
        let lease = || lease_of(worker, app.clock.uuid());
        let span = DueSpan::all(apple, Tier::Transactional, now);
        // The second as by a clock that is a day ahead.
        for until in [now + LEASE, now + LEASE * 2_880] {
            let rows = claims::claim_rows(pool, span, 1, lease(), until).await.unwrap();
            assert_eq!(rows.len(), 1);
        }
    }
    app.send(json!({"all": true}), json!({})).await;
    for worker in [silent, alive] {
        let batch = lease_of(worker, app.clock.uuid());
        let span = DueSpan::all(fcm, Tier::Promotional, now);
        let taken = claims::take_batch(pool, span, 50, batch, now + LEASE).await.unwrap();
        assert!(matches!(taken, TakeBatchResult::Batch(_)), "{taken:?}");
    }
    sqlx::query("INSERT INTO lane_states (lane, origin, changed_at, prober, probe_until) VALUES ($1, 'https://x.example', $2, $3, $2)")
        .bind(fcm.0)
        .bind(now)
        .bind(silent)
        .execute(pool)
        .await
        .unwrap();

    assert_eq!(end_silent(pool, silent, 6, now).await.unwrap(), None, "it has said since that it lives");
    let taken = end_silent(pool, silent, 7, now).await.unwrap();
    assert_eq!(taken, Some(TakenOver { batches: 1, rows: 2, requests: 0, probes: 1 }));
    assert_eq!(end_silent(pool, silent, 7, now).await.unwrap(), None, "somebody has");
    let due = "SELECT (SELECT count(*) FROM batches WHERE due_at <= to_timestamp(1800000000))
                    + 10 * (SELECT count(*) FROM queue WHERE due_at <= to_timestamp(1800000000) AND lease IS NOT NULL)";
    assert_eq!(scalar(pool, due).await, 21, "a batch and two rows; the other worker's are not");
    assert_eq!(scalar(pool, "SELECT count(*) FROM workers").await, 1);
    app.worker(Clock::stub(START)).await.run_until_idle().await;
    app.advance(Duration::from_secs(2 * 86_400)).await;
    app.worker(app.clock.clone()).await.run_until_idle().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn exhausted_postgres_connections_cost_no_delivery() {
    const N: u32 = 120;
    let app = TestApp::with(Setup { through_proxy: true, ..Setup::default() }).await;
    let hold = app.simulator.add_rule(Rule::always(RuleAction::Hold)).unwrap();
    seed(&app, "apple", 0..N).await;
    let message = app.send(json!({"all": true}), json!({})).await;
    until_report(&app, |report| held(report) == 31).await;
    app.proxy().fill_up(true);
    app.proxy().cut();
    app.simulator.remove_rule(hold);
    timeout(PATIENCE, app.proxy().until_refused(5)).await.expect("it asks again");
    // Nor does one that starts give up.
    let args = ["--roles", "worker"];
    let mut starting = Server::begin_on(&app, &args, &app.proxy().url(&app.database.name));
    timeout(PATIENCE, app.proxy().until_refused(20)).await.expect("it asks again");
    app.proxy().fill_up(false);
    starting.until_started().await;
    let idle = async { while app.dispatcher.run_until_idle().await.is_err() {} };
    timeout(PATIENCE, idle).await.expect("the engine recovers");
    app.advance(LEASE + Duration::from_secs(1)).await;
    assert_eq!(app.counts(&message).await["accepted"], i64::from(N));
    assert_eq!(app.simulator.report().deliveries, u64::from(N));
    starting.terminate();
    assert!(starting.end(PATIENCE).await.success());
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn settling_survives_failing_lease_renewal() {
    // Citus locks rows in one shard at a time, and its coordinator does not show who waits for a lock of another machine.
    let app = without_engine_on(Some(TestDatabase::plain().await)).await;
    let gone = app.subscribe("fcm", 0..1).await.remove(0);
    app.simulator.add_rule(Rule::always(RuleAction::Gone)).unwrap();
    let mut slow = app.pool.begin().await.unwrap();
    sqlx::query("SET LOCAL idle_in_transaction_session_timeout = 0").execute(&mut *slow).await.unwrap();
    sqlx::query("SELECT FROM subscriptions FOR UPDATE").execute(&mut *slow).await.unwrap();
    // One of its connections is for dispatch: the settling has it.
    let server = Server::with(&app, &["--roles", "worker", "--database-connections", "6"]).await;
    app.send(json!({"subscriptions": [gone.id]}), json!({})).await;
    // Longer than until leases are renewed.
    let waited = "SELECT count(*) FROM pg_stat_activity
                  WHERE datname = current_database() AND wait_event_type = 'Lock' AND clock_timestamp() - query_start > '6 s'";
    until_so(&app, waited).await;
    let free = Instant::now();
    slow.rollback().await.unwrap();
    until_so(&app, "SELECT (count(*) = 0)::int::bigint FROM queue").await;
    assert!(free.elapsed() < Duration::from_secs(5), "it went on after {:?}", free.elapsed());
    server.terminate();
    assert!(server.end(PATIENCE).await.success());
    app.finish().await;
}

/// Maximum statements per second of an idle server with all roles, times fifty for one Postgres. Most are polls for stops, lane states and
/// flows (five times a second each) and for due deliveries (ten times).
const AT_WORK: u64 = 50;
/// The same once nothing has happened for a while, of a server that is alone.
const AT_REST: u64 = 8;

#[tokio::test(flavor = "multi_thread")]
async fn idle_server_rarely_queries_postgres() {
    const SECONDS: u64 = 8;
    let (app, proxy) = (without_engine().await, FaultProxy::start().await);
    let server = Server::on(&app, &[], &proxy.url(&app.database.name)).await;
    const HEARTBEAT: &str = "/* heartbeat */";
    timeout(PATIENCE, proxy.until_run(HEARTBEAT, 3)).await.expect("it beats");
    proxy.take_runs();
    timeout(PATIENCE, proxy.until_run(HEARTBEAT, SECONDS)).await.expect("it beats");
    let runs = proxy.take_runs();
    let all: u64 = runs.values().sum();
    assert!(all <= AT_WORK * SECONDS, "{all} in {SECONDS} s: {runs:#?}");
    // Nothing has happened by then, and it has seen that it is alone.
    proxy.take_runs();
    timeout(PATIENCE, proxy.until_run(HEARTBEAT, SECONDS)).await.expect("it beats");
    proxy.take_runs();
    timeout(PATIENCE, proxy.until_run(HEARTBEAT, 2 * SECONDS)).await.expect("it beats");
    let runs = proxy.take_runs();
    let all: u64 = runs.values().sum();
    assert!(all <= AT_REST * 2 * SECONDS, "{all} in {} s: {runs:#?}", 2 * SECONDS);
    seed(&app, "fcm", 0..10).await;
    app.send(json!({"all": true}), json!({})).await;
    until_report(&app, |report| report.accepted == 10).await;
    server.terminate();
    assert!(server.end(PATIENCE).await.success());
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_observers_end_a_worker_once() {
    let app = without_engine().await;
    let mut servers = Vec::new();
    for _ in 0..3 {
        servers.push(Server::start(&app).await);
    }
    until_so(&app, "SELECT (count(*) = 3)::int::bigint FROM workers").await;
    servers.remove(0).kill().await;
    any_says(&mut servers, MISSED).await;
    until_so(&app, "SELECT (count(*) = 2)::int::bigint FROM workers").await;
    for server in servers {
        server.terminate();
        assert!(server.end(PATIENCE).await.success());
    }
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM workers").await, 0);
    app.finish().await;
}
