//! Intervals of the embedded Postgres for autovacuum and for its WAL writer. Queue, batches and cursors turn over
//! within seconds during a campaign, and would bloat between two autovacuum rounds of a minute. In idle times each
//! round only starts a process in vain. The WAL writer serves commits without a disk sync, which are heartbeats only,
//! five times a second by default.

use std::time::Duration;

use sqlx::PgPool;
use tokio::time::Instant;
use tracing::debug;

use bellwire_store::operations::setup;

const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Changed rows in that interval that mean a campaign. Heartbeats change far fewer.
const MANY: i64 = 500;
/// Time with few changes after which few are expected, and all dead rows have been vacuumed.
const CALM_AFTER: Duration = Duration::from_secs(60);
/// Seconds between autovacuum rounds while many rows change, and otherwise.
const BUSY_S: u32 = 5;
const CALM_S: u32 = 60;
/// Milliseconds between rounds of the WAL writer: the default of Postgres, and otherwise.
const BUSY_LOG_MS: u32 = 200;
const CALM_LOG_MS: u32 = 2_000;

#[derive(Debug)]
pub(super) struct Pace {
    looked_at: Option<Instant>,
    busy_at: Instant,
    changed: i64,
    naptime_s: u32,
}

impl Pace {
    /// Starts with the short interval, because the number of dead rows is unknown.
    pub(super) fn new() -> Self {
        Self { looked_at: None, busy_at: Instant::now(), changed: 0, naptime_s: 0 }
    }

    /// Adapts the intervals. The caller calls it about once a second.
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

    /// Returns the seconds between autovacuum rounds for this number of changes.
    fn take_in(&mut self, changed: i64, now: Instant) -> u32 {
        // Statistics restart at zero after a crash.
        if (changed - self.changed).abs() > MANY {
            self.busy_at = now;
        }
        self.changed = changed;
        if now - self.busy_at < CALM_AFTER { BUSY_S } else { CALM_S }
    }
}

#[cfg(test)]
#[path = "../../tests/unit/server/vacuum.rs"]
mod tests;
