//! Single deliveries: their state and attempts.

use sqlx::{PgExecutor, PgPool};

use crate::keyset::{Keyset, paged};
use crate::operations::retrying::retrying;
use crate::outcomes::ledger::take;
use crate::outcomes::ledger::unsent::{self, How};
use crate::transactions::begin;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, MessageId, SubscriptionId};

#[derive(Debug, Clone)]
pub struct DeliveryRow {
    pub subscription: SubscriptionId,
    /// Number of failed attempts while it waits for a retry. `None`: it does not wait.
    pub retries: Option<i32>,
    pub held: bool,
    /// Due time while it waits. `None`: its message is paused, or it does not wait.
    pub due_at: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub struct AttemptRow {
    pub subscription: SubscriptionId,
    /// Number of the attempt, from 0.
    pub attempt: i32,
    /// Time of the response, or of the ending.
    pub at: Timestamp,
    /// Code from [`bellwire_core::delivery::Ending::code`].
    pub ending: i16,
    pub status: Option<i16>,
    /// Time from the start of the POST to the response, in milliseconds.
    pub took_ms: Option<i32>,
    pub reason: Option<String>,
}

/// Returns a message's deliveries to subscriptions with ids below `before`, the newest subscriptions first, in one snapshot.
/// Empty if the message belongs to another app.
pub async fn list(
    pool: &PgPool, app: AppId, message: MessageId, only: Option<SubscriptionId>, page: Keyset, now: Timestamp,
) -> Result<Vec<DeliveryRow>, sqlx::Error> {
    let is_theirs = fetch_one!(
        pool,
        scalar,
        r#"SELECT EXISTS (SELECT FROM messages WHERE id = $1 AND app = $2) AS "is_theirs!""#,
        (message.0, app.0)
    )?;
    if !is_theirs {
        return Ok(Vec::new());
    }
    paged!(pool, page, DeliveryRow,
        ["WITH batched AS (SELECT unnest(recipients) AS subscription FROM batches WHERE message = $1),
           known AS (
             (SELECT DISTINCT subscription FROM attempts WHERE message = $1 AND subscription" < "$2
               AND ($3::uuid IS NULL OR subscription = $3) ORDER BY subscription" DESC "LIMIT $4)
             UNION (SELECT subscription FROM queue WHERE message = $1 AND subscription" < "$2
               AND ($3::uuid IS NULL OR subscription = $3) ORDER BY subscription" DESC "LIMIT $4)
             UNION (SELECT subscription FROM batched WHERE subscription" < "$2
               AND ($3::uuid IS NULL OR subscription = $3) ORDER BY subscription" DESC r#"LIMIT $4))
         SELECT k.subscription AS "subscription!", q.retries AS "retries?",
           coalesce(q.lease IS NOT NULL AND q.due_at > $5, false)
             OR EXISTS (SELECT 1 FROM batched p WHERE p.subscription = k.subscription) AS "held!",
           nullif(q.due_at, 'infinity') AS "due_at?"
         FROM known k LEFT JOIN queue q ON q.shard = get_byte(uuid_send(k.subscription), 15) & 63
           AND q.subscription = k.subscription AND q.message = $1
         ORDER BY k.subscription"# DESC "LIMIT $4"],
        (message.0, page.beyond, only.map(|id| id.0), page.limit, now)
    )
}

pub async fn attempts(
    executor: impl PgExecutor<'_>, message: MessageId, subscriptions: &[SubscriptionId],
) -> Result<Vec<AttemptRow>, sqlx::Error> {
    fetch_all!(
        executor,
        AttemptRow,
        "SELECT subscription, attempt, at, ending, status, took_ms, reason FROM attempts
         WHERE message = $1 AND subscription = ANY($2) ORDER BY subscription, attempt",
        (message.0, subscriptions as &[SubscriptionId])
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryActionResult {
    Done,
    NotWaiting,
}

/// Makes a waiting delivery due now, unless its message is paused. The time planned by its policy stays stored.
pub async fn hurry(
    pool: &PgPool, app: AppId, message: MessageId, subscription: SubscriptionId, now: Timestamp,
) -> Result<DeliveryActionResult, sqlx::Error> {
    let done = rows_affected!(
        pool,
        "UPDATE queue SET due_at = least(due_at, $4) WHERE shard = $1 AND subscription = $2 AND message = $3
           AND lease IS NULL AND due_at < 'infinity' AND EXISTS (SELECT 1 FROM messages WHERE id = $3 AND app = $5)",
        (subscription.shard(), subscription.0, message.0, now, app.0)
    )?;
    Ok(if done == 1 { DeliveryActionResult::Done } else { DeliveryActionResult::NotWaiting })
}

pub async fn cancel(
    pool: &PgPool, app: AppId, message: MessageId, subscription: SubscriptionId, now: Timestamp,
) -> Result<DeliveryActionResult, sqlx::Error> {
    retrying(|| async move {
        let mut tx = begin(pool).await?;
        let Some(row) = take::of_delivery(&mut tx, app, message, subscription, now).await? else {
            return Ok(DeliveryActionResult::NotWaiting);
        };
        unsent::end(&mut tx, vec![row], How::Cancelled("delivery cancelled"), now).await?;
        tx.commit().await?;
        Ok(DeliveryActionResult::Done)
    })
    .await
}
