//! Results of deliveries, recorded as notes for webhooks in the transaction that causes them, only in apps with such webhooks.
//! Notes are only inserted, so no transaction waits for another.

use sqlx::PgConnection;

use crate::outcomes::ledger::settlement::Settlement;
use crate::outcomes::ledger::take::QueuedDelivery;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Ending;
use bellwire_core::id::{MessageId, SubscriptionId};

/// Records those settlements that webhooks subscribe to. Costs nothing if there are none.
pub async fn write<'a>(
    conn: &mut PgConnection, settlements: impl Iterator<Item = &'a Settlement>, now: Timestamp,
) -> sqlx::Result<()> {
    let (mut messages, mut subscriptions, mut kinds) = (Vec::new(), Vec::new(), Vec::new());
    for settlement in settlements {
        let Some(ending) = settlement.heard_ending() else { continue };
        messages.push(settlement.delivery().message);
        subscriptions.push(settlement.delivery().subscription);
        kinds.push(ending.code());
    }
    if messages.is_empty() {
        return Ok(());
    }
    execute!(
        conn,
        "INSERT INTO webhook_notes (message, subscription, kind, at)
         SELECT message, subscription, kind, $4 FROM unnest($1::uuid[], $2::uuid[], $3::smallint[]) AS t (message, subscription, kind)",
        (&messages as &[MessageId], &subscriptions as &[SubscriptionId], &kinds, now)
    )
}

/// Records deliveries that ended without another POST, if webhooks subscribe to that.
pub async fn write_unsent(
    conn: &mut PgConnection, rows: &[QueuedDelivery], ending: Ending, now: Timestamp,
) -> sqlx::Result<()> {
    execute!(
        conn,
        "INSERT INTO webhook_notes (message, subscription, kind, at)
         SELECT t.message, t.subscription, $3, $4 FROM unnest($1::uuid[], $2::uuid[]) AS t (message, subscription)
         JOIN messages m ON m.id = t.message JOIN apps a ON a.id = m.app WHERE a.heard & (1 << $3::smallint) <> 0",
        rows,
        |row| (row.message, row.subscription),
        (ending.code(), now)
    )
}
