//! First answers to requests with an `Idempotency-Key`, written in the transaction that does the work.

use sqlx::PgConnection;
use uuid::Uuid;

use crate::clock::Timestamp;

/// What a request with an `Idempotency-Key` meets.
#[derive(Debug)]
pub enum Claim {
    /// It is the first: do the work, then [`remember`] the answer before committing.
    First,
    /// The same request was answered before.
    Answered {
        /// HTTP status of the first answer.
        status: i16,
        /// Its body.
        response: serde_json::Value,
    },
    /// The key was used with another body.
    OtherBody,
    /// The first one is still at work, and longer than anybody should wait.
    InProgress,
}

/// Names one request: keys count per app and route.
#[derive(Debug, Clone, Copy)]
pub struct Key<'a> {
    /// The app.
    pub app: Uuid,
    /// Method and route.
    pub route: &'a str,
    /// The header's value.
    pub key: &'a str,
    /// SHA-256 of the body and of headers that count.
    pub body_hash: &'a [u8],
}

/// Claims a key within the transaction that does the work. A second request waits here until the first has committed
/// (then it finds the answer) or rolled back (then it is the first). After [`Claim::InProgress`] the transaction is
/// of no further use.
pub async fn claim(conn: &mut PgConnection, key: Key<'_>, now: Timestamp) -> Result<Claim, sqlx::Error> {
    sqlx::query!("SET LOCAL lock_timeout = '2s'").execute(&mut *conn).await?;
    let inserted = sqlx::query!(
        "INSERT INTO idempotency_keys (app, route, key, body_hash, status, response, created_at)
         VALUES ($1, $2, $3, $4, 0, 'null', $5) ON CONFLICT (app, route, key) DO NOTHING",
        key.app,
        key.route,
        key.key,
        key.body_hash,
        now
    )
    .execute(&mut *conn)
    .await;
    match inserted {
        Ok(done) if done.rows_affected() == 1 => return Ok(Claim::First),
        Ok(_) => {}
        Err(error) if super::is_lock_timeout(&error) => return Ok(Claim::InProgress),
        Err(error) => return Err(error),
    }
    let stored = sqlx::query!(
        "SELECT body_hash, status, response FROM idempotency_keys WHERE app = $1 AND route = $2 AND key = $3",
        key.app,
        key.route,
        key.key
    )
    .fetch_optional(conn)
    .await?;
    Ok(match stored {
        None => Claim::InProgress, // retention removed it between the two statements: the caller may try again
        Some(row) if row.body_hash != key.body_hash => Claim::OtherBody,
        Some(row) => Claim::Answered { status: row.status, response: row.response },
    })
}

/// Stores the answer of a claimed request.
pub async fn remember(
    conn: &mut PgConnection,
    key: Key<'_>,
    status: i16,
    response: &serde_json::Value,
) -> Result<(), sqlx::Error> {
    sqlx::query!(
        "UPDATE idempotency_keys SET status = $4, response = $5 WHERE app = $1 AND route = $2 AND key = $3",
        key.app,
        key.route,
        key.key,
        status,
        response
    )
    .execute(conn)
    .await?;
    Ok(())
}
