//! Events of users, and the campaigns that they trigger: [`user_events`] stores what sites report, [`observing`] lets people enter
//! triggers and ends their wait, [`due`] and [`recipients`] serve the scheduler, [`counts`] has the results.
//!
//! A transaction that changes a person's entries holds the [lock of that person](waits::lock_people). So an event that ends a wait and the
//! message that it prevents never pass each other: one of them is committed first.

pub mod counts;
pub mod due;
pub mod housekeeping;
pub mod observing;
pub mod past;
pub mod recipients;
pub mod user_events;
pub mod waits;

use sqlx::PgConnection;
use sqlx::types::Json;

use bellwire_core::id::{AppId, CampaignId};
use bellwire_rules::campaign::trigger::Trigger;

/// Sets the trigger of a draft. `None`: it has none.
pub async fn set(
    conn: &mut PgConnection, app: AppId, campaign: CampaignId, trigger: Option<&Trigger>,
) -> sqlx::Result<()> {
    let Some(trigger) = trigger else {
        return execute!(conn, "DELETE FROM triggers WHERE campaign = $1", (campaign.0));
    };
    execute!(
        conn,
        "INSERT INTO triggers (campaign, app, cause, unless, rule) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (campaign) DO UPDATE SET cause = excluded.cause, unless = excluded.unless, rule = excluded.rule",
        (campaign.0, app.0, trigger.on.to_string(), &trigger.unless, Json(trigger) as Json<&Trigger>)
    )
}
