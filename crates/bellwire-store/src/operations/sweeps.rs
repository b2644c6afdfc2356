//! Corrections by maintenance, in chunks of a fraction of a second. [`retention`](crate::operations::retention) deletes old
//! rows.

use std::time::Duration;

use sqlx::{PgPool, Postgres, Transaction};
use tracing::info;

use crate::audience::audience_counts::Difference;
use crate::audience::subscriptions::row::SubscriptionKeys;
use crate::keys::apps::{self, App};
use crate::outcomes::ledger::take::{self, QueuedDelivery};
use crate::outcomes::ledger::unsent::{self, How};
use crate::queue::messages;
use crate::transactions::{begin, begin_by_index};
use bellwire_core::clock::Timestamp;
use bellwire_core::fact::Loss;
use bellwire_core::id::{AppId, LaneId, MessageId, SubscriptionId};

/// Time after the expiry of a paused message when its parked rows, which are never due, are settled here.
const EXPIRY_GRACE: Duration = Duration::from_secs(60);
/// Time after a resume during which workers may still park rows, because they have not read the resume.
const RESUME_GRACE: Duration = Duration::from_secs(60);
/// Time after a cancellation during which waiting rows are searched. Later ones have expired, and are found by their due time.
const CANCEL_WATCH: Duration = Duration::from_secs(86_400);
/// Time between a check that finds all deliveries ended and the deletion of the message's content.
const CONTENT_GRACE: Duration = Duration::from_secs(300);

/// Returns messages that were cancelled or resumed but have waiting rows in the old state: rows beyond the first chunk, and
/// rows that workers queued or parked before they read the change. Call [`crate::queue::steering::go_on`] for each.
pub async fn half_turned(pool: &PgPool, now: Timestamp) -> sqlx::Result<Vec<MessageId>> {
    let ids = fetch_all!(
        pool,
        scalar,
        r#"
        SELECT id FROM messages m
        WHERE (state = 'cancelled' AND NOT never_began AND expires_at > $2
               AND EXISTS (SELECT 1 FROM queue WHERE message = m.id AND (lease IS NULL OR due_at <= $1)))
           OR (state = 'sending' AND resumed_at IS NOT NULL
               AND EXISTS (SELECT 1 FROM queue WHERE message = m.id AND due_at = 'infinity'))
        "#,
        (now, now - CANCEL_WATCH)
    )?;
    execute!(
        pool,
        "UPDATE messages SET resumed_at = NULL WHERE state = 'sending' AND resumed_at < $1 AND id <> ALL ($2)",
        (now - RESUME_GRACE, &ids)
    )?;
    Ok(ids.into_iter().map(MessageId).collect())
}

/// Settles a chunk of parked rows of messages that expired a minute ago. Returns the number of rows.
pub async fn expire_parked(pool: &PgPool, now: Timestamp) -> sqlx::Result<usize> {
    let mut tx = begin(pool).await?;
    let rows = take::of_expired_parked(&mut tx, now - EXPIRY_GRACE, now).await?;
    expire(tx, rows, now).await
}

/// Ends subscriptions whose `expirationTime` has passed. Returns the number.
pub async fn expire_subscriptions(pool: &PgPool, now: Timestamp) -> sqlx::Result<u64> {
    let due = fetch_all!(
        pool,
        scalar,
        r#"SELECT id AS "id: SubscriptionId" FROM subscriptions
           WHERE state = 'active' AND expires_at <= $1 ORDER BY expires_at LIMIT 10000"#,
        (now)
    )?;
    let keys = SubscriptionKeys::of(due);
    if keys.ids.is_empty() {
        return Ok(0);
    }
    let mut tx = begin(pool).await?;
    let expired = fetch_all!(
        &mut *tx,
        scalar,
        r#"UPDATE subscriptions s SET state = 'expired', ended_at = $3 FROM unnest($1::smallint[], $2::uuid[]) AS k (shard, id)
           WHERE s.shard = k.shard AND s.id = k.id AND s.state = 'active' AND s.expires_at <= $3
           RETURNING s.lane AS "lane: LaneId""#,
        (&keys.shards, &keys.ids as &[SubscriptionId], now)
    )?;
    let mut changes = Difference::default();
    expired.iter().for_each(|lane| changes.lost(*lane, now, Loss::Expired));
    changes.write(&mut tx).await?;
    tx.commit().await?;
    Ok(expired.len() as u64)
}

