//! What answers say of subscriptions. One that a push service accepted once is proven: it was made with the VAPID key that
//! signs for it, and is sent to until it is gone. One that never was may be anybody's: some push services answer 400 for
//! ever, and a stranger may register what was made with another key. It is suspended after five refusals in a row, or the
//! first refusal of the key, once its lane accepts others: kept, but not sent to until its browser comes back.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::{PgConnection, PgPool};

use crate::classify::DeadReason;
use crate::model::clock::Timestamp;
use crate::model::id::SubscriptionId;
use crate::store::outcomes::ledger::closing::Closing;
use crate::store::outcomes::ledger::settlement::{End, Settlement};
use crate::store::outcomes::ledger::unsent::cancel_subscription;
use crate::store::outcomes::rollups::EVERY_MESSAGE;
use crate::store::queue::stops::{StopKind, stop_subscription};

/// Refusals in a row that suspend. The index `subscriptions_refused` and the statements below know it, too.
pub(crate) const REFUSALS_MAX: i16 = 5;
/// How far back a lane's acceptances are looked for.
const LOOK_BACK: Duration = Duration::from_secs(3600);
/// Subscriptions that one sweep looks at.
const CHUNK: i64 = 100;

/// Marks those as proven who are accepted for the first time, and counts the refusals of those who are not proven. Writes
/// nothing in the usual case, in which everybody is proven.
pub(crate) async fn count<'a>(
    conn: &mut PgConnection,
    settlements: impl Iterator<Item = &'a Settlement>,
    now: Timestamp,
) -> sqlx::Result<()> {
    let mut weights = BTreeMap::new();
    for settlement in settlements {
        let Some(weight) = weight(settlement) else { continue };
        let least = weights.entry(settlement.delivery().subscription).or_insert(weight);
        *least = weight.min(*least); // accepted once is proven, whatever else was refused
    }
    if weights.is_empty() {
        return Ok(());
    }
    let (ids, weights): (Vec<SubscriptionId>, Vec<i16>) = weights.into_iter().unzip();
    // What another transaction changes at the same time may be left out: its next answer says the same.
    sqlx::query!(
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
        &ids.iter().map(|id| id.shard()).collect::<Vec<_>>(),
        &ids as &[SubscriptionId],
        &weights,
        now
    )
    .execute(conn)
    .await
    .map(drop)
}

/// Whether [`count`] changes anything for an ending.
pub(crate) fn counts(settlement: &Settlement) -> bool {
    weight(settlement).is_some()
}

/// What an ending weighs against its subscription; 0: it was accepted. None: it says nothing, or nothing new.
fn weight(settlement: &Settlement) -> Option<i16> {
    match settlement.end()? {
        _ if settlement.delivery().proven => None,
        End::Accepted => Some(0),
        End::Dead(death) => match death.reason {
            DeadReason::Unauthorized => Some(REFUSALS_MAX),
            // Answers that would come again whatever is sent.
            DeadReason::BadRequest | DeadReason::NonRetryable | DeadReason::Http4xx => Some(1),
            _ => None,
        },
        _ => None,
    }
}

/// Suspends a chunk of those that are not proven and were refused often enough, where others in the same lane were accepted
/// in the same minute and again in a later one: nobody is suspended because the whole key was refused for a while. Returns
/// how many they were.
pub(crate) async fn suspend(pool: &PgPool, now: Timestamp) -> sqlx::Result<usize> {
    let suspects = sqlx::query!(
        r#"
        SELECT s.shard, s.id
        FROM (SELECT DISTINCT lane FROM subscriptions WHERE refusals >= 5 AND state = 'active') l
        CROSS JOIN LATERAL (
            SELECT max(r.start) AS minute FROM rollups r
            WHERE r.step = 1 AND r.message = $3 AND r.lane = l.lane AND r.start >= $1 AND 1 = ANY (r.facts)
        ) accepted
        JOIN subscriptions s ON s.lane = l.lane AND s.refused_at >= $1 AND s.refused_at < accepted.minute
        WHERE s.refusals >= 5 AND s.state = 'active' AND EXISTS (
            SELECT FROM rollups r
            WHERE r.step = 1 AND r.message = $3 AND r.lane = l.lane AND r.start = date_trunc('minute', s.refused_at)
                AND 1 = ANY (r.facts))
        ORDER BY s.shard, s.id LIMIT $2
        "#,
        now - LOOK_BACK,
        CHUNK,
        EVERY_MESSAGE.0
    )
    .fetch_all(pool)
    .await?;
    for suspect in &suspects {
        let mut tx = pool.begin().await?;
        let suspended = sqlx::query!(
            "UPDATE subscriptions SET refusals = 0, refused_at = NULL, state = 'suspended', ended_at = $3
             WHERE shard = $1 AND id = $2 AND state = 'active' AND refusals >= 5",
            suspect.shard,
            suspect.id,
            now
        )
        .execute(&mut *tx)
        .await?;
        if suspended.rows_affected() == 1 {
            let (id, mut closing) = (SubscriptionId(suspect.id), Closing::default());
            stop_subscription(&mut tx, StopKind::Unsubscribe, id, now).await?;
            cancel_subscription(&mut tx, id, "suspended", &mut closing, now).await?;
            closing.write(&mut tx, now).await?;
        }
        tx.commit().await?;
    }
    Ok(suspects.len())
}
