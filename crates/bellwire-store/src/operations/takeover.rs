//! Takeover of a worker's deliveries by other workers, when it stops or misses its heartbeat.
//!
//! A lease identifies its worker: its last four bytes are those of the worker's id ([`lease_of`]). So no table needs a column
//! for the worker. Rows that are missed here, because they are locked or being claimed, become due when their lease expires.

use std::time::Duration;

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::retrying::retrying;
use crate::hooks::deliveries::LEASE as REQUEST_LEASE;
use crate::queue::claims::LEASE;
use crate::transactions::begin;
use bellwire_core::clock::Timestamp;

/// Prefix of the application names of sessions that can be ended with their worker. The id of the process follows.
pub const SESSION: &str = "bellwire ";
/// Timeout of ending a session.
const END_WITHIN: Duration = Duration::from_millis(200);
/// Period in which leases of a worker are searched. It is very long, because a worker with a wrong clock may have set late
/// expiries.
const FAR: Duration = Duration::from_secs(100 * 365 * 86_400);
/// Number of bytes of a lease before those that identify the worker.
const BEFORE_TAG: usize = 12;

/// Converts a fresh UUID to a lease of a worker. The bits that order ids in time stay, and random bits are replaced by the
/// worker's.
pub fn lease_of(worker: Uuid, fresh: Uuid) -> Uuid {
    let mut octets = fresh.into_bytes();
    octets[BEFORE_TAG..].copy_from_slice(&worker.as_bytes()[BEFORE_TAG..]);
    Uuid::from_bytes(octets)
}

/// Whether a lease belongs to the worker. With a probability of 1 in 2³², it belongs to another one.
pub fn is_lease_of(worker: Uuid, lease: Uuid) -> bool {
    worker.as_bytes()[BEFORE_TAG..] == lease.as_bytes()[BEFORE_TAG..]
}

/// Number of a worker's rows that became due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TakenOver {
    /// Number of batches.
    pub batches: u64,
    /// Number of queue rows.
    pub rows: u64,
    /// Number of webhook requests.
    pub requests: u64,
    /// Number of rights to probe an origin.
    pub probes: u64,
}

/// Ends a worker whose heartbeat count is still `beats`: removes it from the list, ends its process's sessions, and makes all
/// its rows due. `None`: it is alive, or another worker ends or has ended it.
pub async fn end_silent(pool: &PgPool, worker: Uuid, beats: i64, now: Timestamp) -> sqlx::Result<Option<TakenOver>> {
    let taken = retrying(|| async move {
        let mut tx = begin(pool).await?;
        let found = fetch_optional!(
            &mut *tx,
            scalar,
            "SELECT session FROM workers WHERE id = $1 AND beats = $2 FOR NO KEY UPDATE SKIP LOCKED",
            (worker, beats)
        )?;
        let Some(session) = found else { return Ok(None) };
        if let Some(session) = session {
            end_sessions(&mut tx, &session).await?;
        }
        let taken = release(&mut tx, worker, now).await?;
        execute!(&mut *tx, "DELETE FROM workers WHERE id = $1", (worker))?;
        tx.commit().await?;
        Ok(Some(taken))
    })
    .await?;
    let Some(mut taken) = taken else { return Ok(None) };
    // Separate, since it reads all waiting rows. The remaining rows have no owner.
    taken.rows += release_rows(&mut *pool.acquire().await?, worker, now, now + FAR).await?;
    Ok(Some(taken))
}

/// Removes a stopping worker from the list, and makes its remaining rows due.
pub async fn leave(pool: &PgPool, worker: Uuid, now: Timestamp) -> sqlx::Result<TakenOver> {
    retrying(|| async move {
        let mut tx = begin(pool).await?;
        let left = rows_affected!(&mut *tx, "DELETE FROM workers WHERE id = $1", (worker))?;
        let taken = match left {
            0 => TakenOver::default(), // the process that removed it from the list has done so
            _ => release(&mut tx, worker, now).await?,
        };
        tx.commit().await?;
        Ok(taken)
    })
    .await
}

