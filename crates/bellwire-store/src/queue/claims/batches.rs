//! Fan-out: takes batches from cursors, and leases batches of crashed workers again.

use std::collections::HashMap;

use sqlx::PgPool;
use sqlx::types::Json;
use uuid::Uuid;

use super::cut::BatchScope;
use super::due::DueSpan;
use super::recipient::{Recipient, RecipientRow};
use super::{cursors, filtered, walk};
use crate::connections::engine::{self, shard_column};
use crate::outcomes::ledger::closing::Closing;
use crate::outcomes::ledger::enqueue::{NewRow, enqueue};
use crate::transactions::begin;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{AppId, LaneId, MessageId, SubscriptionId};
use bellwire_core::message::MessageState;
use bellwire_core::subscription::SubscriptionState;
use bellwire_segment::AudienceFilter;
use bellwire_vault::Vault;
use bellwire_vault::retry_token::Queued;

/// Maximum delay that a paced message catches up at once.
const MADE_UP_FOR: chrono::TimeDelta = chrono::TimeDelta::seconds(2);

/// A batch under this worker's lease.
#[derive(Debug)]
pub struct Batch {
    /// Id of the batch.
    pub id: Uuid,
    /// Lease, which fences the settlement.
    pub lease: Uuid,
    /// Message of the batch.
    pub message: MessageId,
    /// Lane of the recipients.
    pub lane: LaneId,
    /// Tier of the message.
    pub tier: Tier,
    /// Number of leases, this one included.
    pub leases: i16,
    /// Recipients in order of id.
    pub recipients: Vec<Recipient>,
    /// Number of candidates that were read and not taken.
    pub passed: usize,
    /// Time of the batch in its message's pace. `None`: no pace, or its first worker crashed.
    pub paced_at: Option<Timestamp>,
}

/// Result of taking a batch.
#[derive(Debug)]
pub enum TakeBatchResult {
    /// Nothing is claimable in this lane and tier.
    Nothing,
    /// No recipients: the cursor passed only candidates that are not recipients, or ended.
    NoRecipients {
        /// Number of passed candidates.
        passed: usize,
    },
    /// A batch, leased to this worker.
    Batch(Batch),
}

