//! Records of backups, from which the check computes their age.

use sqlx::{PgExecutor, PgPool};
use uuid::Uuid;

use bellwire_core::clock::Timestamp;
use bellwire_core::named;

/// Tables that are not in backups, including tables that refer to them. Workers, stops and stream events are meaningless to
/// another cluster. Sessions, challenges and one-time links may have ended since. The missing cluster identity marks a restore
/// that is not settled.
pub const NOT_BACKED_UP: [&str; 7] =
    ["workers", "lane_limits", "stops", "sessions", "passkey_challenges", "invitations", "cluster_identity"];

named! {
    /// Kind of a backup.
    pub enum BackupKind {
        Dump = "dump",
        Other = "other",
    }
}

pub async fn begin(executor: impl PgExecutor<'_>, id: Uuid, kind: BackupKind, now: Timestamp) -> sqlx::Result<()> {
    execute!(executor, "INSERT INTO backups (id, kind, started_at) VALUES ($1, $2, $3)", (id, kind.name(), now))
}

/// Records that a backup is complete. `octets`: size of its file, if known.
pub async fn complete(
    executor: impl PgExecutor<'_>, id: Uuid, octets: Option<u64>, now: Timestamp,
) -> sqlx::Result<()> {
    let octets = octets.map(|octets| i64::try_from(octets).unwrap_or(i64::MAX));
    execute!(executor, "UPDATE backups SET completed_at = $2, octets = $3 WHERE id = $1", (id, now, octets))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BackupStatus {
    /// Start of the newest complete backup. `None`: none exists.
    pub last_at: Option<Timestamp>,
    /// Time at which the database was set up. `None`: not set up.
    pub since: Option<Timestamp>,
}

pub async fn known(pool: &PgPool) -> sqlx::Result<BackupStatus> {
    fetch_one!(
        pool,
        BackupStatus,
        "SELECT (SELECT started_at FROM backups WHERE completed_at IS NOT NULL ORDER BY completed_at DESC LIMIT 1) AS last_at,
           (SELECT min(created_at) FROM data_keys) AS since"
    )
}

/// Returns the size in bytes of the newest complete backup with a known size.
pub async fn last_octets(pool: &PgPool) -> sqlx::Result<Option<u64>> {
    let octets = sqlx::query_scalar!(
        "SELECT octets FROM backups WHERE completed_at IS NOT NULL AND octets IS NOT NULL ORDER BY completed_at DESC LIMIT 1"
    );
    Ok(octets.fetch_optional(pool).await?.flatten().and_then(|octets| u64::try_from(octets).ok()))
}

/// Deletes a chunk of records of backups started before a time, except the newest complete one. Returns the number.
pub async fn clear(pool: &PgPool, before: Timestamp) -> sqlx::Result<u64> {
    rows_affected!(
        pool,
        "DELETE FROM backups WHERE id = ANY (ARRAY(
           SELECT id FROM backups WHERE started_at < $1 AND id IS DISTINCT FROM
             (SELECT id FROM backups WHERE completed_at IS NOT NULL ORDER BY completed_at DESC LIMIT 1)
           LIMIT 1000))",
        (before)
    )
}
