//! Endings that touch more than their own delivery: a gone subscription is pruned with everything that waits for it,
//! and whatever failed leaves a dead letter. Both are written in the transaction of the settling that found them, in
//! [the order of locks](crate::store).

use std::cmp::Reverse;
use std::collections::BTreeMap;

use sqlx::PgConnection;

use super::closing::Closing;
use super::dead_letters::{Cause, DeadLetter, DeadLetters};
use super::settlement::{End, Fate, Settlement, stored, stored_status};
use super::take::Waiting;
use super::unsent::{How, end_within};
use crate::model::clock::{Timestamp, uuid_of};
use crate::model::fact::Loss;
use crate::model::id::{DeadLetterId, LaneId, SubscriptionId};
use crate::model::subscription::SubscriptionState;
use crate::store::audience::audience_counts::Difference;
use crate::store::audience::refusals;
use crate::store::audience::subscriptions::row::lock_in_order;
use crate::store::outcomes::events::{self, Event};

/// Whether an ending needs more than its own row, since it leaves a dead letter or something is told of it: then its settling is a transaction of several statements.
pub(super) fn is_special(settlement: &Settlement) -> bool {
    matches!(settlement.end(), Some(End::Gone | End::Expired | End::Dead(_))) || settlement.sla_missed_s().is_some()
}

/// Whether an ending changes its subscription.
pub(super) fn changes_subscription(settlement: &Settlement) -> bool {
    matches!(settlement.end(), Some(End::Gone)) || refusals::counts(settlement)
}

/// Locks the subscriptions that these endings change.
pub(super) async fn lock<'a>(
    conn: &mut PgConnection,
    settlements: impl Iterator<Item = &'a Settlement>,
) -> sqlx::Result<()> {
    let changed: Vec<SubscriptionId> =
        settlements.filter(|settlement| changes_subscription(settlement)).map(|s| s.delivery().subscription).collect();
    if changed.is_empty() { Ok(()) } else { lock_in_order(conn, changed.into_iter()).await }
}

/// Writes the dead letters, prunes the subscriptions that are gone, and what comes last.
pub(super) async fn write<'a>(
    conn: &mut PgConnection,
    settlements: impl Iterator<Item = &'a Settlement>,
    mut closing: Closing,
    now: Timestamp,
) -> sqlx::Result<()> {
    let (mut dead_letters, mut gone) = (DeadLetters::default(), Vec::new());
    for settlement in settlements.filter(|settlement| is_special(settlement)) {
        let of = settlement.delivery();
        if let Some(sla_s) = settlement.sla_missed_s() {
            closing.tell([Event::sla_missed(of.app, of.tier, sla_s, of.message, 1)]);
        }
        if let Some(dead) = dead_letter(settlement) {
            dead_letters.push(dead, &mut closing);
        }
        if let Some(End::Gone) = settlement.end() {
            gone.push((of.subscription, of.life));
        }
    }
    dead_letters.write(conn).await?;
    gone.sort_unstable_by_key(|(subscription, life)| (*subscription, Reverse(*life)));
    gone.dedup_by_key(|(subscription, _)| *subscription);
    if !gone.is_empty() {
        prune(conn, &gone, &mut closing, now).await?;
    }
    closing.write(conn, now).await
}

/// The dead letter of a delivery that leaves one.
fn dead_letter(settlement: &Settlement) -> Option<DeadLetter<'_>> {
    let (of, Fate::Ended(last, end)) = (settlement.delivery(), settlement.fate()) else { return None };
    // Without a POST the reason says it all.
    let answer = last.status.and(last.reason.as_deref());
    let (id, cause, detail, policy) = match end {
        End::Gone => (DeadLetterId(uuid_of(last.at)), Cause::Gone, answer, None),
        End::Expired => (DeadLetterId(uuid_of(last.at)), Cause::Expired, answer, None),
        End::Dead(death) => (death.id, Cause::Dead(death.reason), death.detail.as_deref(), death.policy.as_ref()),
        End::Accepted | End::Cancelled | End::Capped => return None,
    };
    Some(DeadLetter {
        id,
        app: Some(of.app),
        message: of.message,
        subscription: of.subscription,
        lane: of.lane,
        tier: of.tier.code(),
        cause,
        status: last.status.map(stored_status),
        detail,
        retries: stored(last.number),
        policy,
        at: last.at,
    })
}

