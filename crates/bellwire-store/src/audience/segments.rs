//! Stored segments: expressions by name.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{PgConnection, PgExecutor, PgPool};
use utoipa::ToSchema;

use crate::keyset::{Keyset, paged};
use crate::results::WriteOutcome;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::AppId;

pub const SEGMENTS_MAX: i64 = 1_000;

/// Stored segment.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SegmentResponse)]
pub struct SegmentRow {
    #[serde(skip)]
    pub id: i32,
    /// Name of the segment.
    pub name: String,
    /// Purpose, as written by its author.
    pub description: Option<String>,
    /// Expression that selects its members, in normal form.
    pub expression: String,
    /// Time of the creation.
    pub created_at: DateTime<Utc>,
    /// Time of the last change.
    pub changed_at: DateTime<Utc>,
}

/// Returns an app's segments beyond the page's key, the nearest numbers first; or only the one with `name`.
pub async fn list(
    executor: impl PgExecutor<'_>, app: AppId, name: Option<&str>, page: Keyset,
) -> sqlx::Result<Vec<SegmentRow>> {
    paged!(executor, page, SegmentRow,
        ["SELECT id, name, description, expression, created_at, changed_at FROM segments
         WHERE app = $1 AND ($2::text IS NULL OR name = $2) AND id" < "$3 ORDER BY id" DESC "LIMIT $4"],
        (app.0, name, page.number(), page.limit)
    )
}

pub async fn find(pool: &PgPool, app: AppId, name: &str) -> sqlx::Result<Option<SegmentRow>> {
    Ok(list(pool, app, Some(name), Keyset::newest(1)).await?.pop())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Set {
    Made,
    Changed,
    /// The app has [`SEGMENTS_MAX`] segments. Roll back the transaction.
    TooMany,
}

/// Creates or replaces a segment.
pub async fn set(
    conn: &mut PgConnection, app: AppId, name: &str, description: Option<&str>, expression: &str, now: Timestamp,
) -> sqlx::Result<Set> {
    let is_new = fetch_one!(
        &mut *conn,
        scalar,
        r#"INSERT INTO segments (app, name, description, expression, created_at, changed_at) VALUES ($1, $2, $3, $4, $5, $5)
           ON CONFLICT (app, name) DO UPDATE
             SET description = excluded.description, expression = excluded.expression, changed_at = excluded.changed_at
           RETURNING xmax = 0 AS "is_new!""#,
        (app.0, name, description, expression, now)
    )?;
    if !is_new {
        return Ok(Set::Changed);
    }
    let n = fetch_one!(conn, scalar, r#"SELECT count(*) AS "n!" FROM segments WHERE app = $1"#, (app.0))?;
    Ok(if n > SEGMENTS_MAX { Set::TooMany } else { Set::Made })
}

/// Deletes a segment. Messages keep the expression that it had when they were sent.
pub async fn remove(conn: &mut PgConnection, app: AppId, name: &str) -> sqlx::Result<WriteOutcome> {
    let gone = rows_affected!(conn, "DELETE FROM segments WHERE app = $1 AND name = $2", (app.0, name))?;
    Ok(if gone == 1 { WriteOutcome::Done } else { WriteOutcome::Unknown })
}
