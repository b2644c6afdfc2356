//! All SQL, in rooms by what they keep. One file for each group of tables; functions are named after the transition that
//! they make.
//!
//! Here: connecting, and telling errors that pass from errors that stay. [`schema`](operations::schema) says where in a database all of it lies.
//!
//! # The order of locks
//!
//! Whoever changes several rows in one transaction locks them in this order, so that no two wait for each other:
//!
//! 0. `campaigns` by id, with their runs and parts
//! 1. `messages` by id, where a message is steered, and its `cursors` by lane; the batch that is being settled
//! 2. `subscriptions` by (shard, id), and with them whatever is found by them: `topic_members`, policies, stops; `cap_uses` by person
//! 3. `receipt_counts` by message
//! 4. `queue` by (shard, subscription, message), but for rows that are skipped where they are locked
//! 5. `dead_letters` by (message, id), and then `messages` whose content they hold, by id
//! 6. `message_counts` by (message, lane)
//! 7. `webhooks` by id, and `apps` for what they hear
//! 8. `alerts`, and last [`events`](outcomes::events), which are shared by everything that happens within a minute
//!
//! Whoever [adds to or forgets `habits`](audience::habits) waits for an advisory lock and holds it to the end: whoever has that takes no
//! lock of 0 to 5 any more.
//!
//! Rows that many transactions add to come late, so that they are held for a short time. [`tally`](outcomes::tally) writes 6. What figures
//! over time and [webhooks](hooks) are told is [noted](outcomes::notes) at any place: rows that are only inserted keep nobody waiting.
//! Parts of one statement have no order of their own (Postgres runs those that nothing refers to backwards): where one
//! statement writes both, the later refers to the earlier. What collides all the same is undone by Postgres and
//! [runs again](operations::retrying).

pub(crate) mod audience;
pub(crate) mod campaigns;
pub(crate) mod hooks;
pub(crate) mod keys;
pub(crate) mod keyset;
pub(crate) mod operations;
pub(crate) mod outcomes;
pub(crate) mod queue;
pub(crate) mod results;

use std::time::Duration;

use sqlx::postgres::{PgConnectOptions, PgPool, PgPoolOptions};
use sqlx::{Connection, PgConnection, PgExecutor};

use crate::model::clock::Timestamp;
pub(crate) use operations::schema::migrate_new;
pub use operations::schema::{Beside, SchemaError, check_schema, migrate};
pub use results::Progress;
pub(crate) use results::Written;

/// A transaction that lost its client is ended by Postgres, so that the rows it locked do not stay locked for longer
/// than a lease.
const IDLE_IN_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(20);
/// No statement of ours takes longer unless something is wrong; whoever waited for it has given up by then.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long to wait for a connection before saying that there is none.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a start waits for all connections of a pool.
const OPEN_WITHIN: Duration = Duration::from_secs(2);
/// A connection that rested for longer is tried before it is used. Trying each one costs a round trip per transaction.
const TRUSTED_FOR: Duration = Duration::from_secs(5);
/// Prepared statements that each connection keeps: more than the program has.
const STATEMENTS: usize = 400;

/// Opens a pool of up to `connections`, and proves that it can connect.
pub async fn connect(options: PgConnectOptions, connections: u32) -> Result<PgPool, sqlx::Error> {
    let pool = connect_lazily(options, connections);
    pool.acquire().await?;
    Ok(pool)
}

/// The same, but connects when it is first used.
pub fn connect_lazily(options: PgConnectOptions, connections: u32) -> PgPool {
    let options =
        operations::schema::within(options, operations::schema::SCHEMA).statement_cache_capacity(STATEMENTS).options([
            ("idle_in_transaction_session_timeout", milliseconds(IDLE_IN_TRANSACTION_TIMEOUT)),
            ("statement_timeout", milliseconds(STATEMENT_TIMEOUT)),
        ]);
    // Statements take a millisecond. On a Postgres with default settings, compiling the lane poll at each look cost a
    // quarter of a core, and parallel workers would cost more than they gain.
    let options = options.options([("jit", "off"), ("max_parallel_workers_per_gather", "0")]);
    PgPoolOptions::new()
        .max_connections(connections)
        .acquire_timeout(ACQUIRE_TIMEOUT)
        .test_before_acquire(false)
        .before_acquire(|connection, about| {
            Box::pin(async move {
                if about.idle_for > TRUSTED_FOR {
                    connection.ping().await?;
                }
                Ok(true)
            })
        })
        .connect_lazy_with(options)
}

