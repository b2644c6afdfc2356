//! Times at which an app's promotional and engagement deliveries may be sent.

use sqlx::{PgExecutor, PgPool};

use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::id::AppId;
use bellwire_rules::policy::calendar::Calendar;

pub async fn read(pool: &PgPool, app: AppId) -> sqlx::Result<Calendar> {
    let row = fetch_one!(
        pool,
        "SELECT a.timezone, a.quiet_hours, t.off_peak FROM apps a
         LEFT JOIN tier_settings t ON t.app = a.id AND t.tier = $2 WHERE a.id = $1",
        (app.0, Tier::Engagement.code())
    )?;
    Ok(Calendar::restore(&row.timezone, row.quiet_hours, row.off_peak))
}

pub async fn write(executor: impl PgExecutor<'_>, app: AppId, calendar: &Calendar, now: Timestamp) -> sqlx::Result<()> {
    let json = |value: serde_json::Result<serde_json::Value>| value.expect("words and times of day");
    let quiet_hours = calendar.quiet_hours.map(|hours| json(serde_json::to_value(hours)));
    let off_peak = (!calendar.off_peak.is_empty()).then(|| json(serde_json::to_value(&calendar.off_peak)));
    execute!(
        executor,
        "WITH app AS (UPDATE apps SET timezone = $2, quiet_hours = $3 WHERE id = $1)
         INSERT INTO tier_settings (app, tier, off_peak, changed_at) VALUES ($1, $4, $5, $6)
         ON CONFLICT (app, tier) DO UPDATE SET off_peak = excluded.off_peak, changed_at = excluded.changed_at",
        (app.0, calendar.zone.name(), quiet_hours, Tier::Engagement.code(), off_peak, now)
    )
}