/// Marks subscriptions gone, ends everything else that waits for them and that nobody holds, takes them out of their
/// topics, which are remembered, and stops whatever is in some worker's memory. Ids in ascending order, each with the life
/// that the delivery was for: one that came back since is not gone.
async fn prune(
    conn: &mut PgConnection,
    gone: &[(SubscriptionId, i32)],
    closing: &mut Closing,
    now: Timestamp,
) -> sqlx::Result<()> {
    let mut changes = Difference::default();
    let mut ended = mark(conn, gone, SubscriptionState::Active, now).await?;
    ended.iter().for_each(|row| changes.lost(row.lane, now, Loss::Gone));
    if ended.len() < gone.len() {
        ended.extend(mark(conn, gone, SubscriptionState::Suspended, now).await?);
    }
    if ended.is_empty() {
        return Ok(());
    }
    let mut lost = BTreeMap::new();
    for row in &ended {
        *lost.entry(row.lane).or_insert(0) += 1;
    }
    let dropped = take_out(conn, &ended, &mut changes, now).await?;
    changes.write(conn).await?;
    end_within(conn, dropped, How::Gone("subscription gone"), closing, now).await?;
    closing.tell(events::subscriptions_gone(conn, &lost.into_iter().collect::<Vec<_>>()).await?);
    Ok(())
}

/// A subscription that was just marked gone.
struct Gone {
    id: SubscriptionId,
    lane: LaneId,
    life: i32,
}

/// Marks those gone that are in this state, and have not come back since.
async fn mark(
    conn: &mut PgConnection,
    gone: &[(SubscriptionId, i32)],
    state: SubscriptionState,
    now: Timestamp,
) -> sqlx::Result<Vec<Gone>> {
    sqlx::query_as!(
        Gone,
        r#"
        UPDATE subscriptions s SET state = 'gone', ended_at = $3
        FROM unnest($1::smallint[], $2::uuid[], $4::integer[]) AS g (shard, id, life)
        WHERE s.shard = g.shard AND s.id = g.id AND s.state = $5 AND s.revived <= g.life
        RETURNING s.id AS "id: SubscriptionId", s.lane AS "lane: LaneId", s.life
        "#,
        &gone.iter().map(|(id, _)| id.shard()).collect::<Vec<_>>(),
        &gone.iter().map(|(id, _)| *id).collect::<Vec<_>>() as &[SubscriptionId],
        now,
        &gone.iter().map(|(_, life)| *life).collect::<Vec<_>>(),
        state.name()
    )
    .fetch_all(conn)
    .await
}

/// Takes subscriptions that are gone out of their topics, which are remembered, stops what is sent to them, and takes out what waits
/// for them.
async fn take_out(
    conn: &mut PgConnection,
    ended: &[Gone],
    changes: &mut Difference,
    now: Timestamp,
) -> sqlx::Result<Vec<Waiting>> {
    let shards: Vec<i16> = ended.iter().map(|row| row.id.shard()).collect();
    let ids: Vec<SubscriptionId> = ended.iter().map(|row| row.id).collect();
    let left = sqlx::query!(
        r#"
        DELETE FROM topic_members t USING unnest($1::smallint[], $2::uuid[]) AS e (shard, id)
        WHERE t.shard = e.shard AND t.subscription = e.id
        RETURNING t.subscription AS "subscription: SubscriptionId", t.topic, t.lane AS "lane: LaneId", t.joined_at
        "#,
        &shards,
        &ids as &[SubscriptionId]
    )
    .fetch_all(&mut *conn)
    .await?;
    left.iter().for_each(|row| changes.left(row.topic, row.lane));
    sqlx::query_as!(
        Waiting,
        r#"
        WITH ended AS (
            SELECT * FROM unnest($1::smallint[], $2::uuid[], $4::integer[]) AS e (shard, id, life)
        ),
        stopped AS (INSERT INTO stops (at, kind, target, life) SELECT $3, 'gone', id, life FROM ended),
        remembered AS (
            INSERT INTO former_topic_members (shard, subscription, topic, joined_at)
            SELECT * FROM unnest($5::smallint[], $6::uuid[], $7::integer[], $8::timestamptz[])
            ON CONFLICT DO NOTHING
        )
        DELETE FROM queue q USING ended e
        WHERE q.shard = e.shard AND q.subscription = e.id AND (q.lease IS NULL OR q.due_at <= $3)
        RETURNING q.subscription, q.message, q.lane, q.tier, q.retries
        "#,
        &shards,
        &ids as &[SubscriptionId],
        now,
        &ended.iter().map(|row| row.life).collect::<Vec<_>>(),
        &left.iter().map(|row| row.subscription.shard()).collect::<Vec<_>>(),
        &left.iter().map(|row| row.subscription).collect::<Vec<_>>() as &[SubscriptionId],
        &left.iter().map(|row| row.topic).collect::<Vec<_>>(),
        &left.iter().map(|row| row.joined_at).collect::<Vec<_>>()
    )
    .fetch_all(conn)
    .await
}
