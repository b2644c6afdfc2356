//! All SQL, in rooms by what they keep. One file for each group of tables; functions are named after the transition that
//! they make.
//!
//! This file distinguishes temporary errors from permanent ones. [`connections`] opens connections, and
//! [`schema`](operations::schema) defines the place of all data in a database.
//!
//! # The order of locks
//!
//! A transaction that changes several rows locks them in this order, so that no two wait for each other:
//!
//! 0. `workers`, where one is [ended](operations::takeover); `campaigns` by id, with their runs and parts
//! 0. `subscription_holds` by subscription; `gone_watches` by lane, with their `gone_suspects`
//! 1. `messages` by id, where a message is steered, and its `cursors` by lane; the batch that is being settled
//! 2. `subscriptions` by (shard, id), and with them the rows of the same key: `topic_members`, policies, stops; `cap_uses` by person.
//!    A transaction that creates a lane then takes the advisory lock of its app's lanes, and shares `messages` for later, by id, before it
//!    takes `cursors`; one that stores such a message shares the advisory lock. Both take `topics` after it. Neither steers a message
//! 3. `receipt_counts` by message
//! 4. `queue` by (shard, subscription, message), but for rows that are skipped where they are locked
//! 5. `dead_letters` by (message, id), and then `messages` whose content they hold, by id
//! 6. `message_counts` by (message, lane)
//! 7. `webhooks` by id, and `apps` for what they hear
//! 8. `alerts`, and last [`events`](outcomes::events), which are shared by everything that happens within a minute
//! 9. the advisory locks of [people](triggers::waits::lock_people), `trigger_entries` within them, and `trigger_counts` by campaign.
//!    Only rows of new messages and conversions, which no other transaction can lock, are inserted after it
//! 10. `measurements` by id, and `measured_groups` by (measurement, part)
//!
//! A transaction that [adds to or deletes `habits`](audience::engagement_stats) waits for an advisory lock and holds it to its end. It
//! takes no lock of 0 to 5 after it.
//!
//! Rows that many transactions add to come late, so that they are locked for a short time. [`tally`](outcomes::tally) writes 6.
//! Data for metrics over time and [webhooks](hooks) are [noted](outcomes::notes) at any place, because inserted rows block no
//! other transaction. Parts of one statement have no order of their own (Postgres runs unreferenced ones backwards): where one
//! statement writes both, the later part refers to the earlier. Remaining collisions are rolled back by Postgres and [run
//! again](operations::retrying).

#![allow(missing_docs, reason = "internal to the server: names and types document most items")]

#[macro_use]
mod statement;

pub mod audience;
pub mod campaigns;
pub mod connections;
pub mod hooks;
pub mod keys;
pub mod keyset;
pub mod measurement;
pub mod operations;
pub mod outcomes;
pub mod queue;
pub mod results;
pub mod transactions;
pub mod triggers;

use std::time::Duration;

use sqlx::{PgConnection, PgExecutor};

use bellwire_core::clock::Timestamp;
pub use connections::{alone_beside, connect_to_stay, open_all};
pub use connections::{by_index_only, connect, connect_lazily};
pub use operations::schema::migrate_new;
pub use operations::schema::{Beside, SchemaError, check_schema, migrate};
pub use results::ChunkProgress;
pub use results::WriteOutcome;

/// Sets a timeout for each statement of a transaction, in place of the connection's timeout.
async fn limit_statements(connection: &mut PgConnection, to: Duration) -> sqlx::Result<()> {
    fetch_one!(connection, scalar, "SELECT set_config('statement_timeout', $1, true)", (milliseconds(to))).map(drop)
}

fn milliseconds(duration: Duration) -> String {
    format!("{}ms", duration.as_millis())
}

/// Returns the database's time, which [`bellwire_core::clock::Clock`] follows. No other function reads it.
pub async fn database_now(executor: impl PgExecutor<'_>) -> Result<Timestamp, sqlx::Error> {
    fetch_one!(executor, scalar, r#"SELECT clock_timestamp() AS "now!""#)
}

/// Whether the same work may succeed later: the connection was lost, Postgres is stopping or short of resources, or the
/// transaction collided with another one. Other errors fail in the same way each time.
///
/// After a lost connection the transaction may have been committed, so a repetition needs a fence.
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

/// Whether the cause of an error [`is_transient`].
pub fn is_transient_cause(error: &anyhow::Error) -> bool {
    error.chain().filter_map(|cause| cause.downcast_ref()).any(is_transient)
}

/// Whether a machine of a Citus cluster may have failed during a statement. Citus reports that as an internal error, as it does
/// some other errors, such as a row that COPY refuses.
pub fn may_be_lost_machine(error: &sqlx::Error) -> bool {
    let is_internal = error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "XX000");
    is_internal && connections::engine::is_distributed()
}

pub fn is_statement_timeout(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "57014")
}

/// Whether Postgres rolled a transaction back because of a lock timeout, a deadlock or a serialization failure.
pub fn is_conflict(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| matches!(&*code, "55P03" | "40P01" | "40001"))
}

/// Whether a value of the request cannot be stored: NUL in a string or in JSON, or a time out of range.
pub fn is_unstorable(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| matches!(&*code, "22021" | "22P05" | "22008"))
}

/// Whether Postgres has no free connection, in total or for this role.
pub fn is_out_of_connections(error: &sqlx::Error) -> bool {
    error.as_database_error().and_then(|error| error.code()).is_some_and(|code| code == "53300")
}

/// Whether a statement failed because of a lock timeout.
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
#[path = "../../../tests/crates/store/unit/lib.rs"]
mod tests;
