//! Report on lost subscriptions, by day, push service and VAPID key.

use sqlx::PgPool;

use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, VapidKeyId};
use bellwire_core::lane::Gateway;

/// Losses of one day in one lane.
#[derive(Debug, Clone)]
pub struct LossRow {
    /// Day in UTC, such as `2027-01-31`.
    pub day: String,
    pub gateway: Gateway,
    pub vapid_key: VapidKeyId,
    /// Subscriptions that the push service reported as gone.
    pub gone: i64,
    /// Suspended subscriptions, which get no pushes.
    pub suspended: i64,
}

/// Reads the losses since a time, the latest day first.
pub async fn losses(pool: &PgPool, app: AppId, since: Timestamp) -> sqlx::Result<Vec<LossRow>> {
    fetch_all!(
        pool,
        LossRow,
        r#"SELECT to_char(s.ended_at AT TIME ZONE 'UTC', 'YYYY-MM-DD') AS "day!", l.gateway AS "gateway: Gateway", l.vapid_key,
             count(*) FILTER (WHERE s.state = 'gone') AS "gone!",
             count(*) FILTER (WHERE s.state = 'suspended') AS "suspended!"
           FROM subscriptions s JOIN lanes l ON l.id = s.lane
           WHERE s.app = $1 AND s.ended_at >= $2 AND s.state IN ('gone', 'suspended')
           GROUP BY 1, l.gateway, l.vapid_key ORDER BY 1 DESC, l.gateway, l.vapid_key"#,
        (app.0, since)
    )
}
