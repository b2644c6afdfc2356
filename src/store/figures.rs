//! The figures that workers count: added to by all of them, read as the sums of an hour.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DurationRound as _, TimeDelta};
use sqlx::PgPool;
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::delivery::Tier;
use crate::figures::{Count, LaneSums};
use crate::id::LaneId;

/// How long figures are kept: a day more than the longest that anybody looks back.
const KEPT: Duration = Duration::from_secs(2 * 86_400);

/// What stands for "no tier" in the table.
const NO_TIER: i16 = 0;

/// Adds what a worker counted to the present minute.
pub async fn add(
    pool: &PgPool,
    counted: impl Iterator<Item = (LaneId, Option<Tier>, i16, u64)>,
    now: Timestamp,
) -> sqlx::Result<()> {
    let (mut lanes, mut tiers, mut figures, mut ns) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (lane, tier, figure, n) in counted {
        lanes.push(lane.0);
        tiers.push(tier.map_or(NO_TIER, Tier::code));
        figures.push(figure);
        ns.push(i64::try_from(n).unwrap_or(i64::MAX));
    }
    if ns.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "INSERT INTO figures AS f (minute, lane, tier, figure, n)
         SELECT $1, lane, tier, figure, n
         FROM unnest($2::integer[], $3::smallint[], $4::smallint[], $5::bigint[]) AS t (lane, tier, figure, n)
         ORDER BY lane, tier, figure
         ON CONFLICT (minute, lane, tier, figure) DO UPDATE SET n = f.n + excluded.n",
        now.duration_trunc(TimeDelta::minutes(1)).unwrap_or(now),
        &lanes,
        &tiers,
        &figures,
        &ns
    )
    .execute(pool)
    .await
    .map(drop)
}

/// What to read.
#[derive(Debug, Clone, Copy, Default)]
pub struct Wanted {
    /// Only this app's lanes.
    pub app: Option<Uuid>,
    /// Only this lane.
    pub lane: Option<i32>,
}

/// The sums of the minutes that began after one time, up to another, by lane and tier.
pub async fn read(pool: &PgPool, wanted: Wanted, from: Timestamp, until: Timestamp) -> sqlx::Result<Vec<LaneSums>> {
    let rows = sqlx::query!(
        r#"
        SELECT f.lane AS "lane!", l.app, l.gateway, f.tier AS "tier!", f.figure AS "figure!", sum(f.n)::bigint AS "n!"
        FROM (SELECT minute, lane, tier, figure, n FROM figures
              UNION ALL SELECT minute, lane, 0::smallint, $5::smallint, n FROM breaker_trips) f
        JOIN lanes l ON l.id = f.lane
        WHERE f.minute > $1 AND f.minute <= $2 AND ($3::uuid IS NULL OR l.app = $3) AND ($4::integer IS NULL OR l.id = $4)
        GROUP BY f.lane, l.app, l.gateway, f.tier, f.figure ORDER BY f.lane
        "#,
        from,
        until,
        wanted.app,
        wanted.lane,
        Count::BreakerTrips as i16
    )
    .fetch_all(pool)
    .await?;
    let mut lanes: Vec<LaneSums> = Vec::new();
    for row in rows {
        if lanes.last().is_none_or(|last| last.lane.0 != row.lane) {
            let tiers = BTreeMap::new();
            lanes.push(LaneSums { lane: LaneId(row.lane), app: row.app, gateway: row.gateway, tiers });
        }
        if let Some(lane) = lanes.last_mut() {
            lane.tiers.entry(Tier::from_code(row.tier)).or_default().add(row.figure, row.n.unsigned_abs());
        }
    }
    Ok(lanes)
}

/// Forgets what nobody looks at any more.
pub async fn clear(pool: &PgPool, now: Timestamp) -> sqlx::Result<()> {
    sqlx::query!("DELETE FROM figures WHERE minute < $1", now - KEPT).execute(pool).await.map(drop)
}
