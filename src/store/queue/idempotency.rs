//! First answers to requests with an `Idempotency-Key`, written in the transaction that does the work.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use serde_json::Value;
use sqlx::PgConnection;
use uuid::Uuid;

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
    let keys: Vec<_> = keys.iter().map(|key| (place, *key)).collect();
    match claim_each(&mut *conn, &keys, Wait::InTurn, now).await {
        Ok(met) => {
            // Patience is for the keys alone: what follows waits as ever.
            sqlx::query_scalar!("SELECT set_config('lock_timeout', $1, true)", "0").fetch_one(conn).await?;
            Ok(Some(met))
        }
        Err(error) if crate::store::is_lock_timeout(&error) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Claims keys of any scopes, each named once, and waits for nobody: what others work under is [`Claim::InProgress`], and the
/// transaction does the rest.
pub(crate) async fn claim_free(
    conn: &mut PgConnection,
    keys: &[(KeyScope<'_>, Key<'_>)],
    now: Timestamp,
) -> sqlx::Result<Vec<Claim>> {
    claim_each(conn, keys, Wait::Never, now).await
}

/// What to do about a key that somebody else works under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Wait {
    InTurn,
    Never,
}

/// Whoever claims a key has a lock on its name until the transaction ends. Of a row alone, which nobody else sees before that, no
/// other transaction could tell that it is there without waiting for its end.
async fn claim_each(
    conn: &mut PgConnection,
    keys: &[(KeyScope<'_>, Key<'_>)],
    wait: Wait,
    now: Timestamp,
) -> sqlx::Result<Vec<Claim>> {
    let named: BTreeMap<_, _> = keys.iter().map(|(at, key)| ((at.app.0, at.route, key.key), key.body_hash)).collect();
    let (apps, routes, names, hashes) =
        columns(named.iter().map(|((app, route, key), hash)| (*app, *route, *key, *hash)));
    let inserted = sqlx::query!(
        "INSERT INTO idempotency_keys (app, route, key, body_hash, status, response, created_at)
         SELECT t.app, t.route, t.key, t.body_hash, 0, 'null', $5
         FROM unnest($1::uuid[], $2::text[], $3::text[], $4::bytea[]) AS t (app, route, key, body_hash),
           LATERAL (SELECT hashtextextended(concat_ws(' ', 'bellwire.idempotency_keys', t.app, t.route, t.key), 0)) AS lock (id)
         WHERE CASE WHEN $6 THEN pg_advisory_xact_lock(lock.id) IS NOT NULL ELSE pg_try_advisory_xact_lock(lock.id) END
         ON CONFLICT (app, route, key) DO NOTHING RETURNING app, route, key",
        &apps,
        &routes as &[&str],
        &names as &[&str],
        &hashes as &[&[u8]],
        now,
        wait == Wait::InTurn
    )
    .fetch_all(&mut *conn)
    .await?;
    let first: HashSet<(Uuid, &str, &str)> =
        inserted.iter().map(|row| (row.app, row.route.as_str(), row.key.as_str())).collect();
    let mut stored = HashMap::new();
    if first.len() < keys.len() {
        let rows = sqlx::query!(
            r#"SELECT i.app, i.route, i.key, i.body_hash, i.status, i.response
             FROM unnest($1::uuid[], $2::text[], $3::text[]) AS t (app, route, key)
             JOIN idempotency_keys i ON i.app = t.app AND i.route = t.route AND i.key = t.key"#,
            &apps,
            &routes as &[&str],
            &names as &[&str]
        );
        let rows = rows.fetch_all(conn).await?.into_iter();
        stored.extend(rows.map(|row| ((row.app, row.route.clone(), row.key.clone()), row)));
    }
    let met = keys.iter().map(|(at, key)| match stored.remove(&(at.app.0, at.route.to_owned(), key.key.to_owned())) {
        _ if first.contains(&(at.app.0, at.route, key.key)) => Claim::First,
        // Somebody is at work under it, or retention removed it between the two statements: the caller may try again.
        None => Claim::InProgress,
        Some(row) if row.body_hash != key.body_hash => Claim::OtherBody,
        Some(row) => Claim::Answered { status: row.status, response: row.response },
    });
    Ok(met.collect())
}

/// Members of tuples as arrays.
fn columns<A, B, C, D>(rows: impl Iterator<Item = (A, B, C, D)>) -> (Vec<A>, Vec<B>, Vec<C>, Vec<D>) {
    rows.collect()
}

/// Stores the answers of claimed requests, all with that status.
pub async fn remember(
    conn: &mut PgConnection,
    place: KeyScope<'_>,
    answers: &[(&str, Value)],
    status: i16,
) -> sqlx::Result<()> {
    let answers: Vec<_> = answers.iter().map(|(key, response)| (place, *key, response)).collect();
    remember_each(conn, &answers, status).await
}

/// The same of any scopes.
pub(crate) async fn remember_each(
    conn: &mut PgConnection,
    answers: &[(KeyScope<'_>, &str, &Value)],
    status: i16,
) -> sqlx::Result<()> {
    if answers.is_empty() {
        return Ok(());
    }
    let (apps, routes, keys, responses) =
        columns(answers.iter().map(|(at, key, response)| (at.app.0, at.route, *key, *response)));
    sqlx::query!(
        "UPDATE idempotency_keys i SET status = $5, response = t.response
         FROM unnest($1::uuid[], $2::text[], $3::text[], $4::jsonb[]) AS t (app, route, key, response)
         WHERE i.app = t.app AND i.route = t.route AND i.key = t.key",
        &apps,
        &routes as &[&str],
        &keys as &[&str],
        &responses as &[&Value],
        status
    )
    .execute(conn)
    .await
    .map(drop)
}

/// Gives back claimed keys whose requests were refused: they were not used.
pub(crate) async fn release(conn: &mut PgConnection, keys: &[(KeyScope<'_>, &str)]) -> sqlx::Result<()> {
    if keys.is_empty() {
        return Ok(());
    }
    let (apps, routes, names, _) = columns(keys.iter().map(|(at, key)| (at.app.0, at.route, *key, ())));
    sqlx::query!(
        "DELETE FROM idempotency_keys i USING unnest($1::uuid[], $2::text[], $3::text[]) AS t (app, route, key)
         WHERE i.app = t.app AND i.route = t.route AND i.key = t.key",
        &apps,
        &routes as &[&str],
        &names as &[&str]
    )
    .execute(conn)
    .await
    .map(drop)
}
