//! Periods in which the results of campaigns are measured.

use sqlx::{PgConnection, PgExecutor, PgPool};
use uuid::Uuid;

use crate::keyset::{Keyset, paged};
use bellwire_core::clock::{Timestamp, uuid_of};
use bellwire_core::id::{AppId, CampaignId};
use bellwire_rules::campaign::measurement::{closes_at, has_groups};
use bellwire_rules::campaign::plan::Plan;

/// A period in which the results of a campaign are measured.
#[derive(Debug, Clone)]
pub struct Measurement {
    pub id: Uuid,
    pub campaign: CampaignId,
    pub app: AppId,
    pub began_at: Timestamp,
    pub closes_at: Timestamp,
    /// Final result. `None`: not closed.
    pub result: Option<serde_json::Value>,
}

/// Returns the period of a locked campaign at a time, and begins one if there is none. `last_at`: due time of the last message.
/// `None`: the app measures nothing.
pub async fn at(
    conn: &mut PgConnection, app: AppId, campaign: CampaignId, plan: &Plan, (at, last_at): (Timestamp, Timestamp),
) -> sqlx::Result<Option<Uuid>> {
    let rule = super::rule(&mut *conn, app).await?;
    let Some(window_s) = rule.and_then(|rule| rule.window_s) else { return Ok(None) };
    let open = fetch_optional!(
        &mut *conn,
        scalar,
        "SELECT id FROM measurements WHERE campaign = $1 AND result IS NULL AND closes_at > $2 ORDER BY id DESC LIMIT 1",
        (campaign.0, at)
    )?;
    if open.is_some() {
        return Ok(open);
    }
    let (id, closes_at) = (uuid_of(at), closes_at(plan, window_s, at, last_at));
    if closes_at <= at {
        return Ok(None);
    }
    execute!(
        conn,
        "INSERT INTO measurements (id, campaign, app, began_at, closes_at) VALUES ($1, $2, $3, $4, $5)",
        (id, campaign.0, app.0, at, closes_at)
    )?;
    Ok(Some(id))
}

/// Has the audience of a run assigned to the groups of its campaign, if it has groups.
pub async fn measure_run(
    conn: &mut PgConnection, app: AppId, campaign: CampaignId, plan: &Plan, (began_at, last_at): (Timestamp, Timestamp),
) -> sqlx::Result<()> {
    let measurement = at(conn, app, campaign, plan, (began_at, last_at)).await?;
    let Some(id) = measurement.filter(|_| has_groups(plan)) else { return Ok(()) };
    execute!(conn, "UPDATE measurements SET enrol_at = $2 WHERE id = $1", (id, began_at))
}

/// Returns the periods of a campaign beyond the page's key, the latest first.
pub async fn of_campaign(pool: &PgPool, campaign: CampaignId, page: Keyset) -> sqlx::Result<Vec<Measurement>> {
    paged!(pool, page, Measurement,
        [r#"SELECT id, campaign AS "campaign: CampaignId", app AS "app: AppId", began_at, closes_at, result
           FROM measurements WHERE campaign = $1 AND id"# < "$2 ORDER BY id" DESC "LIMIT $3"],
        (campaign.0, page.beyond, page.limit)
    )
}

/// Returns the last period of a campaign.
pub(super) async fn latest(executor: impl PgExecutor<'_>, campaign: CampaignId) -> sqlx::Result<Option<Measurement>> {
    fetch_optional!(
        executor,
        Measurement,
        r#"SELECT id, campaign AS "campaign: CampaignId", app AS "app: AppId", began_at, closes_at, result
           FROM measurements WHERE campaign = $1 ORDER BY id DESC LIMIT 1"#,
        (campaign.0)
    )
}

/// Returns the periods of an app that began in a span, the latest first.
pub async fn of_app(
    executor: impl PgExecutor<'_>, app: AppId, (from, to): (Timestamp, Timestamp), limit: i64,
) -> sqlx::Result<Vec<Measurement>> {
    fetch_all!(
        executor,
        Measurement,
        r#"SELECT id, campaign AS "campaign: CampaignId", app AS "app: AppId", began_at, closes_at, result
           FROM measurements WHERE app = $1 AND began_at >= $2 AND began_at < $3 ORDER BY id DESC LIMIT $4"#,
        (app.0, from, to, limit)
    )
}

/// Returns a period that has ended and is not closed.
pub async fn to_close(executor: impl PgExecutor<'_>, now: Timestamp) -> sqlx::Result<Option<Measurement>> {
    fetch_optional!(
        executor,
        Measurement,
        r#"SELECT id, campaign AS "campaign: CampaignId", app AS "app: AppId", began_at, closes_at, result
           FROM measurements WHERE result IS NULL AND closes_at <= $1 ORDER BY closes_at LIMIT 1"#,
        (now)
    )
}

/// Stores the final result of a period. Webhooks are sent it. A second call changes nothing.
pub async fn close(conn: &mut PgConnection, id: Uuid, result: &serde_json::Value) -> sqlx::Result<()> {
    execute!(
        conn,
        "UPDATE measurements SET result = $2, enrol_at = NULL WHERE id = $1 AND result IS NULL",
        (id, result)
    )
}

/// Returns the end of the next period that is not closed. It is in the past if people are still to be assigned to groups.
pub async fn next_due(pool: &PgPool) -> sqlx::Result<Option<Timestamp>> {
    fetch_one!(
        pool,
        scalar,
        "SELECT CASE WHEN EXISTS (SELECT FROM measurements WHERE enrol_at IS NOT NULL) THEN 'epoch'
           ELSE (SELECT min(closes_at) FROM measurements WHERE result IS NULL) END"
    )
}
