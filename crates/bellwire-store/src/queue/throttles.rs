//! `maxReceivesPerSecond`: assigns time slots to deliveries of one subscription, shared by all replicas.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use sqlx::PgPool;

use crate::transactions::begin;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::SubscriptionId;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TurnRequest {
    pub subscription: SubscriptionId,
    pub interval: Duration,
    /// Time from which a slot is too late for the delivery. `None`: never.
    pub expires_at: Option<Timestamp>,
}

/// Assigns each delivery the next slot of its subscription, in the order of the slice: now or later. A delivery that would
/// expire first gets no slot, and uses none. The bucket has a depth of one: unused slots are lost.
pub async fn take_turns(pool: &PgPool, wanted: &[TurnRequest], now: Timestamp) -> sqlx::Result<Vec<Option<Timestamp>>> {
    let places: BTreeSet<(i16, SubscriptionId)> =
        wanted.iter().map(|wanted| (wanted.subscription.shard(), wanted.subscription)).collect();
    let (shards, ids): (Vec<i16>, Vec<SubscriptionId>) = places.into_iter().unzip();
    let mut tx = begin(pool).await?;
    execute!(
        &mut *tx,
        "INSERT INTO throttles (shard, subscription, next_at)
         SELECT shard, subscription, $3 FROM unnest($1::smallint[], $2::uuid[]) AS t (shard, subscription)
         ON CONFLICT DO NOTHING",
        (&shards, &ids as &[SubscriptionId], now)
    )?;
    let rows = fetch_all!(
        &mut *tx,
        "SELECT t.subscription, t.next_at FROM throttles t
         JOIN unnest($1::smallint[], $2::uuid[]) AS w (shard, subscription)
           ON w.shard = t.shard AND w.subscription = t.subscription
         ORDER BY t.shard, t.subscription FOR UPDATE OF t",
        (&shards, &ids as &[SubscriptionId])
    )?;
    let mut next: BTreeMap<SubscriptionId, Timestamp> =
        rows.into_iter().map(|row| (SubscriptionId(row.subscription), row.next_at)).collect();
    let turns = wanted
        .iter()
        .map(|wanted| turn(next.entry(wanted.subscription).or_insert(now), wanted, now))
        .collect::<Vec<_>>();
    execute!(
        &mut *tx,
        "UPDATE throttles t SET next_at = n.next_at
         FROM unnest($1::smallint[], $2::uuid[], $3::timestamptz[]) AS n (shard, subscription, next_at)
         WHERE t.shard = n.shard AND t.subscription = n.subscription",
        (&shards, &ids as &[SubscriptionId]),
        ids,
        |id| (next[id])
    )?;
    tx.commit().await?;
    Ok(turns)
}

fn turn(next_at: &mut Timestamp, wanted: &TurnRequest, now: Timestamp) -> Option<Timestamp> {
    let at = now.max(*next_at);
    if wanted.expires_at.is_some_and(|expires_at| at >= expires_at) {
        return None;
    }
    *next_at = at + wanted.interval;
    Some(at)
}

/// Waiting deliveries of one subscription.
#[derive(Debug, Clone, Copy)]
pub struct Backlog {
    pub all: i64,
    /// Deliveries whose slot is in the future.
    pub throttled: i64,
    /// Earliest planned time.
    pub oldest: Option<Timestamp>,
}

pub async fn backlog(pool: &PgPool, subscription: SubscriptionId) -> sqlx::Result<Backlog> {
    fetch_one!(
        pool,
        Backlog,
        r#"SELECT count(*) AS "all!", count(*) FILTER (WHERE has_turn) AS "throttled!", min(scheduled_at) AS oldest
           FROM queue WHERE shard = $1 AND subscription = $2"#,
        (subscription.shard(), subscription.0)
    )
}

#[cfg(test)]
#[path = "../../../../tests/crates/store/unit/queue/throttles.rs"]
mod tests;
