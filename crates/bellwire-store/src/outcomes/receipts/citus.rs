//! Writes receipts on Citus, where subscriptions and receipts are on other machines: their rows are written and read by
//! separate statements for the batch's shards only. Counts are written by one statement with all values in its parameters.

use std::collections::{HashMap, HashSet};

use sqlx::PgConnection;

use super::Receipt;
use crate::connections::engine::{shard_column, shards_of};
use crate::outcomes::copy::Rows;
use crate::outcomes::ledger::take::QueuedDelivery;
use crate::outcomes::notes::CHARTED_ABOVE;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{LaneId, MessageId, SubscriptionId};

/// Implements [`super::insert`] on Citus.
pub(super) async fn insert(
    conn: &mut PgConnection, batch: &[&Receipt], heard: &[MessageId], now: Timestamp,
) -> sqlx::Result<Vec<QueuedDelivery>> {
    let there = reported(conn, batch).await?;
    let is_new = |receipt: &&&Receipt| {
        let kind = receipt.kind.code();
        there.get(&(receipt.message, receipt.subscription)).is_none_or(|kinds| !kinds.contains(&kind))
    };
    let new: Vec<&Receipt> = batch.iter().filter(is_new).copied().collect();
    if new.is_empty() {
        return Ok(Vec::new());
    }
    store(conn, &new).await?;
    let ids: Vec<SubscriptionId> = new.iter().map(|receipt| receipt.subscription).collect();
    let lanes = lanes_of(conn, &ids).await?;
    count(conn, &new, &there, &lanes, heard, now).await
}

/// Kinds of existing receipts, by delivery.
type Reported = HashMap<(MessageId, SubscriptionId), Vec<i16>>;

/// Reads the existing receipts of a batch's deliveries. The locked counts prevent that other transactions add any.
async fn reported(conn: &mut PgConnection, batch: &[&Receipt]) -> sqlx::Result<Reported> {
    let deliveries: HashSet<(MessageId, SubscriptionId)> =
        batch.iter().map(|receipt| (receipt.message, receipt.subscription)).collect();
    let (messages, ids): (Vec<MessageId>, Vec<SubscriptionId>) = deliveries.into_iter().unzip();
    let rows = query!(
        r#"SELECT r.message AS "message: MessageId", r.subscription AS "subscription: SubscriptionId", r.kind
           FROM unnest($1::uuid[], $2::uuid[], $3::smallint[]) AS b (message, subscription, shard)
           JOIN receipts r ON r.message = b.message AND r.subscription = b.subscription AND r.shard = b.shard
           WHERE r.shard = ANY ($4)"#,
        (&messages as &[MessageId], &ids as &[SubscriptionId], &shard_column(&ids), &shards_of(&ids))
    );
    let mut reported = Reported::new();
    for row in rows.fetch_all(conn).await? {
        reported.entry((row.message, row.subscription)).or_default().push(row.kind);
    }
    Ok(reported)
}

/// Inserts new receipts by COPY: INSERT … SELECT … ON CONFLICT costs 10 ms per shard.
async fn store(conn: &mut PgConnection, new: &[&Receipt]) -> sqlx::Result<()> {
    let mut rows = Rows::new(6, new.len());
    for receipt in new {
        rows.row()
            .uuid(receipt.message.0)
            .uuid(receipt.subscription.0)
            .smallint(receipt.kind.code())
            .smallint(receipt.subscription.shard())
            .timestamp(receipt.at)
            .text_or_null(receipt.action.as_deref());
    }
    const COPY: &str = "COPY receipts (message, subscription, kind, shard, at, action) FROM STDIN (FORMAT binary)";
    rows.send(conn, COPY).await
}

/// Returns the lanes of existing subscriptions.
async fn lanes_of(conn: &mut PgConnection, ids: &[SubscriptionId]) -> sqlx::Result<HashMap<SubscriptionId, LaneId>> {
    let ids: HashSet<SubscriptionId> = ids.iter().copied().collect();
    let ids: Vec<SubscriptionId> = ids.into_iter().collect();
    let rows = fetch_all!(
        conn,
        r#"SELECT s.id AS "id: SubscriptionId", s.lane AS "lane: LaneId"
           FROM unnest($1::smallint[], $2::uuid[]) AS k (shard, id) JOIN subscriptions s ON s.shard = k.shard AND s.id = k.id
           WHERE s.shard = ANY ($3)"#,
        (&shard_column(&ids), &ids as &[SubscriptionId], &shards_of(&ids))
    )?;
    Ok(rows.into_iter().map(|row| (row.id, row.lane)).collect())
}