/// Takes the next batch of up to `size` recipients from the cursor of a lane and tier that waited longest. `batch` is a new id,
/// which is also the first lease.
///
/// The batch is flushed before this returns. If a crash of Postgres lost it, its POSTs would be unknown, also those to
/// recipients who unsubscribe before they are taken again. The function is long because of its statements.
pub async fn take_batch(
    pool: &PgPool, span: DueSpan, size: usize, batch: Uuid, until: Timestamp,
) -> sqlx::Result<TakeBatchResult> {
    let DueSpan { lane, tier, since, now } = span;
    let mut tx = begin(pool).await?;
    let Some(cursor) = fetch_optional!(
        &mut *tx,
        r#"
        SELECT c.message, c.topic, c.after, c.due_at, c.pace_us, m.state AS "state: MessageState", m.accepted_at, m.assigned_at, m.app, m.withdraws,
               m.filter AS "filter: Json<AudienceFilter>", a.caps IS NOT NULL AS "is_capped!"
        FROM cursors c JOIN messages m ON m.id = c.message JOIN apps a ON a.id = m.app
        WHERE c.lane = $1 AND c.tier = $2 AND c.due_at BETWEEN $3 AND $4
        ORDER BY c.due_at LIMIT 1 FOR UPDATE OF c SKIP LOCKED
        "#,
        (lane.0, tier.code(), since, now)
    )?
    else {
        return Ok(TakeBatchResult::Nothing);
    };
    if cursors::put_aside(&mut tx, MessageId(cursor.message), lane, cursor.state).await? {
        tx.commit().await?;
        return Ok(TakeBatchResult::NoRecipients { passed: 0 });
    }
    let place = BatchScope {
        app: AppId(cursor.app),
        lane,
        topic: cursor.topic,
        withdraws: cursor.withdraws.map(MessageId),
        shard: None,
        after: SubscriptionId(cursor.after),
        accepted_at: cursor.accepted_at,
        assigned_at: cursor.assigned_at,
        is_capped: cursor.is_capped,
    };
    let size = cursor.pace_us.map_or(size, |pace_us| size.min(paced_size(pace_us)));
    let filter = cursor.filter.map(|filter| filter.0);
    let cut = match engine::is_distributed() {
        false => filtered::cut(&mut tx, &place, filter.as_ref(), size, now).await?,
        true => walk::cut(&mut tx, place, filter.as_ref(), size, now).await?,
    };
    let ids: Vec<SubscriptionId> = cut.recipients.iter().map(|recipient| recipient.subscription).collect();
    let due_at = cursor.pace_us.map_or(now, |pace_us| paced(cursor.due_at, pace_us, ids.len(), now));
    if !ids.is_empty() {
        // One statement instead of two: what it costs to start one counts for each batch.
        execute!(
            &mut *tx,
            r#"/* insert_batch */
            WITH moved AS (UPDATE cursors SET after = $8, due_at = $9 WHERE message = $2 AND lane = $3),
            batch AS (
                INSERT INTO batches (id, message, lane, tier, recipients, lease, due_at)
                VALUES ($1, $2, $3, $4, $5, $6, $7)
            )
            INSERT INTO message_counts AS counts (message, lane, targeted, sunset) VALUES ($2, $3, cardinality($5::uuid[]), $10)
            ON CONFLICT (message, lane) DO UPDATE
            SET targeted = counts.targeted + excluded.targeted, sunset = counts.sunset + excluded.sunset
            "#,
            (batch, cursor.message, lane.0, tier.code(), &ids as &[SubscriptionId], batch, until, cut.after.0, due_at),
            (cut.sunset)
        )?;
    }
    if cut.is_last {
        execute!(&mut *tx, "DELETE FROM cursors WHERE message = $1 AND lane = $2", (cursor.message, lane.0))?;
    } else if ids.is_empty() {
        execute!(
            &mut *tx,
            "UPDATE cursors SET after = $3, due_at = $4 WHERE message = $1 AND lane = $2",
            (cursor.message, lane.0, cut.after.0, now)
        )?;
    }
    if ids.is_empty() && cut.sunset > 0 {
        execute!(
            &mut *tx,
            "INSERT INTO message_counts AS counts (message, lane, sunset) VALUES ($1, $2, $3)
             ON CONFLICT (message, lane) DO UPDATE SET sunset = counts.sunset + excluded.sunset",
            (cursor.message, lane.0, cut.sunset)
        )?;
    }
    tx.commit().await?;
    if ids.is_empty() {
        return Ok(TakeBatchResult::NoRecipients { passed: cut.passed });
    }
    Ok(TakeBatchResult::Batch(Batch {
        id: batch,
        lease: batch,
        message: MessageId(cursor.message),
        lane,
        tier,
        leases: 1,
        recipients: cut.recipients,
        passed: cut.passed,
        paced_at: cursor.pace_us.map(|_| cursor.due_at),
    }))
}

/// Returns the recipients that a paced cursor gives at a time: those of one second, or a single one.
fn paced_size(pace_us: i64) -> usize {
    usize::try_from(1_000_000 / pace_us.max(1)).unwrap_or(1).max(1)
}

/// Returns the next due time of a paced cursor that was due at `due_at` and gave `n` recipients. It catches up at most
/// [`MADE_UP_FOR`] of a delay, for example of a held lane.
fn paced(due_at: Timestamp, pace_us: i64, n: usize, now: Timestamp) -> Timestamp {
    let taken = chrono::TimeDelta::microseconds(pace_us.saturating_mul(i64::try_from(n).unwrap_or(i64::MAX)));
    due_at.max(now - MADE_UP_FOR).checked_add_signed(taken).unwrap_or(Timestamp::MAX_UTC)
}

