//! Endings with effects beyond their own delivery: a gone subscription is pruned with all its waiting deliveries, and a failure
//! leaves a dead letter. Both are written in the transaction of the settlement, in [the order of locks](crate).

use std::cmp::Reverse;
use std::collections::HashSet;

use sqlx::PgConnection;

use super::closing::Closing;
use super::dead_letters::{Cause, DeadLetter, DeadLetters};
use super::prune::prune;
use super::settlement::{End, Fate, Settlement, stored, stored_status};
use crate::audience::refusals;
use crate::audience::subscriptions::row::lock_in_order;
use crate::outcomes::events::Event;
use bellwire_core::clock::{Timestamp, uuid_of};
use bellwire_core::id::{DeadLetterId, SubscriptionId};

/// Whether an ending leaves a dead letter or an event. Its settlement is then a transaction of several statements.
pub(super) fn is_special(settlement: &Settlement) -> bool {
    matches!(settlement.end(), Some(End::Gone | End::Expired | End::Dead(_))) || settlement.sla_missed_s().is_some()
}

pub(super) fn changes_subscription(settlement: &Settlement) -> bool {
    matches!(settlement.end(), Some(End::Gone)) || refusals::counts(settlement)
}

/// Locks the subscriptions that these endings change. Returns the ones that ended as gone but have a successor: their
/// deliveries must move [there](Settlement::to_successor) instead of ending.
pub(super) async fn lock<'a>(
    conn: &mut PgConnection, settlements: impl Iterator<Item = &'a Settlement>,
) -> sqlx::Result<HashSet<SubscriptionId>> {
    let changing: Vec<&Settlement> = settlements.filter(|settlement| changes_subscription(settlement)).collect();
    if changing.is_empty() {
        return Ok(HashSet::new());
    }
    lock_in_order(conn, changing.iter().map(|settlement| settlement.delivery().subscription)).await?;
    let gone = changing.iter().filter(|settlement| matches!(settlement.end(), Some(End::Gone)));
    let gone: Vec<SubscriptionId> = gone.map(|settlement| settlement.delivery().subscription).collect();
    if gone.is_empty() {
        return Ok(HashSet::new());
    }
    let shards: Vec<i16> = gone.iter().map(|subscription| subscription.shard()).collect();
    let replaced = fetch_all!(
        conn,
        scalar,
        r#"SELECT id AS "id!: SubscriptionId" FROM subscriptions
           WHERE shard = ANY ($1) AND id = ANY ($2) AND state = 'replaced' AND replaced_by IS NOT NULL"#,
        (&shards, &gone as &[SubscriptionId])
    )?;
    Ok(replaced.into_iter().collect())
}

/// Writes dead letters, prunes gone subscriptions, and then writes the shared rows.
pub(super) async fn write<'a>(
    conn: &mut PgConnection, settlements: impl Iterator<Item = &'a Settlement>, mut closing: Closing, now: Timestamp,
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

/// Returns the dead letter of a delivery. `None`: it leaves none.
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
