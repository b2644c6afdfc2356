//! Subscriptions of the same browser as an erased one: its predecessors and successors.

use std::cmp::Ordering;

use sqlx::PgConnection;

use bellwire_core::id::{AppId, SubscriptionId};

/// Maximum length of a chain of replacements in each direction. No real browser has so many.
const DEPTH_MAX: usize = 1_000;

/// Returns the next subscription to erase of a browser: the one farthest from the given subscription, which is last. So an
/// interrupted chain is found again.
///
/// Predecessors are erased if they have no user or `user_id`. A successor is erased if it has no user, and no user has logged
/// out of it since: then it has data of the erased one.
pub(super) async fn farthest(
    conn: &mut PgConnection, app: AppId, id: SubscriptionId, user_id: Option<&str>,
) -> sqlx::Result<SubscriptionId> {
    let (before, former) = earliest(conn, app, id, user_id).await?;
    let (after, later) = latest(conn, app, id, user_id).await?;
    Ok(match before.cmp(&after) {
        Ordering::Greater => former,
        Ordering::Equal => former.min(later),
        Ordering::Less => later,
    })
}

/// Returns the first predecessor, and the number of replacements in between.
async fn earliest(
    conn: &mut PgConnection, app: AppId, id: SubscriptionId, user_id: Option<&str>,
) -> sqlx::Result<(usize, SubscriptionId)> {
    let (mut found, mut ids) = ((0, id), vec![id]);
    for depth in 1..=DEPTH_MAX {
        ids = fetch_all!(
            &mut *conn,
            scalar,
            r#"SELECT id AS "id: SubscriptionId" FROM subscriptions
               WHERE replaced_by = ANY ($2) AND app = $1 AND (user_id IS NULL OR user_id = $3) ORDER BY id"#,
            (app.0, &ids as &[SubscriptionId], user_id)
        )?;
        let Some(first) = ids.first() else { break };
        found = (depth, *first);
    }
    Ok(found)
}

/// Returns the last successor, and the number of replacements in between.
async fn latest(
    conn: &mut PgConnection, app: AppId, id: SubscriptionId, user_id: Option<&str>,
) -> sqlx::Result<(usize, SubscriptionId)> {
    let successor = fetch_optional!(
        &mut *conn,
        scalar,
        r#"SELECT replaced_by AS "id: SubscriptionId" FROM subscriptions WHERE shard = $1 AND id = $2 AND app = $3"#,
        (id.shard(), id.0, app.0)
    )?;
    let mut successor = successor.flatten();
    let mut found = (0, id);
    while let Some(next) = successor.filter(|_| found.0 < DEPTH_MAX) {
        let goes = fetch_optional!(
            &mut *conn,
            scalar,
            r#"SELECT replaced_by AS "id: SubscriptionId" FROM subscriptions
               WHERE shard = $1 AND id = $2 AND app = $3 AND (user_id IS NULL OR user_id = $4) AND user_left_at IS NULL"#,
            (next.shard(), next.0, app.0, user_id)
        )?;
        let Some(further) = goes else { break };
        (found, successor) = ((found.0 + 1, next), further);
    }
    Ok(found)
}

/// Removes the links of other subscriptions to an erased one. Their waiting deliveries were cancelled with it.
pub(super) async fn part(conn: &mut PgConnection, id: SubscriptionId) -> sqlx::Result<()> {
    execute!(
        conn,
        "UPDATE subscriptions SET replaced_by = NULL, replaced_by_life = NULL WHERE replaced_by = $1",
        (id.0)
    )
}
