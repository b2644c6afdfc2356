//! Dequeues waiting, unleased deliveries, so that the same transaction can [end](super::unsent) them.
//!
//! Deliveries under a valid lease are left to their worker, which gets a stop: those in flight end by their response, and the
//! others are not sent.

use sqlx::PgConnection;

use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, LaneId, MessageId, SubscriptionId};

/// Maximum rows dequeued at a time.
pub const CHUNK: i64 = 10_000;
/// Maximum lost batches dequeued at a time, each of up to 500 deliveries.
const BATCHES_AT_ONCE: i64 = 20;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueuedDelivery {
    pub subscription: SubscriptionId,
    pub message: MessageId,
    pub lane: LaneId,
    /// Code from [`bellwire_core::delivery::Tier::code`].
    pub tier: i16,
    pub retries: i32,
}

/// Declares a statement that dequeues the rows of `queue` that match a condition.
macro_rules! take {
    ($condition:literal, $($bind:expr),+ $(,)?) => {
        query!(
            QueuedDelivery,
            "DELETE FROM queue WHERE " + $condition + " RETURNING subscription, message, lane, tier, retries",
            ($($bind), +)
        )
    };
}

pub async fn of_message(
    conn: &mut PgConnection, message: MessageId, now: Timestamp,
) -> sqlx::Result<Vec<QueuedDelivery>> {
    take!(
        "ctid = ANY (ARRAY(
           SELECT ctid FROM queue WHERE message = $1 AND (lease IS NULL OR due_at <= $2)
           LIMIT $3 FOR UPDATE SKIP LOCKED))",
        message.0,
        now,
        CHUNK
    )
    .fetch_all(conn)
    .await
}

/// Dequeues a chunk of a message's rows that a crashed worker may have sent.
pub async fn lost_of_message(
    conn: &mut PgConnection, message: MessageId, now: Timestamp,
) -> sqlx::Result<Vec<QueuedDelivery>> {
    take!(
        "ctid = ANY (ARRAY(
           SELECT ctid FROM queue WHERE message = $1 AND leases > 0 AND (lease IS NULL OR due_at <= $2)
           LIMIT $3 FOR UPDATE SKIP LOCKED))",
        message.0,
        now,
        CHUNK
    )
    .fetch_all(conn)
    .await
}

/// Dequeues a chunk of parked rows of paused messages that expired before `expired_before`. They never become due.
pub async fn of_expired_parked(
    conn: &mut PgConnection, expired_before: Timestamp, now: Timestamp,
) -> sqlx::Result<Vec<QueuedDelivery>> {
    take!(
        "ctid = ANY (ARRAY(
           SELECT q.row FROM messages m, LATERAL (
             SELECT ctid AS row FROM queue WHERE message = m.id AND (lease IS NULL OR due_at <= $1)
             LIMIT $3 FOR UPDATE SKIP LOCKED) q
           WHERE m.state = 'paused' AND NOT m.never_began AND m.expires_at < $2 LIMIT $3))",
        now,
        expired_before,
        CHUNK
    )
    .fetch_all(conn)
    .await
}

pub async fn of_app(conn: &mut PgConnection, app: AppId, now: Timestamp) -> sqlx::Result<Vec<QueuedDelivery>> {
    take!(
        "ctid = ANY (ARRAY(
           SELECT q.row FROM lanes l, LATERAL (
             SELECT ctid AS row FROM queue WHERE lane = l.id AND (lease IS NULL OR due_at <= $2)
             LIMIT $3 FOR UPDATE SKIP LOCKED) q
           WHERE l.app = $1 LIMIT $3))",
        app.0,
        now,
        CHUNK
    )
    .fetch_all(conn)
    .await
}

/// Dequeues the remaining deliveries of batches whose workers crashed. Only for an app without further claims; otherwise
/// another worker takes these batches over.
pub async fn of_lost_batches(conn: &mut PgConnection, app: AppId, now: Timestamp) -> sqlx::Result<Vec<QueuedDelivery>> {
    let batches = fetch_all!(
        conn,
        "DELETE FROM batches WHERE ctid = ANY (ARRAY(
           SELECT p.row FROM lanes l, LATERAL (
             SELECT ctid AS row FROM batches WHERE lane = l.id AND due_at <= $2 LIMIT $3 FOR UPDATE SKIP LOCKED) p
           WHERE l.app = $1 LIMIT $3))
         RETURNING message, lane, tier, recipients",
        (app.0, now, BATCHES_AT_ONCE)
    )?;
    let rows = batches.into_iter().flat_map(|batch| {
        batch.recipients.into_iter().map(move |subscription| QueuedDelivery {
            subscription: SubscriptionId(subscription),
            message: MessageId(batch.message),
            lane: LaneId(batch.lane),
            tier: batch.tier,
            retries: 0,
        })
    });
    Ok(rows.collect())
}

pub async fn of_subscription(
    conn: &mut PgConnection, subscription: SubscriptionId, now: Timestamp,
) -> sqlx::Result<Vec<QueuedDelivery>> {
    take!(
        "shard = $1 AND subscription = $2 AND (lease IS NULL OR due_at <= $3)",
        subscription.shard(),
        subscription.0,
        now
    )
    .fetch_all(conn)
    .await
}

/// Dequeues the deliveries of a locked subscription that were addressed to its former user, and records that. Deliveries for
/// topics and broadcasts stay.
pub async fn of_previous_users(
    conn: &mut PgConnection, subscription: SubscriptionId, now: Timestamp,
) -> sqlx::Result<Vec<QueuedDelivery>> {
    execute!(
        &mut *conn,
        "UPDATE subscriptions SET user_left_at = $3, life = life + 1 WHERE shard = $1 AND id = $2",
        (subscription.shard(), subscription.0, now)
    )?;
    fetch_all!(
        conn,
        QueuedDelivery,
        "DELETE FROM queue q USING messages m WHERE q.shard = $1 AND q.subscription = $2 AND m.id = q.message
           AND m.audience ?| ARRAY['users', 'subscriptions'] AND (q.lease IS NULL OR q.due_at <= $3)
         RETURNING q.subscription, q.message, q.lane, q.tier, q.retries",
        (subscription.shard(), subscription.0, now)
    )
}

/// Dequeues one delivery of an app, if it waits.
pub async fn of_delivery(
    conn: &mut PgConnection, app: AppId, message: MessageId, subscription: SubscriptionId, now: Timestamp,
) -> sqlx::Result<Option<QueuedDelivery>> {
    take!(
        "shard = $1 AND subscription = $2 AND message = $3 AND (lease IS NULL OR due_at <= $4)
           AND EXISTS (SELECT 1 FROM messages WHERE id = $3 AND app = $5)",
        subscription.shard(),
        subscription.0,
        message.0,
        now,
        app.0
    )
    .fetch_optional(conn)
    .await
}