/// Leases a batch whose lease has expired, unless it is in `own`: its worker crashed, or was disconnected from the database for
/// too long.
pub async fn lease_lost_batch(
    pool: &PgPool, span: DueSpan, own: &[Uuid], lease: Uuid, until: Timestamp,
) -> sqlx::Result<Option<Batch>> {
    let DueSpan { lane, tier, since, now } = span;
    let Some(batch) = fetch_optional!(
        pool,
        r#"
        WITH leased AS (
            UPDATE batches SET lease = $4, leases = leases + 1, due_at = $5
            WHERE ctid = ANY (ARRAY(
                SELECT ctid FROM batches WHERE lane = $1 AND tier = $2 AND due_at BETWEEN $7 AND $3 AND id <> ALL ($6)
                ORDER BY due_at LIMIT 1 FOR UPDATE SKIP LOCKED))
            RETURNING id, message, leases, recipients
        )
        SELECT l.id, l.message, l.leases, l.recipients, m.state AS "state: MessageState", m.accepted_at FROM leased l JOIN messages m ON m.id = l.message
        "#,
        (lane.0, tier.code(), now, lease, until, own, since)
    )?
    else {
        return Ok(None);
    };
    let ids: Vec<SubscriptionId> = batch.recipients.into_iter().map(SubscriptionId).collect();
    let found = query!(
        RecipientRow,
        r#"
        SELECT s.id, s.origin_id AS "origin_id?", s.address AS "address?", s.state AS "state?: SubscriptionState", s.policy, s.muted_until, s.timezone,
               s.user_id, s.proven AS "proven?", s.replaced_by IS NOT NULL AS "has_successor!",
               -- It may have ended and come back since the batch was taken. In its first life it counts from later only
               -- because it took the place of another one meanwhile: see `succession`.
               coalesce(s.since > $3 AND s.life > 0, false) AS "is_past!",
               CASE WHEN s.since > $3 AND s.life > 0 THEN s.revived - 1 ELSE s.life END AS "life?"
        FROM unnest($1::smallint[], $2::uuid[]) AS r (shard, id) JOIN subscriptions s ON s.shard = r.shard AND s.id = r.id
        WHERE s.shard = ANY ($1)
        "#,
        (&shard_column(&ids), &ids as &[SubscriptionId], batch.accepted_at)
    );
    let mut found: HashMap<SubscriptionId, RecipientRow> =
        found.fetch_all(pool).await?.into_iter().map(|found| (SubscriptionId(found.id), found)).collect();
    let of = |id| found.remove(&id).unwrap_or_else(|| RecipientRow::deleted(id)).of(batch.state);
    let recipients = ids.into_iter().map(of).collect();
    Ok(Some(Batch {
        id: batch.id,
        lease,
        message: MessageId(batch.message),
        lane,
        tier,
        leases: batch.leases,
        recipients,
        passed: 0,
        paced_at: None,
    }))
}

/// Renews the leases of batches, by id and lease. Batches that are being settled are skipped, because no other worker can lease
/// them.
pub async fn renew_batches(pool: &PgPool, batches: &[(Uuid, Uuid)], until: Timestamp) -> sqlx::Result<()> {
    let (ids, leases): (Vec<Uuid>, Vec<Uuid>) = batches.iter().copied().unzip();
    execute!(
        pool,
        "UPDATE batches SET due_at = $3 WHERE ctid = ANY (ARRAY(
           SELECT p.ctid FROM unnest($1::uuid[], $2::uuid[]) AS o (id, lease) JOIN batches p ON p.id = o.id AND p.lease = o.lease
           FOR UPDATE OF p SKIP LOCKED))",
        (&ids, &leases, until)
    )
}

/// Turns a batch whose workers crashed repeatedly into queue rows, so that the recipient that causes it is isolated.
pub async fn split_batch(pool: &PgPool, vault: &Vault, batch: &Batch, now: Timestamp) -> sqlx::Result<()> {
    let mut tx = begin(pool).await?;
    let fence = rows_affected!(&mut *tx, "DELETE FROM batches WHERE id = $1 AND lease = $2", (batch.id, batch.lease))?;
    if fence == 0 {
        return Ok(());
    }
    let queued = |subscription| Queued { message: batch.message, subscription, retries: 0, scheduled_at: now };
    let rows = batch.recipients.iter().map(|recipient| NewRow {
        subscription: recipient.subscription,
        message: batch.message,
        lane: batch.lane,
        tier: batch.tier.code(),
        retries: 0,
        due_at: now,
        parked: false,
        scheduled_at: now,
        lease: None,
        leases: 1,
        token: queued(recipient.subscription).sign(vault).to_vec(),
        failed_at: None,
        has_turn: false,
        life: recipient.life,
    });
    let mut closing = Closing::default();
    for (_, message) in enqueue(&mut tx, &rows.collect::<Vec<_>>()).await? {
        closing.merged(message, batch.lane);
    }
    closing.write(&mut tx, now).await?;
    tx.commit().await
}

#[cfg(test)]
#[path = "../../../../../tests/crates/store/unit/queue/claims/batches.rs"]
mod tests;
