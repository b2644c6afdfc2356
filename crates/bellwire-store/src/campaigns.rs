//! Campaigns: rows and transitions. [`scheduler`] executes them, [`transitions`] applies requests, [`progress`] and [`runs`]
//! have the results.

pub mod progress;
pub mod runs;
pub mod scheduler;
pub mod transitions;

use sqlx::{PgConnection, PgPool};

use crate::keyset::{Keyset, paged};
use crate::triggers::housekeeping;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{AppId, CampaignId};
use bellwire_rules::campaign::state::CampaignState;

pub const CAMPAIGNS_MAX: i64 = 10_000;

#[derive(Debug, Clone)]
pub struct CampaignRow {
    pub id: CampaignId,
    pub slug: String,
    pub name: String,
    /// Code of the tier, [`Tier::code`].
    pub tier: i16,
    pub state: CampaignState,
    /// Encrypted `api::campaigns::plan::StoredPlan`.
    pub plan: Vec<u8>,
    /// Time of the scheduler's next step. `None`: none planned.
    pub next_at: Option<Timestamp>,
    pub runs: i32,
    pub created_at: Timestamp,
    pub changed_at: Timestamp,
    pub started_at: Option<Timestamp>,
}

#[derive(Debug)]
pub struct NewCampaign<'a> {
    pub slug: &'a str,
    pub name: &'a str,
    pub tier: Tier,
    /// Encrypted plan of the campaign.
    pub plan: &'a [u8],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CreateCampaignResult {
    Done,
    SlugTaken,
    TooMany,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Changed {
    Done,
    /// The campaign does not exist, or is no longer a draft.
    NoDraft,
    SlugTaken,
}

pub async fn create(
    conn: &mut PgConnection, app: AppId, id: CampaignId, new: &NewCampaign<'_>, now: Timestamp,
) -> sqlx::Result<CreateCampaignResult> {
    let n = fetch_one!(
        &mut *conn,
        scalar,
        r#"SELECT count(*) AS "n!" FROM (SELECT FROM campaigns WHERE app = $1 LIMIT $2) counted"#,
        (app.0, CAMPAIGNS_MAX)
    )?;
    if n >= CAMPAIGNS_MAX {
        return Ok(CreateCampaignResult::TooMany);
    }
    let made = rows_affected!(
        conn,
        "INSERT INTO campaigns (id, app, slug, name, tier, state, plan, created_at, changed_at)
         VALUES ($1, $2, $3, $4, $5, 'draft', $6, $7, $7) ON CONFLICT (app, slug) DO NOTHING",
        (id.0, app.0, new.slug, new.name, new.tier.code(), new.plan, now)
    )?;
    Ok(if made == 1 { CreateCampaignResult::Done } else { CreateCampaignResult::SlugTaken })
}

/// Replaces the plan of a draft.
pub async fn change(
    conn: &mut PgConnection, id: CampaignId, new: &NewCampaign<'_>, now: Timestamp,
) -> sqlx::Result<Changed> {
    let changed = query!(
        "UPDATE campaigns SET slug = $2, name = $3, tier = $4, plan = $5, changed_at = $6 WHERE id = $1 AND state = 'draft'",
        (id.0, new.slug, new.name, new.tier.code(), new.plan, now)
    );
    match changed.execute(conn).await {
        Ok(done) if done.rows_affected() == 1 => Ok(Changed::Done),
        Ok(_) => Ok(Changed::NoDraft),
        Err(error) if error.as_database_error().is_some_and(|error| error.is_unique_violation()) => {
            Ok(Changed::SlugTaken)
        }
        Err(error) => Err(error),
    }
}

/// Deletes a draft or a finished campaign. Returns `false` if it does not exist or is running, or its messages and
/// entries are not cancelled yet.
pub async fn delete(conn: &mut PgConnection, id: CampaignId) -> sqlx::Result<bool> {
    let deleted = rows_affected!(
        &mut *conn,
        "DELETE FROM campaigns WHERE id = $1 AND state IN ('draft', 'done', 'cancelled') AND NOT unsteered
           AND NOT EXISTS (SELECT FROM trigger_entries WHERE campaign = $1)",
        (id.0)
    )?;
    if deleted == 1 {
        housekeeping::forget_campaign(conn, id).await?;
    }
    Ok(deleted == 1)
}

/// Returns a campaign by id or slug.
pub async fn find(
    pool: &PgPool, app: AppId, id: Option<CampaignId>, slug: Option<&str>,
) -> sqlx::Result<Option<CampaignRow>> {
    fetch_optional!(
        pool,
        CampaignRow,
        r#"SELECT id AS "id: CampaignId", slug, name, tier, state AS "state: CampaignState", plan, next_at, runs, created_at, changed_at,
             started_at
           FROM campaigns WHERE app = $1 AND (id = $2 OR slug = $3)"#,
        (app.0, id.map(|id| id.0), slug)
    )
}

/// Returns an app's campaigns beyond the page's key, the nearest ids first, in all states or in one.
pub async fn list(
    pool: &PgPool, app: AppId, state: Option<CampaignState>, page: Keyset,
) -> sqlx::Result<Vec<CampaignRow>> {
    paged!(pool, page, CampaignRow,
        [r#"SELECT id AS "id: CampaignId", slug, name, tier, state AS "state: CampaignState", plan, next_at, runs, created_at, changed_at,
             started_at
           FROM campaigns WHERE app = $1 AND id"# < "$2 AND ($3::text IS NULL OR state = $3) ORDER BY id" DESC "LIMIT $4"],
        (app.0, page.beyond, state.map(CampaignState::name), page.limit)
    )
}
