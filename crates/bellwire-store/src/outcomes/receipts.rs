//! Receipts: written in batches, counted exactly, and read with their deliveries.

mod citus;

use chrono::TimeDelta;
use sqlx::{PgConnection, PgExecutor, PgPool};

use crate::connections::engine;
use crate::operations::retrying::retrying;
use crate::outcomes::ledger::take::QueuedDelivery;
use crate::outcomes::ledger::unsent::{self, How};
use crate::outcomes::notes::CHARTED_ABOVE;
use crate::queue::clears;
use crate::transactions::begin_with;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::ReceiptKind;
use bellwire_core::hook::WebhookKinds;
use bellwire_core::id::{AppId, MessageId, SubscriptionId};

/// Receipt from a service worker.
#[derive(Debug, Clone)]
pub struct Receipt {
    /// Message of the delivery.
    pub message: MessageId,
    /// Recipient of the delivery.
    pub subscription: SubscriptionId,
    /// Kind of the report.
    pub kind: ReceiptKind,
    /// Clicked button, at most 200 characters.
    pub action: Option<String>,
    /// Time of the event, computed from the age that the worker reports.
    pub at: Timestamp,
}

#[derive(Debug, Clone)]
pub struct ReceiptRow {
    pub subscription: SubscriptionId,
    /// Code from [`ReceiptKind::code`].
    pub kind: i16,
    pub at: Timestamp,
    pub action: Option<String>,
}

/// Begins a transaction without sequential scans. Queue and receipts are read by key, and the planner's statistics are wrong
/// for tables that fill and empty within seconds: see [`crate::by_index_only`].
const BEGIN: &str = "BEGIN; SET LOCAL enable_seqscan = off; SET LOCAL enable_bitmapscan = off; \
                     SET LOCAL enable_hashjoin = off; SET LOCAL enable_mergejoin = off";

/// Writes a batch in one transaction. New receipts are stored, counted, and acknowledge their deliveries. Known receipts change
/// nothing. If a delivery still waits in the queue (its push arrived, but the push service's response was lost), the receipt
/// ends it as accepted. A worker that holds it finds its row gone and writes nothing. The first receipt of a subscription
/// confirms its keys.
///
/// Receipts of unknown messages, or of messages accepted before `kept_since`, are dropped.
pub async fn write(
    pool: &PgPool, receipts: &[(AppId, Receipt)], kept_since: Timestamp, now: Timestamp,
) -> sqlx::Result<()> {
    retrying(|| async move {
        let mut tx = begin_with(pool, BEGIN).await?;
        let counted = lock_counts(&mut tx, receipts, kept_since).await?;
        let mut batch: Vec<Receipt> = receipts
            .iter()
            .filter(|(app, receipt)| counted.iter().any(|it| (it.message, it.app) == (receipt.message, *app)))
            .map(|(_, r)| r.clone())
            .collect();
        bound_by_acceptance(&mut tx, &mut batch, now).await?;
        let mut batch: Vec<&Receipt> = batch.iter().collect();
        // The first of its kind counts; and everybody writes in the order of the key.
        batch.sort_by_key(|receipt| (receipt.message, receipt.subscription, receipt.kind.code()));
        batch.dedup_by_key(|receipt| (receipt.message, receipt.subscription, receipt.kind));
        let heard: Vec<MessageId> = counted.iter().filter(|it| it.heard).map(|it| it.message).collect();
        if !batch.is_empty() {
            let arrived = insert(&mut tx, &batch, &heard, now).await?;
            unsent::end(&mut tx, arrived, How::Accepted("a receipt came"), now).await?;
            prove_keys(&mut tx, &batch, now).await?;
            clear_clicked(&mut tx, &batch, &counted).await?;
        }
        tx.commit().await
    })
    .await
}

/// Records clicks on messages that a click removes from the person's other browsers.
async fn clear_clicked(conn: &mut PgConnection, batch: &[&Receipt], counted: &[ReceiptCount]) -> sqlx::Result<()> {
    let clears = |id: MessageId| counted.iter().any(|it| it.clears && it.message == id);
    let clicks = batch.iter().filter(|receipt| receipt.kind == ReceiptKind::Clicked && clears(receipt.message));
    let (messages, subscriptions): (Vec<_>, Vec<_>) = clicks.map(|it| (it.message, it.subscription)).unzip();
    if messages.is_empty() {
        return Ok(());
    }
    clears::clicked(conn, &messages, &subscriptions).await
}

