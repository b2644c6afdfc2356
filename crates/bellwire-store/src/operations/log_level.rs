//! Temporary log level of operators.

use sqlx::{PgConnection, PgExecutor};

use bellwire_core::clock::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLevelOverride {
    /// Levels, as they were given.
    pub filter: String,
    pub set_at: Timestamp,
    pub until: Timestamp,
}

/// Reads the current temporary level. `None`: each process uses the one of its start.
pub async fn read(executor: impl PgExecutor<'_>, now: Timestamp) -> sqlx::Result<Option<LogLevelOverride>> {
    fetch_optional!(executor, LogLevelOverride, "SELECT filter, set_at, until FROM log_level WHERE until > $1", (now))
}

pub async fn write(conn: &mut PgConnection, wanted: &LogLevelOverride) -> sqlx::Result<()> {
    execute!(
        conn,
        "INSERT INTO log_level (filter, set_at, until) VALUES ($1, $2, $3)
         ON CONFLICT (is_only) DO UPDATE SET filter = excluded.filter, set_at = excluded.set_at, until = excluded.until",
        (wanted.filter, wanted.set_at, wanted.until)
    )
}

/// Notes that nothing more is wanted. Returns whether something was.
pub async fn clear(conn: &mut PgConnection, now: Timestamp) -> sqlx::Result<bool> {
    let until = fetch_optional!(conn, scalar, "DELETE FROM log_level RETURNING until")?;
    Ok(until.is_some_and(|until| until > now))
}
