//! Stored templates. Their content is encrypted with [`bellwire_vault::TEMPLATE`] and the template's id.

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::keyset::{Keyset, paged};
use crate::results::WriteOutcome;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::AppId;

pub const TEMPLATES_MAX: i64 = 1_000;

/// A stored template without its content.
#[derive(Debug)]
pub struct ListedTemplate {
    pub id: Uuid,
    pub name: String,
    pub created_at: Timestamp,
    pub changed_at: Timestamp,
}

#[derive(Debug)]
pub struct TemplateRow {
    pub id: Uuid,
    pub name: String,
    /// Encrypted [`bellwire_core::template::Template`], as JSON.
    pub content: Vec<u8>,
    pub created_at: Timestamp,
    pub changed_at: Timestamp,
}

pub async fn find(pool: &PgPool, app: AppId, name: &str) -> sqlx::Result<Option<TemplateRow>> {
    fetch_optional!(
        pool,
        TemplateRow,
        "SELECT id, name, content, created_at, changed_at FROM templates WHERE app = $1 AND name = $2",
        (app.0, name)
    )
}

/// Returns an app's templates beyond the page's key, the nearest ids first.
pub async fn list(pool: &PgPool, app: AppId, page: Keyset) -> sqlx::Result<Vec<ListedTemplate>> {
    paged!(pool, page, ListedTemplate,
        ["SELECT id, name, created_at, changed_at FROM templates WHERE app = $1 AND id" < "$2 ORDER BY id" DESC "LIMIT $3"],
        (app.0, page.beyond, page.limit)
    )
}

#[derive(Debug)]
pub enum Put {
    /// The template was created.
    Made(ListedTemplate),
    Replaced(ListedTemplate),
    /// The app has [`TEMPLATES_MAX`] templates.
    TooMany,
    /// Another template with this name was created after [`lock`].
    Taken,
}

/// Returns the id with which a template's content must be encrypted: that of the existing template, locked until the
/// transaction ends, or `new`.
pub async fn lock(conn: &mut PgConnection, app: AppId, name: &str, new: Uuid) -> sqlx::Result<Uuid> {
    let there = fetch_optional!(
        conn,
        scalar,
        "SELECT id FROM templates WHERE app = $1 AND name = $2 FOR UPDATE",
        (app.0, name)
    )?;
    Ok(there.unwrap_or(new))
}

/// Creates or replaces a template, encrypted with an id from [`lock`].
pub async fn put(
    conn: &mut PgConnection, app: AppId, id: Uuid, name: &str, content: &[u8], now: Timestamp,
) -> sqlx::Result<Put> {
    let replaced = fetch_optional!(
        &mut *conn,
        ListedTemplate,
        "UPDATE templates SET content = $2, changed_at = $3 WHERE id = $1 RETURNING id, name, created_at, changed_at",
        (id, content, now)
    )?;
    if let Some(row) = replaced {
        return Ok(Put::Replaced(row));
    }
    let n = fetch_one!(&mut *conn, scalar, r#"SELECT count(*) AS "n!" FROM templates WHERE app = $1"#, (app.0))?;
    if n >= TEMPLATES_MAX {
        return Ok(Put::TooMany);
    }
    let made = fetch_optional!(
        conn,
        ListedTemplate,
        "INSERT INTO templates (id, app, name, content, created_at, changed_at) VALUES ($1, $2, $3, $4, $5, $5)
         ON CONFLICT (app, name) DO NOTHING RETURNING id, name, created_at, changed_at",
        (id, app.0, name, content, now)
    )?;
    Ok(made.map_or(Put::Taken, Put::Made))
}

pub async fn remove(conn: &mut PgConnection, app: AppId, name: &str) -> sqlx::Result<WriteOutcome> {
    let removed = rows_affected!(conn, "DELETE FROM templates WHERE app = $1 AND name = $2", (app.0, name))?;
    Ok(WriteOutcome::by(removed))
}
