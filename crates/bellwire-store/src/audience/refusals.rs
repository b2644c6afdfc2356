//! Refused pushes by subscription. A subscription for which a push was accepted once is proven: its VAPID key is right, and it
//! stays active until it is gone. An unproven one may be invalid: some push services respond with 400 forever, and a stranger
//! may register one that belongs to another key. It is suspended after five refusals in a row, or after the first refusal of
//! the key, if its lane accepts others. A suspended subscription gets no pushes until its browser registers again.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::{PgConnection, PgPool};

use crate::audience::audience_counts::Difference;
use crate::connections::engine::{self, shard_column, shards_of};
use crate::outcomes::ledger::closing::Closing;
use crate::outcomes::ledger::settlement::{End, Settlement};
use crate::outcomes::ledger::unsent::cancel_subscription;
use crate::outcomes::rollups::EVERY_MESSAGE;
use crate::queue::stops::{StopKind, stop_subscription};
use crate::transactions::begin;
use bellwire_core::clock::Timestamp;
use bellwire_core::fact::Loss;
use bellwire_core::id::{LaneId, SubscriptionId};
use bellwire_rules::classify::DeadReason;

/// Number of refusals in a row that suspend a subscription. The index `subscriptions_refused` and the statements below contain
/// it, too.
pub const REFUSALS_MAX: i16 = 5;
/// Period in which acceptances of a lane are searched.
const LOOK_BACK: Duration = Duration::from_secs(3600);
/// Maximum subscriptions suspended by one sweep.
const CHUNK: i64 = 100;

/// Marks subscriptions as proven at their first acceptance, and counts refusals of unproven ones. The transaction has locked
/// them. Writes nothing in the usual case that all are proven.
pub async fn count<'a>(
    conn: &mut PgConnection, settlements: impl Iterator<Item = &'a Settlement>, now: Timestamp,
) -> sqlx::Result<()> {
    let mut weights = BTreeMap::new();
    for settlement in settlements {
        let Some(weight) = weight(settlement) else { continue };
        let least = weights.entry(settlement.delivery().subscription).or_insert(weight);
        *least = weight.min(*least); // one acceptance proves the key, despite refusals
    }
    if weights.is_empty() {
        return Ok(());
    }
    let (ids, weights): (Vec<SubscriptionId>, Vec<i16>) = weights.into_iter().unzip();
    if engine::is_distributed() {
        return count_apart(conn, &ids, &weights, now).await;
    }
    // What another transaction changes at the same time may be left out: its next answer says the same.
    execute!(
        conn,
        r#"
        WITH locked AS (
            SELECT s.ctid AS row, g.weight
            FROM unnest($1::smallint[], $2::uuid[], $3::smallint[]) AS g (shard, id, weight)
            JOIN subscriptions s ON s.shard = g.shard AND s.id = g.id
            WHERE NOT s.proven ORDER BY s.shard, s.id FOR NO KEY UPDATE OF s
        )
        UPDATE subscriptions s
        SET proven = l.weight = 0,
            refusals = CASE WHEN l.weight > 0 THEN least(s.refusals + l.weight, 1000) ELSE 0 END,
            refused_at = CASE WHEN l.weight > 0 THEN $4::timestamptz END
        FROM locked l WHERE s.ctid = l.row
        "#,
        (&shard_column(&ids), &ids as &[SubscriptionId], &weights, now)
    )
}

/// [`count`] for Citus, which locks rows in one shard at a time. The caller's transaction holds the locks.
async fn count_apart(
    conn: &mut PgConnection, ids: &[SubscriptionId], weights: &[i16], now: Timestamp,
) -> sqlx::Result<()> {
    execute!(
        conn,
        r#"
        UPDATE subscriptions s
        SET proven = g.weight = 0,
            refusals = CASE WHEN g.weight > 0 THEN least(s.refusals + g.weight, 1000) ELSE 0 END,
            refused_at = CASE WHEN g.weight > 0 THEN $4::timestamptz END
        FROM unnest($1::smallint[], $2::uuid[], $3::smallint[]) AS g (shard, id, weight)
        WHERE s.shard = g.shard AND s.id = g.id AND NOT s.proven AND s.shard = ANY ($5)
        "#,
        (&shard_column(ids), ids as &[SubscriptionId], weights, now, &shards_of(ids))
    )
}

