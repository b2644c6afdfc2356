//! How soon an app wants the deliveries of each tier accepted.

use sqlx::{PgExecutor, PgPool};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::delivery::Tier;

/// Seconds, for the tiers that have any.
pub async fn read(pool: &PgPool, app: Uuid) -> sqlx::Result<Vec<(Tier, u32)>> {
    let rows = sqlx::query!(
        r#"SELECT tier, sla_seconds AS "seconds!" FROM tier_settings WHERE app = $1 AND sla_seconds IS NOT NULL"#,
        app
    )
    .fetch_all(pool)
    .await?;
    Ok(rows.iter().filter_map(|row| Some((Tier::from_code(row.tier)?, u32::try_from(row.seconds).ok()?))).collect())
}

/// Sets them, or takes them away. What else is set for the tiers stays.
pub async fn write(
    executor: impl PgExecutor<'_>,
    app: Uuid,
    wanted: &[(Tier, Option<u32>)],
    now: Timestamp,
) -> sqlx::Result<()> {
    let tiers: Vec<i16> = wanted.iter().map(|(tier, _)| tier.code()).collect();
    let seconds: Vec<Option<i32>> =
        wanted.iter().map(|(_, seconds)| seconds.and_then(|seconds| i32::try_from(seconds).ok())).collect();
    sqlx::query!(
        "INSERT INTO tier_settings (app, tier, sla_seconds, changed_at)
         SELECT $1, tier, seconds, $2 FROM unnest($3::smallint[], $4::integer[]) AS t (tier, seconds) ORDER BY tier
         ON CONFLICT (app, tier) DO UPDATE SET sla_seconds = excluded.sla_seconds, changed_at = excluded.changed_at",
        app,
        now,
        &tiers,
        &seconds as &[Option<i32>]
    )
    .execute(executor)
    .await
    .map(drop)
}