/// Ends the remaining sessions of a process. Continues without the permission: Postgres ends idle transactions later.
async fn end_sessions(conn: &mut PgConnection, session: &str) -> sqlx::Result<()> {
    let ended = query!(
        scalar,
        r#"SELECT count(pg_terminate_backend(pid, $2)) AS "n!" FROM pg_stat_activity
           WHERE application_name = $1 AND datname = current_database() AND usename = current_user AND pid <> pg_backend_pid()"#,
        (session, i64::try_from(END_WITHIN.as_millis()).unwrap_or(i64::MAX))
    );
    ended.fetch_one(conn).await.map(drop)
}

/// Makes all rows of a worker due. Skips locked ones, which are being settled or claimed.
async fn release(conn: &mut PgConnection, worker: Uuid, now: Timestamp) -> sqlx::Result<TakenOver> {
    let batches = rows_affected!(
        &mut *conn,
        "UPDATE batches SET due_at = $2 WHERE ctid = ANY (ARRAY(
           SELECT ctid FROM batches WHERE substring(uuid_send(lease) FROM 13) = substring(uuid_send($1::uuid) FROM 13) AND due_at > $2
           FOR UPDATE SKIP LOCKED))",
        (worker, now)
    )?;
    let rows = release_rows(conn, worker, now, now + LEASE * 2).await?;
    let requests = rows_affected!(
        &mut *conn,
        "UPDATE webhook_deliveries SET due_at = $2 WHERE id = ANY (ARRAY(
           SELECT d.id FROM webhooks w JOIN webhook_deliveries d ON d.webhook = w.id
           WHERE d.state = 'pending' AND d.due_at > $2 AND d.due_at < $3 AND d.lease IS NOT NULL
             AND substring(uuid_send(d.lease) FROM 13) = substring(uuid_send($1::uuid) FROM 13)
           FOR UPDATE OF d SKIP LOCKED))",
        (worker, now, now + REQUEST_LEASE * 2)
    )?;
    let probes = rows_affected!(
        conn,
        "UPDATE lane_states SET prober = NULL, probe_until = NULL, changed_at = $2 WHERE ctid = ANY (ARRAY(
           SELECT ctid FROM lane_states WHERE prober = $1 FOR UPDATE SKIP LOCKED))",
        (worker, now)
    )?;
    Ok(TakenOver { batches, rows, requests, probes })
}

/// Makes a worker's rows due whose leases expire before `until`. A skip scan finds the lanes and tiers with such rows.
async fn release_rows(conn: &mut PgConnection, worker: Uuid, now: Timestamp, until: Timestamp) -> sqlx::Result<u64> {
    rows_affected!(
        conn,
        "WITH RECURSIVE
         l AS (
             (SELECT lane, tier FROM queue ORDER BY lane, tier, due_at LIMIT 1)
             UNION ALL
             SELECT n.lane, n.tier FROM l, LATERAL (
                 SELECT lane, tier FROM queue WHERE (lane, tier) > (l.lane, l.tier) ORDER BY lane, tier, due_at LIMIT 1) n
         )
         UPDATE queue SET due_at = $2 WHERE ctid = ANY (ARRAY(
             SELECT q.ctid FROM l, LATERAL (
                 SELECT ctid FROM queue WHERE lane = l.lane AND tier = l.tier AND due_at > $2 AND due_at < $3 AND lease IS NOT NULL
                   AND substring(uuid_send(lease) FROM 13) = substring(uuid_send($1::uuid) FROM 13)
                 FOR UPDATE SKIP LOCKED) q))",
        (worker, now, until)
    )
}

#[cfg(test)]
#[path = "../../../../tests/crates/store/unit/takeover.rs"]
mod tests;
