//! Reliability metrics: all workers add to them, and readers sum them over an hour.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DurationRound as _, TimeDelta};
use sqlx::{PgExecutor, PgPool};

use crate::outcomes::alerts::{self, Alert, AlertKind};
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{AppId, LaneId};
use bellwire_core::lane::Gateway;
use bellwire_rules::policy::reliability::{self, LaneSums, MetricReading, ReliabilityCount, ReliabilityState, Sli};

const NO_TIER: i16 = 0;

/// Adds a worker's counts to the current minute.
pub async fn add(
    executor: impl PgExecutor<'_>, counted: impl Iterator<Item = (LaneId, Option<Tier>, i16, u64)>, now: Timestamp,
) -> sqlx::Result<()> {
    let (mut lanes, mut tiers, mut metrics, mut ns) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for (lane, tier, metric, n) in counted {
        lanes.push(lane.0);
        tiers.push(tier.map_or(NO_TIER, Tier::code));
        metrics.push(metric);
        ns.push(i64::try_from(n).unwrap_or(i64::MAX));
    }
    if ns.is_empty() {
        return Ok(());
    }
    execute!(
        executor,
        "INSERT INTO reliability_counts AS f (minute, lane, tier, metric, n)
         SELECT $1, lane, tier, metric, n
         FROM unnest($2::integer[], $3::smallint[], $4::smallint[], $5::bigint[]) AS t (lane, tier, metric, n)
         WHERE EXISTS (SELECT FROM lanes l WHERE l.id = t.lane) -- an app may have been deleted meanwhile
         ORDER BY lane, tier, metric
         ON CONFLICT (minute, lane, tier, metric) DO UPDATE SET n = f.n + excluded.n",
        (now.duration_trunc(TimeDelta::minutes(1)).unwrap_or(now), &lanes, &tiers, &metrics, &ns)
    )
}

#[derive(Debug, Clone, Copy, Default)]
pub struct DueDeliveries {
    /// Number of due deliveries, at most 10,000 of a lane and tier.
    pub deliveries: i64,
    /// Due time of the oldest one.
    pub oldest_at: Option<Timestamp>,
}

/// Maximum counted deliveries of a lane and tier.
pub const DUE_MAX: i64 = 10_000;

/// Counts due deliveries in all lanes, at a cost that is limited by [`DUE_MAX`].
pub async fn due(pool: &PgPool, now: Timestamp) -> sqlx::Result<DueDeliveries> {
    fetch_one!(
        pool,
        DueDeliveries,
        r#"
        SELECT coalesce(sum(counted.n), 0)::bigint AS "deliveries!", min(oldest.due_at) AS oldest_at
        FROM lanes CROSS JOIN generate_series(1, 3) AS t (tier),
             LATERAL (SELECT count(*) AS n FROM (
                 SELECT FROM queue WHERE lane = lanes.id AND tier = t.tier AND due_at <= $1 LIMIT $2) c) counted,
             LATERAL (SELECT min(due_at) AS due_at FROM (
                 SELECT due_at FROM queue WHERE lane = lanes.id AND tier = t.tier AND due_at <= $1
                 ORDER BY due_at LIMIT 1) o) oldest
        "#,
        (now, DUE_MAX)
    )
}

#[derive(Debug, Clone, Copy, Default)]
pub struct ReliabilityFilter {
    /// App whose lanes are read. `None`: all.
    pub app: Option<AppId>,
    pub lane: Option<LaneId>,
}

