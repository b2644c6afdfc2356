//! Daily partitions of the history are created and dropped beside concurrent reads and writes.

use std::time::{Duration, Instant};

use bellwire::testkit::server::maintenance;
use bellwire_store as store;
use bellwire_store::operations::partitions;
use chrono::Days;
use serde_json::json;
use sqlx::postgres::PgPool;
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;

use crate::support::app::{DAY, RETENTION, scalar};
use crate::support::citus::{cluster, partition_of_a_row};
use crate::support::{START, TestApp, TestDatabase};

/// An attempt that waits for its lock as before takes 3 s. One that gives up after 0.1 s is limited only by the load of the machine.
const GIVEN_UP_WITHIN: Duration = Duration::from_millis(2_500);

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_continue_during_a_backup_past_midnight() {
    let app = TestApp::start().await;
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    let to = json!({"subscriptions": [subscriber.id]});
    let mut backup = PgConnection::connect_with(&app.database.options()).await.unwrap();
    sqlx::raw_sql("BEGIN; LOCK TABLE attempts IN ACCESS SHARE MODE; SELECT count(*) FROM attempts")
        .execute(&mut backup)
        .await
        .unwrap();

    // Days have to be made, others to be dropped, and every lock that this takes is one that everybody waits behind.
    app.clock.advance(DAY * 37);
    let (began, pool, now) = (Instant::now(), app.pool.clone(), app.clock.now());
    let tending = tokio::spawn(async move { maintenance::tend_partitions(&pool, now, RETENTION).await });
    let mut messages = Vec::new();
    for _ in 0..5 {
        messages.push(app.send(to.clone(), json!({})).await);
        app.run_until_idle().await;
    }
    let error = tending.await.unwrap().expect_err("the backup reads");
    assert!(store::is_lock_timeout(&error), "{error}");
    assert!(began.elapsed() < GIVEN_UP_WITHIN, "everybody waited for {:?}", began.elapsed());
    for message in &messages {
        assert_eq!(app.counts(message).await["accepted"], 1);
    }

    sqlx::raw_sql("COMMIT").execute(&mut backup).await.unwrap();
    maintenance::tend_partitions(&app.pool, now, RETENTION).await.expect("nobody reads any more");
    let old = "SELECT count(*) FROM pg_class WHERE relname = 'attempts_20270114'";
    assert_eq!(scalar(&app.pool, old).await, 0, "a day past its retention is dropped");
    for message in &messages {
        assert_eq!(app.delivery(message, &subscriber.id).await["state"], "accepted", "its day is kept");
    }
    app.finish().await;
}

/// History that was written while there were no partitions: so many rows of each of these days, counted from [`START`].
async fn crowd(pool: &PgPool, days: std::ops::RangeInclusive<u64>, each: i32) {
    for day in days {
        sqlx::query(
            "INSERT INTO attempts (message, subscription, attempt, shard, at, ending)
             SELECT $1, gen_random_uuid(), 0, 0, 'epoch', 1 FROM generate_series(1, $2)",
        )
        .bind(id_of_day(day))
        .bind(each)
        .execute(pool)
        .await
        .unwrap();
    }
}

fn id_of_day(day: u64) -> Uuid {
    bellwire_core::clock::first_uuid_of(START + Days::new(day))
}

/// The partition that a message of that day has its attempts in.
async fn home(pool: &PgPool, day: u64) -> String {
    sqlx::query_scalar(AssertSqlSafe(format!(
        "SELECT {} FROM attempts WHERE message = $1 LIMIT 1",
        partition_of_a_row()
    )))
    .bind(id_of_day(day))
    .fetch_one(pool)
    .await
    .unwrap()
}

#[tokio::test]
async fn late_maintenance_recovers_its_partitions() {
    let database = TestDatabase::create().await;
    let pool = &database.pool;
    crowd(pool, 97..=100, 3_000).await;
    let now = START + Days::new(100);
    partitions::ensure(pool, now).await.expect("partitions beside a crowd");
    assert_eq!(home(pool, 99).await, "attempts_default", "what cannot be moved at once stays");
    crowd(pool, 101..=102, 1).await;
    assert_eq!(home(pool, 101).await, "attempts_default", "tomorrow's rows may be there already");
    assert_eq!(home(pool, 102).await, "attempts_20270427", "partitions begin with the day after");
    let constraints = "SELECT count(*) FROM pg_constraint WHERE conname = 'attempts_crowd'";
    assert_eq!(scalar(pool, constraints).await, 0);
    assert_eq!(scalar(pool, "SELECT count(*) FROM attempts").await, 12_002, "nothing is lost");

    // Retention: what is past it goes in chunks, what is not stays.
    let cutoff = START + Days::new(101);
    while partitions::clear_defaults(pool, cutoff).await.expect("a chunk") > 0 {}
    assert_eq!(scalar(pool, "SELECT count(*) FROM attempts").await, 2);
    partitions::ensure(pool, now).await.expect("the days that were left out");
    let (stays, moved) = ("attempts_default", "attempts_20270426");
    assert_eq!(home(pool, 101).await, if cluster().is_some() { stays } else { moved }, "what is no crowd is moved");
    crowd(pool, 103..=103, 1).await;
    assert_eq!(home(pool, 103).await, "attempts_20270428", "days after it have their own");
}
