//! How a subscription takes the place of another one, and what was for that one reaches it.
//!
//! What nobody holds moves at once. What a worker holds stays where it is: the worker hears of the replacement as of a stop,
//! what it has sent already ends by its answer, and what it gives back, for a retry or unsent, is handed on when it is
//! claimed the next time. So is what was sent to the old one in the same moment, and what a worker held that died.

use std::collections::HashSet;

use sqlx::types::Json;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::model::clock::Timestamp;
use crate::model::filter::Filter;
use crate::model::id::{AppId, LaneId, MessageId, SubscriptionId};
use crate::policy::token::Queued;
use crate::store::audience::subscriptions::row::SubscriptionRow;
use crate::store::audience::{judge, membership};
use crate::store::operations::retrying::retrying;
use crate::store::outcomes::ledger::enqueue::{self, NewRow, NewRows};
use crate::store::outcomes::ledger::take::Waiting;
use crate::store::outcomes::ledger::unsent::{self, How};
use crate::store::queue::stops::{StopKind, stop_subscription};
use crate::vault::Vault;

/// Who comes in the place of a subscription, and in which of its lives.
#[derive(Clone, Copy)]
struct Successor {
    id: SubscriptionId,
    life: i32,
    /// None: it does not exist any more.
    lane: Option<LaneId>,
}

/// A row that the transaction has taken out of `queue`.
struct Taken {
    message: MessageId,
    lane: LaneId,
    tier: i16,
    retries: i32,
    /// None: it is not due before its message is resumed.
    due_at: Option<Timestamp>,
    scheduled_at: Timestamp,
    lease: Option<Uuid>,
    leases: i16,
    token: Vec<u8>,
    failed_at: Option<Timestamp>,
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
    let (old_id, new_id) = (old.id, new.id);
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
        old.id.0,
        now,
        new_id.shard(),
        new.id.0
    )
    .fetch_one(&mut *conn)
    .await?;
    stop_subscription(&mut *conn, StopKind::Replace, old_id, now).await?;
    membership::inherit(conn, old_id, (new_id, new.lane)).await?;
    let free = sqlx::query_as!(
        Taken,
        "DELETE FROM queue WHERE shard = $1 AND subscription = $2 AND (lease IS NULL OR due_at <= $3)
         RETURNING message, lane, tier, retries, nullif(due_at, 'infinity') AS due_at, scheduled_at, lease, leases, token,
           failed_at",
        old_id.shard(),
        old.id.0,
        now
    )
    .fetch_all(&mut *conn)
    .await?;
    let successor = Successor { id: new_id, life, lane: Some(new.lane) };
    hand_on(conn, vault, old_id, successor, free, now).await
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
    retrying(|| async {
        let mut tx = pool.begin().await?;
        let successor = sqlx::query!(
            r#"SELECT old.replaced_by AS "id!", old.replaced_by_life AS "life!", new.lane AS "lane?" FROM subscriptions old
               LEFT JOIN subscriptions new
                 ON new.shard = get_byte(uuid_send(old.replaced_by), 15) & 63 AND new.id = old.replaced_by
               WHERE old.shard = $1 AND old.id = $2 AND old.state = 'replaced' AND old.replaced_by IS NOT NULL"#,
            old.shard(),
            old.0
        )
        .fetch_optional(&mut *tx)
        .await?;
        let Some(successor) = successor else { return Ok(()) };
        let taken = sqlx::query_as!(
            Taken,
            "DELETE FROM queue WHERE shard = $1 AND subscription = $2 AND message = ANY ($3) AND lease = $4
             RETURNING message, lane, tier, retries, nullif(due_at, 'infinity') AS due_at, scheduled_at, lease, leases,
               token, failed_at",
            old.shard(),
            old.0,
            messages as &[MessageId],
            lease
        )
        .fetch_all(&mut *tx)
        .await?;
        let successor = Successor { id: SubscriptionId(successor.id), life: successor.life, lane: successor.lane.map(LaneId) };
        hand_on(&mut tx, vault, old, successor, taken, now).await?;
        tx.commit().await
    })
    .await
}

/// Enqueues what was taken out for the successor, signed for it. What waits for the successor already, was sent to it, or has
/// none that exists, ends here.
async fn hand_on(
    conn: &mut PgConnection,
    vault: &Vault,
    old: SubscriptionId,
    new: Successor,
    rows: Vec<Taken>,
    now: Timestamp,
) -> sqlx::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    let sent = sent_to(conn, new.id, &rows).await?;
    let moved: NewRows = new
        .lane
        .into_iter()
        .flat_map(|lane| rows.iter().map(move |row| (lane, row)))
        .filter(|(_, row)| !sent.contains(&row.message))
        .map(|(lane, row)| NewRow {
            subscription: new.id,
            message: row.message,
            lane,
            tier: row.tier,
            retries: row.retries,
            due_at: row.due_at.filter(|_| row.lease.is_none()).unwrap_or(now),
            parked: row.due_at.is_none(),
            scheduled_at: row.scheduled_at,
            lease: None,
            leases: row.leases,
            token: token(vault, row, old, new.id),
            failed_at: row.failed_at,
            has_turn: false,
            life: new.life,
        })
        .collect();
    let doubled = moved.enqueue(conn).await?;
    let ends =
        |row: &Taken| new.lane.is_none() || sent.contains(&row.message) || doubled.contains(&(new.id, row.message));
    let ended = rows.into_iter().filter(ends).map(|Taken { message, lane, tier, retries, .. }| Waiting {
        subscription: old,
        message,
        lane,
        tier,
        retries,
    });
    unsent::end(conn, ended.collect(), How::Cancelled("replaced"), now).await
}

