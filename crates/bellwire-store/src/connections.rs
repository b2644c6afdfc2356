//! Connections to Postgres: their settings, the choice among several hosts, and closing.
//!
//! Settings are applied with SET after a connection is opened. A PgBouncer in between would refuse start-up parameters, or
//! ignore them silently if configured so.

pub mod engine;
pub mod hosts;
pub mod pooler;
pub mod primary;
pub mod recovery;
pub mod replica;
pub mod tls;
pub mod watch;

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection};

use super::operations::takeover::SESSION;
use primary::Primary;

/// Schema of all tables and functions.
pub const SCHEMA: &str = "bellwire";
/// Timeout after which Postgres ends a transaction whose client does nothing, so that its row locks do not outlast a lease.
const IDLE_IN_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout of a statement. Normal statements are faster, and callers wait no longer.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);
/// Timeout of waiting for a connection.
pub const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
const STANDBY_ACQUIRE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time that start-up waits for all connections of a pool.
const OPEN_WITHIN: Duration = Duration::from_secs(2);
/// Idle time after which a connection is tested before use. Testing each time would cost a round trip per transaction.
const TRUSTED_FOR: Duration = Duration::from_secs(5);
/// Prepared statements cached by each connection: more than the program has.
const STATEMENTS: usize = 400;
/// `application_name` of the connections.
const APPLICATION: &str = "bellwire";

/// Receiver of connection metrics.
pub trait ConnectionMetrics: Send + Sync {
    /// Reports whether a host of the database accepts writes.
    fn writable(&self, is_writable: bool);
    /// Counts a switch to another primary.
    fn failover(&self);
    /// Reports whether commits wait too long for a synchronous standby.
    fn commits_unconfirmed(&self, is_stuck: bool);
    /// Reports whether reads use the standby, and its lag if known.
    fn read_replica(&self, is_usable: bool, lag: Option<Duration>);
}

/// Settings of the connections of a pool.
#[derive(Clone)]
pub struct Session {
    options: PgConnectOptions,
    settings: Vec<(&'static str, String)>,
    primary: Primary,
    standby: bool,
    acquire_within: Duration,
}

/// Omits the options, which contain a password.
impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("settings", &self.settings)
            .field("standby", &self.standby)
            .finish_non_exhaustive()
    }
}

impl From<PgConnectOptions> for Session {
    /// Creates the settings for all normal statements.
    fn from(options: PgConnectOptions) -> Self {
        let settings = vec![
            ("search_path", SCHEMA.to_owned()),
            ("idle_in_transaction_session_timeout", super::milliseconds(IDLE_IN_TRANSACTION_TIMEOUT)),
            ("statement_timeout", super::milliseconds(STATEMENT_TIMEOUT)),
            // Statements take a millisecond. On a Postgres with default settings, compiling the lane poll at each look cost a
            // quarter of a core, and parallel workers would cost more than they gain.
            ("jit", "off".to_owned()),
            ("max_parallel_workers_per_gather", "0".to_owned()),
        ];
        Self { options, settings, primary: Primary::unwatched(), standby: false, acquire_within: ACQUIRE_TIMEOUT }
    }
}

/// Returns settings for connections of the dispatch engine. Its tables fill and empty within seconds, so the planner's
/// statistics are always wrong. Each statement is written for one index plan, and these settings disable all other plans.
pub fn by_index_only(session: impl Into<Session>) -> Session {
    let mut session = session.into();
    let off = ["enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin"];
    session.settings.extend(off.map(|plan| (plan, "off".to_owned())));
    session.settings.push(("plan_cache_mode", "force_generic_plan".to_owned()));
    session
}

impl Session {
    pub fn of(mut self, primary: &Primary) -> Self {
        self.primary = primary.clone();
        self
    }

    /// Allows connections to a standby, for reading. The wait for a connection is short, because callers can read from the
    /// primary instead.
    pub fn or_standby(mut self) -> Self {
        (self.standby, self.acquire_within) = (true, STANDBY_ACQUIRE_TIMEOUT);
        self
    }

