//! Settles a restored database: deletes outdated rows, and pauses pending deliveries. The data are older than reality:
//! deliveries in flight at the backup have ended since, waiting ones may have been sent, and later cancellations and
//! unsubscribes are missing. So no pending delivery is sent automatically.

use serde::Serialize;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};
use uuid::Uuid;

use super::cluster_identity;
use crate::connections::SCHEMA;
use crate::keys::audit::{Actor, AuditAction, AuditEntry};
use bellwire_core::clock::{Timestamp, uuid_of};
use bellwire_core::id::{AppId, CampaignId, MessageId};

/// Table that exists while a restore is running. Servers refuse such a database.
const MARK: &str = "restore_under_way";
/// Name of the replaced schema until the restore has succeeded.
const REPLACED: &str = "bellwire_replaced";

#[derive(Debug, Clone, Copy)]
pub struct RestoreSource {
    /// Id of the backup. `None`: restored by other means.
    pub backup: Option<Uuid>,
    /// Time from which data are missing.
    pub backed_up_at: Timestamp,
    /// Whether pending deliveries resume by themselves, because nothing was sent since the backup.
    pub resume_pending: bool,
}

/// Number of objects that were paused, or resumed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Settled {
    /// Campaigns that were scheduled or sending.
    pub campaigns: i64,
    /// Messages with deliveries to make. If paused, only those without a paused campaign.
    pub messages: i64,
    /// Known waiting deliveries. Recipients that fan-out has not reached are not counted.
    pub deliveries: i64,
    /// Requests to webhooks that were pending.
    pub webhook_requests: i64,
}

