//! Failures of machines in a Citus cluster: no delivery is lost or doubled. Without a cluster these tests are skipped with a notice. With
//! one, all other tests use it too.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::http::Method;
use bellwire_store::operations::distribution::{self, Distribution, DistributionError};
use bellwire_store::queue::claims::LEASE;
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use tokio::time::timeout;

use crate::support::app::{PATIENCE, scalar, until_waiting};
use crate::support::citus::{self, Cluster};
use crate::support::database::reconnect;
use crate::support::simulator_rules::{held, hold_after, release, until_report};
use crate::support::{Setup, TestApp, TestDatabase, seed};

/// Recipients of a campaign.
const N: u32 = 1_500;

/// The cluster, if one is named that has two workers.
async fn cluster() -> Option<&'static Cluster> {
    tokio::task::spawn_blocking(citus::cluster).await.expect("a cluster").filter(|cluster| cluster.has(2))
}

/// A server on a database of so many machines.
async fn app_on(cluster: &Cluster, machines: usize, shards: u8) -> TestApp {
    let database = TestDatabase::undistributed(cluster, machines).await;
    let distributed = distribution::distribute(&database.options(), shards).await.expect("it is distributed");
    assert_eq!(distributed, Distribution::Done);
    reconnect(&database.pool).await;
    TestApp::with(Setup { database: Some(database), ..Setup::default() }).await
}

/// A campaign to [`N`], of which some have been accepted and some are held. Answers its message and the rules that hold it.
async fn in_the_middle(app: &TestApp) -> (String, [u64; 2]) {
    seed(app, "fcm", 0..N).await;
    let rules = hold_after(app, 300);
    let message = app.send(json!({"all": true}), json!({})).await;
    until_report(app, |report| report.accepted >= 300 && held(report) >= 30).await;
    (message, rules)
}

/// Everybody is reached once.
async fn everybody_is_reached(app: &TestApp, message: &str) {
    let idle = async { while app.dispatcher.run_until_idle().await.is_err() {} };
    timeout(PATIENCE, idle).await.expect("the engine recovers");
    reconnect(&app.pool).await;
    app.advance(LEASE + Duration::from_secs(1)).await;
    assert_eq!(app.counts(message).await["accepted"], i64::from(N));
    let report = app.simulator.report();
    assert_eq!((report.deliveries, report.repeats), (u64::from(N), 0));
}

/// Shards are moved by replication slots, which Citus names without their database: one test at a time.
static MOVING: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Moves all shards of a worker to another one, while it is written to.
async fn empty(cluster: &Cluster, app: &TestApp, from: usize, to: usize) -> u64 {
    let ((from, from_port), (to, to_port)) = (cluster.worker(from), cluster.worker(to));
    let mut connection = cluster.connection(&app.database.name).await;
    let of = format!(
        "SELECT shardid FROM citus_shards WHERE table_name = 'bellwire.subscriptions'::regclass AND nodename = '{from}' AND nodeport = {from_port}"
    );
    let shards: Vec<i64> =
        sqlx::query_scalar(AssertSqlSafe(of)).fetch_all(&mut connection).await.expect("the shards of a worker");
    // Citus moves one in a transaction, and with it those of the other tables.
    for shard in &shards {
        let moved = format!(
            "SELECT citus_move_shard_placement({shard}, '{from}', {from_port}, '{to}', {to_port}, 'force_logical')"
        );
        sqlx::raw_sql(AssertSqlSafe(moved)).execute(&mut connection).await.expect("it is moved");
    }
    shards.len() as u64
}

const MACHINES: &str = "SELECT count(DISTINCT nodeport) FROM citus_shards WHERE table_name = 'subscriptions'::regclass";

