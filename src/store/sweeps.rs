//! What maintenance puts right or clears away, in chunks that each take a fraction of a second.

use std::time::Duration;

use sqlx::PgPool;

use crate::clock::Timestamp;
use crate::delivery::Ending;

/// Rows that one statement touches at most.
pub const CHUNK: i64 = 10_000;
/// What is left of a message so long after it expired is settled by the sweeper: rows that were never due.
const EXPIRY_GRACE: Duration = Duration::from_secs(60);
/// For so long after a resume rows may still be parked by a worker that had not heard of it.
const RESUME_GRACE: Duration = Duration::from_secs(60);
const STOPS_KEPT: Duration = Duration::from_secs(3600);
const IDEMPOTENCY_KEPT: Duration = Duration::from_secs(48 * 3600);
const ROLLUPS_KEPT: Duration = Duration::from_secs(90 * 86_400);

/// Settles a chunk of queue rows nobody holds whose message was cancelled, or expired a minute ago. Answers how many.
pub async fn end_overdue(pool: &PgPool, now: Timestamp) -> sqlx::Result<u64> {
    let ended = sqlx::query_scalar!(
        r#"
        WITH moved AS (
            SELECT id, CASE WHEN state = 'cancelled' THEN $2::smallint ELSE $3::smallint END AS ending
            FROM messages
            WHERE state = 'cancelled' OR (state = 'paused' AND expires_at < $4)
        ),
        overdue AS (
            SELECT q.ctid AS row, m.ending FROM moved m, LATERAL (
                SELECT ctid FROM queue WHERE message = m.id AND (lease IS NULL OR due_at < $1)
                LIMIT $5 FOR UPDATE SKIP LOCKED) q
            LIMIT $5
        ),
        ended AS (
            DELETE FROM queue q USING overdue o WHERE q.ctid = o.row
            RETURNING q.shard, q.subscription, q.message, q.lane, q.retries, o.ending
        ),
        logged AS (
            INSERT INTO attempts (message, subscription, attempt, shard, at, ending, reason)
            SELECT message, subscription, retries, shard, $1, ending, 'swept' FROM ended
        ),
        counted AS (
            INSERT INTO message_counts AS c (message, lane, cancelled, expired)
            SELECT message, lane, count(*) FILTER (WHERE ending = $2), count(*) FILTER (WHERE ending = $3)
            FROM ended GROUP BY message, lane ORDER BY message, lane
            ON CONFLICT (message, lane) DO UPDATE
            SET cancelled = c.cancelled + excluded.cancelled, expired = c.expired + excluded.expired
        )
        SELECT count(*) AS "n!" FROM ended
        "#,
        now,
        Ending::Cancelled.code(),
        Ending::Expired.code(),
        now - EXPIRY_GRACE,
        CHUNK
    )
    .fetch_one(pool)
    .await?;
    Ok(u64::try_from(ended).unwrap_or(0))
}

/// Makes a chunk of parked rows of resumed messages due again; answers how many. Messages whose resume is long past and
/// left nothing parked are done with.
pub async fn unpark(pool: &PgPool, now: Timestamp) -> sqlx::Result<u64> {
    let freed = sqlx::query!(
        r#"
        UPDATE queue q SET due_at = greatest(q.scheduled_at, $1)
        WHERE q.ctid = ANY (ARRAY(
            SELECT p.row FROM messages m, LATERAL (
                SELECT ctid AS row FROM queue WHERE message = m.id AND due_at = 'infinity' LIMIT $2 FOR UPDATE SKIP LOCKED) p
            WHERE m.state = 'sending' AND m.resumed_at IS NOT NULL
            LIMIT $2))
        "#,
        now,
        CHUNK
    )
    .execute(pool)
    .await?
    .rows_affected();
    if freed == 0 {
        sqlx::query!(
            "UPDATE messages SET resumed_at = NULL WHERE state = 'sending' AND resumed_at < $1",
            now - RESUME_GRACE
        )
        .execute(pool)
        .await?;
    }
    Ok(freed)
}

/// Ends subscriptions whose own `expirationTime` passed. Answers how many.
pub async fn expire_subscriptions(pool: &PgPool, now: Timestamp) -> sqlx::Result<u64> {
    let expired = sqlx::query!(
        r#"
        UPDATE subscriptions SET state = 'expired', ended_at = $1
        WHERE (shard, id) IN (
            SELECT shard, id FROM subscriptions
            WHERE state = 'active' AND expires_at <= $1 ORDER BY expires_at LIMIT 10000 FOR UPDATE SKIP LOCKED)
        "#,
        now
    )
    .execute(pool)
    .await?;
    Ok(expired.rows_affected())
}

/// Clears away what nobody reads any more: old stops, idempotency keys and rollups.
pub async fn clear(pool: &PgPool, now: Timestamp) -> sqlx::Result<()> {
    sqlx::query!("DELETE FROM stops WHERE at < $1", now - STOPS_KEPT).execute(pool).await?;
    sqlx::query!("DELETE FROM idempotency_keys WHERE created_at < $1", now - IDEMPOTENCY_KEPT).execute(pool).await?;
    sqlx::query!("DELETE FROM rollups WHERE minute < $1", now - ROLLUPS_KEPT).execute(pool).await?;
    Ok(())
}
