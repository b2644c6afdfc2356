//! Inserts new subscriptions on Citus.

use std::collections::HashSet;

use sqlx::PgConnection;

use crate::audience::subscriptions::row::SubscriptionRow;
use crate::outcomes::copy::Rows;
use bellwire_core::id::{AppId, SubscriptionId};

const COPY: &str = "COPY subscriptions (shard, id, app, lane, state, origin_id, since, endpoint_mac, address, user_id, tags, \
                    attributes, locale, timezone, expires_at, last_seen, created_at, consent_at, consent_source, ended_at, keys_vouched, muted_until) \
                    FROM STDIN (FORMAT binary)";

/// Inserts new subscriptions by COPY, each with the first id of its browser if that is another one. INSERT … SELECT … ON
/// CONFLICT takes 10 ms of CPU for each shard. The commit has two phases and includes the coordinator's change records.
///
/// The caller has searched for the endpoints. If one was registered since, the statement fails, and the transaction is
/// repeated.
pub(super) async fn insert_all(
    conn: &mut PgConnection, app: AppId, rows: &[(&SubscriptionRow, Option<SubscriptionId>)],
) -> sqlx::Result<HashSet<SubscriptionId>> {
    let mut copied = Rows::new(22, rows.len() * 8);
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
            .boolean(row.keys_vouched)
            .timestamp_or_null(row.muted_until);
    }
    copied.send(conn, COPY).await?;
    Ok(rows.iter().map(|(row, _)| row.id).collect())
}
