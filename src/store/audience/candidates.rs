//! What has to be known of subscriptions before a filter can judge them: read in a few fixed statements for many at once.

use std::collections::HashMap;

use sqlx::PgConnection;

use crate::model::filter::LaneFacts;
use crate::model::id::{LaneId, VapidKeyId};
use crate::model::lane::Gateway;

/// What holds for everybody in each of these lanes.
pub(in crate::store) async fn lanes(
    conn: &mut PgConnection,
    lanes: impl Iterator<Item = LaneId>,
) -> sqlx::Result<HashMap<LaneId, LaneFacts>> {
    let lanes: Vec<LaneId> = lanes.collect();
    let found = sqlx::query!("SELECT id, gateway, vapid_key FROM lanes WHERE id = ANY ($1)", &lanes as &[LaneId])
        .map(|row| {
            let gateway = Gateway::from_name(&row.gateway).expect("checked by the table");
            (LaneId(row.id), LaneFacts::new(gateway, VapidKeyId(row.vapid_key)))
        })
        .fetch_all(conn)
        .await?;
    Ok(found.into_iter().collect())
}
