//! Exports of an app: their records, and data that lists do not show. Data are read in pages by key, one statement each, so
//! that no export holds a transaction for long.

use serde_json::Value;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::audience::membership::names_of_all;
use crate::keys::vapid_keys::Role;
use crate::keyset::{Keyset, paged};
use bellwire_core::clock::Timestamp;
use bellwire_core::hook::WebhookState;
use bellwire_core::id::{AppId, ExportId, SubscriptionId, VapidKeyId, WebhookId};
use bellwire_core::permission::TopicJoin;
use bellwire_core::subscription::SubscriptionState;

/// Maximum stored export records of an app. The oldest are deleted.
const KEPT: i64 = 100;

#[derive(Debug)]
pub struct ExportRow {
    pub id: ExportId,
    pub started_at: Timestamp,
    /// Time of its last progress.
    pub changed_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// Whether its last line was sent.
    pub complete: bool,
    pub lines: i64,
    pub actor: String,
}

#[derive(Debug, Clone, Copy)]
pub struct NewExport<'a> {
    pub id: ExportId,
    pub app: AppId,
    /// Contents: `app` or `subscriptions`.
    pub contents: &'a str,
    /// Format: `ndjson` or `csv`.
    pub format: &'a str,
    pub actor: &'a str,
}

pub async fn begin(conn: &mut PgConnection, new: NewExport<'_>, now: Timestamp) -> sqlx::Result<()> {
    execute!(
        &mut *conn,
        "INSERT INTO exports (id, app, contents, format, actor, started_at, changed_at) VALUES ($1, $2, $3, $4, $5, $6, $6)",
        (new.id.0, new.app.0, new.contents, new.format, new.actor, now)
    )?;
    execute!(
        conn,
        "DELETE FROM exports WHERE app = $1 AND id < (
           SELECT id FROM exports WHERE app = $1 ORDER BY id DESC OFFSET $2::bigint - 1 LIMIT 1)",
        (new.app.0, KEPT)
    )?;
    Ok(())
}

pub async fn advance(pool: &PgPool, id: ExportId, lines: i64, now: Timestamp) -> sqlx::Result<()> {
    execute!(pool, "UPDATE exports SET lines = $2, changed_at = $3 WHERE id = $1", (id.0, lines, now))
}

pub async fn end(pool: &PgPool, id: ExportId, lines: i64, complete: bool, now: Timestamp) -> sqlx::Result<()> {
    execute!(
        pool,
        "UPDATE exports SET lines = $2, complete = $3, changed_at = $4, ended_at = $4 WHERE id = $1",
        (id.0, lines, complete, now)
    )
}

