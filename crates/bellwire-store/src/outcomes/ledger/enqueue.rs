//! Inserts deliveries into `queue`, except those stored together with their message.

use std::collections::HashSet;

use sqlx::PgConnection;
use uuid::Uuid;

use bellwire_core::clock::Timestamp;
use bellwire_core::id::{LaneId, MessageId, SubscriptionId};

#[derive(Debug)]
pub struct NewRow {
    pub subscription: SubscriptionId,
    pub message: MessageId,
    pub lane: LaneId,
    /// Code from [`bellwire_core::delivery::Tier::code`].
    pub tier: i16,
    pub retries: i32,
    pub due_at: Timestamp,
    /// Whether the row is parked if its message is still paused: it becomes due when the message is resumed.
    pub parked: bool,
    pub scheduled_at: Timestamp,
    /// Lease of the row, if a worker has it. `due_at` is then the end of the lease.
    pub lease: Option<Uuid>,
    pub leases: i16,
    /// Signature of the row: see [`bellwire_vault::retry_token`].
    pub token: Vec<u8>,
    /// Time at which the previous attempt failed.
    pub failed_at: Option<Timestamp>,
    /// Whether `due_at` is a slot assigned by its subscription's throttle.
    pub has_turn: bool,
    pub life: i32,
}

/// Inserts rows into the queue. Returns those omitted because the same delivery already waits.
pub async fn enqueue(conn: &mut PgConnection, rows: &[NewRow]) -> sqlx::Result<HashSet<(SubscriptionId, MessageId)>> {
    if rows.is_empty() {
        return Ok(HashSet::new());
    }
    // What was put there comes back only if something was left out, which is next to never.
    let put = fetch_optional!(
        conn,
        r#"
            WITH put AS (
                INSERT INTO queue (shard, subscription, message, lane, tier, retries, due_at, scheduled_at, lease, leases,
                                   token, failed_at, has_turn, life)
                SELECT r.shard, r.subscription, r.message, r.lane, r.tier, r.retries,
                       -- Whoever settles may have slept through the resume.
                       CASE WHEN r.parked AND (SELECT state FROM messages WHERE id = r.message) = 'paused' THEN 'infinity'
                            ELSE r.due END,
                       r.scheduled, r.lease, r.leases, r.token, r.failed_at, r.has_turn, r.life
                FROM unnest($1::smallint[], $2::uuid[], $3::uuid[], $4::integer[], $5::smallint[], $6::integer[],
                            $7::timestamptz[], $8::boolean[], $9::timestamptz[], $10::uuid[], $11::smallint[],
                            $12::bytea[], $13::timestamptz[], $14::boolean[], $15::integer[])
                    AS r (shard, subscription, message, lane, tier, retries, due, parked, scheduled, lease, leases, token,
                          failed_at, has_turn, life)
                ON CONFLICT DO NOTHING RETURNING subscription, message
            )
            SELECT coalesce(array_agg(subscription), '{}') AS "subscriptions!",
                   coalesce(array_agg(message), '{}') AS "messages!"
            FROM put HAVING count(*) < cardinality($2::uuid[])
            "#,
        rows,
        |row| (row.subscription.shard(), row.subscription, row.message, row.lane, row.tier, row.retries, row.due_at),
        |row| (row.parked, row.scheduled_at, row.lease, row.leases, row.token.as_slice(), row.failed_at, row.has_turn),
        |row| (row.life)
    )?;
    let Some(put) = put else { return Ok(HashSet::new()) };
    let put: HashSet<(Uuid, Uuid)> = put.subscriptions.into_iter().zip(put.messages).collect();
    let all = rows.iter().map(|row| (row.subscription, row.message));
    Ok(all.filter(|(subscription, message)| !put.contains(&(subscription.0, message.0))).collect())
}

/// Replaces unleased rows of the same deliveries that have fewer attempts. A row for an attempt already made would look like a
/// replay.
pub(super) async fn overtake(conn: &mut PgConnection, rows: &[NewRow]) -> sqlx::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    execute!(
            &mut *conn,
            "DELETE FROM queue q
             USING unnest($1::smallint[], $2::uuid[], $3::uuid[], $4::integer[]) AS r (shard, subscription, message, retries)
             WHERE q.shard = r.shard AND q.subscription = r.subscription AND q.message = r.message AND q.lease IS NULL
               AND q.retries < r.retries",
            rows,
            |row| (row.subscription.shard(), row.subscription, row.message, row.retries)
        )?;
    enqueue(conn, rows).await.map(drop)
}