/// Those of the rows' messages that an attempt was made with for a subscription: with another row it would look replayed.
async fn sent_to(conn: &mut PgConnection, to: SubscriptionId, rows: &[Taken]) -> sqlx::Result<HashSet<MessageId>> {
    let messages: Vec<MessageId> = rows.iter().map(|row| row.message).collect();
    let sent = sqlx::query_scalar!(
        r#"SELECT m.message AS "message!: MessageId" FROM unnest($1::uuid[]) AS m (message)
           WHERE EXISTS (SELECT FROM attempts a WHERE a.message = m.message AND a.subscription = $2)"#,
        &messages as &[MessageId],
        to.0
    );
    Ok(sent.fetch_all(conn).await?.into_iter().collect())
}

/// Signs a row for the successor. One that somebody has changed by hand gets a token that does not fit either.
fn token(vault: &Vault, row: &Taken, old: SubscriptionId, new: SubscriptionId) -> Vec<u8> {
    let retries = u32::try_from(row.retries).unwrap_or(0);
    let before = Queued { message: row.message, subscription: old, retries, scheduled_at: row.scheduled_at };
    let after = Queued { subscription: new, ..before };
    if before.fits(&row.token, vault) { after.sign(vault).to_vec() } else { Vec::new() }
}

/// Makes the new subscription the recipient of every message whose fan-out is under way and has not come to the old one
/// yet. Fan-out itself never takes the new one for them: it counts only from after their acceptance, so nobody is reached twice.
/// Messages for later find the new one by themselves when they are due.
pub(in crate::store) async fn carry_on(
    conn: &mut PgConnection,
    vault: &Vault,
    app: AppId,
    old: &SubscriptionRow,
    new: &SubscriptionRow,
    now: Timestamp,
) -> Result<(), sqlx::Error> {
    let meant = carried_on(conn, app, old, new, now).await?;
    let queued = |message| Queued { message, subscription: new.id, retries: 0, scheduled_at: now };
    let rows = meant.iter().map(|&(message, tier)| NewRow {
        subscription: new.id,
        message,
        lane: new.lane,
        tier,
        retries: 0,
        due_at: now,
        parked: false,
        scheduled_at: now,
        lease: None,
        leases: 0,
        token: queued(message).sign(vault).to_vec(),
        failed_at: None,
        has_turn: false,
        life: 0,
    });
    let there = rows.collect::<NewRows>().enqueue(conn).await?;
    let messages = meant.iter().map(|(message, _)| *message);
    let put = messages.filter(|message| !there.contains(&(new.id, *message)));
    enqueue::count_targets(conn, put.map(|message| (message, new.lane, 1))).await
}

/// Messages whose fan-out has not come to the old subscription yet, and for which the new one is, with their tiers.
async fn carried_on(
    conn: &mut PgConnection,
    app: AppId,
    old: &SubscriptionRow,
    new: &SubscriptionRow,
    now: Timestamp,
) -> sqlx::Result<Vec<(MessageId, i16)>> {
    let ahead = sqlx::query!(
        r#"WITH ahead AS MATERIALIZED (
           SELECT c.message, c.topic FROM cursors c JOIN messages m ON m.id = c.message AND m.accepted_at <= $8
           WHERE c.lane = $1 AND c.after < $2 ORDER BY c.message FOR UPDATE OF c),
         later AS (
           UPDATE subscriptions SET since = greatest(since, (
             SELECT max(accepted_at) + interval '1 microsecond' FROM messages
             WHERE accepted_at <= $8 AND id IN (SELECT message FROM cursors WHERE lane = $7)))
           WHERE shard = $5 AND id = $6)
         SELECT a.message, m.tier, m.filter AS "filter: Json<Filter>" FROM ahead a JOIN messages m ON m.id = a.message
         WHERE m.accepted_at >= $3 AND (a.topic IS NULL OR EXISTS (
           SELECT 1 FROM (SELECT shard, subscription, topic, joined_at FROM topic_members
                          UNION ALL TABLE former_topic_members) t
           WHERE t.shard = $4 AND t.subscription = $2 AND t.topic = a.topic AND t.joined_at <= m.accepted_at))"#,
        old.lane.0,
        old.id.0,
        old.since,
        old.id.shard(),
        new.id.shard(),
        new.id.0,
        new.lane.0,
        now
    )
    .fetch_all(&mut *conn)
    .await?;
    let mut meant = Vec::with_capacity(ahead.len());
    for row in ahead {
        let is_for_new = match &row.filter {
            Some(filter) => judge::takes_successor(conn, app, &filter.0, old.id, new.id, now).await?,
            None => true,
        };
        meant.extend(is_for_new.then_some((MessageId(row.message), row.tier)));
    }
    Ok(meant)
}