/// Counts new receipts, writes their notes, and dequeues the deliveries that they end.
async fn count(
    conn: &mut PgConnection, new: &[&Receipt], before: &Reported, lanes: &HashMap<SubscriptionId, LaneId>,
    heard: &[MessageId], now: Timestamp,
) -> sqlx::Result<Vec<QueuedDelivery>> {
    fetch_all!(
        conn,
        QueuedDelivery,
        r#"WITH new AS (
             SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::smallint[], $4::smallint[], $5::timestamptz[], $6::boolean[], $7::integer[])
               AS n (message, subscription, kind, shard, at, is_first, lane)),
           added AS (
             SELECT message, count(DISTINCT subscription) FILTER (WHERE is_first) AS acknowledged,
               count(*) FILTER (WHERE kind = 1) AS displayed, count(*) FILTER (WHERE kind = 2) AS clicked,
               count(*) FILTER (WHERE kind = 3) AS closed, count(*) FILTER (WHERE kind = 4) AS removed,
               count(*) FILTER (WHERE kind = 5) AS prevented, count(*) FILTER (WHERE kind = 6) AS missed
             FROM new GROUP BY message),
           counted AS (
             UPDATE receipt_counts c SET acknowledged = c.acknowledged + a.acknowledged,
               displayed = c.displayed + a.displayed, clicked = c.clicked + a.clicked, closed = c.closed + a.closed,
               removed = c.removed + a.removed, prevented = c.prevented + a.prevented, missed = c.missed + a.missed
             FROM added a WHERE c.message = a.message),
           noted AS (
             INSERT INTO rollup_notes (minute, lane, tier, message, fact, n)
             SELECT date_trunc('minute', $8::timestamptz), by_lane.lane, m.tier, CASE WHEN m.audience_estimate > $9 THEN m.id END,
               20 + by_lane.kind, by_lane.n -- `Fact::Receipt`
             FROM (SELECT message, lane, kind, count(*) AS n FROM new WHERE lane IS NOT NULL GROUP BY message, lane, kind) by_lane
             JOIN messages m ON m.id = by_lane.message),
           habits AS (
             INSERT INTO habit_notes (shard, subscription, message, kind, at)
             SELECT shard, subscription, message, kind, at FROM new WHERE kind IN (1, 2)),
           told AS (
             INSERT INTO webhook_notes (message, subscription, kind, at)
             SELECT message, subscription, 20 + kind, $8 FROM new WHERE message = ANY ($10))
         DELETE FROM queue q USING (SELECT DISTINCT shard, subscription, message FROM new) i
         WHERE q.shard = i.shard AND q.subscription = i.subscription AND q.message = i.message
         RETURNING q.subscription, q.message, q.lane, q.tier, q.retries"#,
        new,
        |new| (new.message, new.subscription, new.kind.code(), new.subscription.shard(), new.at),
        |new| (!before.contains_key(&(new.message, new.subscription)), lanes.get(&new.subscription).copied()),
        (now, CHARTED_ABOVE, heard as &[MessageId])
    )
}

/// Implements [`super::prove_keys`] on Citus.
pub(super) async fn prove_keys(conn: &mut PgConnection, batch: &[&Receipt], now: Timestamp) -> sqlx::Result<()> {
    let accepted = accepted_at(conn, batch.iter().copied()).await?;
    let mut latest: HashMap<SubscriptionId, Timestamp> = HashMap::new();
    for receipt in batch {
        let Some(at) = accepted.get(&receipt.message) else { continue };
        latest.entry(receipt.subscription).and_modify(|last| *last = *at.max(last)).or_insert(*at);
    }
    let proves = |(id, since): &(SubscriptionId, Timestamp)| latest.get(id).is_some_and(|at| since <= at);
    let mut ids = unproven(conn, latest.keys().copied().collect()).await?;
    ids.retain(proves);
    ids.sort_unstable_by_key(|(id, _)| (id.shard(), *id));
    for of_shard in ids.chunk_by(|(a, _), (b, _)| a.shard() == b.shard()) {
        let shard = of_shard[0].0.shard();
        // Citus locks rows in one shard at a time.
        let free = query!(
            r#"SELECT id AS "id: SubscriptionId", greatest(since, keys_since) AS "since!" FROM subscriptions
               WHERE shard = $1 AND id = ANY ($2) AND keys_proven_at IS NULL ORDER BY id FOR NO KEY UPDATE SKIP LOCKED"#,
            (shard),
            of_shard,
            |(id, _)| (*id)
        );
        let free = free.map(|row| (row.id, row.since)).fetch_all(&mut *conn).await?;
        let free: Vec<SubscriptionId> = free.into_iter().filter(proves).map(|(id, _)| id).collect();
        let mark = query!(
            "UPDATE subscriptions SET keys_proven_at = $3 WHERE shard = $1 AND id = ANY ($2)",
            (shard, &free as &[SubscriptionId], now)
        );
        mark.execute(&mut *conn).await?;
    }
    Ok(())
}

/// Returns the subscriptions whose keys are not confirmed, with the earliest time of messages that may confirm them.
async fn unproven(conn: &mut PgConnection, ids: Vec<SubscriptionId>) -> sqlx::Result<Vec<(SubscriptionId, Timestamp)>> {
    let rows = fetch_all!(
        conn,
        r#"SELECT s.id AS "id: SubscriptionId", greatest(s.since, s.keys_since) AS "since!"
           FROM unnest($1::smallint[], $2::uuid[]) AS k (shard, id) JOIN subscriptions s ON s.shard = k.shard AND s.id = k.id
           WHERE s.shard = ANY ($3) AND s.keys_proven_at IS NULL"#,
        (&shard_column(&ids), &ids as &[SubscriptionId], &shards_of(&ids))
    )?;
    Ok(rows.into_iter().map(|row| (row.id, row.since)).collect())
}

pub(super) async fn accepted_at(
    conn: &mut PgConnection, batch: impl Iterator<Item = &Receipt>,
) -> sqlx::Result<HashMap<MessageId, Timestamp>> {
    let messages: HashSet<MessageId> = batch.map(|receipt| receipt.message).collect();
    let rows = fetch_all!(
        conn,
        r#"SELECT id AS "id: MessageId", accepted_at FROM messages WHERE id = ANY ($1)"#,
        (&messages.into_iter().collect::<Vec<_>>() as &[MessageId])
    )?;
    Ok(rows.into_iter().map(|row| (row.id, row.accepted_at)).collect())
}
