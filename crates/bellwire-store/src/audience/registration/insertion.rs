//! Rows of new subscriptions.

use sqlx::PgConnection;

use crate::audience::audience_counts::Difference;
use crate::audience::subscriptions::row::SubscriptionRow;
use crate::audience::user_shards;
use crate::outcomes::copy::Rows;
use bellwire_core::id::{AppId, SubscriptionId};
use bellwire_core::subscription::SubscriptionState;

const COPY: &str = "COPY subscriptions (shard, id, app, lane, state, origin_id, since, endpoint_mac, address, user_id, tags, \
                    attributes, locale, timezone, expires_at, last_seen, created_at, consent_at, consent_source, ended_at, keys_vouched) \
                    FROM STDIN (FORMAT binary)";

/// Adds new subscriptions, each with the first id of its browser if that is another one, by COPY. On Citus INSERT … SELECT … ON CONFLICT
/// takes 10 ms of CPU for each shard with any of them, and on plain Postgres half as much again as COPY.
///
/// The caller has searched for their endpoints. An endpoint that was registered since makes all of them fail: a
/// [collision](crate::operations::retrying), after which the transaction runs again.
pub(super) async fn insert_all(
    conn: &mut PgConnection,
    app: AppId,
    rows: &[(&SubscriptionRow, Option<SubscriptionId>)],
) -> sqlx::Result<()> {
    let mut copied = Rows::new(21, rows.len() * 8);
    for (row, origin) in rows {
        copied
            .row()
            .smallint(row.id.shard())
            .uuid(row.id.0)
            .uuid(app.0)
            .integer(row.lane.0)
            .text_or_null(Some(row.state.name()))
            .uuid(origin.unwrap_or(row.id).0)
            .timestamp(row.since)
            .bytes(&row.endpoint_mac)
            .bytes(&row.address)
            .text_or_null(row.user_id.as_deref())
            .texts(&row.tags)
            .json(&row.attributes)
            .text_or_null(row.locale.as_deref())
            .text_or_null(row.timezone.as_deref())
            .timestamp_or_null(row.expires_at)
            .timestamp(row.last_seen)
            .timestamp(row.created_at)
            .timestamp_or_null(row.consent_at)
            .text_or_null(row.consent_source.as_deref())
            .timestamp_or_null(row.ended_at)
            .boolean(row.keys_vouched);
    }
    copied.send(&mut *conn, COPY).await?;
    let mut changes = Difference::default();
    for (row, _) in rows.iter().filter(|(row, _)| row.state == SubscriptionState::Active) {
        changes.came(row.lane, row.created_at, row.since);
    }
    changes.write(&mut *conn).await?;
    user_shards::note(conn, app, rows.iter().filter_map(|(row, _)| Some((row.id, row.user_id.as_deref()?)))).await
}
