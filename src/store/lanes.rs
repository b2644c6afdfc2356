//! Lanes: one row for each (VAPID key, gateway) that ever had a subscription. Never deleted.

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::lane::Gateway;

/// The lane of a VAPID key and gateway, made on demand.
pub async fn ensure(conn: &mut PgConnection, app: Uuid, key: Uuid, gateway: Gateway) -> Result<i32, sqlx::Error> {
    let find =
        || sqlx::query_scalar!("SELECT id FROM lanes WHERE vapid_key = $1 AND gateway = $2", key, gateway.name());
    if let Some(id) = find().fetch_optional(&mut *conn).await? {
        return Ok(id);
    }
    // Looked for first, since a conflicting insert would use up a number of the sequence each time.
    sqlx::query!(
        "INSERT INTO lanes (app, vapid_key, gateway) VALUES ($1, $2, $3) ON CONFLICT (vapid_key, gateway) DO NOTHING",
        app,
        key,
        gateway.name()
    )
    .execute(&mut *conn)
    .await?;
    find().fetch_one(conn).await
}

/// A lane as operators see it.
#[derive(Debug, Clone)]
pub struct LaneRow {
    /// Its number.
    pub id: i32,
    /// Whose it is.
    pub app: Uuid,
    /// The key that signs in it.
    pub vapid_key: Uuid,
    /// The push service it leads to.
    pub gateway: String,
    /// Active subscriptions in it.
    pub subscriptions: i64,
}

/// What workers told each other about a lane's way to one origin.
#[derive(Debug, Clone)]
pub struct LaneState {
    /// The lane.
    pub lane: i32,
    /// `https://host[:port]`
    pub origin: String,
    /// No POST before.
    pub held_until: Option<Timestamp>,
    /// `closed`, `open` or `half_open`.
    pub breaker: String,
    /// When an open breaker lets probes through.
    pub open_until: Option<Timestamp>,
    /// When any of this changed.
    pub changed_at: Timestamp,
}

/// Lanes with numbers below `below`, the newest first.
pub async fn list(pool: &PgPool, below: i32, limit: i64) -> Result<Vec<LaneRow>, sqlx::Error> {
    sqlx::query_as!(
        LaneRow,
        r#"SELECT l.id, l.app, l.vapid_key, l.gateway,
             (SELECT count(*) FROM subscriptions s WHERE s.lane = l.id AND s.state = 'active') AS "subscriptions!"
         FROM lanes l WHERE l.id < $1 ORDER BY l.id DESC LIMIT $2"#,
        below,
        limit
    )
    .fetch_all(pool)
    .await
}

/// What is known of these lanes' origins.
pub async fn states(pool: &PgPool, lanes: &[i32]) -> Result<Vec<LaneState>, sqlx::Error> {
    sqlx::query_as!(
        LaneState,
        r#"SELECT lane, origin, held_until, coalesce(breaker, 'closed') AS "breaker!", open_until, changed_at
         FROM lane_states WHERE lane = ANY($1) ORDER BY lane, origin"#,
        lanes
    )
    .fetch_all(pool)
    .await
}