/// Whether [`count`] changes anything for an ending.
pub fn counts(settlement: &Settlement) -> bool {
    weight(settlement).is_some()
}

/// Returns the weight of an ending against its subscription. 0: accepted. `None`: neutral, or nothing new.
fn weight(settlement: &Settlement) -> Option<i16> {
    match settlement.end()? {
        _ if settlement.delivery().proven => None,
        End::Accepted => Some(0),
        End::Dead(death) => match death.reason {
            DeadReason::Unauthorized => Some(REFUSALS_MAX),
            // Responses that would repeat for any request.
            DeadReason::BadRequest | DeadReason::NonRetryable | DeadReason::Http4xx => Some(1),
            _ => None,
        },
        _ => None,
    }
}

/// Suspends a chunk of unproven subscriptions with enough refusals, if the lane accepted others in the same minute and again
/// later. So a temporary refusal of the VAPID key suspends none. Returns the number.
pub async fn suspend(pool: &PgPool, now: Timestamp) -> sqlx::Result<usize> {
    let suspects = suspects(pool, now).await?;
    for id in &suspects {
        let mut tx = begin(pool).await?;
        let lane = query!(
            scalar,
            r#"UPDATE subscriptions SET refusals = 0, refused_at = NULL, state = 'suspended', ended_at = $3
               WHERE shard = $1 AND id = $2 AND state = 'active' AND refusals >= 5 RETURNING lane AS "lane: LaneId""#,
            (id.shard(), id.0, now)
        );
        if let Some(lane) = lane.fetch_optional(&mut *tx).await? {
            let (mut closing, mut changes) = (Closing::default(), Difference::default());
            changes.lost(lane, now, Loss::Suspended);
            changes.write(&mut tx).await?;
            stop_subscription(&mut tx, StopKind::Unsubscribe, *id, now).await?;
            cancel_subscription(&mut tx, *id, "suspended", &mut closing, now).await?;
            closing.write(&mut tx, now).await?;
        }
        tx.commit().await?;
    }
    Ok(suspects.len())
}

/// Returns a chunk of subscriptions to suspend. Searches lanes with refusals first, then the minutes in which the lane accepted
/// others.
async fn suspects(pool: &PgPool, now: Timestamp) -> sqlx::Result<Vec<SubscriptionId>> {
    let lanes =
        fetch_all!(pool, scalar, "SELECT DISTINCT lane FROM subscriptions WHERE refusals >= 5 AND state = 'active'")?;
    let mut suspects: Vec<SubscriptionId> = Vec::new();
    for lane in lanes {
        let minutes = fetch_all!(
            pool,
            scalar,
            "SELECT DISTINCT start FROM rollups
             WHERE step = 1 AND message = $1 AND lane = $2 AND start >= date_trunc('minute', $3::timestamptz) AND 1 = ANY (facts)",
            (EVERY_MESSAGE.0, lane, now - LOOK_BACK)
        )?;
        let Some(last) = minutes.iter().max().filter(|last| **last >= now - LOOK_BACK) else { continue };
        let left = CHUNK - i64::try_from(suspects.len()).unwrap_or(CHUNK);
        let of_lane = fetch_all!(
            pool,
            scalar,
            r#"SELECT id AS "id: SubscriptionId" FROM subscriptions
               WHERE lane = $1 AND refused_at >= $2 AND refused_at < $3 AND refusals >= 5 AND state = 'active'
                 AND date_trunc('minute', refused_at) = ANY ($4) LIMIT $5"#,
            (lane, now - LOOK_BACK, *last, &minutes, left)
        )?;
        suspects.extend(of_lane);
    }
    suspects.sort_unstable_by_key(|id| (id.shard(), *id));
    Ok(suspects)
}