/// Reads a chunk of messages whose content may no longer be needed. Deletes the content if all deliveries had ended at the
/// previous check, at least [`CONTENT_GRACE`] ago, and no open dead letter needs it. Returns the number of messages read.
///
/// A message that still needs its content is checked again after a tenth of its age, or a minute after it expires, or after a
/// day if dead letters need it. Handling dead letters brings the check forward. A scheduled message keeps its regular time if a
/// check was requested before. Rows that still wait a minute after the expiry, because their lane is closed, are settled as
/// expired.
///
/// No message is checked twice with the same `now`.
pub async fn delete_contents(pool: &PgPool, now: Timestamp) -> sqlx::Result<u64> {
    let mut tx = begin_by_index(pool).await?;
    let looked = fetch_all!(
        &mut *tx,
        r#"
        WITH due AS (
            SELECT id, accepted_at, expires_at, ended_by,
                   -- Not EXISTS, which may be planned as a look at the whole table.
                   state = 'scheduled' OR (SELECT true FROM cursors WHERE message = m.id LIMIT 1) IS NOT NULL
                     OR (SELECT true FROM batches WHERE message = m.id LIMIT 1) IS NOT NULL
                     OR (SELECT true FROM queue WHERE message = m.id LIMIT 1) IS NOT NULL AS moving,
                   EXISTS (SELECT 1 FROM dead_letters WHERE app = m.app AND message = m.id AND state = 'open') AS needed
            FROM messages m
            WHERE content IS NOT NULL AND coalesce(look_at, accepted_at) <= $2
            ORDER BY coalesce(look_at, accepted_at) LIMIT 1000 FOR NO KEY UPDATE SKIP LOCKED
        )
        UPDATE messages m
        SET content = CASE WHEN moving OR needed OR due.ended_by IS NULL THEN m.content END,
            audience = CASE WHEN moving OR NOT m.audience ? 'users' THEN m.audience
                            ELSE jsonb_build_object('users', (SELECT jsonb_agg(NULL::text)
                                                              FROM jsonb_array_elements(m.audience -> 'users'))) END,
            ended_by = CASE WHEN NOT moving THEN coalesce(due.ended_by, $1) END,
            -- A look comes the grace later than `look_at`; the one after expiry comes when it is due.
            look_at = $1 + CASE WHEN moving AND due.expires_at <= $3 THEN interval '0'
                                WHEN moving AND due.accepted_at > $1 THEN due.accepted_at - $1
                                WHEN moving THEN least((($1 - due.accepted_at) / 10), interval '1 hour',
                                                       due.expires_at - $3 - ($1 - $2))
                                WHEN needed THEN interval '1 day' ELSE interval '0' END
        FROM due WHERE m.id = due.id
        RETURNING m.id, m.app, moving AND due.expires_at <= $3 AS "overdue!",
            NOT moving AND due.ended_by IS NULL AND m.audience ?| ARRAY['topic', 'all'] AS "campaign_ended!"
        "#,
        (now, now - CONTENT_GRACE, now - EXPIRY_GRACE)
    )?;
    tx.commit().await?;
    for message in looked.iter().filter(|message| message.campaign_ended) {
        log_end(pool, AppId(message.app), MessageId(message.id), now).await?;
    }
    for message in looked.iter().filter(|message| message.overdue) {
        while expire_rows(pool, MessageId(message.id), now).await? > 0 {}
    }
    Ok(looked.len() as u64)
}

async fn log_end(pool: &PgPool, app: AppId, id: MessageId, now: Timestamp) -> sqlx::Result<()> {
    let Some((_, account)) = messages::account(pool, app, id, now).await? else { return Ok(()) };
    let Some(App { slug: app, .. }) = apps::find_any(pool, Some(app), None).await? else { return Ok(()) };
    let messages::DeliveryCounts { targeted, accepted, gone, expired, dead, cancelled, capped, .. } = account;
    info!(message_id = %id, app, targeted, accepted, gone, expired, dead, cancelled, capped, "a campaign has ended");
    Ok(())
}

/// Settles a chunk of a message's unleased rows as expired, and returns their number.
async fn expire_rows(pool: &PgPool, message: MessageId, now: Timestamp) -> sqlx::Result<usize> {
    let mut tx = begin(pool).await?;
    let rows = take::of_message(&mut tx, message, now).await?;
    expire(tx, rows, now).await
}

async fn expire(mut tx: Transaction<'_, Postgres>, rows: Vec<QueuedDelivery>, now: Timestamp) -> sqlx::Result<usize> {
    let n = rows.len();
    unsent::end(&mut tx, rows, How::Expired("time to live is over"), now).await?;
    tx.commit().await?;
    Ok(n)
}