/// Returns an app's exports beyond the page's key, the nearest ids first.
pub async fn list(pool: &PgPool, app: AppId, page: Keyset) -> sqlx::Result<Vec<ExportRow>> {
    paged!(pool, page, ExportRow,
        [r#"SELECT id AS "id: ExportId", started_at, changed_at, ended_at, complete, lines, actor FROM exports
             WHERE app = $1 AND id"# < "$2 ORDER BY id" DESC "LIMIT $3"],
        (app.0, page.beyond, page.limit)
    )
}

/// Data of a subscription for another server. The address is encrypted.
#[derive(Debug)]
pub struct SubscriptionOut {
    pub id: SubscriptionId,
    pub state: SubscriptionState,
    pub address: Vec<u8>,
    pub vapid_key: Vec<u8>,
    pub user_id: Option<String>,
    pub tags: Vec<String>,
    /// Attributes, as a JSON object in text.
    pub attributes: String,
    pub topics: Vec<String>,
    pub locale: Option<String>,
    pub timezone: Option<String>,
    pub expires_at: Option<Timestamp>,
    /// Delivery policy, as JSON text.
    pub policy: Option<String>,
    pub created_at: Timestamp,
    pub ended_at: Option<Timestamp>,
    pub consent_at: Option<Timestamp>,
    pub consent_source: Option<String>,
    pub muted_until: Option<Timestamp>,
}

/// Reads an app's subscriptions in all states with ids above `after` and below `until`, the oldest first.
pub async fn subscriptions(
    pool: &PgPool, app: AppId, after: Uuid, until: Uuid, limit: i64,
) -> sqlx::Result<Vec<SubscriptionOut>> {
    let mut rows = fetch_all!(
        pool,
        SubscriptionOut,
        r#"SELECT s.id AS "id: SubscriptionId", s.state AS "state: SubscriptionState", s.address, k.public_key AS vapid_key, s.user_id,
             s.tags, s.attributes::text AS "attributes!", s.locale, s.timezone, s.expires_at, s.policy::text AS policy, s.created_at,
             s.ended_at, s.consent_at, s.consent_source, s.muted_until, ARRAY[]::text[] AS "topics!"
         FROM (SELECT * FROM subscriptions WHERE app = $1 AND id > $2 AND id < $3 ORDER BY id LIMIT $4) s
         JOIN lanes l ON l.id = s.lane JOIN vapid_keys k ON k.id = l.vapid_key ORDER BY s.id"#,
        (app.0, after, until, limit)
    )?;
    let ids: Vec<SubscriptionId> = rows.iter().map(|row| row.id).collect();
    let mut names = names_of_all(pool, &ids).await?;
    for row in &mut rows {
        row.topics = names.remove(&row.id).unwrap_or_default();
    }
    Ok(rows)
}

#[derive(Debug)]
pub struct VapidKeyOut {
    pub id: VapidKeyId,
    pub private_key: Vec<u8>,
    pub subject: String,
    pub state: Role,
}

/// Returns all VAPID pairs of an app: the active one first, then the others from the oldest on.
pub async fn vapid_keys(pool: &PgPool, app: AppId) -> sqlx::Result<Vec<VapidKeyOut>> {
    fetch_all!(
        pool,
        VapidKeyOut,
        r#"SELECT id AS "id: VapidKeyId", private_key, subject, state AS "state: Role" FROM vapid_keys WHERE app = $1
         ORDER BY state <> 'active', id"#,
        (app.0)
    )
}

#[derive(Debug)]
pub struct TopicOut {
    pub id: i32,
    pub name: String,
    pub join: TopicJoin,
    pub policy: Option<Value>,
    pub display: Option<Value>,
}

/// An app's topics with numbers above `after`, the oldest first.
pub async fn topics(pool: &PgPool, app: AppId, after: i32, limit: i64) -> sqlx::Result<Vec<TopicOut>> {
    fetch_all!(
        pool,
        TopicOut,
        r#"SELECT id, name, join_by AS "join: TopicJoin", policy, display FROM topics WHERE app = $1 AND id > $2 ORDER BY id LIMIT $3"#,
        (app.0, after, limit)
    )
}

#[derive(Debug)]
pub struct TemplateOut {
    pub id: Uuid,
    pub name: String,
    pub content: Vec<u8>,
}

/// An app's templates with ids above `after`, the oldest first.
pub async fn templates(pool: &PgPool, app: AppId, after: Uuid, limit: i64) -> sqlx::Result<Vec<TemplateOut>> {
    fetch_all!(
        pool,
        TemplateOut,
        "SELECT id, name, content FROM templates WHERE app = $1 AND id > $2 ORDER BY id LIMIT $3",
        (app.0, after, limit)
    )
}

/// A webhook with its encrypted URL and secret.
#[derive(Debug)]
pub struct WebhookOut {
    pub id: WebhookId,
    pub name: String,
    pub url: Vec<u8>,
    pub events: Vec<String>,
    pub max_events: i32,
    pub policy: Option<Value>,
    pub state: WebhookState,
    pub secret: Vec<u8>,
}

pub async fn webhooks(pool: &PgPool, app: AppId) -> sqlx::Result<Vec<WebhookOut>> {
    fetch_all!(
        pool,
        WebhookOut,
        r#"SELECT id AS "id: WebhookId", name, url, events, max_events, policy, state AS "state: WebhookState", secret
         FROM webhooks WHERE app = $1 ORDER BY id"#,
        (app.0)
    )
}
