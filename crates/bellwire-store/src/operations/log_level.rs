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
    sqlx::query_as!(LogLevelOverride, "SELECT filter, set_at, until FROM log_level WHERE until > $1", now)
        .fetch_optional(executor)
        .await
}

pub async fn write(conn: &mut PgConnection, wanted: &LogLevelOverride) -> sqlx::Result<()> {
    sqlx::query!(
        "INSERT INTO log_level (filter, set_at, until) VALUES ($1, $2, $3)
         ON CONFLICT (is_only) DO UPDATE SET filter = excluded.filter, set_at = excluded.set_at, until = excluded.until",
        wanted.filter,
        wanted.set_at,
        wanted.until
    )
    .execute(conn)
    .await
    .map(drop)
}

/// Notes that nothing more is wanted. Returns whether something was.
pub async fn clear(conn: &mut PgConnection, now: Timestamp) -> sqlx::Result<bool> {
    let until = sqlx::query_scalar!("DELETE FROM log_level RETURNING until").fetch_optional(conn).await?;
    Ok(until.is_some_and(|until| until > now))
}
