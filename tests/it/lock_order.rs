//! Transactions that change several rows lock them in one order, so that no two wait for each other.

use std::time::Duration;

use axum::http::Method;
use bellwire_simulator::gateways::{Rule, RuleAction};
use serde_json::{Value, json};
use sqlx::postgres::PgPool;

use crate::support::app::{PATIENCE, scalar, until_waiting};
use crate::support::{TestApp, seed};

/// Number of counts rows that are not locked at this moment.
async fn free_accounts(pool: &PgPool) -> i64 {
    scalar(pool, "SELECT count(*) FROM (SELECT FROM message_counts FOR UPDATE SKIP LOCKED) free").await
}

#[tokio::test(flavor = "multi_thread")]
async fn settling_waits_for_no_metrics_reader() {
    // One is settled as a row, 150 as batches.
    for recipients in [1, 150] {
        let app = TestApp::start().await;
        seed(&app, "fcm", 0..recipients).await;
        let mut other = app.pool.begin().await.unwrap();
        sqlx::query("LOCK TABLE rollups IN ACCESS EXCLUSIVE MODE").execute(&mut *other).await.unwrap();
        sqlx::query("SELECT FROM rollup_notes FOR UPDATE").execute(&mut *other).await.unwrap();
        let message = app.send(json!({"all": true}), json!({})).await;
        app.run_until_idle().await;
        assert_eq!(app.counts(&message).await["accepted"], i64::from(recipients));
        other.rollback().await.unwrap();
        app.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn gone_subscription_is_locked_before_counts() {
    for recipients in [1, 150] {
        let app = TestApp::start().await;
        seed(&app, "fcm", 0..recipients).await;
        app.simulator.add_rule(Rule { endpoints: Some([0].into()), ..Rule::always(RuleAction::Gone) }).unwrap();
        let mut unsubscribing = app.pool.begin().await.unwrap();
        sqlx::query("UPDATE subscriptions SET proven = proven").execute(&mut *unsubscribing).await.unwrap();
        let message = app.send(json!({"all": true}), json!({})).await;
        until_waiting(&app.pool, 1).await;
        assert_eq!(
            free_accounts(&app.pool).await,
            1,
            "{recipients} recipients: it would wait with the account in hand"
        );
        unsubscribing.rollback().await.unwrap();
        app.run_until_idle().await;
        let counts = app.counts(&message).await;
        assert_eq!((counts["gone"], counts["targeted"]), (1, i64::from(recipients)));
        app.finish().await;
    }
}

/// Sessions that have waited for a lock so long that the stops read before are too old for sending.
async fn waiting_for_long(pool: &PgPool) -> Vec<(i32, String)> {
    let waiting = "SELECT pid, query_start::text FROM pg_stat_activity
                   WHERE datname = current_database() AND wait_event_type = 'Lock' AND query_start < clock_timestamp() - interval '2 seconds'";
    sqlx::query_as(waiting).fetch_all(pool).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn lane_reports_block_no_delivery() {
    let app = TestApp::start().await;
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    let mut other = app.pool.begin_with("BEGIN; SET LOCAL idle_in_transaction_session_timeout = 0").await.unwrap();
    sqlx::query("LOCK TABLE lane_limits, lane_words, reliability_counts IN ACCESS EXCLUSIVE MODE")
        .execute(&mut *other)
        .await
        .unwrap();
    let delivered_meanwhile = async {
        loop {
            let waiting = waiting_for_long(&app.pool).await;
            if waiting.is_empty() {
                continue;
            }
            let before = app.simulator.received(&subscriber.endpoint).unwrap().len();
            app.send(json!({"subscriptions": [subscriber.id]}), json!({"tier": "transactional"})).await;
            while app.simulator.received(&subscriber.endpoint).unwrap().len() == before {
                app.dispatcher.kick();
                tokio::task::yield_now().await;
            }
            // A wait that was ended by its time-out, and began anew, proves nothing.
            if waiting_for_long(&app.pool).await == waiting {
                break;
            }
        }
    };
    tokio::time::timeout(PATIENCE, delivered_meanwhile).await.expect("a delivery within a single wait");
    other.rollback().await.unwrap();
    app.run_until_idle().await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn users_are_erased_beside_traffic_without_a_collision() {
    let app = TestApp::start().await;
    for user in 0..24 {
        app.subscribe_with("fcm", user * 3..user * 3 + 3, json!({"user_id": format!("user-{user}")})).await;
    }
    app.subscribe("mozilla", 0..120).await;
    // What fails waits in the queue, for many messages and few subscriptions.
    app.simulator.add_rule(Rule::always(RuleAction::Unavailable { retry_after_s: None })).unwrap();
    let mut messages = Vec::new();
    for _ in 0..12 {
        messages.push(app.send(json!({"all": true}), json!({})).await);
    }
    app.run_until_idle().await;
    let traffic = async {
        for _ in 0..10 {
            messages.push(app.send(json!({"all": true}), json!({})).await);
            app.advance(Duration::from_secs(5)).await;
        }
    };
    let erasures = futures_util::future::join_all((0..24).map(|user| {
        let path = format!("/v1/apps/shop/users/user-{user}");
        let app = &app;
        async move { app.call(Method::DELETE, &path, Value::Null).await.ok(200) }
    }));
    let (erased, ()) = tokio::join!(erasures, traffic);
    assert!(erased.iter().all(|erasure| erasure["subscriptions"] == 3), "{erased:?}");
    for message in &messages {
        app.steer(message, "cancel").await;
    }
    app.advance(Duration::from_secs(60)).await;
    app.sweep().await;
    // The victim of a deadlock retries, and gets 200 in the end.
    let deadlocks = "SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()";
    assert_eq!(scalar(&app.pool, deadlocks).await, 0);
    app.finish().await;
}
