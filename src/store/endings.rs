//! Endings that touch more than their own delivery: a gone subscription is pruned with everything that waits for it,
//! a dead delivery leaves a letter. Both are written in the transaction of the settling that found them.

use sqlx::PgConnection;
use uuid::Uuid;

use super::settle::{Fate, Settlement};
use super::unsent::{Waiting, settle_unsent};
use crate::clock::Timestamp;
use crate::delivery::Ending;

/// Whether a fate needs more than its own row: then its settling is a transaction of several statements.
pub fn is_special(fate: &Fate) -> bool {
    matches!(fate, Fate::Ended(Ending::Gone | Ending::Dead, _))
}

/// Prunes the subscriptions that are gone and stores the dead letters.
pub async fn write<'a>(
    connection: &mut PgConnection,
    settlements: impl Iterator<Item = &'a Settlement>,
    now: Timestamp,
) -> sqlx::Result<()> {
    let (mut gone, mut dead) = (Vec::new(), Vec::new());
    for settlement in settlements {
        match settlement.fate {
            Fate::Ended(Ending::Gone, _) => gone.push(settlement.subscription.0),
            Fate::Ended(Ending::Dead, _) => dead.push(settlement),
            _ => {}
        }
    }
    gone.sort_unstable();
    gone.dedup();
    if !gone.is_empty() {
        prune(connection, &gone, now).await?;
    }
    if !dead.is_empty() {
        bury(connection, &dead, now).await?;
    }
    Ok(())
}

/// Marks subscriptions gone, ends everything else that waits for them, takes them out of their topics and stops
/// whatever is in some worker's memory. Ids in ascending order.
async fn prune(connection: &mut PgConnection, gone: &[Uuid], now: Timestamp) -> sqlx::Result<()> {
    let dropped = sqlx::query_as!(
        Waiting,
        r#"
        WITH g AS (SELECT get_byte(uuid_send(id), 15) & 63 AS shard, id FROM unnest($1::uuid[]) AS u (id)),
        ended AS (
            UPDATE subscriptions s SET state = 'gone', ended_at = $2
            FROM g WHERE s.shard = g.shard AND s.id = g.id AND s.state IN ('active', 'suspended')
            RETURNING s.id
        ),
        stopped AS (
            INSERT INTO stops (id, at, kind, target) SELECT gen_random_uuid(), $2, 'unsubscribe', id FROM ended
        ),
        left_topics AS (DELETE FROM topic_members t USING g WHERE t.shard = g.shard AND t.subscription = g.id)
        DELETE FROM queue q USING g WHERE q.shard = g.shard AND q.subscription = g.id
        RETURNING q.shard, q.subscription, q.message, q.lane, q.tier, q.retries
        "#,
        gone,
        now,
    )
    .fetch_all(&mut *connection)
    .await?;
    settle_unsent(connection, dropped, Ending::Gone, "subscription gone", now).await
}

/// Stores a dead letter for each.
async fn bury(connection: &mut PgConnection, dead: &[&Settlement], now: Timestamp) -> sqlx::Result<()> {
    for settlement in dead {
        let Fate::Ended(_, Some(death)) = &settlement.fate else { continue };
        let last = settlement.attempts.last();
        sqlx::query!(
            r#"
            INSERT INTO dead_letters
                (shard, id, app, message, subscription, lane, tier, reason, status, detail, retries, policy, at)
            VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13)
            "#,
            settlement.subscription.shard(),
            death.id,
            settlement.app.0,
            settlement.message.0,
            settlement.subscription.0,
            settlement.lane.0,
            settlement.tier.code(),
            death.reason,
            last.and_then(|attempt| attempt.status).and_then(|status| i16::try_from(status).ok()),
            death.detail.as_deref(),
            last.map_or(0, |attempt| i32::try_from(attempt.number).unwrap_or(i32::MAX)),
            death.policy,
            now,
        )
        .execute(&mut *connection)
        .await?;
    }
    Ok(())
}