/// Corrects times of events before the acceptance of their message, because a browser's clock may have changed meanwhile.
async fn bound_by_acceptance(conn: &mut PgConnection, batch: &mut [Receipt], now: Timestamp) -> sqlx::Result<()> {
    // Reports without an age wait for their batch for less than a second.
    if batch.iter().all(|receipt| receipt.at > now - TimeDelta::seconds(1)) {
        return Ok(());
    }
    let accepted = citus::accepted_at(conn, batch.iter()).await?;
    for receipt in batch {
        let earliest = accepted.get(&receipt.message).copied().unwrap_or(now).min(now);
        receipt.at = receipt.at.max(earliest);
    }
    Ok(())
}

struct ReceiptCount {
    message: MessageId,
    app: AppId,
    heard: bool,
    clears: bool,
}

/// Locks the counts of the batch's messages, so that concurrent batches of one message see each other's rows, and the first
/// receipt of a delivery is certain. Returns the existing messages.
async fn lock_counts(
    conn: &mut PgConnection, receipts: &[(AppId, Receipt)], kept_since: Timestamp,
) -> sqlx::Result<Vec<ReceiptCount>> {
    let mut messages: Vec<MessageId> = receipts.iter().map(|(_, receipt)| receipt.message).collect();
    messages.sort_unstable();
    messages.dedup();
    let rows = fetch_all!(
        conn,
        r#"WITH there AS MATERIALIZED (
             SELECT m.id, m.app, m.clear_on_click FROM unnest($1::uuid[]) AS g (id) JOIN messages m ON m.id = g.id WHERE m.accepted_at >= $2),
           locked AS (
             INSERT INTO receipt_counts (message) SELECT id FROM there ORDER BY id
             ON CONFLICT (message) DO UPDATE SET message = excluded.message)
         SELECT id, app, clear_on_click, (SELECT heard FROM apps WHERE id = there.app) AS "heard!" FROM there"#,
        (&messages as &[MessageId], kept_since)
    )?;
    let counted = rows.into_iter().map(|row| ReceiptCount {
        message: MessageId(row.id),
        app: AppId(row.app),
        heard: WebhookKinds(row.heard).has_receipts(),
        clears: row.clear_on_click,
    });
    Ok(counted.collect())
}

/// Inserts and counts receipts, and writes notes for metrics, for [engagement](crate::audience::engagement_stats) and, for
/// messages in `heard`, for webhooks. Returns the deliveries dequeued by new receipts. Receipts of erased subscriptions are not
/// in metrics.
async fn insert(
    conn: &mut PgConnection, batch: &[&Receipt], heard: &[MessageId], now: Timestamp,
) -> sqlx::Result<Vec<QueuedDelivery>> {
    if engine::is_distributed() {
        return citus::insert(conn, batch, heard, now).await;
    }
    fetch_all!(
        conn,
        QueuedDelivery,
        r#"WITH inserted AS (
             INSERT INTO receipts (message, subscription, kind, shard, at, action)
             SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::smallint[], $4::smallint[], $5::timestamptz[], $6::text[])
             ON CONFLICT DO NOTHING
             RETURNING message, subscription, kind, shard, at),
           added AS (
             SELECT i.message, count(DISTINCT i.subscription) FILTER (WHERE before.kind IS NULL) AS acknowledged,
               count(*) FILTER (WHERE i.kind = 1) AS displayed, count(*) FILTER (WHERE i.kind = 2) AS clicked,
               count(*) FILTER (WHERE i.kind = 3) AS closed, count(*) FILTER (WHERE i.kind = 4) AS removed,
               count(*) FILTER (WHERE i.kind = 5) AS prevented, count(*) FILTER (WHERE i.kind = 6) AS missed
             FROM inserted i LEFT JOIN LATERAL ( -- sees what stood there before this statement
               SELECT kind FROM receipts r WHERE r.message = i.message AND r.subscription = i.subscription LIMIT 1) before
               ON true
             GROUP BY i.message),
           counted AS (
             UPDATE receipt_counts c SET acknowledged = c.acknowledged + a.acknowledged,
               displayed = c.displayed + a.displayed, clicked = c.clicked + a.clicked, closed = c.closed + a.closed,
               removed = c.removed + a.removed, prevented = c.prevented + a.prevented, missed = c.missed + a.missed
             FROM added a WHERE c.message = a.message),
           noted AS (
             INSERT INTO rollup_notes (minute, lane, tier, message, fact, n)
             SELECT date_trunc('minute', $7::timestamptz), by_lane.lane, m.tier, CASE WHEN m.audience_estimate > $8 THEN m.id END,
               20 + by_lane.kind, by_lane.n -- `Fact::Receipt`
             FROM (SELECT i.message, s.lane, i.kind, count(*) AS n FROM inserted i
                   JOIN subscriptions s ON s.shard = i.shard AND s.id = i.subscription
                   GROUP BY i.message, s.lane, i.kind) by_lane
             JOIN messages m ON m.id = by_lane.message),
           habits AS (
             INSERT INTO habit_notes (shard, subscription, message, kind, at)
             SELECT shard, subscription, message, kind, at FROM inserted WHERE kind IN (1, 2)),
           told AS (
             INSERT INTO webhook_notes (message, subscription, kind, at)
             SELECT message, subscription, 20 + kind, $7 FROM inserted WHERE message = ANY ($9))
         DELETE FROM queue q USING (SELECT DISTINCT shard, subscription, message FROM inserted) i
         WHERE q.shard = i.shard AND q.subscription = i.subscription AND q.message = i.message
         RETURNING q.subscription, q.message, q.lane, q.tier, q.retries"#,
        batch,
        |receipt| (receipt.message, receipt.subscription, receipt.kind.code(), receipt.subscription.shard()),
        |receipt| (receipt.at, receipt.action.as_deref()),
        (now, CHARTED_ABOVE, heard as &[MessageId])
    )
}

