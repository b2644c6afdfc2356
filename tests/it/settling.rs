//! Failed, slow or late settling repeats no delivery and delays no other one.

use bellwire_core::id::SubscriptionId;
use bellwire_dispatch::DispatchConfig;
use bellwire_simulator::gateways::{Rule, RuleAction};
use bellwire_store::queue::claims::LEASE;
use serde_json::json;
use sqlx::AssertSqlSafe;
use tokio::time::timeout;

use crate::support::app::{PATIENCE, scalar, until_waiting};
use crate::support::batches::{AFTER_LEASE, BATCH_SIZE, SETTLE_BATCH, all_accepted, single_batch};
use crate::support::engine::until_changes_read;
use crate::support::simulator_rules::{held, until_report};
use crate::support::{Moment, Setup, TestApp, TestDatabase, counts, seed, seed_together};

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_claimed_while_settlings_fail() {
    let dispatch = DispatchConfig { lane_limit_max: 16, batch_min: 20, batch_max: 20, ..DispatchConfig::default() };
    let app = TestApp::with(Setup { through_proxy: true, dispatch, ..Setup::default() }).await;
    let hold = app.simulator.add_rule(Rule::always(RuleAction::Hold)).unwrap();
    seed(&app, "mozilla", 0..300).await;
    let message = app.send(json!({"all": true}), json!({})).await;
    until_report(&app, |report| held(report) == 15).await;
    // Of three batches that are settled at a time, after the fourth failure one has failed twice: the first is known.
    const FAILURES: u64 = 6;
    (0..FAILURES).for_each(|_| app.proxy().cut_at(Moment::Before, SETTLE_BATCH));
    app.simulator.remove_rule(hold);
    timeout(PATIENCE, app.proxy().until_sprung(4)).await.expect("batches are settled");
    assert!(!app.dispatcher.is_ready());
    let claimed = app.counts(&message).await["targeted"];
    timeout(PATIENCE, app.proxy().until_sprung(FAILURES)).await.expect("settling is tried again");
    assert!(claimed < 300 && app.counts(&message).await["targeted"] == claimed, "only {claimed} were claimed");
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 300), ("accepted", 300), ("awaiting_ack", 300)]));
    assert_eq!((app.simulator.report().requests, app.metrics.settle_fenced.get()), (300, 0));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_settling_slows_claims_without_duplicates() {
    const RECIPIENTS: u64 = 1_200;
    let dispatch = DispatchConfig { lane_limit_max: 32, batch_min: 20, batch_max: 20, ..DispatchConfig::default() };
    let app = TestApp::with(Setup { dispatch, ..Setup::default() }).await;
    seed(&app, "mozilla", 0..RECIPIENTS as u32).await;
    let mut slow = app.pool.begin().await.unwrap();
    // However long the test waits.
    sqlx::query("SET LOCAL idle_in_transaction_session_timeout = 0").execute(&mut *slow).await.unwrap();
    sqlx::query("LOCK TABLE attempts IN SHARE ROW EXCLUSIVE MODE").execute(&mut *slow).await.unwrap();
    let message = app.send(json!({"all": true}), json!({})).await;
    until_report(&app, |report| report.accepted >= 240).await;
    for _ in 0..3 {
        until_changes_read(&app).await;
        app.clock.advance(LEASE * 2 / 3); // long enough for a lease that is not renewed to run out
    }
    until_changes_read(&app).await;
    let cut = app.counts(&message).await["targeted"];
    assert!(cut < 600, "{cut} were cut while none could be settled");
    slow.rollback().await.unwrap();
    app.run_until_idle().await;
    let end = i64::try_from(RECIPIENTS).unwrap();
    assert_eq!(app.counts(&message).await, counts(&[("targeted", end), ("accepted", end), ("awaiting_ack", end)]));
    assert_eq!(
        (app.simulator.report().requests, app.metrics.settle_fenced.get()),
        (RECIPIENTS, 0),
        "nothing was sent twice"
    );
    app.finish().await;
}

