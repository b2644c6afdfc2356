//! Which subscriptions are the same browser's as one that is erased: those that it took the place of, and those that took its.

use sqlx::{PgConnection, PgExecutor};

use crate::model::id::{AppId, SubscriptionId};

/// Of a subscription and those of the same browser that are to go with it, the one that goes next: the farthest, itself last. So a
/// chain that is broken off is found again.
///
/// Former ones go if they are nobody's or of `user_id`; they have ended. One that came in its place goes if it is nobody's, and nobody
/// has logged out of it since: then it says what was said of the one before.
pub(super) async fn farthest(
    executor: impl PgExecutor<'_>,
    app: AppId,
    id: SubscriptionId,
    user_id: Option<&str>,
) -> sqlx::Result<SubscriptionId> {
    let farthest = sqlx::query_scalar!(
        r#"WITH RECURSIVE former (id, depth) AS (
             SELECT $2::uuid, 0
             UNION ALL
             SELECT s.id, f.depth + 1 FROM former f JOIN subscriptions s ON s.replaced_by = f.id
             WHERE s.app = $1 AND (s.user_id IS NULL OR s.user_id = $3) AND f.depth < 1000),
           later (id, replaced_by, depth) AS (
             SELECT id, replaced_by, 0 FROM subscriptions WHERE shard = $4 AND id = $2 AND app = $1
             UNION ALL
             SELECT s.id, s.replaced_by, l.depth + 1 FROM later l
             JOIN subscriptions s ON s.shard = get_byte(uuid_send(l.replaced_by), 15) & 63 AND s.id = l.replaced_by
             WHERE s.app = $1 AND (s.user_id IS NULL OR s.user_id = $3) AND s.user_left_at IS NULL AND l.depth < 1000)
           SELECT b.id AS "id!: SubscriptionId" FROM (SELECT id, depth FROM former UNION ALL SELECT id, depth FROM later) b
           ORDER BY b.depth DESC, b.id LIMIT 1"#,
        app.0,
        id.0,
        user_id,
        id.shard()
    )
    .fetch_one(executor)
    .await?;
    Ok(farthest)
}

/// Forgets that others led to one that is forgotten: what waited for them was cancelled with it.
pub(super) async fn part(conn: &mut PgConnection, id: SubscriptionId) -> sqlx::Result<()> {
    sqlx::query!("UPDATE subscriptions SET replaced_by = NULL, replaced_by_life = NULL WHERE replaced_by = $1", id.0)
        .execute(conn)
        .await
        .map(drop)
}
