//! Deliveries of a subscription that were for a former user. A browser that several people use keeps its subscription and its
//! history when its user changes.

use std::collections::{HashMap, HashSet};

use sqlx::PgPool;

use super::FoundRow;
use crate::audience::subscriptions::row::{SubscriptionKeys, left_by_users};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{MessageId, SubscriptionId};

/// Returns the deliveries that belong to the user.
///
/// Removes deliveries for a former user of the browser. These are messages to users or subscriptions that were accepted before
/// that user left, and all deliveries that had ended by then, because they reveal followed topics. Waiting deliveries of topics
/// and broadcasts go to the browser's current user.
pub async fn of_user(pool: &PgPool, user: &str, mut rows: Vec<FoundRow>) -> sqlx::Result<Vec<FoundRow>> {
    // Another user may have logged in since the list of subscriptions was read.
    rows.retain(|row| row.user_id.as_deref() == Some(user));
    let mut conn = pool.acquire().await?;
    let keys =
        SubscriptionKeys::of(rows.iter().map(|row| row.subscription).collect::<HashSet<_>>().into_iter().collect());
    let (ids, times) = left_by_users(&mut conn, &keys).await?;
    let left: HashMap<SubscriptionId, Timestamp> = ids.into_iter().zip(times).collect();
    if left.is_empty() {
        return Ok(rows);
    }
    let messages: Vec<MessageId> = rows.iter().map(|row| row.message).collect();
    let naming = fetch_all!(
        &mut *conn,
        scalar,
        r#"SELECT id AS "id: MessageId" FROM messages WHERE id = ANY ($1) AND audience ?| ARRAY['users', 'subscriptions']"#,
        (&messages as &[MessageId])
    )?;
    let naming: HashSet<MessageId> = naming.into_iter().collect();
    rows.retain(|row| {
        let left = left.get(&row.subscription).copied();
        !left.is_some_and(|left| was_before(row, left, naming.contains(&row.message)))
    });
    Ok(rows)
}

/// Whether a delivery belonged to a user who left the browser at a time.
fn was_before(row: &FoundRow, left: Timestamp, names_recipients: bool) -> bool {
    let waits = row.held || row.retries.is_some();
    row.accepted_at <= left && (names_recipients || (!waits && row.at.is_some_and(|at| at <= left)))
}