/// Opens all connections that a pool may have. Otherwise it opens them when it is short of them, which is when everybody
/// is in a hurry. What cannot be opened soon, since Postgres allows fewer, say, is opened then.
pub(crate) async fn open_all(pool: &PgPool) {
    let connections = (0..pool.options().get_max_connections()).map(|_| pool.acquire());
    drop(tokio::time::timeout(OPEN_WITHIN, futures_util::future::join_all(connections)).await);
}

/// Connection options for the dispatch engine. Its tables fill and empty within seconds, so what the planner believes of
/// them is always wrong; each of its statements is written for exactly one plan, by index, which is left as the only one.
pub fn by_index_only(options: PgConnectOptions) -> PgConnectOptions {
    let off = ["enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin"].map(|plan| (plan, "off"));
    options.options(off).options([("plan_cache_mode", "force_generic_plan")])
}

/// Begins a transaction that plans like [`by_index_only`], in a pool that otherwise does not: for statements that probe
/// the engine's tables, or walk an index to a limit.
const BEGIN_BY_INDEX: &str = "BEGIN; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; \
                              SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off";

/// Gives each statement of a transaction so long, instead of the time that all statements have.
async fn limit_statements(connection: &mut PgConnection, to: Duration) -> sqlx::Result<()> {
    sqlx::query_scalar!("SELECT set_config('statement_timeout', $1, true)", milliseconds(to))
        .fetch_one(connection)
        .await
        .map(drop)
}

fn milliseconds(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

/// Whether the database can be connected to.
pub(crate) async fn probe(options: &PgConnectOptions) -> Result<(), sqlx::Error> {
    PgConnection::connect_with(options).await?.close().await
}

/// The database's time: what [`crate::model::clock::Clock`] follows, and the only time that SQL is asked for.
pub async fn database_now(executor: impl PgExecutor<'_>) -> Result<Timestamp, sqlx::Error> {
    sqlx::query_scalar!(r#"SELECT clock_timestamp() AS "now!""#).fetch_one(executor).await
}

/// Whether the same work may succeed when it is tried again: the connection was lost, Postgres stops or is short of
/// something, or the transaction ran into another one. Anything else fails the same way every time.
///
/// After a lost connection the transaction may have been committed: whoever repeats it needs a fence.
pub fn is_transient(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Database(error) => error.code().is_some_and(|code| is_transient_state(&code)),
        // A connection cut in the middle of a message or of its handshake shows as a protocol or TLS error.
        sqlx::Error::Io(_)
        | sqlx::Error::Protocol(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::PoolTimedOut
        | sqlx::Error::WorkerCrashed
        | sqlx::Error::BeginFailed => true,
        _ => false,
    }
}

/// Whether a statement took longer than it may.
pub(crate) fn is_statement_timeout(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "57014")
}

/// Whether a statement gave up waiting for a lock.
pub fn is_lock_timeout(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "55P03")
}

/// [`is_transient`] by SQLSTATE (PostgreSQL manual, appendix A).
fn is_transient_state(code: &str) -> bool {
    match code {
        "40001" | "40P01" => true, // serialization failure, deadlock
        "40003" => true,           // completion unknown
        "55P03" => true,           // lock timeout
        "25P03" => true,           // idle in a transaction for too long
        "25006" => true,           // read-only: a standby, until the failover is through
        "58030" => true,           // I/O error
        _ => match code.get(..2) {
            Some("08") => true,            // connection
            Some("53") => true,            // out of connections, memory, disk
            Some("57") => code != "57P04", // stopped, stopping, starting, cancelled by timeout; not: database dropped
            _ => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_passes_is_told_from_what_stays() {
        for code in ["08006", "40001", "40P01", "53100", "53300", "55P03", "57014", "57P01", "57P02", "57P03", "25P03"]
        {
            assert!(is_transient_state(code), "{code}");
        }
        for code in ["23505", "23514", "22P02", "42P01", "42601", "57P04", "XX000", "", "0"] {
            assert!(!is_transient_state(code), "{code}");
        }
        assert!(is_transient(&sqlx::Error::PoolTimedOut));
        assert!(is_transient(&std::io::Error::from(std::io::ErrorKind::UnexpectedEof).into()));
        assert!(!is_transient(&sqlx::Error::PoolClosed), "the process is stopping");
        assert!(!is_transient(&sqlx::Error::RowNotFound));
    }
}