/// Sums the minutes within a period by lane and tier.
pub async fn read(
    pool: &PgPool, wanted: ReliabilityFilter, from: Timestamp, until: Timestamp,
) -> sqlx::Result<Vec<LaneSums>> {
    let rows = fetch_all!(
        pool,
        r#"
        SELECT f.lane AS "lane!", l.app, l.gateway AS "gateway: Gateway", f.tier AS "tier!", f.metric AS "metric!", sum(f.n)::bigint AS "n!"
        FROM (SELECT minute, lane, tier, metric, n FROM reliability_counts
              UNION ALL SELECT minute, lane, 0::smallint, $5::smallint, n FROM breaker_trips) f
        JOIN lanes l ON l.id = f.lane
        WHERE f.minute > $1 AND f.minute <= $2 AND ($3::uuid IS NULL OR l.app = $3) AND ($4::integer IS NULL OR l.id = $4)
        GROUP BY f.lane, l.app, l.gateway, f.tier, f.metric ORDER BY f.lane
        "#,
        (from, until, wanted.app.map(|app| app.0), wanted.lane.map(|lane| lane.0)),
        (ReliabilityCount::BreakerTrips as i16)
    )?;
    let mut lanes: Vec<LaneSums> = Vec::new();
    for row in rows {
        if lanes.last().is_none_or(|last| last.lane.0 != row.lane) {
            let tiers = BTreeMap::new();
            lanes.push(LaneSums { lane: LaneId(row.lane), app: AppId(row.app), gateway: row.gateway, tiers });
        }
        if let Some(lane) = lanes.last_mut() {
            lane.tiers.entry(Tier::from_code(row.tier)).or_default().add(row.metric, row.n.unsigned_abs());
        }
    }
    Ok(lanes)
}

/// Raises an alert for each lane and tier with a reliability metric beyond its alert line, and returns their number. Breaker
/// trips must last for hours, because breakers are meant for single bad hours.
pub async fn watch(pool: &PgPool, now: Timestamp) -> sqlx::Result<usize> {
    let hour = |ago: u32| (now - reliability::WINDOW * (ago + 1), now - reliability::WINDOW * ago);
    let (from, until) = hour(0);
    let lanes = read(pool, ReliabilityFilter::default(), from, until).await?;
    let mut tripping = trippers(&lanes);
    for ago in 1..reliability::SUSTAINED_HOURS {
        if !tripping.is_empty() {
            let (from, until) = hour(ago);
            tripping = &tripping & &trippers(&read(pool, ReliabilityFilter::default(), from, until).await?);
        }
    }
    let mut raised = 0;
    for lane in &lanes {
        for (tier, sums) in &lane.tiers {
            let counts = |sli| match tier {
                None => sli == Sli::BreakerTrips && tripping.contains(&lane.lane),
                Some(_) => sli != Sli::BreakerTrips,
            };
            let past =
                reliability::read(sums, 1).into_iter().filter(|reading| reading.state == ReliabilityState::Alert);
            for reading in past.filter(|reading| counts(reading.sli)) {
                raise(pool, lane, *tier, &reading, now).await?;
                raised += 1;
            }
        }
    }
    Ok(raised)
}

fn trippers(lanes: &[LaneSums]) -> BTreeSet<LaneId> {
    let is_past =
        |reading: &MetricReading| reading.sli == Sli::BreakerTrips && reading.state == ReliabilityState::Alert;
    let trips =
        |lane: &&LaneSums| lane.tiers.get(&None).is_some_and(|sums| reliability::read(sums, 1).iter().any(is_past));
    lanes.iter().filter(trips).map(|lane| lane.lane).collect()
}

async fn raise(
    pool: &PgPool, lane: &LaneSums, tier: Option<Tier>, reading: &MetricReading, now: Timestamp,
) -> sqlx::Result<bool> {
    let (name, tier) = (reading.sli.name(), tier.map_or("", Tier::name));
    let subject = format!("{name} lane {} {tier}", lane.lane);
    let detail = format!(
        "{name} of {} {tier} deliveries in lane {} was {:.2} over the last hour; the alert line is {:.2}",
        lane.gateway.name(),
        lane.lane,
        reading.value.unwrap_or_default(),
        reading.alert
    );
    let alert = Alert { app: Some(lane.app), kind: AlertKind::Sli, subject: subject.trim_end(), detail: &detail };
    alerts::raise(&mut *pool.acquire().await?, &alert, now).await
}
