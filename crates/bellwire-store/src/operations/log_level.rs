//! Temporary log level set by operators.

use sqlx::{PgConnection, PgExecutor};

use bellwire_core::clock::Timestamp;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogLevelOverride {
    /// Levels as given by the operator.
    pub filter: String,
    pub set_at: Timestamp,
    pub until: Timestamp,
}

/// Returns the temporary level. `None`: each process uses the level of its start.
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

/// Removes the temporary level. Returns whether there was one.
pub async fn clear(conn: &mut PgConnection, now: Timestamp) -> sqlx::Result<bool> {
    let until = fetch_optional!(conn, scalar, "DELETE FROM log_level RETURNING until")?;
    Ok(until.is_some_and(|until| until > now))
}
