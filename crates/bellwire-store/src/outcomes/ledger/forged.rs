//! Rows of `queue` that no worker wrote: changed outside Bellwire, or inserted again after their settlement. They are never
//! sent. Each becomes a dead letter, with an alert.

use sqlx::PgPool;
use uuid::Uuid;

use super::closing::Closing;
use super::settlement::Fenced;
use super::take::QueuedDelivery;
use super::unsent::{How, end_within, write_dead_letters};
use crate::outcomes::alerts::{self, Alert, AlertKind};
use crate::outcomes::events;
use crate::transactions::begin;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{AppId, DeadLetterId, LaneId, MessageId, SubscriptionId};
use bellwire_rules::classify::DeadReason;

/// Row of `queue` that was changed outside Bellwire, or inserted again after its settlement.
#[derive(Debug, Clone, Copy)]
pub struct Forged {
    pub lease: Uuid,
    pub subscription: SubscriptionId,
    pub message: MessageId,
    pub app: AppId,
    pub lane: LaneId,
    pub tier: Tier,
    /// Reason: [`DeadReason::Tampered`] or [`DeadReason::Replayed`].
    pub reason: DeadReason,
    pub letter: DeadLetterId,
}

/// Ends the row as dead. If its delivery has not ended before, this is counted and logged as its ending: a row inserted again
/// must not end a delivery twice.
pub async fn end(pool: &PgPool, row: &Forged, now: Timestamp) -> sqlx::Result<Fenced> {
    let mut tx = begin(pool).await?;
    let shard = row.subscription.shard();
    let deleted = rows_affected!(
        &mut *tx,
        "DELETE FROM queue WHERE shard = $1 AND subscription = $2 AND message = $3 AND lease = $4",
        (shard, row.subscription.0, row.message.0, row.lease)
    )?;
    if deleted == 0 {
        return Ok(Fenced::Out);
    }
    let before = fetch_one!(
        &mut *tx,
        r#"SELECT coalesce(max(attempt) + 1, 0) AS "next!", coalesce(bool_or(ending <> 2), false) AS "ended!"
           FROM attempts WHERE message = $1 AND subscription = $2 AND shard = $3"#,
        (row.message.0, row.subscription.0, shard)
    )?;
    let how = How::Dead { reason: row.reason, app: row.app, id: row.letter };
    let waited = QueuedDelivery {
        subscription: row.subscription,
        message: row.message,
        lane: row.lane,
        tier: row.tier.code(),
        retries: before.next,
    };
    let mut closing = Closing::default();
    if before.ended {
        write_dead_letters(&mut tx, &[waited], how, &mut closing, now).await?;
    } else {
        end_within(&mut tx, vec![waited], how, &mut closing, now).await?;
    }
    let told = closing.count(&mut tx, now).await?;
    let kind = if row.reason == DeadReason::Replayed { AlertKind::Replayed } else { AlertKind::Tampered };
    let subject = row.message.to_string();
    let detail = format!(
        "a row of the queue was changed or put back by hand; it was not sent: see the dead letter {}",
        row.letter
    );
    alerts::raise(&mut tx, &Alert { app: Some(row.app), kind, subject: &subject, detail: &detail }, now).await?;
    events::record(&mut tx, told, now).await?;
    tx.commit().await?;
    Ok(Fenced::Written)
}
