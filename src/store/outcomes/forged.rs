//! Rows of `queue` that no worker of ours can have written: changed by hand, or put back after they were settled. They
//! are never sent. Each ends in the archive, and somebody has to look at it.

use sqlx::PgPool;
use uuid::Uuid;

use crate::classify::DeadReason;
use crate::model::clock::Timestamp;
use crate::model::delivery::{Ending, Tier};
use crate::model::id::{AppId, DeadLetterId, LaneId, MessageId, SubscriptionId};
use crate::store::outcomes::alerts::{self, Alert, Kind};
use crate::store::outcomes::events::{self, Body, Event};
use crate::store::outcomes::settle::Fenced;
use crate::store::outcomes::tally::Tally;

/// A row that is not what it should be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Forged {
    /// The claim it was found under.
    pub lease: Uuid,
    /// To whom.
    pub subscription: SubscriptionId,
    /// What.
    pub message: MessageId,
    /// Whose.
    pub app: AppId,
    /// Where it was found.
    pub lane: LaneId,
    /// At which tier.
    pub tier: Tier,
    /// [`DeadReason::Tampered`] or [`DeadReason::Replayed`].
    pub reason: DeadReason,
    /// The dead letter's id.
    pub letter: Uuid,
}

/// Ends it as dead. It counts as its delivery's ending, and stands among its attempts, only if that has not ended
/// before: a row put back by hand must not end a delivery twice.
pub(crate) async fn end(pool: &PgPool, row: &Forged, now: Timestamp) -> sqlx::Result<Fenced> {
    let mut tx = pool.begin().await?;
    let shard = row.subscription.shard();
    let deleted = sqlx::query!(
        "DELETE FROM queue WHERE shard = $1 AND subscription = $2 AND message = $3 AND lease = $4",
        shard,
        row.subscription.0,
        row.message.0,
        row.lease
    )
    .execute(&mut *tx)
    .await?;
    if deleted.rows_affected() == 0 {
        return Ok(Fenced::Out);
    }
    let before = sqlx::query!(
        r#"SELECT coalesce(max(attempt) + 1, 0) AS "next!", coalesce(bool_or(ending <> 2), false) AS "ended!"
           FROM attempts WHERE message = $1 AND subscription = $2 AND shard = $3"#,
        row.message.0,
        row.subscription.0,
        shard
    )
    .fetch_one(&mut *tx)
    .await?;
    sqlx::query!(
        r#"
        WITH logged AS (
            INSERT INTO attempts (message, subscription, attempt, shard, at, ending, reason)
            SELECT $1, $2, $3, $4, $5, $6, $7 WHERE NOT $9
        )
        INSERT INTO dead_letters (shard, id, app, message, subscription, lane, tier, reason, retries, at)
        VALUES ($4, $10, $11, $1, $2, $8, $12, $7, $3, $5)
        "#,
        row.message.0,
        row.subscription.0,
        before.next,
        shard,
        now,
        Ending::Dead.code(),
        row.reason.name(),
        row.lane.0,
        before.ended,
        row.letter,
        row.app.0,
        row.tier.code()
    )
    .execute(&mut *tx)
    .await?;
    if !before.ended {
        let mut tally = Tally::default();
        tally.ended_unsent(row.message.0, row.lane.0, row.tier.code(), Ending::Dead);
        tally.write(&mut tx, now).await?;
    }
    let kind = if row.reason == DeadReason::Replayed { Kind::Replayed } else { Kind::Tampered };
    let (subject, letter) = (row.message.to_string(), DeadLetterId(row.letter));
    let detail =
        format!("a row of the queue was changed or put back by hand; it was not sent: see the dead letter {letter}");
    alerts::raise(&mut tx, &Alert { app: Some(row.app), kind, subject: &subject, detail: &detail }, now).await?;
    let body = Body::DeadLetterCreated { reason: row.reason.name().to_owned(), dead_letter: letter };
    events::record(&mut tx, vec![Event { app: row.app, body, n: 1 }], now).await?;
    tx.commit().await?;
    Ok(Fenced::Written)
}
