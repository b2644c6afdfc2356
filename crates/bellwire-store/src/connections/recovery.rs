//! Waits for a starting Postgres: after a crash or restore it replays its WAL, and refuses connections or writes.

use std::time::Duration;

use sqlx::Connection as _;
use sqlx::postgres::PgConnectOptions;
use tokio::time::{Instant, sleep};

use super::tls;

const LOOK_EVERY: Duration = Duration::from_millis(250);
/// SQLSTATE `cannot_connect_now`: Postgres starts or stops (PostgreSQL manual, appendix A).
const STARTING: &str = "57P03";

#[derive(Debug, thiserror::Error)]
pub enum EndlessRecovery {
    #[error(
        "this Postgres is a standby that follows another server and takes no writes: name the primary, or promote this one"
    )]
    Standby,
    #[error(
        "the recovery of this Postgres is paused: end it with `SELECT pg_wal_replay_resume()` or `SELECT pg_promote()`"
    )]
    Paused,
    #[error(
        "this Postgres is in recovery and has replayed nothing for {0:?}: look at its log, or end the recovery with `SELECT pg_promote()`"
    )]
    Stalled(Duration),
}

/// State of a Postgres that responds.
#[derive(Debug, PartialEq, Eq, sqlx::FromRow)]
struct Recovery {
    is_over: bool,
    is_standby: bool,
    is_paused: bool,
    /// WAL position of the replay. `None`: no record was replayed yet.
    replayed: Option<String>,
}

/// Waits until Postgres accepts writes, while its recovery advances. Returns at once if it cannot be reached: the caller's own
/// connection fails with the reason. Fails if the recovery makes no progress for `patience`, or cannot end by itself.
pub async fn until_over(options: &PgConnectOptions, patience: Duration) -> Result<(), EndlessRecovery> {
    let (mut last, mut advanced_at, mut is_logged) = (None, Instant::now(), false);
    loop {
        let recovery = match look(options).await {
            Ok(recovery) => Some(recovery),
            Err(sqlx::Error::Database(error)) if error.code().as_deref() == Some(STARTING) => None,
            Err(_) => return Ok(()),
        };
        match &recovery {
            Some(found) if found.is_over => return Ok(()),
            Some(found) if found.is_standby => return Err(EndlessRecovery::Standby),
            Some(found) if found.is_paused => return Err(EndlessRecovery::Paused),
            _ => {}
        }
        if recovery != last {
            (last, advanced_at) = (recovery, Instant::now());
        } else if advanced_at.elapsed() > patience {
            return Err(EndlessRecovery::Stalled(patience));
        }
        if !std::mem::replace(&mut is_logged, true) {
            tracing::warn!("Postgres is in recovery, waiting until it takes writes");
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn look(options: &PgConnectOptions) -> sqlx::Result<Recovery> {
    let mut connection = tls::connect(options).await?;
    // pg_is_wal_replay_paused() fails outside of recovery, so it is called inside only.
    let recovery = sqlx::query_as(
        "SELECT NOT pg_is_in_recovery() AS is_over, EXISTS (SELECT FROM pg_stat_wal_receiver) AS is_standby,
                CASE WHEN pg_is_in_recovery() THEN pg_is_wal_replay_paused() ELSE false END AS is_paused,
                pg_last_wal_replay_lsn()::text AS replayed",
    )
    .persistent(false)
    .fetch_one(&mut connection)
    .await?;
    connection.close().await?;
    Ok(recovery)
}
