//! First answers to requests with an `Idempotency-Key`, written in the transaction that does the work.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use serde_json::Value;
use sqlx::PgConnection;

use crate::model::clock::Timestamp;
use crate::model::id::AppId;

/// What a request with an idempotency key meets.
#[derive(Debug, Clone)]
pub enum Claim {
    /// It is the first: do the work, then [`remember`] the answer, or [`release`] the key, before committing.
    First,
    /// The same request was answered before.
    Answered {
        /// HTTP status of the first answer.
        status: i16,
        /// Its body.
        response: Value,
    },
    /// The key was used with another body.
    OtherBody,
    /// The first one is still at work, and longer than anybody should wait.
    InProgress,
}

/// Where keys count: per app and route.
#[derive(Debug, Clone, Copy)]
pub struct KeyScope<'a> {
    /// The app.
    pub app: AppId,
    /// Method and route.
    pub route: &'a str,
}

/// Names one request.
#[derive(Debug, Clone, Copy)]
pub struct Key<'a> {
    /// The header's value.
    pub key: &'a str,
    /// SHA-256 of the body and of headers that count.
    pub body_hash: &'a [u8],
}

/// Claims keys, each named once, within the transaction that does the work. A second request waits here until the first has
/// committed (then it finds the answer) or rolled back (then it is the first); whoever claims several does so in their order,
/// so that no two wait for each other. Returns what each met. None: one of the firsts was at work for longer than `patience`,
/// and the transaction is of no further use.
pub async fn claim(
    conn: &mut PgConnection,
    place: KeyScope<'_>,
    keys: &[Key<'_>],
    patience: Duration,
    now: Timestamp,
) -> sqlx::Result<Option<Vec<Claim>>> {
    let patience = crate::store::milliseconds(patience);
    sqlx::query_scalar!("SELECT set_config('lock_timeout', $1, true)", patience).fetch_one(&mut *conn).await?;
    let (names, hashes): (Vec<&str>, Vec<&[u8]>) = keys.iter().map(|key| (key.key, key.body_hash)).unzip();
    let inserted = sqlx::query_scalar!(
        "INSERT INTO idempotency_keys (app, route, key, body_hash, status, response, created_at)
         SELECT $1, $2, t.key, t.body_hash, 0, 'null', $5 FROM unnest($3::text[], $4::bytea[]) AS t (key, body_hash)
         ORDER BY t.key
         ON CONFLICT (app, route, key) DO NOTHING RETURNING key",
        place.app.0,
        place.route,
        &names as &[&str],
        &hashes as &[&[u8]],
        now
    )
    .fetch_all(&mut *conn)
    .await;
    let first: HashSet<String> = match inserted {
        Ok(first) => first.into_iter().collect(),
        Err(error) if crate::store::is_lock_timeout(&error) => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut stored = HashMap::new();
    if first.len() < keys.len() {
        let rows = sqlx::query!(
            "SELECT key, body_hash, status, response FROM idempotency_keys WHERE app = $1 AND route = $2 AND key = ANY($3)",
            place.app.0,
            place.route,
            &names as &[&str]
        );
        stored.extend(rows.fetch_all(conn).await?.into_iter().map(|row| (row.key.clone(), row)));
    }
    let met = keys.iter().map(|key| match stored.remove(key.key) {
        _ if first.contains(key.key) => Claim::First,
        None => Claim::InProgress, // retention removed it between the two statements: the caller may try again
        Some(row) if row.body_hash != key.body_hash => Claim::OtherBody,
        Some(row) => Claim::Answered { status: row.status, response: row.response },
    });
    Ok(Some(met.collect()))
}

/// Stores the answers of claimed requests, all with that status.
pub async fn remember(
    conn: &mut PgConnection,
    place: KeyScope<'_>,
    answers: &[(&str, Value)],
    status: i16,
) -> sqlx::Result<()> {
    if answers.is_empty() {
        return Ok(());
    }
    let (keys, responses): (Vec<&str>, Vec<&Value>) = answers.iter().map(|(key, response)| (*key, response)).unzip();
    sqlx::query!(
        "UPDATE idempotency_keys i SET status = $5, response = t.response
         FROM unnest($3::text[], $4::jsonb[]) AS t (key, response) WHERE i.app = $1 AND i.route = $2 AND i.key = t.key",
        place.app.0,
        place.route,
        &keys as &[&str],
        &responses as &[&Value],
        status
    )
    .execute(conn)
    .await
    .map(drop)
}

/// Gives back claimed keys whose requests were refused: they were not used.
pub(crate) async fn release(conn: &mut PgConnection, place: KeyScope<'_>, keys: &[&str]) -> sqlx::Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    sqlx::query!(
        "DELETE FROM idempotency_keys WHERE app = $1 AND route = $2 AND key = ANY($3)",
        place.app.0,
        place.route,
        keys as &[&str]
    )
    .execute(conn)
    .await
    .map(drop)
}
