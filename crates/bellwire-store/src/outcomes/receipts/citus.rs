//! Writes receipts on Citus, where subscriptions and receipts are on other machines: their rows are written and read by
//! separate statements for the batch's shards only. Counts are written by one statement with all values in its parameters.

use std::collections::{HashMap, HashSet};

use sqlx::PgConnection;

use super::{Receipt, counted};
use crate::audience::subscriptions::row::SubscriptionKeys;
use crate::connections::engine::{lockable, shard_column, shards_of};
use crate::outcomes::copy::Rows;
use crate::outcomes::ledger::take::QueuedDelivery;
use crate::outcomes::notes::CHARTED_ABOVE;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{LaneId, MessageId, SubscriptionId};

/// Implements [`super::insert`] on Citus.
pub(super) async fn insert(
    conn: &mut PgConnection,
    batch: &[&Receipt],
    heard: &[MessageId],
    now: Timestamp,
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
    counted!(
        "new AS (
             SELECT * FROM unnest($4::uuid[], $5::uuid[], $6::smallint[], $7::smallint[], $8::timestamptz[], $9::boolean[], $10::integer[])
               AS n (message, subscription, kind, shard, at, is_first, lane))",
        heard,
        now,
        new,
        |new| (new.message, new.subscription, new.kind.code(), new.subscription.shard(), new.at),
        |new| (!there.contains_key(&(new.message, new.subscription)), lanes.get(&new.subscription).copied())
    )
    .fetch_all(conn)
    .await
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
        (&messages as &[MessageId], &ids as &[SubscriptionId], &shard_column(&ids), shards_of(&ids) as _)
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
        (&shard_column(&ids), &ids as &[SubscriptionId], shards_of(&ids) as _)
    )?;
    Ok(rows.into_iter().map(|row| (row.id, row.lane)).collect())
}

/// Statement that reads those of these subscriptions whose keys no receipt has proven yet, each with the time since when messages may prove
/// them, followed by `$end`.
macro_rules! unproven {
    ($ids:expr, $end:literal) => {
        query!(
            r#"SELECT s.id AS "id: SubscriptionId", greatest(s.since, s.keys_since) AS "since!"
               FROM unnest($1::smallint[], $2::uuid[]) AS k (shard, id) JOIN subscriptions s ON s.shard = k.shard AND s.id = k.id
               WHERE s.shard = ANY ($3) AND s.keys_proven_at IS NULL"# + $end,
            (&shard_column($ids), $ids as &[SubscriptionId], shards_of($ids) as _)
        )
        .map(|row| (row.id, row.since))
    };
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
    let ids: Vec<SubscriptionId> = latest.keys().copied().collect();
    let unproven = unproven!(&ids, "").fetch_all(&mut *conn).await?.into_iter();
    let unproven = SubscriptionKeys::of(unproven.filter(proves).map(|(id, _)| id).collect());
    for ids in lockable(&unproven.ids) {
        let free = unproven!(ids, " ORDER BY s.id FOR NO KEY UPDATE OF s SKIP LOCKED").fetch_all(&mut *conn).await?;
        let free: Vec<SubscriptionId> = free.into_iter().filter(proves).map(|(id, _)| id).collect();
        execute!(
            &mut *conn,
            "UPDATE subscriptions SET keys_proven_at = $3 WHERE shard = $1 AND id = ANY ($2)",
            (ids[0].shard(), &free as &[SubscriptionId], now)
        )?;
    }
    Ok(())
}

pub(super) async fn accepted_at(
    conn: &mut PgConnection,
    batch: impl Iterator<Item = &Receipt>,
) -> sqlx::Result<HashMap<MessageId, Timestamp>> {
    let messages: HashSet<MessageId> = batch.map(|receipt| receipt.message).collect();
    let rows = fetch_all!(
        conn,
        r#"SELECT id AS "id: MessageId", accepted_at FROM messages WHERE id = ANY ($1)"#,
        (&messages.into_iter().collect::<Vec<_>>() as &[MessageId])
    )?;
    Ok(rows.into_iter().map(|row| (row.id, row.accepted_at)).collect())
}
