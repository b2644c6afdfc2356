//! Replacement of a subscription by another one, including its deliveries. [Running fan-outs](fan_outs) are enqueued for the
//! successor at once.
//!
//! Unleased deliveries move at once. Leased ones stay with their worker, which reads the replacement like a stop. Sent ones end
//! by their response. Those that the worker requeues, for a retry or unsent, move at their next claim. So do deliveries that
//! were created for the old subscription concurrently, and those of a crashed worker.

mod fan_outs;

use std::collections::HashSet;

use fan_outs::Ahead;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::audience::subscriptions::row::SubscriptionRow;
use crate::audience::{assignments, audience_counts, membership};
use crate::operations::retrying::retrying;
use crate::outcomes::ledger::closing::Closing;
use crate::outcomes::ledger::enqueue::{NewRow, enqueue};
use crate::outcomes::ledger::take::QueuedDelivery;
use crate::outcomes::ledger::unsent::{self, How};
use crate::queue::stops::{StopKind, stop_subscription};
use crate::transactions::begin;
use bellwire_core::clock::Timestamp;
use bellwire_core::fact::Loss;
use bellwire_core::id::{AppId, LaneId, MessageId, SubscriptionId};
use bellwire_core::subscription::SubscriptionState;
use bellwire_vault::Vault;
use bellwire_vault::retry_token::Queued;

/// Successor of a subscription.
#[derive(Clone, Copy)]
pub(crate) struct Heir<'a> {
    /// Row of the successor, locked and active.
    pub row: &'a SubscriptionRow,
    /// Whether it was registered before, so that running fan-outs may include it.
    pub is_known: bool,
}

#[derive(Clone, Copy)]
struct Successor {
    id: SubscriptionId,
    life: i32,
    /// Lane of the old subscription. `None`: it no longer exists.
    lane: Option<LaneId>,
}

/// A row taken from `queue` in this transaction.
struct DequeuedRow {
    message: MessageId,
    lane: LaneId,
    tier: i16,
    retries: i32,
    /// Due time. `None`: its message is paused.
    due_at: Option<Timestamp>,
    scheduled_at: Timestamp,
    lease: Option<Uuid>,
    leases: i16,
    token: Vec<u8>,
    failed_at: Option<Timestamp>,
}

/// Moves the old subscription's values to the new one: its delivery policy (unless the new one has one), topics, and waiting
/// and future deliveries. Workers stop sending to the old one. Both are locked.
pub(crate) async fn take_over(
    conn: &mut PgConnection, vault: &Vault, app: AppId, old: &SubscriptionRow, heir: Heir<'_>, now: Timestamp,
) -> Result<(), sqlx::Error> {
    let (old_id, new_id, new_lane) = (old.id, heir.row.id, heir.row.lane);
    if !heir.is_known {
        assignments::inherit(conn, app, old, heir.row, now).await?;
    }
    // It judges by topics that are about to be left.
    let ahead = fan_outs::take_out(conn, app, old, heir, now).await?;
    let life = replace(conn, old_id, new_id, now).await?;
    if heir.is_known && heir.row.muted_until.is_none() && heir.row.user_id == old.user_id {
        execute!(
            &mut *conn,
            "UPDATE subscriptions SET muted_until = $3 WHERE shard = $1 AND id = $2",
            (new_id.shard(), new_id.0, old.muted_until)
        )?;
    }
    if old.state == SubscriptionState::Active {
        let mut changes = audience_counts::Difference::default();
        changes.lost(old.lane, now, Loss::Replaced);
        changes.write(conn).await?;
    }
    stop_subscription(&mut *conn, StopKind::Replace, old_id, now).await?;
    membership::inherit(conn, old_id, (new_id, new_lane)).await?;
    let free = fetch_all!(
        &mut *conn,
        DequeuedRow,
        "DELETE FROM queue WHERE shard = $1 AND subscription = $2 AND (lease IS NULL OR due_at <= $3)
         RETURNING message, lane, tier, retries, nullif(due_at, 'infinity') AS due_at, scheduled_at, lease, leases, token,
           failed_at",
        (old_id.shard(), old.id.0, now)
    )?;
    let successor = Successor { id: new_id, life, lane: Some(new_lane) };
    hand_on(conn, vault, old_id, successor, (free, ahead), now).await
}

