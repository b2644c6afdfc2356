//! What has to be done now and then, by any one replica: partitions, sweeps, retention, erasures and removals. Every step is
//! idempotent and locks what it touches, so that replicas that do the same at the same time only waste a little.
//!
//! What is long (a day's messages, a whole app) is done in transactions of a fraction of a second each. Between them
//! maintenance rests, so that it never takes more than a part of one connection; where it breaks off, it goes on from what is
//! left.

use std::time::Duration;

use sqlx::PgPool;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tracing::{info, warn};

use crate::clock::{Clock, Timestamp};
use crate::store::{self, figures, partitions, refusals, steering, sweeps, throttles};

/// How often overdue work is looked for.
const SWEEP_EVERY: Duration = Duration::from_secs(2);
/// How often figures are compared with their alert lines.
const WATCH_EVERY: Duration = Duration::from_secs(60);
/// How often partitions are made and dropped and old rows cleared.
const KEEP_EVERY: Duration = Duration::from_secs(3600);
/// When they are tried again after a failure. Partitions that somebody reads are not fought for: each try holds up
/// everybody for a moment.
const KEEP_AGAIN: Duration = Duration::from_secs(60);
/// How many times as long as a chunk took maintenance rests before the next one: it never takes more than a fifth of a
/// connection.
const REST_FACTOR: u32 = 4;

/// How long things are kept.
#[derive(Debug, Clone, Copy)]
pub struct Retention {
    /// Attempts and receipts; longer than the longest time to live.
    pub history: Duration,
    /// Dead letters, the trail of what was done with them, and events.
    pub archive: Duration,
}

/// Work that is due every so often, and sooner after it failed.
#[derive(Debug, Clone, Copy)]
struct Chore {
    due_at: Timestamp,
    every: Duration,
    again_after: Duration,
}

impl Chore {
    /// Due at once.
    fn new(now: Timestamp, every: Duration, again_after: Duration) -> Self {
        Self { due_at: now, every, again_after }
    }

    fn is_due(&self, now: Timestamp) -> bool {
        now >= self.due_at
    }

    /// Takes in what became of it, and logs a failure.
    fn tried<T>(&mut self, name: &str, result: &sqlx::Result<T>, now: Timestamp) {
        self.due_at = now + if result.is_ok() { self.every } else { self.again_after };
        match result {
            Ok(_) => {}
            Err(error) if store::is_lock_timeout(error) => {
                info!(chore = name, "put off: somebody is reading what it would change, such as a backup");
            }
            Err(error) => warn!(%error, chore = name, "maintenance failed; it is tried again"),
        }
    }
}

/// Looks for what is overdue, for ever.
pub async fn sweep_on(pool: PgPool, clock: Clock) {
    let mut sweeping = Chore::new(clock.now(), Duration::ZERO, Duration::ZERO);
    let mut watching = Chore::new(clock.now(), WATCH_EVERY, Duration::ZERO);
    let mut ticks = ticks();
    loop {
        ticks.tick().await;
        let now = clock.now();
        let swept = sweep(&pool, now).await;
        sweeping.tried("sweeping", &swept, now);
        if watching.is_due(now) {
            let watched = figures::watch(&pool, now).await;
            watching.tried("watching figures", &watched, now);
        }
    }
}

/// Keeps house for ever: apart from [`sweep_on`], since it may take hours.
pub async fn keep_on(pool: PgPool, clock: Clock, retention: Retention) {
    let mut partitioning = Chore::new(clock.now(), KEEP_EVERY, KEEP_AGAIN);
    let mut keeping = Chore::new(clock.now(), KEEP_EVERY, KEEP_AGAIN);
    let mut ticks = ticks();
    loop {
        ticks.tick().await;
        let now = clock.now();
        if partitioning.is_due(now) {
            let tended = tend_partitions(&pool, now, retention).await;
            partitioning.tried("partitioning", &tended, now);
        }
        if keeping.is_due(now) {
            let kept = keep_house(&pool, now, retention).await;
            keeping.tried("keeping house", &kept, now);
        }
    }
}

fn ticks() -> tokio::time::Interval {
    let mut ticks = interval(SWEEP_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
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
    Ok(())
}

/// Makes the partitions of days to come and drops those of days that are past their retention. Fails, having held up nobody
/// for longer than a tenth of a second, while somebody reads them; then it should not be tried again at once.
pub async fn tend_partitions(pool: &PgPool, now: Timestamp, retention: Retention) -> sqlx::Result<()> {
    partitions::ensure(pool, now).await?;
    let dropped = partitions::drop_before(pool, now - retention.history).await?;
    if dropped > 0 {
        info!(dropped, "dropped partitions of history that is past its retention");
    }
    Ok(())
}

/// Clears away all rows that are past their retention, in chunks.
pub async fn keep_house(pool: &PgPool, now: Timestamp, retention: Retention) -> sqlx::Result<()> {
    until_none(|| partitions::clear_defaults(pool, now - retention.history)).await?;
    throttles::clear(pool, now).await?;
    figures::clear(pool, now).await?;
    until_none(|| sweeps::clear_archive(pool, now - retention.archive)).await?;
    sweeps::clear(pool, now).await
}

/// Clears away chunk after chunk until there is nothing left, and rests after each.
async fn until_none<F: Future<Output = sqlx::Result<u64>>>(mut chunk: impl FnMut() -> F) -> sqlx::Result<()> {
    loop {
        let began = Instant::now();
        if chunk().await? == 0 {
            return Ok(());
        }
        sleep(began.elapsed() * REST_FACTOR).await;
    }
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    #[test]
    fn a_chore_that_failed_is_not_due_again_at_once() {
        let now: Timestamp = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
        let mut chore = Chore::new(now, KEEP_EVERY, KEEP_AGAIN);
        assert!(chore.is_due(now));
        chore.tried("test", &sqlx::Result::<()>::Err(sqlx::Error::PoolTimedOut), now);
        assert!(!chore.is_due(now + Duration::from_secs(59)) && chore.is_due(now + Duration::from_secs(60)));
        chore.tried("test", &Ok(()), now);
        assert!(!chore.is_due(now + Duration::from_secs(3599)) && chore.is_due(now + KEEP_EVERY));
    }
}
