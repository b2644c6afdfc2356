//! Holds of single subscriptions, for which the push service refuses pushes for a while. All workers read them.

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::operations::workers::Since;
use crate::outcomes::ledger::Settlement;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::SubscriptionId;
use bellwire_rules::policy::hold::HoldReason;

/// Returns the holds written since a read that end after `ended_before`, at most `limit`. All of them without `since`.
pub async fn changed(
    pool: &PgPool, since: Option<Since>, ended_before: Timestamp, limit: usize,
) -> sqlx::Result<Vec<(SubscriptionId, HoldReason)>> {
    query!(
        "SELECT subscription, held_at, held_until FROM subscription_holds
         WHERE xid >= coalesce($1::bigint, 0)::text::xid8 AND held_until > $2 LIMIT $3",
        (since.map(|since| since.transaction), ended_before, i64::try_from(limit).unwrap_or(i64::MAX))
    )
    .map(|row| (SubscriptionId(row.subscription), HoldReason { at: row.held_at, until: row.held_until }))
    .fetch_all(pool)
    .await
}

/// Stores the holds found by these settlements, together with their attempts. Of two holds of one subscription, the one that
/// ends later counts.
pub async fn write<'a>(conn: &mut PgConnection, settlements: impl Iterator<Item = &'a Settlement>) -> sqlx::Result<()> {
    let found = settlements.filter_map(|it| Some((it.delivery().subscription.0, it.hold()?)));
    let (ids, holds): (Vec<Uuid>, Vec<HoldReason>) = found.unzip();
    if ids.is_empty() {
        return Ok(());
    }
    execute!(
        conn,
        "INSERT INTO subscription_holds AS h (subscription, held_at, held_until)
         SELECT DISTINCT ON (subscription) subscription, held_at, held_until
         FROM unnest($1::uuid[], $2::timestamptz[], $3::timestamptz[]) AS f (subscription, held_at, held_until)
         ORDER BY subscription, held_until DESC, held_at DESC
         ON CONFLICT (subscription) DO UPDATE
         SET held_at = excluded.held_at, held_until = excluded.held_until, xid = excluded.xid
         WHERE (excluded.held_until, excluded.held_at) > (h.held_until, h.held_at)",
        (&ids),
        holds,
        |held| (held.at, held.until)
    )
}

/// Returns the end of a subscription's last hold, possibly in the past.
pub async fn ends_at(conn: &mut PgConnection, subscription: SubscriptionId) -> sqlx::Result<Option<Timestamp>> {
    fetch_optional!(conn, scalar, "SELECT held_until FROM subscription_holds WHERE subscription = $1", (subscription.0))
}
