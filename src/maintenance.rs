//! What has to be done now and then, by any one replica: partitions, sweeps, retention. Every step is idempotent and
//! locks what it touches, so that replicas that do the same at the same time only waste a little.

use std::time::Duration;

use sqlx::PgPool;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use crate::clock::{Clock, Timestamp};
use crate::store::{audit, figures, partitions, refusals, steering, sweeps, throttles, topics};

/// How often overdue work is looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(2);
/// How often figures are compared with their alert lines.
const WATCH_EVERY: Duration = Duration::from_secs(60);
/// How often partitions are made and dropped and old rows cleared.
const KEEP_EVERY: Duration = Duration::from_secs(3600);

/// How long things are kept.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// Attempts and receipts; longer than the longest time to live.
    pub history: Duration,
    /// Dead letters, the trail of what was done with them, and events.
    pub archive: Duration,
    /// The audit log; none: for ever.
    pub audit_log: Option<Duration>,
}

/// Sweeps and keeps house for ever.
pub async fn maintain(pool: PgPool, clock: Clock, retention: Retention) {
    let mut ticks = interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut keep_at, mut watch_at) = (clock.now(), clock.now());
    loop {
        ticks.tick().await;
        let now = clock.now();
        if let Err(error) = sweep(&pool, now).await {
            warn!(%error, "sweeping failed; it is tried again");
        }
        if now >= watch_at {
            match figures::watch(&pool, now).await {
                Ok(_) => watch_at = now + WATCH_EVERY,
                Err(error) => warn!(%error, "figures could not be watched; it is tried again"),
            }
        }
        if now >= keep_at {
            match keep_house(&pool, now, retention).await {
                Ok(()) => keep_at = now + KEEP_EVERY,
                Err(error) => warn!(%error, "keeping house failed; it is tried again"),
            }
        }
    }
}

/// One round of sweeps: everything that can be swept now is.
pub async fn sweep(pool: &PgPool, now: Timestamp) -> sqlx::Result<()> {
    for message in sweeps::half_turned(pool, now).await? {
        while steering::go_on(pool, message, now).await? {}
    }
    while sweeps::expire_parked(pool, now).await? > 0 {}
    while sweeps::expire_subscriptions(pool, now).await? > 0 {}
    while refusals::suspend(pool, now).await? > 0 {}
    while sweeps::delete_contents(pool, now).await? > 0 {}
    while topics::clear_removed(pool).await? > 0 {}
    Ok(())
}

/// One round of partitions and retention.
pub async fn keep_house(pool: &PgPool, now: Timestamp, retention: Retention) -> sqlx::Result<()> {
    partitions::ensure(pool, now).await?;
    let dropped = partitions::drop_before(pool, now - retention.history).await?;
    if dropped > 0 {
        info!(dropped, "dropped partitions of history that is past its retention");
    }
    throttles::clear(pool, now).await?;
    figures::clear(pool, now).await?;
    while topics::clear_unused(pool, now).await? > 0 {}
    while sweeps::clear_archive(pool, now - retention.archive).await? > 0 {}
    if let Some(kept) = retention.audit_log {
        audit::clear(pool, now - kept).await?;
    }
    sweeps::clear(pool, now).await
}
