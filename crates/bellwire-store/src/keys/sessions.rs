//! Sessions of signed-in browsers, with their owner and end.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::{PgConnection, PgPool};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::keyset::{Keyset, paged};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{ApiKeyId, AppId, SessionId, TeammateId};
use bellwire_core::role::Grants;

/// Time for which a row is kept after the end of its session.
const KEPT: Duration = Duration::from_secs(30 * 86_400);
/// Rows that one transaction deletes.
const CHUNK: i64 = 10_000;
/// Maximum active sessions of one owner. The oldest are ended.
const LIVE_MAX: i64 = 50;
/// Interval of recording a session's use.
const SEEN_EVERY: Duration = Duration::from_secs(60);

/// Owner of a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    Teammate(TeammateId),
    Key(ApiKeyId),
}

impl Owner {
    fn columns(self) -> (Option<Uuid>, Option<Uuid>) {
        match self {
            Self::Teammate(id) => (Some(id.0), None),
            Self::Key(id) => (None, Some(id.0)),
        }
    }

    /// Reads the owner from two columns, one of which is not null.
    fn read(teammate: Option<Uuid>, api_key: Option<Uuid>) -> Option<Self> {
        teammate.map(|id| Self::Teammate(TeammateId(id))).or(api_key.map(|id| Self::Key(ApiKeyId(id))))
    }
}

#[derive(Debug)]
pub struct NewSession<'a> {
    pub id: SessionId,
    /// Teammate or key that the session acts for.
    pub owner: Owner,
    pub began_at: Timestamp,
    /// Time at which the session ends at the latest.
    pub expires_at: Timestamp,
    pub address: Option<IpAddr>,
    /// The browser's `User-Agent`, 1 to 200 characters.
    pub browser: Option<&'a str>,
}

#[derive(Debug, Clone)]
pub struct Session {
    pub id: SessionId,
    /// Teammate or key that the session acts for.
    pub owner: Owner,
    pub began_at: Timestamp,
    /// Time at which the session ends at the latest.
    pub expires_at: Timestamp,
    /// E-mail address of its teammate. `None` for a key's session.
    pub email: Option<String>,
    /// Roles of its teammate. Empty for a key's session.
    pub grants: Grants,
}

/// Session of the caller.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SessionListResponse)]
pub struct SessionRow {
    /// Id of the session.
    pub id: SessionId,
    /// Whether it is the session of this request.
    pub is_this: bool,
    /// Time of its start.
    pub began_at: DateTime<Utc>,
    /// Time of its last use, to the minute.
    pub seen_at: DateTime<Utc>,
    /// Time at which the session ends at the latest.
    pub expires_at: DateTime<Utc>,
    /// Address of the client that signed in.
    pub address: Option<String>,
    /// Browser that signed in, from `User-Agent`.
    pub browser: Option<String>,
}

pub async fn begin(conn: &mut PgConnection, new: &NewSession<'_>) -> sqlx::Result<()> {
    let (teammate, api_key) = new.owner.columns();
    execute!(
        &mut *conn,
        "UPDATE sessions SET ended_at = $3 WHERE id IN (
           SELECT id FROM sessions WHERE (teammate = $1 OR api_key = $2) AND ended_at IS NULL AND expires_at > $3
           ORDER BY id DESC OFFSET $4)",
        (teammate, api_key, new.began_at, LIVE_MAX - 1)
    )?;
    execute!(
        conn,
        "INSERT INTO sessions (id, teammate, api_key, began_at, seen_at, expires_at, address, browser)
         VALUES ($1, $2, $3, $4, $4, $5, $6::text::inet, $7)",
        (new.id.0, teammate, api_key, new.began_at, new.expires_at),
        (new.address.map(|address| address.to_canonical().to_string()), new.browser)
    )
}

/// Returns the session if it is active and its teammate is not suspended. The caller checks whether its key is still valid.
pub async fn find(pool: &PgPool, id: SessionId, now: Timestamp) -> sqlx::Result<Option<Session>> {
    let found = fetch_optional!(
        pool,
        r#"SELECT s.teammate, s.api_key, s.began_at, s.expires_at, t.email AS "email?",
             ARRAY(SELECT (role, app) FROM teammate_roles WHERE teammate = s.teammate ORDER BY app NULLS FIRST)
               AS "roles!: Vec<(String, Option<AppId>)>"
         FROM sessions s LEFT JOIN teammates t ON t.id = s.teammate
         WHERE s.id = $1 AND s.ended_at IS NULL AND s.expires_at > $2 AND t.disabled_at IS NULL"#,
        (id.0, now)
    )?;
    Ok(found.and_then(|row| {
        let owner = Owner::read(row.teammate, row.api_key)?;
        let grants = row.roles.into();
        Some(Session { id, owner, began_at: row.began_at, expires_at: row.expires_at, email: row.email, grants })
    }))
}

