//! Endings that touch more than their own delivery: a gone subscription is pruned with everything that waits for it,
//! and whatever failed leaves a dead letter. Both are written in the transaction of the settling that found them, in
//! [the order of locks](crate::store).

mod apart;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use sqlx::PgConnection;

use super::closing::Closing;
use super::dead_letters::{Cause, DeadLetter, DeadLetters};
use super::settlement::{End, Fate, Settlement, stored, stored_status};
use super::take::Waiting;
use super::unsent::{How, end_within};
use crate::model::clock::{Timestamp, uuid_of};
use crate::model::id::{DeadLetterId, LaneId, MessageId, SubscriptionId};
use crate::store::audience::refusals;
use crate::store::audience::subscriptions::row::lock_in_order;
use crate::store::connections::engine;
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
    if engine::is_distributed() {
        return apart::prune(conn, gone, closing, now).await;
    }
    let (ids, lives): (Vec<SubscriptionId>, Vec<i32>) = gone.iter().copied().unzip();
    let rows = sqlx::query!(
        r#"
        WITH ended AS (
            UPDATE subscriptions s SET state = 'gone', ended_at = $2
            FROM (SELECT get_byte(uuid_send(id), 15) & 63 AS shard, id, life
                  FROM unnest($1::uuid[], $3::integer[]) AS u (id, life)) g
            WHERE s.shard = g.shard AND s.id = g.id AND s.state IN ('active', 'suspended') AND s.revived <= g.life
            RETURNING s.shard, s.id, s.lane, s.life
        ),
        stopped AS (INSERT INTO stops (at, kind, target, life) SELECT $2, 'gone', id, life FROM ended),
        left_topics AS (
            DELETE FROM topic_members t USING ended e WHERE t.shard = e.shard AND t.subscription = e.id
            RETURNING t.shard, t.subscription, t.topic, t.joined_at
        ),
        remembered AS (
            INSERT INTO former_topic_members (shard, subscription, topic, joined_at) SELECT * FROM left_topics
            ON CONFLICT DO NOTHING
        ),
        dropped AS (
            DELETE FROM queue q USING ended e
            WHERE q.shard = e.shard AND q.subscription = e.id AND (q.lease IS NULL OR q.due_at <= $2)
            RETURNING q.subscription, q.message, q.lane, q.tier, q.retries
        )
        SELECT id AS "subscription!", NULL::uuid AS message, lane AS "lane!", NULL::smallint AS tier,
               NULL::integer AS retries FROM ended
        UNION ALL SELECT subscription, message, lane, tier, retries FROM dropped
        "#,
        &ids as &[SubscriptionId],
        now,
        &lives,
    )
    .fetch_all(&mut *conn)
    .await?;
    let (mut lost, mut dropped) = (BTreeMap::new(), Vec::new());
    for row in rows {
        let (subscription, lane) = (SubscriptionId(row.subscription), LaneId(row.lane));
        match (row.message.map(MessageId), row.tier, row.retries) {
            (Some(message), Some(tier), Some(retries)) => {
                dropped.push(Waiting { subscription, message, lane, tier, retries });
            }
            _ => *lost.entry(lane).or_insert(0) += 1,
        }
    }
    end_within(conn, dropped, How::Gone("subscription gone"), closing, now).await?;
    closing.tell(events::subscriptions_gone(conn, &lost.into_iter().collect::<Vec<_>>()).await?);
    Ok(())
}
