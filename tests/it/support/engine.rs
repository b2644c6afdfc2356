//! Engines of a test: without one, with two, and with one that crashed.

use std::time::Duration;

use bellwire_core::clock::{Clock, Timestamp};
use bellwire_core::delivery::Tier;
use bellwire_core::id::LaneId;
use bellwire_store::queue::claims::{self, DueSpan, LEASE};
use sqlx::PgPool;

use super::app::{PATIENCE, Setup, TestApp, Worker, scalar};
use super::database::TestDatabase;

/// An app on the system clock whose own engine has stopped: processes make its deliveries.
pub async fn without_engine() -> TestApp {
    without_engine_on(None).await
}

/// The same on this database.
pub async fn without_engine_on(database: Option<TestDatabase>) -> TestApp {
    let app = TestApp::with(Setup { clock: Some(Clock::system()), database, ..Setup::default() }).await;
    app.dispatcher.stop(Duration::ZERO).await;
    app
}

/// Makes all leases run out, as if their time had passed.
pub async fn expire_leases(pool: &PgPool) {
    for table in [
        "UPDATE batches SET due_at = due_at - interval '1 minute'",
        "UPDATE queue SET due_at = due_at - interval '1 minute' WHERE lease IS NOT NULL",
    ] {
        sqlx::query(table).execute(pool).await.expect("the statement is right");
    }
}

/// Waits until the engine has read all changes of other processes.
pub async fn until_changes_read(app: &TestApp) {
    // What it reads after the stops. A second reading that begins from now on follows on a whole reading of the stops.
    let reading = "SELECT max(query_start) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE $1
                   AND query_start > $2";
    let mut since: Timestamp = sqlx::query_scalar("SELECT clock_timestamp()").fetch_one(&app.pool).await.unwrap();
    for _ in 0..2 {
        let next = async {
            loop {
                let read =
                    sqlx::query_scalar(reading).bind("/* read_lane_states */%").bind(since).fetch_one(&app.pool).await;
                match read.unwrap() {
                    Some(read) => break read,
                    None => tokio::task::yield_now().await,
                }
            }
        };
        since = tokio::time::timeout(PATIENCE, next).await.expect("it reads several times a second");
    }
}

/// Claims all due rows and a batch for a worker that never settles them.
pub async fn claim_and_crash(app: &TestApp, tier: Tier) {
    let lane = LaneId(i32::try_from(scalar(&app.pool, "SELECT id::bigint FROM lanes").await).unwrap());
    let (now, lease) = (app.clock.now(), app.clock.uuid());
    claims::claim_rows(&app.pool, DueSpan::all(lane, tier, now), 500, lease, now + LEASE).await.unwrap();
    claims::take_batch(&app.pool, DueSpan::all(lane, tier, now), 500, app.clock.uuid(), now + LEASE).await.unwrap();
}

/// Moves the clock, and lets both engines work off what became due. They are idle when it moves: no lease runs out.
pub async fn advance_both(app: &TestApp, other: &Worker, by: Duration) {
    app.run_until_idle_with(other).await;
    app.clock.advance(by);
    app.run_until_idle_with(other).await;
}