/// Returns the roles of these active sessions' teammates. A valid key's session has none. Ended sessions are omitted.
pub async fn standing(pool: &PgPool, ids: &[SessionId], now: Timestamp) -> sqlx::Result<HashMap<SessionId, Grants>> {
    let rows = fetch_all!(
        pool,
        r#"SELECT s.id AS "id: SessionId",
             ARRAY(SELECT (role, app) FROM teammate_roles WHERE teammate = s.teammate ORDER BY app NULLS FIRST)
               AS "roles!: Vec<(String, Option<AppId>)>"
         FROM sessions s LEFT JOIN teammates t ON t.id = s.teammate LEFT JOIN api_keys k ON k.id = s.api_key
         WHERE s.id = ANY ($1) AND s.ended_at IS NULL AND s.expires_at > $2 AND t.disabled_at IS NULL
           AND k.revoked_at IS NULL AND (k.expires_at IS NULL OR k.expires_at > $2)"#,
        (ids as &[SessionId], now)
    )?;
    Ok(rows.into_iter().map(|row| (row.id, row.roles.into())).collect())
}

pub async fn see(pool: &PgPool, id: SessionId, now: Timestamp) -> sqlx::Result<()> {
    execute!(pool, "UPDATE sessions SET seen_at = $2 WHERE id = $1 AND seen_at <= $3", (id.0, now, now - SEEN_EVERY))
}

/// Whether a session is active. If so, it cannot end before the transaction does.
pub async fn keep(conn: &mut PgConnection, id: SessionId, now: Timestamp) -> sqlx::Result<bool> {
    let live = fetch_optional!(
        conn,
        scalar,
        "SELECT id FROM sessions WHERE id = $1 AND ended_at IS NULL AND expires_at > $2 FOR SHARE",
        (id.0, now)
    )?;
    Ok(live.is_some())
}

/// Ends a session, only of the given owner if there is one. Returns `false` if the session does not exist or has ended.
pub async fn end(conn: &mut PgConnection, id: SessionId, of: Option<Owner>, now: Timestamp) -> sqlx::Result<bool> {
    let (teammate, api_key) = of.map_or((None, None), Owner::columns);
    let done = rows_affected!(
        conn,
        "UPDATE sessions SET ended_at = $2 WHERE id = $1 AND ended_at IS NULL AND expires_at > $2
         AND ($3 OR teammate = $4 OR api_key = $5)",
        (id.0, now, of.is_none(), teammate, api_key)
    )?;
    Ok(done == 1)
}

/// Ends all sessions of an owner except `but`. Returns the number.
pub async fn end_all(conn: &mut PgConnection, of: Owner, but: Option<SessionId>, now: Timestamp) -> sqlx::Result<i64> {
    let (teammate, api_key) = of.columns();
    let done = rows_affected!(
        conn,
        "UPDATE sessions SET ended_at = $3 WHERE (teammate = $1 OR api_key = $2) AND id IS DISTINCT FROM $4
         AND ended_at IS NULL AND expires_at > $3",
        (teammate, api_key, now, but.map(|id| id.0))
    )?;
    Ok(i64::try_from(done).unwrap_or(i64::MAX))
}

/// Returns active sessions of an owner beyond the page's key, the nearest ids first. Those not used since `seen_after` have
/// ended. The caller sets `is_this`.
pub async fn list(
    pool: &PgPool, of: Owner, seen_after: Timestamp, now: Timestamp, page: Keyset,
) -> sqlx::Result<Vec<SessionRow>> {
    let (teammate, api_key) = of.columns();
    paged!(pool, page, SessionRow,
        [r#"SELECT id, false AS "is_this!", began_at, seen_at, expires_at, host(address) AS address, browser FROM sessions
         WHERE (teammate = $1 OR api_key = $2) AND ended_at IS NULL AND expires_at > $3 AND seen_at > $4 AND id"# < "$5
         ORDER BY id" DESC "LIMIT $6"],
        (teammate, api_key, now, seen_after, page.beyond, page.limit)
    )
}

/// Whether the teammate with an e-mail address has signed in from this IPv4 address or IPv6 /64 within the last month.
pub async fn knows(pool: &PgPool, email: &str, household: IpAddr) -> sqlx::Result<bool> {
    let network = format!("{household}/{}", if household.is_ipv4() { 32 } else { 64 });
    fetch_one!(
        pool,
        scalar,
        r#"SELECT EXISTS (SELECT FROM teammates t JOIN sessions s ON s.teammate = t.id
           WHERE t.email = $1 AND s.address <<= $2::text::inet) AS "known!""#,
        (email, network)
    )
}

/// Deletes a chunk of sessions that ended a month ago. Returns the number.
pub async fn clear(pool: &PgPool, now: Timestamp) -> sqlx::Result<u64> {
    let done = rows_affected!(
        pool,
        "DELETE FROM sessions WHERE id = ANY (ARRAY(
           SELECT id FROM sessions WHERE expires_at < $1 ORDER BY expires_at LIMIT $2 FOR UPDATE SKIP LOCKED))",
        (now - KEPT, CHUNK)
    )?;
    Ok(done)
}
