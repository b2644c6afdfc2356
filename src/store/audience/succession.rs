//! How a subscription takes the place of another one, and what was for that one reaches it.
//!
//! What nobody holds moves at once. What a worker holds stays where it is: the worker hears of the replacement as of a stop,
//! what it has sent already ends by its answer, and what it gives back, for a retry or unsent, is handed on when it is
//! claimed the next time. So is what was sent to the old one in the same moment, and what a worker held that died.

use std::collections::{HashMap, HashSet};

use sqlx::types::Json;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::model::clock::Timestamp;
use crate::model::fact::Loss;
use crate::model::filter::Filter;
use crate::model::id::{AppId, LaneId, MessageId, SubscriptionId};
use crate::model::subscription::SubscriptionState;
use crate::policy::token::Queued;
use crate::store::audience::subscriptions::row::SubscriptionRow;
use crate::store::audience::{audience_counts, judge, membership};
use crate::store::connections::engine;
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
    let life = replace(conn, old_id, new_id, now).await?;
    if old.state == SubscriptionState::Active {
        let mut changes = audience_counts::Difference::default();
        changes.lost(old.lane, now, Loss::Replaced);
        changes.write(conn).await?;
    }
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

/// Marks an old subscription as replaced, and leaves its delivery policy to a new one that has none. Returns the new one's life.
async fn replace(
    conn: &mut PgConnection,
    old: SubscriptionId,
    new: SubscriptionId,
    now: Timestamp,
) -> Result<i32, sqlx::Error> {
    let life = sqlx::query_scalar!("SELECT life FROM subscriptions WHERE shard = $1 AND id = $2", new.shard(), new.0);
    let life = life.fetch_one(&mut *conn).await?;
    let policy = sqlx::query_scalar!(
        "UPDATE subscriptions SET state = 'replaced', ended_at = coalesce(ended_at, $3), replaced_by = $4, replaced_by_life = $5
         WHERE shard = $1 AND id = $2 RETURNING policy",
        old.shard(),
        old.0,
        now,
        new.0,
        life
    );
    if let Some(policy) = policy.fetch_optional(&mut *conn).await?.flatten() {
        sqlx::query!(
            "UPDATE subscriptions SET policy = $3 WHERE shard = $1 AND id = $2 AND policy IS NULL",
            new.shard(),
            new.0,
            policy
        )
        .execute(conn)
        .await?;
    }
    Ok(life)
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
        let Some(successor) = successor_of(&mut tx, old).await? else { return Ok(()) };
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
        hand_on(&mut tx, vault, old, successor, taken, now).await?;
        tx.commit().await
    })
    .await
}

/// Who has taken the place of a subscription. None: nobody who is known.
async fn successor_of(conn: &mut PgConnection, old: SubscriptionId) -> sqlx::Result<Option<Successor>> {
    let successor = sqlx::query!(
        r#"SELECT replaced_by AS "id!: SubscriptionId", replaced_by_life AS "life!" FROM subscriptions
           WHERE shard = $1 AND id = $2 AND state = 'replaced' AND replaced_by IS NOT NULL"#,
        old.shard(),
        old.0
    );
    let Some(successor) = successor.fetch_optional(&mut *conn).await? else { return Ok(None) };
    let (id, life) = (successor.id, successor.life);
    let lane = sqlx::query_scalar!("SELECT lane FROM subscriptions WHERE shard = $1 AND id = $2", id.shard(), id.0);
    let lane = lane.fetch_optional(conn).await?.map(LaneId);
    Ok(Some(Successor { id, life, lane }))
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
        r#"SELECT DISTINCT message AS "message!: MessageId" FROM attempts
           WHERE message = ANY ($1) AND subscription = $2 AND shard = $3"#,
        &messages as &[MessageId],
        to.0,
        to.shard()
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
    let ahead = ahead(conn, old, now).await?;
    begin_after_cursors(conn, new, now).await?;
    let topics = if ahead.iter().any(|row| row.topic.is_some()) {
        membership::joined(conn, old.id).await?
    } else {
        HashMap::new()
    };
    let mut meant = Vec::with_capacity(ahead.len());
    for row in ahead {
        let is_in = |topic| topics.get(&topic).is_some_and(|joined_at: &Timestamp| *joined_at <= row.accepted_at);
        if row.accepted_at < old.since || !row.topic.is_none_or(is_in) {
            continue;
        }
        let is_for_new = match &row.filter {
            Some(filter) => judge::takes_successor(conn, app, &filter.0, old.id, new.id, now).await?,
            None => true,
        };
        meant.extend(is_for_new.then_some((row.message, row.tier)));
    }
    Ok(meant)
}

/// A message whose fan-out is under way.
struct Ahead {
    message: MessageId,
    topic: Option<i32>,
    tier: i16,
    accepted_at: Timestamp,
    filter: Option<Json<Filter>>,
}

/// Messages whose cursors in a subscription's lane have not come to it yet; locks those.
async fn ahead(conn: &mut PgConnection, old: &SubscriptionRow, now: Timestamp) -> sqlx::Result<Vec<Ahead>> {
    macro_rules! ahead {
        ($is_before:literal $(, $shard:expr)?) => {
            sqlx::query_as!(
                Ahead,
                r#"SELECT c.message AS "message: MessageId", c.topic, m.tier, m.accepted_at, m.filter AS "filter: Json<Filter>"
           FROM cursors c JOIN messages m ON m.id = c.message AND m.accepted_at <= $3
           WHERE c.lane = $1 AND "# + $is_before + " ORDER BY c.message FOR UPDATE OF c",
                old.lane.0,
                old.id.0,
                now
                $(, $shard)?
            )
        };
    }
    if engine::is_distributed() {
        // See `walk`: an id ends in its shard.
        return ahead!("(get_byte(uuid_send(c.after), 15) & 63, c.after) < ($4, $2)", i32::from(old.id.shard()))
            .fetch_all(conn)
            .await;
    }
    ahead!("c.after < $2").fetch_all(conn).await
}

/// Lets a new subscription count from after the last message whose fan-out is under way in its lane.
async fn begin_after_cursors(conn: &mut PgConnection, new: &SubscriptionRow, now: Timestamp) -> sqlx::Result<()> {
    let last = sqlx::query_scalar!(
        "SELECT max(accepted_at) + interval '1 microsecond' FROM messages
         WHERE accepted_at <= $2 AND id IN (SELECT message FROM cursors WHERE lane = $1)",
        new.lane.0,
        now
    );
    if let Some(after) = last.fetch_one(&mut *conn).await? {
        sqlx::query!(
            "UPDATE subscriptions SET since = greatest(since, $3) WHERE shard = $1 AND id = $2",
            new.id.shard(),
            new.id.0,
            after
        )
        .execute(conn)
        .await?;
    }
    Ok(())
}
