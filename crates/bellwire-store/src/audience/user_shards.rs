//! Index of the shards that contain a user's browsers, on Citus: a search reads these shards instead of all 64. On plain
//! Postgres nothing is stored.
//!
//! A superfluous row costs a read, but a missing row would lose a push. A transaction that sets a user of a subscription writes
//! the row, and holds the shard's lock in shared mode. A transaction that deletes rows holds the lock exclusively, and first
//! checks that the user has no browser there. This lock, unlike a row lock, is held until Citus has committed on all machines.
//!
//! If the coordinator fails between the commits of the machines and its own, a row may be missing. The browser's next visit
//! writes it again, and so does `bellwire migrate --distribute`.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::{PgConnection, PgExecutor, PgPool};

use crate::connections::engine;
use crate::transactions::begin;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, SHARDS, SubscriptionId};

/// Maximum rows read and subscriptions written per chunk.
const CHUNK: i64 = 1_000;

type User = (AppId, String);

/// Declares a statement that takes the locks of the shards `$3` in shared mode before its other part.
macro_rules! holding {
    ($rest:literal, $app:expr, $users:expr, $shards:expr $(, $arg:expr)*) => {
        query!(
            "WITH held AS MATERIALIZED (
               SELECT pg_advisory_xact_lock_shared(hashtextextended('bellwire.user_shards', shard))
               FROM (SELECT DISTINCT shard FROM unnest($3::smallint[]) AS t (shard) ORDER BY shard) AS of)
             " + $rest,
            ($app, $users, $shards $(, $arg)*)
        )
    };
}

/// Returns each pair of user and shard once, in a fixed order that prevents deadlocks.
fn in_order<'a>(of: impl Iterator<Item = (SubscriptionId, &'a str)>) -> (Vec<&'a str>, Vec<i16>) {
    let of: BTreeSet<(&str, i16)> = of.map(|(id, user)| (user, id.shard())).collect();
    of.into_iter().unzip()
}

/// Writes the shards of these subscriptions for their users.
pub(crate) async fn note(
    conn: &mut PgConnection, app: AppId, of: impl Iterator<Item = (SubscriptionId, &str)>,
) -> sqlx::Result<()> {
    if !engine::is_distributed() {
        return Ok(());
    }
    let (users, shards) = in_order(of);
    if users.is_empty() {
        return Ok(());
    }
    holding!(
        "INSERT INTO user_shards (app, user_id, shard)
         SELECT $1, user_id, shard FROM unnest($2::text[], $3::smallint[]) AS t (user_id, shard)
         WHERE (SELECT count(*) FROM held) > 0 ON CONFLICT DO NOTHING",
        app.0,
        &users as &[&str],
        &shards
    )
    .execute(conn)
    .await
    .map(drop)
}

/// Marks the rows of a user who left a subscription, so that [`clear`] checks them.
pub(crate) async fn doubt(
    conn: &mut PgConnection, app: AppId, of: impl Iterator<Item = (SubscriptionId, &str)>, now: Timestamp,
) -> sqlx::Result<()> {
    if !engine::is_distributed() {
        return Ok(());
    }
    let (users, shards) = in_order(of);
    if users.is_empty() {
        return Ok(());
    }
    holding!(
        "UPDATE user_shards u SET left_at = $4 FROM unnest($2::text[], $3::smallint[]) AS t (user_id, shard)
         WHERE u.app = $1 AND u.user_id = t.user_id AND u.shard = t.shard AND (SELECT count(*) FROM held) > 0",
        app.0,
        &users as &[&str],
        &shards,
        now
    )
    .execute(conn)
    .await
    .map(drop)
}

/// Returns the shards in which any of these users may have browsers; each user belongs to the app at the same index. All shards
/// if this database is not distributed.
pub(crate) async fn of_all(executor: impl PgExecutor<'_>, apps: &[AppId], users: &[&str]) -> sqlx::Result<Vec<i16>> {
    fetch_all!(
        executor,
        scalar,
        r#"SELECT u.shard AS "shard!" FROM unnest($1::uuid[], $2::text[]) AS t (app, user_id)
           JOIN user_shards u ON u.app = t.app AND u.user_id = t.user_id
           UNION
           SELECT n::smallint FROM generate_series(0, 63) AS n WHERE EXISTS (
             SELECT FROM pg_trigger WHERE tgrelid = to_regclass('subscriptions') AND tgname = 'subscriptions_gained')"#,
        (apps as &[AppId], users as &[&str])
    )
}

/// Returns the shards to read for an app's users. `None`: all shards, because no users are named or the database is not
/// distributed.
pub(crate) async fn of(
    executor: impl PgExecutor<'_>, app: AppId, users: Option<&[String]>,
) -> sqlx::Result<Option<Vec<i16>>> {
    let Some(users) = users.filter(|_| engine::is_distributed()) else { return Ok(None) };
    let users: Vec<&str> = users.iter().map(String::as_str).collect();
    of_all(executor, &vec![app; users.len()], &users).await.map(Some)
}

