//! What has to be done now and then, by any one replica: partitions, sweeps, retention. Every step is idempotent and
//! locks what it touches, so that replicas that do the same at the same time only waste a little.

use std::time::Duration;

use sqlx::PgPool;
use tokio::time::{MissedTickBehavior, interval};
use tracing::{info, warn};

use crate::clock::{Clock, Timestamp};
use crate::store::{figures, partitions, refusals, steering, sweeps, throttles};

/// How often overdue work is looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(2);
/// How often partitions are made and dropped and old rows cleared.
const KEEP_EVERY: Duration = Duration::from_secs(3600);

/// Sweeps and keeps house for ever. `retention` is how long attempts and receipts are kept; it exceeds the longest
/// time to live.
pub async fn maintain(pool: PgPool, clock: Clock, retention: Duration) {
    let mut ticks = interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut keep_at = clock.now();
    loop {
        ticks.tick().await;
        let now = clock.now();
        if let Err(error) = sweep(&pool, now).await {
            warn!(%error, "sweeping failed; it is tried again");
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
    Ok(())
}

/// One round of partitions and retention.
pub async fn keep_house(pool: &PgPool, now: Timestamp, retention: Duration) -> sqlx::Result<()> {
    partitions::ensure(pool, now).await?;
    let dropped = partitions::drop_before(pool, now - retention).await?;
    if dropped > 0 {
        info!(dropped, "dropped partitions of history that is past its retention");
    }
    throttles::clear(pool, now).await?;
    figures::clear(pool, now).await?;
    sweeps::clear(pool, now).await
}
