//! First answers to requests that make something and came with an `Idempotency-Key`, written in the transaction that makes it.
//! Sends have [`crate::store::queue::idempotency`].

use std::time::Duration;

use sqlx::{PgConnection, PgExecutor};
use uuid::Uuid;

use crate::model::clock::Timestamp;
use crate::model::id::AppId;

/// A request with an idempotency key.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// The API key or teammate that asks, whose keys are its own; nil: the command line.
    pub caller: Uuid,
    /// Method and route.
    pub route: String,
    /// The header's value.
    pub key: String,
    /// Whose thing it makes; none: the server's.
    pub app: Option<AppId>,
    /// SHA-256 of all that makes it another request.
    pub hash: [u8; 32],
}

/// What such a request meets.
#[derive(Debug)]
pub(crate) enum Met {
    /// It is the first: do the work, then [`remember`] the answer, in one transaction.
    First,
    /// It was answered before.
    Answered(Answer),
    /// The caller used the key for another request.
    OtherRequest,
    /// The first one is still at work, and longer than anybody should wait.
    InProgress,
}

/// A stored answer.
#[derive(Debug)]
pub(crate) struct Answer {
    /// What it is sealed for.
    pub id: Uuid,
    /// Its HTTP status.
    pub status: i16,
    /// Its body, sealed.
    pub sealed: Vec<u8>,
}

/// Returns what a request meets that was made before. None: it was not, or is still at work.
pub(crate) async fn find(executor: impl PgExecutor<'_>, request: &Request) -> sqlx::Result<Option<Met>> {
    let row = sqlx::query!(
        "SELECT id, request_hash, status, answer FROM first_answers WHERE caller = $1 AND route = $2 AND key = $3",
        request.caller,
        request.route,
        request.key
    )
    .fetch_optional(executor)
    .await?;
    Ok(row.map(|row| match row.request_hash == request.hash {
        true => Met::Answered(Answer { id: row.id, status: row.status, sealed: row.answer }),
        false => Met::OtherRequest,
    }))
}

/// Claims the key within the transaction that does the work. A second request waits here until the first has committed (then it
/// finds the answer) or rolled back (then it is the first), for as long as `patience`: after that the transaction is of no
/// further use. Its answer is to be sealed for `id`.
pub(crate) async fn claim(
    conn: &mut PgConnection,
    request: &Request,
    id: Uuid,
    patience: Duration,
    now: Timestamp,
) -> sqlx::Result<Met> {
    let patience = crate::store::milliseconds(patience);
    sqlx::query_scalar!("SELECT set_config('lock_timeout', $1, true)", patience).fetch_one(&mut *conn).await?;
    let claimed = sqlx::query!(
        "INSERT INTO first_answers (caller, route, key, id, app, request_hash, status, answer, created_at)
         VALUES ($1, $2, $3, $4, $5, $6, 0, '', $7) ON CONFLICT (caller, route, key) DO NOTHING",
        request.caller,
        request.route,
        request.key,
        id,
        request.app.map(|app| app.0),
        request.hash.as_slice(),
        now
    )
    .execute(&mut *conn)
    .await;
    match claimed {
        Ok(done) if done.rows_affected() == 1 => Ok(Met::First),
        // Retention may remove it between the two statements: the caller may try again.
        Ok(_) => Ok(find(conn, request).await?.unwrap_or(Met::InProgress)),
        Err(error) if crate::store::is_lock_timeout(&error) => Ok(Met::InProgress),
        Err(error) => Err(error),
    }
}

/// Holds the key for as long as the connection lasts, without a transaction. False: somebody else holds it, for longer than
/// `patience`.
pub(crate) async fn hold(conn: &mut PgConnection, request: &Request, patience: Duration) -> sqlx::Result<bool> {
    let patience = crate::store::milliseconds(patience);
    sqlx::query_scalar!("SELECT set_config('lock_timeout', $1, false)", patience).fetch_one(&mut *conn).await?;
    let name = format!("bellwire.once {} {} {}", request.caller, request.route, request.key);
    let held = sqlx::query!("SELECT pg_advisory_lock(hashtextextended($1, 0))", name).execute(conn).await;
    match held {
        Ok(_) => Ok(true),
        Err(error) if crate::store::is_lock_timeout(&error) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Stores the answer of a claimed request.
pub(crate) async fn remember(
    conn: &mut PgConnection,
    request: &Request,
    status: i16,
    sealed: &[u8],
) -> sqlx::Result<()> {
    sqlx::query!(
        "UPDATE first_answers SET status = $4, answer = $5 WHERE caller = $1 AND route = $2 AND key = $3",
        request.caller,
        request.route,
        request.key,
        status,
        sealed
    )
    .execute(conn)
    .await
    .map(drop)
}