/// Deletes the rows of a user for shards without their browsers.
pub(crate) async fn forget(pool: &PgPool, app: AppId, user_id: &str) -> sqlx::Result<()> {
    if !engine::is_distributed() {
        return Ok(());
    }
    let shards =
        fetch_all!(pool, scalar, "SELECT shard FROM user_shards WHERE app = $1 AND user_id = $2", (app.0, user_id))?;
    for shard in shards {
        look_again(pool, shard, &[(app, user_id.to_owned())]).await?;
    }
    Ok(())
}

/// Deletes a chunk of rows of a deleted app. Returns the number.
pub(crate) async fn forget_app(pool: &PgPool, app: AppId) -> sqlx::Result<u64> {
    rows_affected!(
        pool,
        "DELETE FROM user_shards WHERE ctid = ANY (ARRAY(SELECT ctid FROM user_shards WHERE app = $1 LIMIT $2))",
        (app.0, CHUNK)
    )
}

/// Checks a chunk of marked rows, and deletes superfluous ones. Returns the number checked.
pub async fn clear(pool: &PgPool) -> sqlx::Result<u64> {
    let rows = fetch_all!(
        pool,
        r#"SELECT app AS "app: AppId", user_id, shard FROM user_shards WHERE left_at IS NOT NULL ORDER BY shard LIMIT $1"#,
        (CHUNK)
    )?;
    let n = rows.len() as u64;
    let mut of_shards: BTreeMap<i16, Vec<User>> = BTreeMap::new();
    for row in rows {
        of_shards.entry(row.shard).or_default().push((row.app, row.user_id));
    }
    for (shard, users) in of_shards {
        look_again(pool, shard, &users).await?;
    }
    Ok(n)
}

/// Checks under the exclusive lock which of these users have subscriptions in a shard, and deletes the rows of the others.
async fn look_again(pool: &PgPool, shard: i16, users: &[User]) -> sqlx::Result<()> {
    let (apps, names): (Vec<AppId>, Vec<&str>) = users.iter().map(|(app, user)| (*app, user.as_str())).unzip();
    let mut tx = begin(pool).await?;
    fetch_one!(
        &mut *tx,
        scalar,
        "SELECT pg_advisory_xact_lock(hashtextextended('bellwire.user_shards', $1::smallint))",
        (shard)
    )?;
    let there = query!(
        r#"SELECT DISTINCT s.app AS "app: AppId", s.user_id AS "user_id!" FROM unnest($2::uuid[], $3::text[]) AS t (app, user_id)
           JOIN subscriptions s ON s.app = t.app AND s.user_id = t.user_id WHERE s.shard = $1"#,
        (shard, &apps as &[AppId], &names as &[&str])
    )
    .map(|row| (row.app, row.user_id));
    let there: BTreeSet<User> = there.fetch_all(&mut *tx).await?.into_iter().collect();
    let is_there: Vec<bool> = users.iter().map(|user| there.contains(user)).collect();
    execute!(
        &mut *tx,
        "WITH looked AS (SELECT * FROM unnest($2::uuid[], $3::text[], $4::boolean[]) AS t (app, user_id, is_there)),
         kept AS (
           UPDATE user_shards u SET left_at = NULL FROM looked l
           WHERE l.is_there AND u.app = l.app AND u.user_id = l.user_id AND u.shard = $1)
         DELETE FROM user_shards u USING looked l
         WHERE NOT l.is_there AND u.app = l.app AND u.user_id = l.user_id AND u.shard = $1",
        (shard, &apps as &[AppId], &names as &[&str], &is_there)
    )?;
    tx.commit().await
}

/// Writes the rows of all users, shard by shard, in one transaction per page.
pub(crate) async fn note_all(conn: &mut PgConnection) -> sqlx::Result<()> {
    for shard in 0..i16::from(SHARDS) {
        let mut after = SubscriptionId(uuid::Uuid::nil());
        loop {
            let page = fetch_all!(
                &mut *conn,
                r#"SELECT app AS "app: AppId", id AS "id: SubscriptionId", user_id AS "user_id!" FROM subscriptions
                   WHERE shard = $1 AND id > $2 AND user_id IS NOT NULL ORDER BY id LIMIT $3"#,
                (shard, after.0, CHUNK)
            )?;
            let Some(last) = page.last() else { break };
            after = last.id;
            let mut of_apps: BTreeMap<AppId, Vec<(SubscriptionId, &str)>> = BTreeMap::new();
            for row in &page {
                of_apps.entry(row.app).or_default().push((row.id, &row.user_id));
            }
            for (app, of) in of_apps {
                note(conn, app, of.into_iter()).await?;
            }
        }
    }
    Ok(())
}
