//! Apps: the tenants of a server. An app that is being deleted is visible only to operators.

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::Value;
use sqlx::{PgConnection, PgExecutor, PgPool};
use utoipa::ToSchema;

use crate::keyset::{Keyset, paged};
use bellwire_core::id::AppId;
use bellwire_core::permission::{BrowserRight, BrowsersMay};

pub const WEIGHT_MAX: i16 = 100;

/// An app: a site that sends notifications.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(as = AppResponse)]
pub struct App {
    /// Id of the app.
    pub id: AppId,
    /// Short name of the app in URLs.
    pub slug: String,
    /// Display name of the app.
    pub name: String,
    /// Origins whose pages may call the API from browsers (CORS).
    pub origins: Vec<String>,
    /// Whether subscriptions with endpoints outside the known push services are accepted.
    pub allow_other_gateways: bool,
    /// Permissions of browsers in addition to joining and leaving existing open topics.
    #[schema(value_type = Vec<BrowserRight>)]
    pub browsers_may: BrowsersMay,
    /// Maximum `retries` of a delivery policy in QStash's form, and the default if a policy has none.
    pub max_retries: i16,
    /// Share of sending capacity relative to an app of weight 1, while deliveries of several apps wait.
    pub weight: i16,
    /// Whether service workers add parameters to clicked links.
    #[serde(skip)]
    pub has_link_tags: bool,
    /// Time of the creation.
    pub created_at: DateTime<Utc>,
    /// Time at which deletion of the app started. Null: the app is not being deleted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleting_at: Option<DateTime<Utc>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    Done,
    /// Another app has this slug, possibly one that is being deleted.
    SlugTaken,
}

pub async fn create(conn: &mut PgConnection, app: &App) -> Result<Created, sqlx::Error> {
    let done = rows_affected!(
        conn,
        "INSERT INTO apps (id, slug, name, origins, allow_other_gateways, browsers_may, max_retries, weight, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) ON CONFLICT (slug) DO NOTHING",
        (app.id.0, app.slug, app.name, &app.origins, app.allow_other_gateways, &app.browsers_may.names()),
        (app.max_retries, app.weight, app.created_at)
    )?;
    Ok(if done == 1 { Created::Done } else { Created::SlugTaken })
}

/// Returns the app by id or slug, unless it is being deleted.
pub async fn find(pool: &PgPool, id: Option<AppId>, slug: Option<&str>) -> Result<Option<App>, sqlx::Error> {
    Ok(find_any(pool, id, slug).await?.filter(|app| app.deleting_at.is_none()))
}

/// Returns the app by id or slug, even if it is being deleted.
pub async fn find_any(pool: &PgPool, id: Option<AppId>, slug: Option<&str>) -> Result<Option<App>, sqlx::Error> {
    fetch_optional!(
        pool,
        App,
        r#"SELECT id, slug, name, origins, allow_other_gateways, browsers_may, max_retries, weight, created_at, deleting_at,
           coalesce(jsonb_typeof(measurement->'link_tags') = 'object', false) AS "has_link_tags!"
         FROM apps WHERE id = $1 OR slug = $2"#,
        (id.map(|id| id.0), slug)
    )
}

/// Returns the app of the example page. `None`: not created, or being deleted.
pub async fn find_example(pool: &PgPool) -> Result<Option<App>, sqlx::Error> {
    fetch_optional!(
        pool,
        App,
        r#"SELECT id, slug, name, origins, allow_other_gateways, browsers_may, max_retries, weight, created_at, deleting_at,
           coalesce(jsonb_typeof(measurement->'link_tags') = 'object', false) AS "has_link_tags!"
         FROM apps WHERE is_example AND deleting_at IS NULL"#
    )
}

pub async fn mark_example(conn: &mut PgConnection, id: AppId) -> Result<(), sqlx::Error> {
    execute!(conn, "UPDATE apps SET is_example = true WHERE id = $1", (id.0))
}

/// Returns apps beyond the page's key, the nearest ids first. Apps being deleted are included.
pub async fn list(pool: &PgPool, page: Keyset) -> Result<Vec<App>, sqlx::Error> {
    paged!(pool, page, App,
        [r#"SELECT id, slug, name, origins, allow_other_gateways, browsers_may, max_retries, weight, created_at, deleting_at,
           coalesce(jsonb_typeof(measurement->'link_tags') = 'object', false) AS "has_link_tags!"
         FROM apps WHERE id"# < "$1
         ORDER BY id" DESC "LIMIT $2"],
        (page.beyond, page.limit)
    )
}

/// Returns the app, locked against changes until the end of the transaction. `None` while it is being deleted.
pub async fn lock(conn: &mut PgConnection, id: AppId) -> Result<Option<App>, sqlx::Error> {
    fetch_optional!(
        conn,
        App,
        r#"SELECT id, slug, name, origins, allow_other_gateways, browsers_may, max_retries, weight, created_at, deleting_at,
           coalesce(jsonb_typeof(measurement->'link_tags') = 'object', false) AS "has_link_tags!"
         FROM apps WHERE id = $1 AND deleting_at IS NULL FOR NO KEY UPDATE"#,
        (id.0)
    )
}

/// Returns the settings of the app's prompt, as the API stored them. `None`: no settings.
pub async fn read_prompt(pool: &PgPool, id: AppId) -> Result<Option<Value>, sqlx::Error> {
    sqlx::query_scalar!("SELECT prompt FROM apps WHERE id = $1", id.0).fetch_one(pool).await
}

pub async fn write_prompt(executor: impl PgExecutor<'_>, id: AppId, prompt: Option<&Value>) -> Result<(), sqlx::Error> {
    sqlx::query!("UPDATE apps SET prompt = $2 WHERE id = $1", id.0, prompt).execute(executor).await.map(drop)
}

/// Returns the text of withdrawals, as the API stored it. `None`: the built-in text.
pub async fn read_withdrawal_notice(pool: &PgPool, id: AppId) -> Result<Option<Value>, sqlx::Error> {
    fetch_one!(pool, scalar, "SELECT withdrawal_notice FROM apps WHERE id = $1", (id.0))
}

pub async fn write_withdrawal_notice(
    executor: impl PgExecutor<'_>, id: AppId, notice: Option<&Value>,
) -> Result<(), sqlx::Error> {
    execute!(executor, "UPDATE apps SET withdrawal_notice = $2 WHERE id = $1", (id.0, notice))
}

/// Writes all changeable values of an app that is [locked](lock).
pub async fn update(executor: impl PgExecutor<'_>, app: &App) -> Result<(), sqlx::Error> {
    execute!(
        executor,
        "UPDATE apps SET name = $2, origins = $3, allow_other_gateways = $4, browsers_may = $5, max_retries = $6, weight = $7
         WHERE id = $1",
        (app.id.0, app.name, &app.origins, app.allow_other_gateways, &app.browsers_may.names(), app.max_retries),
        (app.weight)
    )?;
    Ok(())
}
