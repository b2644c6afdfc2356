//! Pruning on Citus, where subscriptions and topics are on other machines: their rows are changed by separate statements, and
//! all others by one statement with all values in its parameters.

use std::collections::BTreeMap;

use sqlx::PgConnection;

use super::super::closing::Closing;
use super::super::take::QueuedDelivery;
use super::super::unsent::{How, end_within};
use crate::audience::audience_counts::Difference;
use crate::outcomes::events;
use bellwire_core::clock::Timestamp;
use bellwire_core::fact::Loss;
use bellwire_core::id::{LaneId, SubscriptionId};
use bellwire_core::subscription::SubscriptionState;

/// Implements [`super::prune`] on Citus.
pub(super) async fn prune(
    conn: &mut PgConnection, gone: &[(SubscriptionId, i32)], closing: &mut Closing, now: Timestamp,
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

struct Gone {
    id: SubscriptionId,
    lane: LaneId,
    life: i32,
}

/// Marks subscriptions as gone if they are in this state and have not returned since.
async fn mark(
    conn: &mut PgConnection, gone: &[(SubscriptionId, i32)], state: SubscriptionState, now: Timestamp,
) -> sqlx::Result<Vec<Gone>> {
    fetch_all!(
        conn,
        Gone,
        r#"
        UPDATE subscriptions s SET state = 'gone', ended_at = $3
        FROM unnest($1::smallint[], $2::uuid[], $4::integer[]) AS g (shard, id, life)
        WHERE s.shard = g.shard AND s.id = g.id AND s.state = $5 AND s.revived <= g.life AND s.shard = ANY ($1)
        RETURNING s.id AS "id: SubscriptionId", s.lane AS "lane: LaneId", s.life
        "#,
        gone,
        |(id, _)| (id.shard(), *id),
        (now),
        gone,
        |(_, life)| (*life),
        (state.name())
    )
}

/// Removes gone subscriptions from their topics, which are stored, stops their deliveries, and dequeues the waiting ones.
async fn take_out(
    conn: &mut PgConnection, ended: &[Gone], changes: &mut Difference, now: Timestamp,
) -> sqlx::Result<Vec<QueuedDelivery>> {
    let shards: Vec<i16> = ended.iter().map(|row| row.id.shard()).collect();
    let ids: Vec<SubscriptionId> = ended.iter().map(|row| row.id).collect();
    let left = fetch_all!(
        &mut *conn,
        r#"
        DELETE FROM topic_members t USING unnest($1::smallint[], $2::uuid[]) AS e (shard, id)
        WHERE t.shard = e.shard AND t.subscription = e.id AND t.shard = ANY ($1)
        RETURNING t.subscription AS "subscription: SubscriptionId", t.topic, t.lane AS "lane: LaneId", t.joined_at
        "#,
        (&shards, &ids as &[SubscriptionId])
    )?;
    left.iter().for_each(|row| changes.left(row.topic, row.lane));
    fetch_all!(
        conn,
        QueuedDelivery,
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
        (&shards, &ids as &[SubscriptionId], now),
        ended,
        |row| (row.life),
        left,
        |row| (row.subscription.shard(), row.subscription, row.topic, row.joined_at)
    )
}
