//! How often the embedded Postgres does what it does by the clock. Queue, batches and cursors turn over within seconds while something is
//! sent, and a minute between looks for dead rows would let them bloat; while nothing happens, each look is a process that starts for
//! nothing. What is committed without waiting for the disk, which is heartbeats alone, is written out five times a second by default.

use std::time::Duration;

use sqlx::PgPool;
use tokio::time::Instant;
use tracing::debug;

use crate::store::operations::setup;

/// How often it is looked whether rows change.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// So many rows in that time, and something is being sent. Heartbeats are far below.
const MANY: i64 = 500;
/// Few change again when they have been few for so long: what has died by then was seen.
const CALM_AFTER: Duration = Duration::from_secs(60);
/// Seconds between two looks of Postgres while many rows change, and otherwise.
const BUSY_S: u32 = 5;
const CALM_S: u32 = 60;
/// Milliseconds between two looks of Postgres for log to write: its default, and otherwise.
const BUSY_LOG_MS: u32 = 200;
const CALM_LOG_MS: u32 = 2_000;

/// Sets the pace of the embedded Postgres.
#[derive(Debug)]
pub(super) struct Pace {
    looked_at: Option<Instant>,
    busy_at: Instant,
    changed: i64,
    naptime_s: u32,
}

impl Pace {
    /// Looks often at first: nobody knows what was left.
    pub(super) fn new() -> Self {
        Self { looked_at: None, busy_at: Instant::now(), changed: 0, naptime_s: 0 }
    }

    /// To be called about once a second.
    pub(super) async fn keep(&mut self, pool: &PgPool) {
        let now = Instant::now();
        if self.looked_at.is_some_and(|at| now - at < LOOK_EVERY) {
            return;
        }
        self.looked_at = Some(now);
        let set = async {
            let changed = setup::rows_changed(pool).await?;
            let wanted = self.take_in(changed, now);
            if wanted != self.naptime_s {
                let log_ms = if wanted == BUSY_S { BUSY_LOG_MS } else { CALM_LOG_MS };
                setup::set_pace(pool, wanted, log_ms).await?;
                self.naptime_s = wanted;
            }
            Ok::<_, sqlx::Error>(())
        };
        if let Err(error) = set.await {
            debug!(%error, "how often Postgres looks for dead rows stays as it is");
        }
    }

    /// The seconds between two looks of Postgres that fit what was found.
    fn take_in(&mut self, changed: i64, now: Instant) -> u32 {
        // Statistics begin anew after a crash.
        if (changed - self.changed).abs() > MANY {
            self.busy_at = now;
        }
        self.changed = changed;
        if now - self.busy_at < CALM_AFTER { BUSY_S } else { CALM_S }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn postgres_looks_often_while_rows_change_and_for_a_minute_after() {
        let (mut pace, now) = (Pace::new(), Instant::now());
        let at = |s| now + Duration::from_secs(s);
        assert_eq!(pace.take_in(100, at(5)), BUSY_S, "at first");
        assert_eq!(pace.take_in(110, at(61)), CALM_S);
        assert_eq!(pace.take_in(10_000, at(70)), BUSY_S);
        assert_eq!(pace.take_in(10_010, at(129)), BUSY_S);
        assert_eq!(pace.take_in(10_020, at(130)), CALM_S);
        assert_eq!(pace.take_in(0, at(135)), BUSY_S, "it crashed");
    }
}
