//! SLAs: time within which deliveries of each tier should be accepted.

use sqlx::{PgConnection, PgExecutor, PgPool};

use crate::outcomes::events::Event;
use crate::outcomes::reliability;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{AppId, LaneId, MessageId};
use bellwire_rules::policy::reliability::ReliabilityCount;

/// Returns the SLAs of an app in seconds, by tier. Tiers without one are omitted.
pub async fn read(pool: &PgPool, app: AppId) -> sqlx::Result<Vec<(Tier, u32)>> {
    let rows = fetch_all!(
        pool,
        r#"SELECT tier, sla_seconds AS "seconds!" FROM tier_settings WHERE app = $1 AND sla_seconds IS NOT NULL"#,
        (app.0)
    )?;
    Ok(rows.iter().filter_map(|row| Some((Tier::from_code(row.tier)?, u32::try_from(row.seconds).ok()?))).collect())
}

/// Sets or removes the SLAs. Other settings of the tiers stay.
pub async fn write(
    executor: impl PgExecutor<'_>, app: AppId, wanted: &[(Tier, Option<u32>)], now: Timestamp,
) -> sqlx::Result<()> {
    let tiers: Vec<i16> = wanted.iter().map(|(tier, _)| tier.code()).collect();
    let seconds: Vec<Option<i32>> =
        wanted.iter().map(|(_, seconds)| seconds.and_then(|seconds| i32::try_from(seconds).ok())).collect();
    execute!(
        executor,
        "INSERT INTO tier_settings (app, tier, sla_seconds, changed_at)
         SELECT $1, tier, seconds, $2 FROM unnest($3::smallint[], $4::integer[]) AS t (tier, seconds) ORDER BY tier
         ON CONFLICT (app, tier) DO UPDATE SET sla_seconds = excluded.sla_seconds, changed_at = excluded.changed_at",
        (app.0, now, &tiers, &seconds as &[Option<i32>])
    )
}

/// Counts deliveries, by message and lane, that ended without a timely acceptance, for tiers with an SLA. Adds them to the
/// reliability metrics, which come late in a transaction. Returns the events.
pub(crate) async fn missed(
    conn: &mut PgConnection, deliveries: &[(MessageId, LaneId)], now: Timestamp,
) -> sqlx::Result<Vec<Event>> {
    if deliveries.is_empty() {
        return Ok(Vec::new());
    }
    let (messages, lanes): (Vec<MessageId>, Vec<LaneId>) = deliveries.iter().copied().unzip();
    let missed = fetch_all!(
        &mut *conn,
        r#"SELECT m.app, m.id, m.tier, t.sla_seconds AS "sla_seconds!", u.lane AS "lane!", count(*) AS "n!"
         FROM unnest($1::uuid[], $2::integer[]) AS u (message, lane)
         JOIN messages m ON m.id = u.message
         JOIN tier_settings t ON t.app = m.app AND t.tier = m.tier AND t.sla_seconds IS NOT NULL
         GROUP BY m.app, m.id, m.tier, t.sla_seconds, u.lane"#,
        (&messages as &[MessageId], &lanes as &[LaneId])
    )?;
    let (mut counted, mut told) = (Vec::new(), Vec::new());
    for row in missed {
        let Some((tier, sla_s)) = Tier::from_code(row.tier).zip(u32::try_from(row.sla_seconds).ok()) else { continue };
        counted.push((LaneId(row.lane), Some(tier), ReliabilityCount::SlaMissed as i16, row.n.unsigned_abs()));
        told.push(Event::sla_missed(AppId(row.app), tier, sla_s, MessageId(row.id), row.n));
    }
    // One row for each figure: a statement cannot add to a row twice.
    counted.sort_unstable();
    counted.dedup_by(|next, first| {
        let alike = (next.0, next.1) == (first.0, first.1);
        first.3 += if alike { next.3 } else { 0 };
        alike
    });
    reliability::add(&mut *conn, counted.into_iter(), now).await?;
    Ok(told)
}
