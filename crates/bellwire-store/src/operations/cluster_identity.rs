//! Detects a database that was restored but not [settled](super::restoring::settle).
//!
//! Two states are certain. The row that `bellwire backup` omits is missing: `pg_restore` restored a backup. Or Postgres was
//! recovered to a target and promoted since the database was last used. A failover also increases the timeline, but has no
//! recovery target. Disk snapshots, recoveries to the end of the WAL and other dumps cannot be distinguished from a failover or
//! an upgrade of Postgres.

use sqlx::PgConnection;

use bellwire_core::clock::Timestamp;

/// Evidence that a database was restored and must be settled.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Unsettled {
    #[error(
        "a backup was restored into this database without `bellwire restore`, so pending messages are not held back: run \
         `bellwire restore --in-place`, then start again"
    )]
    Dump,
    #[error(
        "Postgres was recovered to {target} since the last start (timeline {before}, now {now}), so pending messages are not held \
         back: run `bellwire restore --in-place --since TIME` with the time of the recovery, then start again. If no message was \
         sent since then, add --resume-pending"
    )]
    Target { target: String, before: i32, now: i32 },
}

/// Recorded or current identity of a cluster. `None`: not recorded, or not readable, as on some managed services.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Identity {
    system_identifier: Option<i64>,
    timeline: Option<i32>,
}

/// Decides whether a database was restored and not settled. `recorded` is `None` if the row is missing. `target` is the
/// recovery target that Postgres was started with.
fn judge(recorded: Option<Identity>, found: Identity, target: Option<String>) -> Result<(), Unsettled> {
    let Some(recorded) = recorded else { return Err(Unsettled::Dump) };
    let is_same_system = recorded.system_identifier == found.system_identifier;
    match (recorded.timeline, found.timeline, target) {
        (Some(before), Some(now), Some(target)) if is_same_system && now > before => {
            Err(Unsettled::Target { target, before, now })
        }
        _ => Ok(()),
    }
}

/// Fails if the database was restored and not settled. Otherwise records the identity of the cluster.
pub async fn check(conn: &mut PgConnection, now: Timestamp) -> anyhow::Result<()> {
    let recorded = fetch_optional!(&mut *conn, Identity, "SELECT system_identifier, timeline FROM cluster_identity")?;
    let found = read(conn).await?;
    let target = fetch_optional!(
        &mut *conn,
        scalar,
        r#"SELECT name || ' = ' || setting AS "target!" FROM pg_settings
           WHERE name IN ('recovery_target', 'recovery_target_lsn', 'recovery_target_name', 'recovery_target_time', 'recovery_target_xid')
             AND setting <> ''"#
    )?;
    judge(recorded, found, target)?;
    if recorded != Some(found) {
        record(conn, now).await?;
    }
    Ok(())
}

/// Stores the identity of the current cluster.
pub(super) async fn record(conn: &mut PgConnection, now: Timestamp) -> sqlx::Result<()> {
    let Identity { system_identifier, timeline } = read(conn).await?;
    execute!(
        conn,
        "INSERT INTO cluster_identity (system_identifier, timeline, recorded_at) VALUES ($1, $2, $3)
         ON CONFLICT (only_row) DO UPDATE SET system_identifier = $1, timeline = $2, recorded_at = $3",
        (system_identifier, timeline, now)
    )
}

/// Reads the identity of the cluster from the current WAL: after a promotion, the control file has the previous timeline until
/// the first checkpoint.
async fn read(conn: &mut PgConnection) -> sqlx::Result<Identity> {
    let may = fetch_one!(
        &mut *conn,
        scalar,
        r#"SELECT has_function_privilege('pg_control_system()', 'EXECUTE')
             AND has_function_privilege('pg_walfile_name(pg_lsn)', 'EXECUTE') AS "may!""#
    )?;
    if !may {
        return Ok(Identity::default());
    }
    fetch_one!(
        conn,
        Identity,
        "SELECT (SELECT system_identifier FROM pg_control_system()) AS system_identifier,
           ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::integer AS timeline"
    )
}

#[cfg(test)]
#[path = "../../../../tests/crates/store/unit/operations/cluster_identity.rs"]
mod tests;