#[tokio::test(flavor = "multi_thread")]
async fn database_is_distributed_evenly_and_work_continues() {
    let Some(cluster) = cluster().await else { return };
    let database = TestDatabase::undistributed(cluster, 2).await;
    let app = TestApp::with(Setup { database: Some(database), ..Setup::default() }).await;
    seed(&app, "fcm", 0..N).await;
    app.subscribe_with("mozilla", 0..5, json!({"topics": ["news"]})).await;
    let before = app.send(json!({"topic": "news"}), json!({})).await;
    app.run_until_idle().await;
    let options = app.database.options();
    let refused = distribution::distribute(&options, 64).await;
    assert!(matches!(refused, Err(DistributionError::Schema(_))), "beside a worker: {refused:?}");
    app.dispatcher.stop(Duration::ZERO).await;
    // Half fanned out, by a server that was stopped.
    let begun = app.send(json!({"all": true}), json!({})).await;
    let turn = "UPDATE cursors SET after = $1::uuid";
    let at = |id: &'static str| sqlx::query(turn).bind(id).execute(&app.pool);
    at("01a3185c-5000-7000-8000-000000000000").await.unwrap();
    let refused = distribution::distribute(&options, 64).await;
    assert!(matches!(refused, Err(DistributionError::Begun { messages: 1 })), "{refused:?}");
    at("00000000-0000-0000-0000-000000000000").await.unwrap();

    assert_eq!(distribution::distribute(&options, 64).await.expect("it is distributed"), Distribution::Done);
    assert_eq!(distribution::distribute(&options, 64).await.expect("it was before"), Distribution::Already);
    reconnect(&app.pool).await;
    let evenly = "SELECT count(*) FROM (SELECT nodeport FROM citus_shards WHERE table_name = 'subscriptions'::regclass
                  GROUP BY nodeport HAVING count(*) = 32) AS machine";
    assert_eq!(scalar(&app.pool, evenly).await, 2);
    let alone = "SELECT count(DISTINCT get_shard_id_for_distribution_column('subscriptions', shard::smallint))
                 FROM generate_series(0, 63) AS shard";
    assert_eq!(scalar(&app.pool, alone).await, 64, "each logical shard is one of Citus's");
    let on_disk = "SELECT pg_relation_size('subscriptions') + pg_relation_size('topic_members')";
    assert_eq!(scalar(&app.pool, on_disk).await, 0, "what was on the coordinator is gone from there");

    let worker = app.worker(app.clock.clone()).await;
    let after = app.send(json!({"topic": "news"}), json!({})).await;
    worker.run_until_idle().await;
    for (message, n) in [(&before, 5), (&begun, i64::from(N) + 5), (&after, 5)] {
        assert_eq!(app.counts(message).await["accepted"], n);
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_node_costs_no_delivery() {
    let Some(cluster) = cluster().await else { return };
    let app = app_on(cluster, 2, 8).await;
    let (message, rules) = in_the_middle(&app).await;
    cluster.cut_off(0, &app.database.name, true).await;
    // The answers come while there is no machine to write them to.
    release(&app, rules);
    until_report(&app, |report| report.accepted >= 331).await;
    cluster.cut_off(0, &app.database.name, false).await;
    everybody_is_reached(&app, &message).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn moved_shard_costs_no_delivery() {
    let Some(cluster) = cluster().await else { return };
    let _alone = MOVING.lock().await;
    let app = app_on(cluster, 2, 4).await;
    let (message, rules) = in_the_middle(&app).await;
    release(&app, rules);
    let (moved, ()) = tokio::join!(empty(cluster, &app, 0, 1), app.run_until_idle());
    assert_eq!((moved, scalar(&app.pool, MACHINES).await), (2, 1));
    everybody_is_reached(&app, &message).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn added_node_takes_its_share() {
    let Some(cluster) = cluster().await else { return };
    let _alone = MOVING.lock().await;
    let app = app_on(cluster, 1, 4).await;
    let (message, rules) = in_the_middle(&app).await;
    let mut connection = cluster.connection(&app.database.name).await;
    cluster.add(1, &mut connection).await;
    release(&app, rules);
    let rebalance = "SELECT rebalance_table_shards(shard_transfer_mode => 'force_logical')";
    let (rebalanced, ()) = tokio::join!(sqlx::raw_sql(rebalance).execute(&mut connection), app.run_until_idle());
    rebalanced.expect("shards are moved");
    assert_eq!(scalar(&app.pool, MACHINES).await, 2);
    everybody_is_reached(&app, &message).await;
    app.finish().await;
}

/// Users and shards in which they have subscriptions, and those that are noted.
async fn users_in_shards(app: &TestApp) -> [BTreeSet<(String, i16)>; 2] {
    let read = async |sql: &'static str| {
        let rows: Vec<(String, i16)> = sqlx::query_as(sql).fetch_all(&app.pool).await.expect("rows");
        rows.into_iter().collect()
    };
    let there = read("SELECT DISTINCT user_id, shard FROM subscriptions WHERE user_id IS NOT NULL").await;
    [there, read("SELECT user_id, shard FROM user_shards").await]
}

/// Asserts that every shard of the audience is known. Returns the number of known shards that are not needed.
async fn none_is_unknown(app: &TestApp) -> usize {
    let [there, noted] = users_in_shards(app).await;
    assert!(there.is_subset(&noted), "{there:?} are not all noted: {noted:?}");
    noted.len() - there.len()
}

#[tokio::test(flavor = "multi_thread")]
async fn moved_user_is_found_departed_user_forgotten() {
    let Some(_) = cluster().await else { return };
    let app = TestApp::start().await;
    let path = |id: &str| format!("/v1/apps/shop/subscriptions/{id}");
    let phones = app.subscribe_with("fcm", 0..12, json!({"user_id": "ann"})).await;
    assert_eq!(none_is_unknown(&app).await, 0);
    assert!(users_in_shards(&app).await[0].len() > 2, "they lie in several");

    // Changed, brought by a list, back under another user, and in the place of another one.
    app.call(Method::PATCH, &path(&phones[0].id), json!({"user_id": "bob"})).await.ok(200);
    app.call(Method::PATCH, &path(&phones[1].id), json!({"user_id": null})).await.ok(200);
    assert!(none_is_unknown(&app).await <= 2);
    let listed: Vec<Value> = (12..20)
        .map(|index| {
            let minted = app.simulator.mint("fcm.bellwire.test", index, Some(&app.application_server_key)).unwrap();
            let keys = json!({"p256dh": minted.p256dh, "auth": minted.auth});
            json!({"subscription": {"endpoint": minted.endpoint, "keys": keys}, "user_id": format!("carl-{index}")})
        })
        .collect();
    app.call(Method::POST, "/v1/apps/shop/imports", json!(listed)).await.ok(201);
    app.come_back_with("fcm", 12, json!({"user_id": "dora"})).await;
    app.call(Method::DELETE, &path(&phones[2].id), Value::Null).await.ok(204);
    app.come_back_with("fcm", 2, json!({"user_id": "dora"})).await;
    let replaces = json!({"replaces": {"id": phones[3].id}});
    app.subscribe_with("fcm", 20..21, replaces).await;
    none_is_unknown(&app).await;
    for (user, n) in [("ann", 9), ("bob", 1), ("carl-19", 1), ("dora", 2)] {
        let message = app.send(json!({"users": [user]}), json!({})).await;
        app.run_until_idle().await;
        assert_eq!(app.counts(&message).await["accepted"], n, "{user}");
    }
    let listed = app.get("/v1/apps/shop/subscriptions?user_id=dora").await;
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(2), "{listed}");

    app.keep_house().await;
    assert_eq!(none_is_unknown(&app).await, 0, "what nobody needs is cleared away");
    app.call(Method::DELETE, "/v1/apps/shop/users/ann", Value::Null).await.ok(200);
    let [_, noted] = users_in_shards(&app).await;
    assert!(noted.iter().all(|(user, _)| user != "ann"), "{noted:?}");
    let long_ago = "UPDATE subscriptions SET ended_at = '2026-01-01' WHERE ended_at IS NOT NULL";
    sqlx::query(long_ago).execute(&app.pool).await.expect("rows");
    app.keep_house().await;
    assert_eq!(none_is_unknown(&app).await, 0, "those who are deleted are forgotten");

    // As after a coordinator that lost its last rows.
    sqlx::query("DELETE FROM user_shards").execute(&app.pool).await.expect("rows");
    let again = distribution::distribute(&app.database.options(), 4).await.expect("it is distributed");
    assert_eq!((again, none_is_unknown(&app).await), (Distribution::Already, 0));
    sqlx::query("DELETE FROM user_shards").execute(&app.pool).await.expect("rows");
    app.come_back_with("fcm", 12, json!({})).await;
    let [_, noted] = users_in_shards(&app).await;
    assert_eq!(noted.into_iter().map(|(user, _)| user).collect::<Vec<_>>(), ["dora"], "its next visit notes it");
    distribution::distribute(&app.database.options(), 4).await.expect("it is distributed");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn erased_user_who_returns_is_found() {
    let Some(_) = cluster().await else { return };
    let app = TestApp::start().await;
    let phone = app.subscribe_with("fcm", 0..1, json!({"user_id": "dora", "topics": ["news"]})).await.remove(0);
    let path = format!("/v1/apps/shop/subscriptions/{}", phone.id);
    app.call(Method::PATCH, &path, json!({"user_id": "eve"})).await.ok(200);
    // She is still noted where she was. Her log-in has seen that and is not committed yet while she is erased.
    let mut holding = app.pool.begin().await.expect("a transaction");
    sqlx::query("SELECT FROM topics FOR UPDATE").execute(&mut *holding).await.expect("a row");
    let log_in = app.call(Method::PATCH, &path, json!({"user_id": "dora", "topics": ["news"]}));
    let erase = async {
        until_waiting(&app.pool, 1).await;
        app.call(Method::DELETE, "/v1/apps/shop/users/dora", Value::Null).await
    };
    let release = async {
        until_waiting(&app.pool, 2).await;
        holding.rollback().await.expect("it is let go");
    };
    let (changed, erased, ()) = tokio::join!(log_in, erase, release);
    changed.ok(200);
    erased.ok(200);
    none_is_unknown(&app).await;
    let message = app.send(json!({"users": ["dora"]}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await["accepted"], 1);
    app.finish().await;
}
