//! How a subscription takes the place of another one, and what was for that one reaches it.
//!
//! What nobody holds moves at once. What a worker holds stays where it is: the worker hears of the replacement as of a stop,
//! what it has sent already ends by its answer, and what it gives back, for a retry or unsent, is handed on when it is
//! claimed the next time. So is what was sent to the old one in the same moment, and what a worker held that died.

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::model::clock::Timestamp;
use crate::model::delivery::Ending;
use crate::model::id::{MessageId, SubscriptionId};
use crate::policy::token::Queued;
use crate::store::audience::membership;
use crate::store::audience::subscriptions::SubscriptionRow;
use crate::store::operations::retrying::retrying;
use crate::store::queue::stops::{StopKind, stop_subscription};
use crate::store::queue::unsent::{Waiting, settle_unsent};
use crate::vault::Vault;

/// Who comes in the place of a subscription, and in which of its lives.
#[derive(Clone, Copy)]
struct Successor {
    id: SubscriptionId,
    life: i32,
}

/// A row of `queue` that the transaction has locked.
struct Held {
    message: Uuid,
    retries: i32,
    scheduled_at: Timestamp,
    token: Vec<u8>,
}

/// Hands on what an old subscription had: its delivery policy, unless the new one has one, its topics, and whatever waits
/// for it; and has all workers stop sending to it. Both are locked.
pub(in crate::store) async fn take_over(
    conn: &mut PgConnection,
    vault: &Vault,
    old: &SubscriptionRow,
    new: &SubscriptionRow,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let (old_id, new_id) = (old.typed_id(), new.typed_id());
    let life = sqlx::query_scalar!(
        r#"WITH new AS (SELECT id, life, policy FROM subscriptions WHERE shard = $4 AND id = $5),
           old AS (
             UPDATE subscriptions s SET state = 'replaced', ended_at = coalesce(ended_at, $3),
               replaced_by = new.id, replaced_by_life = new.life
             FROM new WHERE s.shard = $1 AND s.id = $2 RETURNING s.policy),
           inherited AS (
             UPDATE subscriptions s SET policy = old.policy FROM old, new
             WHERE s.shard = $4 AND s.id = $5 AND new.policy IS NULL AND old.policy IS NOT NULL)
           SELECT life FROM new"#,
        old_id.shard(),
        old.id,
        now,
        new_id.shard(),
        new.id
    )
    .fetch_one(&mut *conn)
    .await?;
    stop_subscription(&mut *conn, StopKind::Replace, old_id, now).await?;
    membership::inherit(conn, old_id, (new_id, new.lane)).await?;
    let free = sqlx::query_as!(
        Held,
        "SELECT message, retries, scheduled_at, token FROM queue
         WHERE shard = $1 AND subscription = $2 AND (lease IS NULL OR due_at <= $3) FOR UPDATE",
        old_id.shard(),
        old.id,
        now
    )
    .fetch_all(&mut *conn)
    .await?;
    hand_on(conn, vault, old_id, Successor { id: new_id, life }, &free, now).await
}

/// Hands on what was claimed under `lease` and is for a subscription that another one has taken the place of. What is not
/// under that lease any more, or whose subscription is back, stays.
pub(crate) async fn follow(
    pool: &PgPool,
    vault: &Vault,
    lease: Uuid,
    old: SubscriptionId,
    messages: &[MessageId],
    now: Timestamp,
) -> sqlx::Result<()> {
    let messages: Vec<Uuid> = messages.iter().map(|message| message.0).collect();
    retrying(|| async {
        let mut tx = pool.begin().await?;
        let successor = sqlx::query!(
            r#"SELECT replaced_by AS "id!", replaced_by_life AS "life!" FROM subscriptions
               WHERE shard = $1 AND id = $2 AND state = 'replaced' AND replaced_by IS NOT NULL"#,
            old.shard(),
            old.0
        )
        .fetch_optional(&mut *tx)
        .await?;
        let Some(successor) = successor else { return Ok(()) };
        let held = sqlx::query_as!(
            Held,
            "SELECT message, retries, scheduled_at, token FROM queue
             WHERE shard = $1 AND subscription = $2 AND message = ANY ($3) AND lease = $4 FOR UPDATE",
            old.shard(),
            old.0,
            &messages,
            lease
        )
        .fetch_all(&mut *tx)
        .await?;
        let successor = Successor { id: SubscriptionId(successor.id), life: successor.life };
        hand_on(&mut tx, vault, old, successor, &held, now).await?;
        tx.commit().await
    })
    .await
}

/// Moves locked rows to the successor, signed for it; none else, since nobody could sign for what came in between. What
/// waits for the successor already, or has none that exists, ends here.
async fn hand_on(
    conn: &mut PgConnection,
    vault: &Vault,
    old: SubscriptionId,
    new: Successor,
    rows: &[Held],
    now: Timestamp,
) -> sqlx::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    // A row that somebody has changed by hand gets a token that does not fit either.
    let token = |row: &Held| {
        let retries = u32::try_from(row.retries).unwrap_or(0);
        let (message, scheduled_at) = (MessageId(row.message), row.scheduled_at);
        let before = Queued { message, subscription: old, retries, scheduled_at };
        let after = Queued { subscription: new.id, ..before };
        if before.fits(&row.token, vault) { after.sign(vault).to_vec() } else { Vec::new() }
    };
    let doubled = sqlx::query_as!(
        Waiting,
        r#"WITH taken AS (
             DELETE FROM queue q USING unnest($7::uuid[], $8::bytea[]) AS t (message, signed)
             WHERE q.shard = $1 AND q.subscription = $2 AND q.message = t.message RETURNING q.*, t.signed),
           moved AS (
             INSERT INTO queue (shard, subscription, message, lane, tier, retries, due_at, scheduled_at, leases, token,
               failed_at, life)
             SELECT s.shard, s.id, q.message, s.lane, q.tier, q.retries, CASE WHEN q.lease IS NULL THEN q.due_at ELSE $6 END,
               q.scheduled_at, q.leases, q.signed, q.failed_at, $5
             FROM taken q JOIN subscriptions s ON s.shard = $3 AND s.id = $4
             ON CONFLICT DO NOTHING RETURNING message)
         SELECT shard, subscription, message, lane, tier, retries FROM taken
         WHERE message NOT IN (SELECT message FROM moved)"#,
        old.shard(),
        old.0,
        new.id.shard(),
        new.id.0,
        new.life,
        now,
        &rows.iter().map(|row| row.message).collect::<Vec<_>>(),
        &rows.iter().map(token).collect::<Vec<_>>()
    )
    .fetch_all(&mut *conn)
    .await?;
    settle_unsent(conn, doubled, Ending::Cancelled, "replaced", now).await
}