/// Each group of rows is written soon, but many wait behind one another.
#[tokio::test(flavor = "multi_thread")]
async fn rows_behind_fast_groups_keep_their_leases() {
    const RECIPIENTS: u32 = 900;
    let dispatch = DispatchConfig { lane_limit_max: 256, ..DispatchConfig::default() };
    // Citus takes no trigger on a distributed table.
    let database = Some(TestDatabase::plain().await);
    let app = TestApp::with(Setup { dispatch, database, ..Setup::default() }).await;
    let ids: Vec<String> =
        seed_together(&app, "mozilla", 0..RECIPIENTS).await.into_iter().map(|seeded| seeded.id).collect();
    let mut gate = app.pool.acquire().await.unwrap();
    sqlx::raw_sql(
        "CREATE FUNCTION pass() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(7); RETURN NULL; END $$;
         CREATE TRIGGER pass BEFORE INSERT ON attempts FOR EACH STATEMENT EXECUTE FUNCTION pass();
         SELECT pg_advisory_lock(7)",
    )
    .execute(&mut *gate)
    .await
    .unwrap();
    let message = app.send(json!({"subscriptions": ids}), json!({})).await;
    until_report(&app, |report| report.accepted == u64::from(RECIPIENTS)).await;
    for _ in 0..3 {
        for _ in 0..2 {
            app.clock.advance(LEASE / 3);
            until_changes_read(&app).await;
        }
        until_waiting(&app.pool, 1).await;
        sqlx::raw_sql("SELECT pg_advisory_unlock(7); SELECT pg_advisory_lock(7)").execute(&mut *gate).await.unwrap();
    }
    sqlx::raw_sql("SELECT pg_advisory_unlock(7)").execute(&mut *gate).await.unwrap();
    drop(gate);
    app.run_until_idle().await;
    let end = i64::from(RECIPIENTS);
    assert_eq!(app.counts(&message).await, counts(&[("targeted", end), ("accepted", end), ("awaiting_ack", end)]));
    assert_eq!(
        (app.simulator.report().requests, app.metrics.settle_fenced.get()),
        (u64::from(RECIPIENTS), 0),
        "sent once"
    );
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lagging_settler_gets_no_more_work() {
    let app = TestApp::with(Setup {
        dispatch: DispatchConfig { rows_waiting_max: 20, ..DispatchConfig::default() },
        ..Setup::default()
    })
    .await;
    let ids: Vec<String> = seed_together(&app, "mozilla", 0..21).await.into_iter().map(|seeded| seeded.id).collect();
    let mut slow = app.pool.begin().await.unwrap();
    sqlx::query("SET LOCAL idle_in_transaction_session_timeout = 0").execute(&mut *slow).await.unwrap();
    sqlx::query("LOCK TABLE attempts IN SHARE ROW EXCLUSIVE MODE").execute(&mut *slow).await.unwrap();
    app.send(json!({"subscriptions": &ids[..20]}), json!({})).await;
    let behind = async {
        while app.dispatcher.lease().is_some() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, behind).await.expect("all that was answered is told to the settler");
    let code = app.send(json!({"subscriptions": [ids[20]]}), json!({"tier": "transactional"})).await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM queue WHERE tier = 1 AND lease IS NULL").await, 1, "born due");
    slow.rollback().await.unwrap();
    app.run_until_idle().await;
    assert_eq!(app.counts(&code).await["accepted"], 1);
    assert_eq!((app.simulator.report().requests, app.metrics.settle_fenced.get()), (21, 0));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn late_responses_are_settled_as_rows_at_once() {
    let app = TestApp::with(Setup { dispatch: single_batch(), ..Setup::default() }).await;
    seed_together(&app, "fcm", 0..BATCH_SIZE).await;
    let slow = |index, action| Rule { endpoints: Some([index].into()), delay_ms: 1_500, ..Rule::always(action) };
    let too_large = Rule { attempts: Some([1, 1]), ..slow(1, RuleAction::TooLarge) };
    for rule in [slow(0, RuleAction::Behave), too_large] {
        app.simulator.add_rule(rule).unwrap();
    }
    let image = format!("https://example.com/{}", "i".repeat(1_500));
    let content = json!({"title": "T", "body": "b".repeat(1_900), "image": image});
    let message = app.send(json!({"all": true}), json!({"content": content})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await, all_accepted(), "nothing waits for a lease to run out");
    let rows = "SELECT count(*) FROM attempts WHERE took_ms >= 1500";
    assert_eq!((scalar(&app.pool, rows).await, app.simulator.report().requests), (2, u64::from(BATCH_SIZE) + 1));
    assert_eq!(app.metrics.settle_fenced.get(), 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_unsettleable_row_blocks_no_other() {
    let app = TestApp::start().await;
    let subscribers = app.subscribe("fcm", 0..50).await;
    let ids: Vec<&str> = subscribers.iter().map(|subscriber| subscriber.id.as_str()).collect();
    let hold = app.simulator.add_rule(Rule::always(RuleAction::Hold)).unwrap();
    let message = app.send(json!({"subscriptions": ids}), json!({})).await;
    until_report(&app, |report| held(report) == 31).await;
    // For any error of Postgres about one of them.
    let odd: SubscriptionId = subscribers[20].id.parse().unwrap();
    let refuse = format!("ALTER TABLE attempts ADD CONSTRAINT odd CHECK (subscription <> '{}')", odd.0);
    sqlx::query(AssertSqlSafe(refuse)).execute(&app.pool).await.unwrap();
    app.simulator.remove_rule(hold);
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await["accepted"], 49);
    sqlx::query("ALTER TABLE attempts DROP CONSTRAINT odd").execute(&app.pool).await.unwrap();
    app.advance(AFTER_LEASE).await;
    assert_eq!(app.counts(&message).await["accepted"], 50);
    let report = app.simulator.report();
    assert_eq!((report.deliveries, report.repeats), (50, 1), "its repeat carries the same id");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_locked_row_blocks_no_other() {
    let app = TestApp::start().await;
    let subscribers = app.subscribe("fcm", 0..20).await;
    let ids: Vec<&str> = subscribers.iter().map(|subscriber| subscriber.id.as_str()).collect();
    let hold = app.simulator.add_rule(Rule::always(RuleAction::Hold)).unwrap();
    let message = app.send(json!({"subscriptions": ids}), json!({})).await;
    until_report(&app, |report| held(report) == 20).await;
    let locked: SubscriptionId = ids[7].parse().unwrap();
    let mut slow = app.pool.begin().await.unwrap();
    sqlx::query("SET LOCAL idle_in_transaction_session_timeout = 0").execute(&mut *slow).await.unwrap();
    let lock = "SELECT FROM queue WHERE subscription = $1 FOR UPDATE";
    sqlx::query(lock).bind(locked.0).execute(&mut *slow).await.unwrap();
    app.simulator.remove_rule(hold);
    // As Postgres does after half a minute.
    let time_out = "SELECT count(pg_cancel_backend(pid)) FROM pg_stat_activity
                    WHERE datname = current_database() AND wait_event_type = 'Lock' AND query LIKE '/* settle_rows */%'";
    let others = async {
        while app.message(&message).await["counts"]["accepted"] != 19 {
            scalar(&app.pool, time_out).await;
        }
    };
    timeout(PATIENCE, others).await.expect("the others are settled");
    slow.rollback().await.unwrap();
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await["accepted"], 20);
    assert_eq!((app.simulator.report().requests, app.metrics.settle_fenced.get()), (20, 0));
    app.finish().await;
}