/// Whether a restore is running or was interrupted.
pub async fn is_under_way(conn: &mut PgConnection) -> sqlx::Result<bool> {
    let mark = format!("{SCHEMA}.{MARK}");
    fetch_one!(conn, scalar, r#"SELECT to_regclass($1) IS NOT NULL AS "there!""#, (mark))
}

/// Prepares a restore: renames the existing schema, and creates an empty one with the mark. Removes remains of an interrupted
/// restore first.
pub async fn begin(conn: &mut PgConnection) -> sqlx::Result<()> {
    if is_under_way(conn).await? {
        undo(conn).await?;
    } else {
        forget_replaced(conn).await?; // of an earlier restore that succeeded, and ended before it could
    }
    let mut tx = conn.begin().await?;
    if is_there(&mut tx, SCHEMA).await? && !is_empty(&mut tx).await? {
        execute(&mut tx, format!("ALTER SCHEMA {SCHEMA} RENAME TO {REPLACED}")).await?;
    }
    if !is_there(&mut tx, SCHEMA).await? {
        execute(&mut tx, format!("CREATE SCHEMA {SCHEMA}")).await?;
    }
    execute(&mut tx, format!("CREATE TABLE {SCHEMA}.{MARK} (begun_at timestamptz NOT NULL DEFAULT clock_timestamp())"))
        .await?;
    tx.commit().await
}

/// Brings the replaced schema back after a failed restore.
pub async fn undo(conn: &mut PgConnection) -> sqlx::Result<()> {
    if is_there(conn, REPLACED).await? {
        let mut tx = conn.begin().await?;
        execute(&mut tx, format!("DROP SCHEMA {SCHEMA} CASCADE")).await?;
        execute(&mut tx, format!("ALTER SCHEMA {REPLACED} RENAME TO {SCHEMA}")).await?;
        return tx.commit().await;
    }
    // A role that may not create schemas was given this one: it stays.
    for table in tables(conn).await? {
        execute(conn, format!("DROP TABLE IF EXISTS {table} CASCADE")).await?;
    }
    for function in functions(conn).await? {
        execute(conn, format!("DROP FUNCTION IF EXISTS {function} CASCADE")).await?;
    }
    Ok(())
}

/// Ends a successful restore: deletes the replaced schema.
pub async fn forget_replaced(conn: &mut PgConnection) -> sqlx::Result<()> {
    execute(conn, format!("DROP SCHEMA IF EXISTS {REPLACED} CASCADE")).await
}

async fn is_there(conn: &mut PgConnection, schema: &str) -> sqlx::Result<bool> {
    fetch_one!(conn, scalar, r#"SELECT to_regnamespace($1) IS NOT NULL AS "there!""#, (schema))
}

async fn is_empty(conn: &mut PgConnection) -> sqlx::Result<bool> {
    Ok(tables(conn).await?.is_empty())
}

/// Returns tables and views, without partitions, which are deleted with their parents.
async fn tables(conn: &mut PgConnection) -> sqlx::Result<Vec<String>> {
    fetch_all!(
        conn,
        scalar,
        r#"SELECT format('%I.%I', n.nspname, c.relname) AS "name!" FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
           WHERE n.nspname = $1 AND c.relkind IN ('r', 'p') AND NOT c.relispartition"#,
        (SCHEMA)
    )
}

async fn functions(conn: &mut PgConnection) -> sqlx::Result<Vec<String>> {
    fetch_all!(
        conn,
        scalar,
        r#"SELECT p.oid::regprocedure::text AS "name!" FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
           WHERE n.nspname = $1"#,
        (SCHEMA)
    )
}

/// Runs a statement that cannot use parameters. Its names are Bellwire's own, or quoted by Postgres.
async fn execute(conn: &mut PgConnection, sql: String) -> sqlx::Result<()> {
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(conn).await.map(drop)
}

/// Deletes outdated rows, pauses pending deliveries, and lets servers start. It is atomic. No server may use the database
/// meanwhile.
pub async fn settle(conn: &mut PgConnection, origin: RestoreSource, now: Timestamp) -> sqlx::Result<Settled> {
    let mut tx = conn.begin().await?;
    execute(&mut tx, "SET LOCAL statement_timeout = 0; SET LOCAL idle_in_transaction_session_timeout = 0".to_owned())
        .await?;
    forget(&mut tx, now).await?;
    give_back_leases(&mut tx, now).await?;
    let settled = if origin.resume_pending {
        keep_untold(&mut tx).await?;
        count(&mut tx, now).await?
    } else {
        hold_back(&mut tx, now).await?
    };
    execute!(
        &mut *tx,
        "INSERT INTO restores (id, backup, backed_up_at, restored_at, held) VALUES ($1, $2, $3, $4, $5)",
        (uuid_of(now), origin.backup, origin.backed_up_at, now, !origin.resume_pending)
    )?;
    let target = origin.backup.map_or_else(|| "database".to_owned(), |backup| backup.to_string());
    let detail = serde_json::json!({"backed_up_at": origin.backed_up_at, "held_back": !origin.resume_pending});
    let entry = AuditEntry::new(Actor::LOCAL, None, AuditAction::DatabaseRestored, target).with(detail);
    entry.record(&mut tx, 1, now).await?;
    cluster_identity::record(&mut tx, now).await?;
    execute(&mut tx, format!("DROP TABLE IF EXISTS {SCHEMA}.{MARK}")).await?;
    tx.commit().await?;
    Ok(settled)
}

/// Deletes former workers with their stops, sessions and one-time links. Resets transaction numbers in rows: another cluster
/// counts from a lower value, and old rows must not look newer than new ones.
async fn forget(conn: &mut PgConnection, now: Timestamp) -> sqlx::Result<()> {
    let statements = "DELETE FROM workers; DELETE FROM stops; DELETE FROM passkey_challenges; DELETE FROM sessions;
         DELETE FROM invitations; DELETE FROM backups WHERE completed_at IS NULL; DELETE FROM held_back;
         UPDATE stream_floor SET xid = pg_current_xact_id(), seq = 0";
    sqlx::raw_sql(statements).execute(&mut *conn).await?;
    execute!(
        conn,
        "UPDATE lane_states SET prober = NULL, probe_until = NULL, changed_at = $1 WHERE prober IS NOT NULL",
        (now)
    )
}

/// Ends all leases of workers.
async fn give_back_leases(conn: &mut PgConnection, now: Timestamp) -> sqlx::Result<()> {
    execute!(&mut *conn, "UPDATE batches SET due_at = $1", (now))?;
    execute!(
        &mut *conn,
        "UPDATE queue SET lease = NULL, due_at = $1 WHERE lease IS NOT NULL AND due_at < 'infinity'",
        (now)
    )?;
    execute!(
        conn,
        "UPDATE webhook_deliveries SET lease = NULL, due_at = $1 WHERE state = 'pending' AND lease IS NOT NULL",
        (now)
    )
}

/// Keeps pending events for webhooks, without repeating delivered ones.
async fn keep_untold(conn: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::raw_sql(
        "DELETE FROM stream_events e USING webhook_cursor c WHERE (e.xid, e.seq) <= (c.xid, c.seq);
         UPDATE stream_events SET xid = pg_current_xact_id();
         UPDATE webhook_cursor SET xid = pg_current_xact_id(), seq = 0",
    )
    .execute(conn)
    .await
    .map(drop)
}

/// Counts pending deliveries. A scheduled message to a whole audience may have none yet.
async fn count(conn: &mut PgConnection, now: Timestamp) -> sqlx::Result<Settled> {
    fetch_one!(
        conn,
        Settled,
        r#"SELECT (SELECT count(*) FROM campaigns WHERE state IN ('scheduled', 'sending')) AS "campaigns!",
             (SELECT count(*) FROM messages WHERE state IN ('scheduled', 'sending') AND (id IN (
                SELECT message FROM cursors UNION SELECT message FROM batches UNION SELECT message FROM queue)
                OR accepted_at > $1 AND id IN (SELECT message FROM campaigns_in_motion))) AS "messages!",
             (SELECT count(*) FROM queue)
               + (SELECT coalesce(sum(cardinality(recipients)), 0)::bigint FROM batches) AS "deliveries!",
             (SELECT count(*) FROM webhook_deliveries WHERE state = 'pending') AS "webhook_requests!""#,
        (now)
    )
}

/// Pauses pending work. Webhook requests are marked as failed, and can be replayed.
async fn hold_back(conn: &mut PgConnection, now: Timestamp) -> sqlx::Result<Settled> {
    let found = count(conn, now).await?;
    // What was told then, or was about to be: what follows is told as it happens.
    sqlx::raw_sql(
        "DELETE FROM webhook_notes; DELETE FROM stream_events; UPDATE webhook_cursor SET xid = pg_current_xact_id(), seq = 0",
    )
    .execute(&mut *conn)
    .await?;
    execute!(
        &mut *conn,
        "WITH held AS (
           UPDATE campaigns SET state = 'paused', next_at = NULL, unsteered = false, changed_at = $1
           WHERE state IN ('scheduled', 'sending') RETURNING id, app)
         INSERT INTO held_back (kind, id, app) SELECT 'campaign', id, app FROM held",
        (now)
    )?;
    execute!(
        &mut *conn,
        "WITH held AS (
           UPDATE messages SET state = 'paused', resumed_at = NULL
           WHERE state IN ('scheduled', 'sending') AND (id IN (
             SELECT message FROM cursors UNION SELECT message FROM batches UNION SELECT message FROM queue)
             OR accepted_at > $1 AND id IN (SELECT message FROM campaigns_in_motion))
           RETURNING id, app)
         INSERT INTO held_back (kind, id, app) SELECT 'message', id, app FROM held",
        (now)
    )?;
    sqlx::raw_sql(
        "UPDATE cursors SET due_at = 'infinity' WHERE message IN (SELECT id FROM held_back WHERE kind = 'message');
         UPDATE queue SET due_at = 'infinity', lease = NULL WHERE message IN (SELECT id FROM held_back WHERE kind = 'message')",
    )
    .execute(&mut *conn)
    .await?;
    execute!(
        &mut *conn,
        "UPDATE webhook_deliveries SET state = 'failed', ended_at = $1, lease = NULL WHERE state = 'pending'",
        (now)
    )?;
    let HeldCount { campaigns, messages } = count_held(conn).await?;
    Ok(Settled { campaigns, messages, ..found })
}

