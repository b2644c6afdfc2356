//! [Search](super) on Citus, where subscriptions and attempts are on other machines: waiting deliveries, their subscriptions
//! and last attempts are read by separate statements, and joined here.

use std::collections::HashMap;

use sqlx::PgConnection;

use super::{FoundRow, SearchQuery, Stretch};
use crate::connections::engine::{shard_column, shards_of};
use crate::keyset::Towards;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{AppId, LaneId, MessageId, SubscriptionId};
use bellwire_core::lane::Gateway;

struct Browser {
    user_id: Option<String>,
    lane: LaneId,
}

struct Last {
    attempt: i32,
    at: Timestamp,
    ending: i16,
    status: Option<i16>,
    took_ms: Option<i32>,
    reason: Option<String>,
}

/// Implements [`super::look`] on Citus.
pub(super) async fn look(
    conn: &mut PgConnection, app: AppId, stretch: &Stretch, wanted: &SearchQuery, now: Timestamp,
) -> sqlx::Result<Vec<FoundRow>> {
    let browsers = browsers(conn, &stretch.subscriptions).await?;
    let gateways = gateways(conn, &browsers).await?;
    let mut last = last(conn, stretch).await?;
    let mut rows = waiting(conn, app, stretch, now).await?;
    let beyond = (wanted.beyond.message, wanted.beyond.subscription);
    rows.retain(|row| {
        let place = (row.message.0, row.subscription.0);
        let is_beyond = if wanted.towards == Towards::Older { place < beyond } else { place > beyond };
        is_beyond && wanted.tier.is_none_or(|tier| Tier::code(tier) == row.tier)
    });
    for row in &mut rows {
        if let Some(browser) = browsers.get(&row.subscription) {
            row.user_id.clone_from(&browser.user_id);
            row.lane = Some(browser.lane);
            row.gateway = gateways.get(&browser.lane).copied();
        }
        if let Some(last) = last.remove(&(row.message, row.subscription)) {
            (row.attempt, row.at, row.ending) = (Some(last.attempt), Some(last.at), Some(last.ending));
            (row.status, row.took_ms, row.reason) = (last.status, last.took_ms, last.reason);
        }
    }
    let is_in_lane = |row: &FoundRow| wanted.lane.is_none() || row.lane == wanted.lane;
    rows.retain(|row| is_in_lane(row) && (row.held || row.retries.is_some() || row.ending.is_some()));
    rows.sort_unstable_by_key(|row| (row.message, row.subscription));
    if wanted.towards == Towards::Older {
        rows.reverse();
    }
    Ok(rows)
}

/// Returns the pairs of message and subscription with their waiting deliveries.
async fn waiting(
    conn: &mut PgConnection, app: AppId, stretch: &Stretch, now: Timestamp,
) -> sqlx::Result<Vec<FoundRow>> {
    fetch_all!(
        conn,
        FoundRow,
        r#"
        SELECT m.id AS "message!: MessageId", p.subscription AS "subscription!: SubscriptionId", NULL::text AS user_id,
               m.tier AS "tier!", m.accepted_at AS "accepted_at!", NULL::integer AS "lane: LaneId", NULL::text AS "gateway: Gateway", q.retries AS "retries?",
               coalesce(q.lease IS NOT NULL AND q.due_at > $4, false)
                 OR (m.id, p.subscription) IN (
                   SELECT b.message, r.subscription
                   FROM batches b CROSS JOIN LATERAL unnest(b.recipients) AS r (subscription)
                   WHERE b.message = ANY ($2)) AS "held!",
               nullif(q.due_at, 'infinity') AS "due_at?", NULL::integer AS attempt, NULL::timestamptz AS at,
               NULL::smallint AS ending, NULL::smallint AS status, NULL::integer AS took_ms, NULL::text AS reason
        FROM unnest($2::uuid[]) AS c (id)
        JOIN messages m ON m.id = c.id AND m.app = $1
        CROSS JOIN unnest($3::uuid[]) AS p (subscription)
        LEFT JOIN queue q ON q.shard = get_byte(uuid_send(p.subscription), 15) & 63
          AND q.subscription = p.subscription AND q.message = c.id
        "#,
        (app.0, &stretch.messages as &[MessageId], &stretch.subscriptions as &[SubscriptionId], now)
    )
}

async fn browsers(conn: &mut PgConnection, ids: &[SubscriptionId]) -> sqlx::Result<HashMap<SubscriptionId, Browser>> {
    let rows = fetch_all!(
        conn,
        r#"SELECT s.id AS "id: SubscriptionId", s.user_id, s.lane AS "lane: LaneId"
           FROM unnest($1::smallint[], $2::uuid[]) AS k (shard, id) JOIN subscriptions s ON s.shard = k.shard AND s.id = k.id
           WHERE s.shard = ANY ($3)"#,
        (&shard_column(ids), ids as &[SubscriptionId], &shards_of(ids))
    )?;
    let browsers = rows.into_iter();
    Ok(browsers.map(|row| (row.id, Browser { user_id: row.user_id, lane: row.lane })).collect())
}

async fn gateways(
    conn: &mut PgConnection, browsers: &HashMap<SubscriptionId, Browser>,
) -> sqlx::Result<HashMap<LaneId, Gateway>> {
    let lanes: Vec<i32> = browsers.values().map(|browser| browser.lane.0).collect();
    let rows = fetch_all!(
        conn,
        r#"SELECT id AS "id: LaneId", gateway AS "gateway: Gateway" FROM lanes WHERE id = ANY ($1)"#,
        (&lanes)
    )?;
    Ok(rows.into_iter().map(|row| (row.id, row.gateway)).collect())
}

/// Returns the last attempt of each pair that has one.
async fn last(conn: &mut PgConnection, stretch: &Stretch) -> sqlx::Result<HashMap<(MessageId, SubscriptionId), Last>> {
    let ids = &stretch.subscriptions;
    let rows = query!(
        r#"SELECT message AS "message: MessageId", subscription AS "subscription: SubscriptionId", attempt, at, ending, status,
             took_ms, reason
           FROM attempts WHERE message = ANY ($1) AND subscription = ANY ($2) AND shard = ANY ($3) ORDER BY attempt"#,
        (&stretch.messages as &[MessageId], ids as &[SubscriptionId], &shards_of(ids))
    );
    let mut last = HashMap::new();
    for row in rows.fetch_all(conn).await? {
        let of = Last {
            attempt: row.attempt,
            at: row.at,
            ending: row.ending,
            status: row.status,
            took_ms: row.took_ms,
            reason: row.reason,
        };
        last.insert((row.message, row.subscription), of);
    }
    Ok(last)
}
