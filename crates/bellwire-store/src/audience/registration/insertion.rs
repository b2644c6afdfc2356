//! Rows of new subscriptions.

use std::collections::HashSet;

use serde_json::json;
use sqlx::PgConnection;

use super::citus;
use crate::audience::audience_counts::Difference;
use crate::audience::subscriptions::row::SubscriptionRow;
use crate::audience::user_shards;
use crate::connections::engine;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, SubscriptionId};
use bellwire_core::subscription::SubscriptionState;

/// Inserts new subscriptions, each with the first id of its browser if that is another one. Returns the inserted ones. The
/// endpoints of the others were registered concurrently.
pub(super) async fn insert_all(
    conn: &mut PgConnection, app: AppId, rows: &[(&SubscriptionRow, Option<SubscriptionId>)],
) -> sqlx::Result<HashSet<SubscriptionId>> {
    let added = match engine::is_distributed() {
        false => insert_all_here(conn, app, rows).await?,
        true => citus::insert_all(conn, app, rows).await?,
    };
    let mut changes = Difference::default();
    for (row, _) in rows.iter().filter(|(row, _)| added.contains(&row.id) && row.state == SubscriptionState::Active) {
        changes.came(row.lane, row.created_at, row.since);
    }
    changes.write(&mut *conn).await?;
    let new = rows.iter().filter(|(row, _)| added.contains(&row.id));
    user_shards::note(conn, app, new.filter_map(|(row, _)| Some((row.id, row.user_id.as_deref()?)))).await?;
    Ok(added)
}

async fn insert_all_here(
    conn: &mut PgConnection, app: AppId, rows: &[(&SubscriptionRow, Option<SubscriptionId>)],
) -> sqlx::Result<HashSet<SubscriptionId>> {
    fn each<'a, T>(
        rows: &'a [(&SubscriptionRow, Option<SubscriptionId>)], of: impl Fn(&'a SubscriptionRow) -> T,
    ) -> Vec<T> {
        rows.iter().map(|(row, _)| of(row)).collect()
    }
    let added = fetch_all!(
        conn,
        scalar,
        r#"INSERT INTO subscriptions (shard, id, app, lane, state, origin_id, since, endpoint_mac, address, user_id, tags,
           attributes, locale, timezone, expires_at, last_seen, created_at, consent_at, consent_source, ended_at, keys_vouched, muted_until)
         SELECT t.shard, t.id, $1, t.lane, t.state,
           t.origin_id, t.since, t.endpoint_mac, t.address, t.user_id, CASE t.tags WHEN '[]' THEN '{}' ELSE ARRAY(SELECT jsonb_array_elements_text(t.tags)) END, t.attributes, t.locale,
           t.timezone, t.expires_at, t.last_seen, t.created_at, t.consent_at, t.consent_source, t.ended_at, t.keys_vouched, t.muted_until
         FROM unnest($2::smallint[], $3::uuid[], $4::integer[], $5::uuid[], $6::timestamptz[], $7::bytea[],
           $8::bytea[], $9::text[], $10::jsonb[], $11::jsonb[], $12::text[], $13::text[], $14::timestamptz[], $15::timestamptz[],
           $16::timestamptz[], $17::timestamptz[], $18::text[], $19::text[], $20::timestamptz[], $21::boolean[], $22::timestamptz[])
           AS t (shard, id, lane, origin_id, since, endpoint_mac, address, user_id, tags, attributes, locale, timezone,
             expires_at, last_seen, created_at, consent_at, consent_source, state, ended_at, keys_vouched, muted_until)
         ON CONFLICT (app, endpoint_mac, shard) DO NOTHING RETURNING id AS "id: SubscriptionId""#,
        (app.0, &each(rows, |row| row.id.shard()), &each(rows, |row| row.id.0), &each(rows, |row| row.lane.0)),
        rows,
        |(row, origin)| (origin.unwrap_or(row.id)),
        (&each(rows, |row| row.since), &each(rows, |row| row.endpoint_mac.as_slice()) as &[&[u8]]),
        (&each(rows, |row| row.address.as_slice()) as &[&[u8]]),
        (&each(rows, |row| row.user_id.as_deref()) as &[Option<&str>], &each(rows, |row| json!(row.tags))),
        (&each(rows, |row| row.attributes.clone()), &each(rows, |row| row.locale.as_deref()) as &[Option<&str>]),
        (&each(rows, |row| row.timezone.as_deref()) as &[Option<&str>]),
        (&each(rows, |row| row.expires_at) as &[Option<Timestamp>], &each(rows, |row| row.last_seen)),
        (&each(rows, |row| row.created_at), &each(rows, |row| row.consent_at) as &[Option<Timestamp>]),
        (&each(rows, |row| row.consent_source.as_deref()) as &[Option<&str>]),
        (&each(rows, |row| row.state.name()) as &[&str], &each(rows, |row| row.ended_at) as &[Option<Timestamp>]),
        (&each(rows, |row| row.keys_vouched), &each(rows, |row| row.muted_until) as &[Option<Timestamp>])
    )?;
    Ok(added.into_iter().collect())
}