/// Returns the last time of use of a database that was restored by other means: the newest heartbeat of a worker, or (without
/// workers after `pg_restore`) the start of the newest backup. `None`: neither is recorded.
pub async fn last_sign(conn: &mut PgConnection) -> sqlx::Result<Option<Timestamp>> {
    fetch_one!(
        conn,
        scalar,
        "SELECT coalesce((SELECT max(beat_at) FROM workers), (SELECT max(started_at) FROM backups))"
    )
}

/// An object that a restore has paused and that is still paused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeldWork {
    Campaign(CampaignId),
    Message(MessageId),
}

/// Declares a query of objects still held back: campaigns, and messages without a paused campaign.
macro_rules! held_back {
    ($columns:literal, $rest:literal $(, $bind:expr)*) => {
        query!(
            "SELECT " + $columns + r#" FROM held_back h
           WHERE (EXISTS (SELECT FROM campaigns c WHERE h.kind = 'campaign' AND c.id = h.id AND c.state = 'paused')
               OR EXISTS (SELECT FROM messages m WHERE h.kind = 'message' AND m.id = h.id AND m.state = 'paused'
                    AND (EXISTS (SELECT FROM cursors WHERE message = m.id) OR EXISTS (SELECT FROM queue WHERE message = m.id)
                      OR EXISTS (SELECT FROM batches WHERE message = m.id)
                      OR EXISTS (SELECT FROM campaigns_in_motion WHERE message = m.id))
                    AND NOT EXISTS (SELECT FROM campaigns c WHERE c.id = m.campaign AND c.state = 'paused')))"# + $rest,
            ($($bind),*)
        )
    };
}

