//! Periods in which the results of campaigns are measured.

use chrono::TimeDelta;
use sqlx::{PgConnection, PgExecutor, PgPool};
use uuid::Uuid;

use crate::keyset::{Keyset, paged};
use bellwire_core::clock::{Timestamp, uuid_of};
use bellwire_core::id::{AppId, CampaignId};
use bellwire_rules::campaign::measurement::{CONTROL, closes_at, has_groups};
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

/// Period of a campaign that has begun.
#[derive(Debug, Clone, Copy)]
pub struct OpenPeriod {
    pub id: Uuid,
    /// Whether people are assigned to groups.
    pub compared: bool,
}

/// Returns the period of a locked campaign at a time, and begins one if there is none. `last_at`: due time of the last message.
/// `None`: the app measures nothing.
pub async fn at(
    conn: &mut PgConnection, app: AppId, campaign: CampaignId, plan: &Plan, (at, last_at): (Timestamp, Timestamp),
) -> sqlx::Result<Option<OpenPeriod>> {
    let rule = super::rule(&mut *conn, app).await?;
    let Some(window_s) = rule.and_then(|rule| rule.window_s) else { return Ok(None) };
    let open = fetch_optional!(
        &mut *conn,
        OpenPeriod,
        "SELECT id, compared FROM measurements WHERE campaign = $1 AND result IS NULL AND closes_at > $2 ORDER BY id DESC LIMIT 1",
        (campaign.0, at)
    )?;
    if open.is_some() {
        return Ok(open);
    }
    let (id, closes_at) = (uuid_of(at), closes_at(plan, window_s, at, last_at));
    fetch_optional!(
        conn,
        OpenPeriod,
        "INSERT INTO measurements (id, campaign, app, began_at, closes_at, compared)
         SELECT $1, $2, $3, $4, $5, $6 AND NOT EXISTS (SELECT FROM measurements WHERE campaign = $2)
           AND NOT EXISTS (SELECT FROM messages WHERE campaign = $2)
         RETURNING id, compared",
        (id, campaign.0, app.0, at, closes_at, has_groups(plan))
    )
}

/// Has the audience of a run assigned to the groups of its campaign, if they are compared.
pub async fn measure_run(
    conn: &mut PgConnection, app: AppId, campaign: CampaignId, plan: &Plan, (began_at, last_at): (Timestamp, Timestamp),
) -> sqlx::Result<()> {
    let period = at(conn, app, campaign, plan, (began_at, last_at)).await?;
    let Some(OpenPeriod { id, .. }) = period.filter(|period| period.compared) else { return Ok(()) };
    execute!(conn, "UPDATE measurements SET enrol_at = $2 WHERE id = $1", (id, began_at))
}

/// Time for which a campaign waits until its audience is assigned to groups.
pub const ENROLS_FOR: TimeDelta = TimeDelta::minutes(10);

/// Whether a locked campaign waits until its audience is assigned to groups: a message that came first could change who belongs to it.
/// After [`ENROLS_FOR`] nothing is compared.
pub async fn is_enrolling(conn: &mut PgConnection, campaign: CampaignId, now: Timestamp) -> sqlx::Result<bool> {
    execute!(
        &mut *conn,
        "WITH late AS (UPDATE measurements SET enrol_at = NULL, compared = false WHERE campaign = $1 AND enrol_at <= $2 RETURNING id)
         DELETE FROM measured_groups g USING late WHERE g.measurement = late.id",
        (campaign.0, now - ENROLS_FOR)
    )?;
    fetch_one!(
        conn,
        scalar,
        r#"SELECT EXISTS (SELECT FROM measurements WHERE campaign = $1 AND enrol_at IS NOT NULL) AS "waits!""#,
        (campaign.0)
    )
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

/// Returns the periods of an app that began in a span and have a control group, the latest first.
pub async fn with_control(
    executor: impl PgExecutor<'_>, app: AppId, (from, to): (Timestamp, Timestamp), limit: i64,
) -> sqlx::Result<Vec<Measurement>> {
    fetch_all!(
        executor,
        Measurement,
        r#"SELECT id, campaign AS "campaign: CampaignId", app AS "app: AppId", began_at, closes_at, result
           FROM measurements m WHERE app = $1 AND began_at >= $2 AND began_at < $3
             AND EXISTS (SELECT FROM measured_groups WHERE measurement = m.id AND part = $5)
           ORDER BY id DESC LIMIT $4"#,
        (app.0, from, to, limit, CONTROL)
    )
}

/// Returns some periods that have ended and are not closed.
pub async fn to_close(executor: impl PgExecutor<'_>, now: Timestamp) -> sqlx::Result<Vec<Measurement>> {
    fetch_all!(
        executor,
        Measurement,
        r#"SELECT id, campaign AS "campaign: CampaignId", app AS "app: AppId", began_at, closes_at, result
           FROM measurements WHERE result IS NULL AND closes_at <= $1 ORDER BY closes_at LIMIT 100"#,
        (now)
    )
}

/// Lets a period end later.
pub async fn put_off(executor: impl PgExecutor<'_>, id: Uuid, until: Timestamp) -> sqlx::Result<()> {
    execute!(executor, "UPDATE measurements SET closes_at = $2 WHERE id = $1 AND result IS NULL", (id, until))
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