/// Records that these subscriptions' keys are confirmed: the token of a receipt arrives in an encrypted push. A message older
/// than the keys, or than `since`, confirms nothing, because it may have been encrypted with other keys. Subscriptions that are
/// being changed are skipped until their next receipt, because this comes last in its transaction and must wait for no lock.
async fn prove_keys(conn: &mut PgConnection, batch: &[&Receipt], now: Timestamp) -> sqlx::Result<()> {
    if engine::is_distributed() {
        return citus::prove_keys(conn, batch, now).await;
    }
    execute!(
        conn,
        "WITH unproven AS MATERIALIZED (
           SELECT s.shard, s.id, r.message FROM unnest($1::smallint[], $2::uuid[], $3::uuid[]) AS r (shard, id, message)
           JOIN subscriptions s ON s.shard = r.shard AND s.id = r.id WHERE s.keys_proven_at IS NULL),
         free AS (
           SELECT s.shard, s.id FROM unproven u JOIN messages m ON m.id = u.message
           JOIN subscriptions s ON s.shard = u.shard AND s.id = u.id AND greatest(s.since, s.keys_since) <= m.accepted_at
           FOR NO KEY UPDATE OF s SKIP LOCKED)
         UPDATE subscriptions s SET keys_proven_at = $4 FROM free WHERE s.shard = free.shard AND s.id = free.id",
        batch,
        |receipt| (receipt.subscription.shard(), receipt.subscription, receipt.message),
        (now)
    )
}

/// Returns the receipts of these deliveries, in order of arrival.
pub async fn of(
    executor: impl PgExecutor<'_>, message: MessageId, subscriptions: &[SubscriptionId],
) -> sqlx::Result<Vec<ReceiptRow>> {
    fetch_all!(
        executor,
        ReceiptRow,
        "SELECT subscription, kind, at, action FROM receipts WHERE message = $1 AND subscription = ANY($2)
         ORDER BY subscription, at, kind",
        (message.0, subscriptions as &[SubscriptionId])
    )
}

/// Returns the receipts of these pairs of message and subscription, in order of arrival.
pub async fn of_pairs(
    pool: &PgPool, messages: &[MessageId], subscriptions: &[SubscriptionId],
) -> sqlx::Result<Vec<(MessageId, ReceiptRow)>> {
    let mut tx = begin_with(pool, BEGIN).await?;
    let rows = fetch_all!(
        &mut *tx,
        r#"SELECT r.message AS "message: MessageId", r.subscription AS "subscription: SubscriptionId", r.kind, r.at, r.action
           FROM unnest($1::uuid[], $2::uuid[]) AS p (message, subscription)
           JOIN receipts r ON r.message = p.message AND r.subscription = p.subscription ORDER BY r.at, r.kind"#,
        (messages as &[MessageId], subscriptions as &[SubscriptionId])
    )?;
    tx.commit().await?;
    let rows = rows.into_iter();
    Ok(rows
        .map(|row| {
            (row.message, ReceiptRow { subscription: row.subscription, kind: row.kind, at: row.at, action: row.action })
        })
        .collect())
}

/// Returns the time from which receipts are stored.
pub fn kept_since(now: Timestamp, retention_days: u32) -> Timestamp {
    now - TimeDelta::days(retention_days.into())
}