/// Marks an old subscription as replaced, and passes its delivery policy to the successor if that has none. Returns the
/// successor's life.
async fn replace(
    conn: &mut PgConnection, old: SubscriptionId, new: SubscriptionId, now: Timestamp,
) -> Result<i32, sqlx::Error> {
    let life = fetch_one!(
        &mut *conn,
        scalar,
        "SELECT life FROM subscriptions WHERE shard = $1 AND id = $2",
        (new.shard(), new.0)
    )?;
    let policy = query!(
        scalar,
        "UPDATE subscriptions SET state = 'replaced', ended_at = coalesce(ended_at, $3), replaced_by = $4, replaced_by_life = $5
         WHERE shard = $1 AND id = $2 RETURNING policy",
        (old.shard(), old.0, now, new.0, life)
    );
    if let Some(policy) = policy.fetch_optional(&mut *conn).await?.flatten() {
        execute!(
            conn,
            "UPDATE subscriptions SET policy = $3 WHERE shard = $1 AND id = $2 AND policy IS NULL",
            (new.shard(), new.0, policy)
        )?;
    }
    Ok(life)
}

/// Moves deliveries claimed under `lease` whose subscription was replaced. Those no longer under that lease, or whose
/// subscription is active again, stay.
pub async fn follow(
    pool: &PgPool, vault: &Vault, lease: Uuid, old: SubscriptionId, messages: &[MessageId], now: Timestamp,
) -> sqlx::Result<()> {
    retrying(|| async {
        let mut tx = begin(pool).await?;
        let Some(successor) = successor_of(&mut tx, old).await? else { return Ok(()) };
        let taken = fetch_all!(
            &mut *tx,
            DequeuedRow,
            "DELETE FROM queue WHERE shard = $1 AND subscription = $2 AND message = ANY ($3) AND lease = $4
             RETURNING message, lane, tier, retries, nullif(due_at, 'infinity') AS due_at, scheduled_at, lease, leases,
               token, failed_at",
            (old.shard(), old.0, messages as &[MessageId], lease)
        )?;
        hand_on(&mut tx, vault, old, successor, (taken, Vec::new()), now).await?;
        tx.commit().await
    })
    .await
}

/// Returns the successor of a subscription. `None`: no successor.
async fn successor_of(conn: &mut PgConnection, old: SubscriptionId) -> sqlx::Result<Option<Successor>> {
    let successor = query!(
        r#"SELECT replaced_by AS "id!: SubscriptionId", replaced_by_life AS "life!" FROM subscriptions
           WHERE shard = $1 AND id = $2 AND state = 'replaced' AND replaced_by IS NOT NULL"#,
        (old.shard(), old.0)
    );
    let Some(successor) = successor.fetch_optional(&mut *conn).await? else { return Ok(None) };
    let (id, life) = (successor.id, successor.life);
    let lane = fetch_optional!(
        conn,
        scalar,
        "SELECT lane FROM subscriptions WHERE shard = $1 AND id = $2",
        (id.shard(), id.0)
    )?;
    let lane = lane.map(LaneId);
    Ok(Some(Successor { id, life, lane }))
}

