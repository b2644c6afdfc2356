//! On a cluster of Citus, whatever becomes of its machines: nothing is lost, and nothing is sent twice. Where no cluster is named these are
//! left out, and it is said so; where one is, all other tests run on it, too.

use std::time::Duration;

use bellwire::testkit::store::operations::distribution::{self, Distribution, DistributionError};
use bellwire::testkit::store::queue::claims::LEASE;
use serde_json::json;
use sqlx::AssertSqlSafe;
use tokio::time::timeout;

use crate::crash::{held, hold_after, reconnect, release, until};
use crate::support::app::{PATIENCE, scalar};
use crate::support::citus::{self, Cluster};
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
    until(app, |report| report.accepted >= 300 && held(report) >= 30).await;
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
async fn what_a_database_holds_is_distributed_once_each_machine_gets_as_much_and_work_goes_on() {
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
async fn a_machine_that_is_lost_in_the_middle_of_a_campaign_costs_no_delivery_and_no_repeat() {
    let Some(cluster) = cluster().await else { return };
    let app = app_on(cluster, 2, 8).await;
    let (message, rules) = in_the_middle(&app).await;
    cluster.cut_off(0, &app.database.name, true).await;
    // The answers come while there is no machine to write them to.
    release(&app, rules);
    until(&app, |report| report.accepted >= 331).await;
    cluster.cut_off(0, &app.database.name, false).await;
    everybody_is_reached(&app, &message).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shard_that_is_moved_in_the_middle_of_a_campaign_costs_no_delivery_and_no_repeat() {
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
async fn a_machine_that_is_added_in_the_middle_of_a_campaign_takes_its_part() {
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