    /// Applies all settings on a new connection in one round trip. Refuses a connection to a standby or a former primary if the
    /// pool needs the primary.
    async fn begin(&self, connection: &mut PgConnection) -> sqlx::Result<()> {
        let (names, values): (Vec<String>, Vec<String>) =
            self.settings.iter().map(|(name, value)| ((*name).to_owned(), value.clone())).unzip();
        let began = fetch_one!(
            &mut *connection,
            r#"SELECT pg_is_in_recovery() AS "standby!",
                      CASE WHEN $3 AND NOT pg_is_in_recovery() THEN pg_walfile_name(pg_current_wal_lsn()) END AS wal_file,
                      to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL AS "has_citus!",
                      ARRAY(SELECT set_config(name, value, false)
                            FROM unnest($1::text[], $2::text[]) AS setting (name, value)) AS "set!""#,
            (&names, &values, self.primary.has_timelines())
        )?;
        let is_distributed = began.has_citus && engine::look(connection).await?;
        engine::remember(is_distributed);
        if is_distributed {
            engine::set(connection).await?;
        }
        if began.standby && !self.standby {
            return Err(sqlx::Error::Configuration("this Postgres is a standby, which takes no writes".into()));
        }
        if began.wal_file.as_deref().and_then(primary::timeline_of).is_some_and(|of| self.primary.is_past(of)) {
            return Err(sqlx::Error::Configuration("this Postgres was the primary before another one".into()));
        }
        Ok(())
    }
}

/// Opens a pool of up to `connections`, and tests that it can connect.
pub async fn connect(session: impl Into<Session>, connections: u32) -> Result<PgPool, sqlx::Error> {
    let pool = connect_lazily(session, connections);
    pool.acquire().await?;
    Ok(pool)
}

/// Creates a pool that connects at its first use.
pub fn connect_lazily(session: impl Into<Session>, connections: u32) -> PgPool {
    let session = session.into();
    let options = for_pool(session.options.clone());
    pool_options(session, connections).connect_lazy_with(options)
}

/// Creates a pool for work that may be idle for hours and is then urgent: it keeps its connections open. A new connection would
/// first have to parse and plan every statement. Connections to a former primary are closed: see [`primary`].
pub fn connect_to_stay(session: impl Into<Session>, connections: u32) -> PgPool {
    let session = session.into();
    let options = for_pool(session.options.clone());
    pool_options(session, connections).idle_timeout(None).max_lifetime(None).connect_lazy_with(options)
}

fn pool_options(session: Session, connections: u32) -> PgPoolOptions {
    let primary = session.primary.clone();
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(session.acquire_within)
        .test_before_acquire(false)
        .after_connect(move |connection, _| {
            let session = session.clone();
            Box::pin(async move { session.begin(connection).await })
        })
        .before_acquire(move |connection, about| {
            let is_stale = primary.is_stale(about.age);
            Box::pin(async move {
                if !is_stale && about.idle_for > TRUSTED_FOR {
                    connection.ping().await?;
                }
                Ok(!is_stale)
            })
        })
}

/// Returns options for a pool's connections to a host. `extra_float_digits` keeps Postgres' default, which is exact since
/// version 12, because PgBouncer refuses it.
fn for_pool(options: PgConnectOptions) -> PgConnectOptions {
    plain(options).statement_cache_capacity(STATEMENTS)
}

/// Returns options for any connection, without start-up parameters that PgBouncer refuses. An `application_name` that is
/// already set stays.
pub fn plain(options: PgConnectOptions) -> PgConnectOptions {
    let named = options.get_application_name().is_some_and(|name| name.starts_with(SESSION));
    let options = if named { options } else { options.application_name(APPLICATION) };
    tls::fall_back(options.extra_float_digits(None))
}

/// Logs statements that take longer than `limit` at `warn`.
pub fn slow_after(options: PgConnectOptions, limit: Duration) -> PgConnectOptions {
    // A level of the crate `log`, which we have no other use for.
    options.log_slow_statements("warn".parse().expect("a level"), limit)
}

/// Returns a pool of one connection to the host of another pool, opened at its first use. It is for statements that must not
/// wait for the other pool.
pub fn alone_beside(pool: &PgPool) -> PgPool {
    pool.options().clone().max_connections(1).connect_lazy_with((*pool.connect_options()).clone())
}

/// Opens all connections of a pool now, instead of under load. Connections that fail, for example because of a limit in
/// Postgres, are opened when they are needed.
pub async fn open_all(pool: &PgPool) {
    let connections = (0..pool.options().get_max_connections()).map(|_| pool.acquire());
    drop(tokio::time::timeout(OPEN_WITHIN, futures_util::future::join_all(connections)).await);
}

/// Tests the open connections of a pool one by one, and closes dead ones. Firewalls drop connections that are silent for some
/// minutes, and the next user would have to wait.
pub async fn try_all(pool: &PgPool) {
    for _ in 0..pool.size() {
        drop(pool.acquire().await); // it is tried because it rested; they come by in turn
    }
}

#[cfg(test)]
#[path = "../../../tests/crates/store/unit/connections.rs"]
mod tests;