/// Enqueues the dequeued deliveries, and those of fan-outs that miss the successor, for the successor. Deliveries that it
/// already has, or for which no successor exists, end here.
async fn hand_on(
    conn: &mut PgConnection, vault: &Vault, old: SubscriptionId, new: Successor,
    (rows, mut ahead): (Vec<DequeuedRow>, Vec<Ahead>), now: Timestamp,
) -> sqlx::Result<()> {
    let messages: Vec<MessageId> =
        rows.iter().map(|row| row.message).chain(ahead.iter().map(|ahead| ahead.message)).collect();
    if messages.is_empty() {
        return Ok(());
    }
    let mut reached = reached(conn, new.id, &messages).await?;
    ahead.retain(|ahead| !reached.contains(&ahead.message));
    reached.extend(ahead.iter().map(|ahead| ahead.message));
    let mut put = Vec::new();
    if let Some(lane) = new.lane {
        put.extend(ahead.iter().map(|ahead| ahead.row(vault, (new, lane), now)));
        let moved = rows.iter().filter(|row| !reached.contains(&row.message));
        put.extend(moved.map(|row| row.moved(vault, old, (new, lane), now)));
    }
    let doubled = enqueue(conn, &put).await?;
    let is_doubled = |message| doubled.contains(&(new.id, message));
    let mut closing = Closing::default();
    if let Some(lane) = new.lane {
        let targeted = ahead.iter().filter(|ahead| !is_doubled(ahead.message));
        targeted.for_each(|ahead| closing.enqueued(ahead.message, lane));
    }
    let ends = |row: &DequeuedRow| new.lane.is_none() || reached.contains(&row.message) || is_doubled(row.message);
    let ended = rows.into_iter().filter(ends).map(|DequeuedRow { message, lane, tier, retries, .. }| QueuedDelivery {
        subscription: old,
        message,
        lane,
        tier,
        retries,
    });
    unsent::end_within(conn, ended.collect(), How::Cancelled("replaced"), &mut closing, now).await?;
    closing.write(conn, now).await
}

/// Returns the messages that already have a delivery for a subscription. A second row would be sent twice, or look like a
/// replay. The search follows the direction in which deliveries move (batch, queue, log), so that one that moves meanwhile is
/// found.
async fn reached(
    conn: &mut PgConnection, to: SubscriptionId, messages: &[MessageId],
) -> sqlx::Result<HashSet<MessageId>> {
    let under_way = fetch_all!(
        &mut *conn,
        scalar,
        r#"SELECT message AS "message!: MessageId" FROM batches WHERE message = ANY ($1) AND $2 = ANY (recipients)
           UNION SELECT message FROM queue WHERE message = ANY ($1) AND subscription = $2 AND shard = $3"#,
        (messages as &[MessageId], to.0, to.shard())
    )?;
    let mut reached: HashSet<MessageId> = under_way.into_iter().collect();
    let attempted = fetch_all!(
        conn,
        scalar,
        r#"SELECT DISTINCT message AS "message!: MessageId" FROM attempts
           WHERE message = ANY ($1) AND subscription = $2 AND shard = $3"#,
        (messages as &[MessageId], to.0, to.shard())
    )?;
    reached.extend(attempted);
    Ok(reached)
}

impl DequeuedRow {
    fn moved(&self, vault: &Vault, old: SubscriptionId, (new, lane): (Successor, LaneId), now: Timestamp) -> NewRow {
        NewRow {
            subscription: new.id,
            message: self.message,
            lane,
            tier: self.tier,
            retries: self.retries,
            due_at: self.due_at.filter(|_| self.lease.is_none()).unwrap_or(now),
            parked: self.due_at.is_none(),
            scheduled_at: self.scheduled_at,
            lease: None,
            leases: self.leases,
            token: token(vault, self, old, new.id),
            failed_at: self.failed_at,
            has_turn: false,
            life: new.life,
        }
    }
}

/// Signs a row for the successor. A row with an invalid retry token (changed by hand) gets an invalid one again.
fn token(vault: &Vault, row: &DequeuedRow, old: SubscriptionId, new: SubscriptionId) -> Vec<u8> {
    let retries = u32::try_from(row.retries).unwrap_or(0);
    let before = Queued { message: row.message, subscription: old, retries, scheduled_at: row.scheduled_at };
    let after = Queued { subscription: new, ..before };
    if before.fits(&row.token, vault) { after.sign(vault).to_vec() } else { Vec::new() }
}
