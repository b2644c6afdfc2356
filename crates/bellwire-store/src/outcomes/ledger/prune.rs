//! Pruning: ends a subscription that its push service reports as gone (404 or 410), with everything that waits for it.

mod citus;

use std::collections::BTreeMap;

use sqlx::PgConnection;

use super::closing::Closing;
use super::take::QueuedDelivery;
use super::unsent::{How, end_within};
use crate::connections::engine;
use crate::outcomes::events;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{LaneId, MessageId, SubscriptionId};

/// Marks subscriptions as gone, ends their unleased waiting deliveries, removes them from their topics (which are stored for a
/// restore), and stops deliveries in the memory of workers. Ids are in ascending order, each with the life of the delivery: a
/// subscription that returned since is not gone.
pub(crate) async fn prune(
    conn: &mut PgConnection, gone: &[(SubscriptionId, i32)], closing: &mut Closing, now: Timestamp,
) -> sqlx::Result<()> {
    if engine::is_distributed() {
        return citus::prune(conn, gone, closing, now).await;
    }
    let (ids, lives): (Vec<SubscriptionId>, Vec<i32>) = gone.iter().copied().unzip();
    let rows = fetch_all!(
        &mut *conn,
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
        (&ids as &[SubscriptionId], now, &lives)
    )?;
    let (mut lost, mut dropped) = (BTreeMap::new(), Vec::new());
    for row in rows {
        let (subscription, lane) = (SubscriptionId(row.subscription), LaneId(row.lane));
        match (row.message.map(MessageId), row.tier, row.retries) {
            (Some(message), Some(tier), Some(retries)) => {
                dropped.push(QueuedDelivery { subscription, message, lane, tier, retries });
            }
            _ => *lost.entry(lane).or_insert(0) += 1,
        }
    }
    end_within(conn, dropped, How::Gone("subscription gone"), closing, now).await?;
    closing.tell(events::subscriptions_gone(conn, &lost.into_iter().collect::<Vec<_>>()).await?);
    Ok(())
}
