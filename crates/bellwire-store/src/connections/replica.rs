//! Standby for reads that may be stale: lists, charts, searches, exports. Callers that read their own writes use the primary.
//!
//! The lag is measured by WAL positions of the primary with their times, not by the standby's clock or its last commit. So the
//! lag of a disconnected standby grows, and that of an idle one does not.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPool};
use tokio::time::{Instant, MissedTickBehavior, interval, timeout};
use tracing::{info, warn};

use super::hosts::{DatabaseHosts, name};
use super::primary::Primary;
use super::{ConnectionMetrics, Session, connect_lazily, for_pool};

/// Interval of reading the WAL positions of primary and standby.
const ASK_EVERY: Duration = Duration::from_millis(500);
const ANSWER_WITHIN: Duration = Duration::from_secs(1);

/// Pools for reads that may be stale. Clones share them.
#[derive(Debug, Clone)]
pub struct Reads {
    primary: PgPool,
    replica: Option<Replica>,
}

/// Standby for reads, if it is usable.
#[derive(Debug, Clone)]
struct Replica {
    pool: PgPool,
    hosts: DatabaseHosts,
    host: Primary,
    lag_max: Duration,
    is_usable: Arc<AtomicBool>,
}

impl Reads {
    pub fn at(primary: PgPool) -> Self {
        Self { primary, replica: None }
    }

    /// Reads from a standby among `hosts` while its lag is at most `lag_max`, otherwise from the primary.
    pub fn or_at(primary: PgPool, hosts: DatabaseHosts, connections: u32, lag_max: Duration) -> Self {
        let host = Primary::unwatched();
        let pool = connect_lazily(Session::from(hosts.all()[0].clone()).of(&host).or_standby(), connections);
        Self { primary, replica: Some(Replica { pool, hosts, host, lag_max, is_usable: Arc::default() }) }
    }

    pub fn pool(&self) -> &PgPool {
        match &self.replica {
            Some(replica) if replica.is_usable.load(Ordering::Acquire) => &replica.pool,
            _ => &self.primary,
        }
    }

    /// Returns the pool of the standby. `None`: no standby is configured.
    pub fn replica(&self) -> Option<&PgPool> {
        self.replica.as_ref().map(|replica| &replica.pool)
    }

    /// Closes the connections to the standby.
    pub async fn close(&self) {
        if let Some(pool) = self.replica() {
            pool.close().await;
        }
    }

    /// Measures the lag of the standby in an endless loop. Without a standby it waits forever.
    pub async fn watch_on(self, metrics: Arc<dyn ConnectionMetrics>) {
        let Some(replica) = self.replica else { return std::future::pending().await };
        let mut written = WalPositions::default();
        let mut ticks = interval(ASK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let (mut host, mut was_usable) = (0, None);
        loop {
            ticks.tick().await;
            let asked = Instant::now();
            if let Ok(Ok(up_to)) = timeout(ANSWER_WITHIN, position(&self.primary)).await {
                written.note(asked, up_to);
            }
            let lag = match timeout(ANSWER_WITHIN, position(&replica.pool)).await {
                Ok(Ok(replayed)) => Ok(written.lag(replayed, Instant::now())),
                Ok(Err(error)) => Err(error.to_string()),
                Err(_) => Err("it does not answer".to_owned()),
            };
            let is_usable = matches!(lag, Ok(Some(lag)) if lag <= replica.lag_max);
            replica.is_usable.store(is_usable, Ordering::Release);
            metrics.read_replica(is_usable, lag.as_ref().ok().copied().flatten());
            let options = &replica.hosts.all()[host];
            if was_usable.replace(is_usable) != Some(is_usable) {
                tell(is_usable, options, &lag);
            }
            if !is_usable && replica.hosts.are_several() {
                host = (host + 1) % replica.hosts.all().len();
                replica.host.chosen(0);
                replica.pool.set_connect_options(for_pool(replica.hosts.all()[host].clone()));
            }
        }
    }
}

fn tell(is_usable: bool, options: &PgConnectOptions, lag: &Result<Option<Duration>, String>) {
    let host = name(options);
    match (is_usable, lag) {
        (true, _) => info!(host, "reads that may lag go to this standby"),
        (false, Err(error)) => {
            warn!(host, error, "the standby for reading cannot be used; the primary is read instead")
        }
        (false, Ok(lag)) => {
            let lag_s = lag.map(|lag| lag.as_secs_f64());
            warn!(host, lag_s, "the standby for reading lags too far; the primary is read instead");
        }
    }
}

/// Returns the WAL position in bytes that a primary has written, or a standby has replayed.
async fn position(pool: &PgPool) -> sqlx::Result<i64> {
    fetch_one!(
        pool,
        scalar,
        r#"SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_flush_lsn() END
                   - '0/0'::pg_lsn)::bigint AS "position!""#
    )
}

/// WAL positions of the primary with their times, the oldest first.
#[derive(Debug, Default)]
struct WalPositions(VecDeque<(Instant, i64)>);

impl WalPositions {
    /// Maximum stored positions: ten minutes, which is the maximum allowed lag.
    const KEPT: usize = 1_200;

    fn note(&mut self, at: Instant, up_to: i64) {
        self.0.push_back((at, up_to));
        if self.0.len() > Self::KEPT {
            self.0.pop_front();
        }
    }

    /// Returns the age of the first position that the standby has not replayed. `None`: older than all stored positions.
    fn lag(&self, replayed: i64, now: Instant) -> Option<Duration> {
        self.0.iter().rev().find(|(_, up_to)| *up_to <= replayed).map(|(at, _)| now - *at)
    }
}

#[cfg(test)]
#[path = "../../../../tests/crates/store/unit/replica.rs"]
mod tests;
