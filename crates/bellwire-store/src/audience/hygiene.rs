//! Report on lost subscriptions, by day, push service and VAPID key.

use serde::Serialize;
use sqlx::PgPool;
use utoipa::ToSchema;

use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, VapidKeyId};
use bellwire_core::lane::Gateway;

/// Subscriptions lost on one day, at one push service and under one VAPID key.
#[derive(Debug, Serialize, ToSchema)]
pub struct SubscriptionLoss {
    /// The day, in UTC.
    #[schema(format = Date)]
    pub day: String,
    /// Push service of the subscriptions.
    pub gateway: Gateway,
    /// VAPID key that the subscriptions use.
    pub vapid_key_id: VapidKeyId,
    /// Subscriptions that the push service reported as gone.
    pub gone: i64,
    /// Subscriptions that were suspended because the push service refused too many pushes. They get no pushes.
    pub suspended: i64,
}

/// Reads the losses since a time, the latest day first.
pub async fn losses(pool: &PgPool, app: AppId, since: Timestamp) -> sqlx::Result<Vec<SubscriptionLoss>> {
    fetch_all!(
        pool,
        SubscriptionLoss,
        r#"SELECT to_char(s.ended_at AT TIME ZONE 'UTC', 'YYYY-MM-DD') AS "day!", l.gateway AS "gateway: Gateway", l.vapid_key AS vapid_key_id,
             count(*) FILTER (WHERE s.state = 'gone') AS "gone!",
             count(*) FILTER (WHERE s.state = 'suspended') AS "suspended!"
           FROM subscriptions s JOIN lanes l ON l.id = s.lane
           WHERE s.app = $1 AND s.ended_at >= $2 AND s.state IN ('gone', 'suspended')
           GROUP BY 1, l.gateway, l.vapid_key ORDER BY 1 DESC, l.gateway, l.vapid_key"#,
        (app.0, since)
    )
}