/// Returns what is still held back, of an app or of all: campaigns first, at most `limit`.
pub async fn held(pool: &PgPool, app: Option<AppId>, limit: i64) -> sqlx::Result<Vec<(AppId, HeldWork)>> {
    let rows = held_back!(
        "h.kind, h.id, h.app",
        " AND ($1::uuid IS NULL OR h.app = $1) ORDER BY h.kind, h.id LIMIT $2",
        app.map(|app| app.0),
        limit
    );
    let held = |kind: &str, id| {
        if kind == "campaign" { HeldWork::Campaign(CampaignId(id)) } else { HeldWork::Message(MessageId(id)) }
    };
    Ok(rows.fetch_all(pool).await?.into_iter().map(|row| (AppId(row.app), held(&row.kind, row.id))).collect())
}

/// Deletes records of objects no longer held back, because they were resumed, cancelled or deleted. Returns their number.
pub async fn clear(pool: &PgPool) -> sqlx::Result<u64> {
    rows_affected!(
        pool,
        "DELETE FROM held_back h
         WHERE NOT EXISTS (SELECT FROM campaigns c WHERE h.kind = 'campaign' AND c.id = h.id AND c.state = 'paused')
           AND NOT EXISTS (SELECT FROM messages m WHERE h.kind = 'message' AND m.id = h.id AND m.state = 'paused')"
    )
}

/// Number of objects still held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldCount {
    pub campaigns: i64,
    /// Messages without a campaign that is held back.
    pub messages: i64,
}

async fn count_held(conn: &mut PgConnection) -> sqlx::Result<HeldCount> {
    let counts = held_back!(
        r#"count(*) FILTER (WHERE h.kind = 'campaign') AS "campaigns!", count(*) FILTER (WHERE h.kind = 'message') AS "messages!""#,
        ""
    );
    let row = counts.fetch_one(conn).await?;
    Ok(HeldCount { campaigns: row.campaigns, messages: row.messages })
}

/// The last restore, with the objects held back since.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Last {
    /// Time from which data are missing.
    pub backed_up_at: Timestamp,
    pub restored_at: Timestamp,
    pub held: HeldCount,
}

/// Returns the last restore. `None`: this database was never restored.
pub async fn last(pool: &PgPool) -> sqlx::Result<Option<Last>> {
    let last = query!("SELECT backed_up_at, restored_at FROM restores ORDER BY id DESC LIMIT 1");
    let Some(last) = last.fetch_optional(pool).await? else { return Ok(None) };
    let held = count_held(&mut *pool.acquire().await?).await?;
    Ok(Some(Last { backed_up_at: last.backed_up_at, restored_at: last.restored_at, held }))
}
