//! Forgetting a user: their subscriptions end and lose everything that is known of them, open dead letters are put aside
//! with what they hold, and messages forget that they were for them. Bare ids of subscriptions stay, since the accounts of
//! past messages count them.
//!
//! An erasure is written down before it begins, and is done in small transactions, by the request that asked for it or by
//! maintenance: whoever does a step that another one did does nothing.

use std::time::Duration;

use serde_json::{Value, json};
use sqlx::{PgConnection, PgPool};

use crate::model::clock::{Timestamp, uuid_of};
use crate::model::id::{AppId, ErasureId, MessageId, SubscriptionId};
use crate::model::person::Person;
use crate::store::BEGIN_BY_INDEX;
use crate::store::audience::habits;
use crate::store::audience::subscriptions::end;
use crate::store::audience::subscriptions::row::{SubscriptionRow, lock};
use crate::store::hooks;
use crate::store::operations::retrying::retrying;
use crate::store::outcomes::dead_letters::Filter;
use crate::store::outcomes::dead_letters::handling::look_again;
use crate::store::outcomes::ledger::closing::Closing;
use crate::store::queue::caps;
use crate::store::queue::stops::Stop;
use crate::vault::{ADDRESS, Purpose, Vault};

/// Letters that one transaction puts aside, and messages that one forgets the user in.
const CHUNK: i64 = 1_000;
/// An erasure is left to the request that asked for it for so long.
const REQUEST_MAX: Duration = Duration::from_secs(30);

/// A row of `erasures`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Erasure {
    /// Its id.
    pub id: ErasureId,
    /// The app.
    pub app: AppId,
    /// Who is forgotten; none: they are.
    pub user_id: Option<String>,
    /// Who asked for it.
    pub actor: String,
    /// Subscriptions that were unsubscribed and forgotten so far.
    pub subscriptions: i64,
    /// Messages that named the user so far.
    pub messages: i64,
    /// When it was asked for.
    pub requested_at: Timestamp,
    /// When nothing was left.
    pub completed_at: Option<Timestamp>,
}

/// Writes down that a user is to be erased. If they are being erased already, that is the erasure.
pub async fn begin(
    conn: &mut PgConnection,
    app: AppId,
    user_id: &str,
    actor: &str,
    now: Timestamp,
) -> sqlx::Result<Erasure> {
    sqlx::query_as!(
        Erasure,
        "INSERT INTO erasures AS e (id, app, user_id, actor, requested_at) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (app, user_id) WHERE completed_at IS NULL DO UPDATE SET actor = e.actor
         RETURNING id, app, user_id, actor, subscriptions, messages, requested_at, completed_at",
        uuid_of(now),
        app.0,
        user_id,
        actor,
        now
    )
    .fetch_one(conn)
    .await
}

/// How many subscriptions a user has, ended ones included.
pub(crate) async fn subscriptions_of(conn: &mut PgConnection, app: AppId, user_id: &str) -> sqlx::Result<i64> {
    sqlx::query_scalar!(r#"SELECT count(*) AS "n!" FROM subscriptions WHERE app = $1 AND user_id = $2"#, app.0, user_id)
        .fetch_one(conn)
        .await
}

/// An app's erasure.
pub(crate) async fn find(pool: &PgPool, app: AppId, id: ErasureId) -> sqlx::Result<Option<Erasure>> {
    sqlx::query_as!(
        Erasure,
        "SELECT id, app, user_id, actor, subscriptions, messages, requested_at, completed_at FROM erasures
         WHERE app = $1 AND id = $2",
        app.0,
        id.0
    )
    .fetch_optional(pool)
    .await
}

/// Erasures that nobody works on any more, the oldest first.
pub(crate) async fn abandoned(pool: &PgPool, now: Timestamp) -> sqlx::Result<Vec<Erasure>> {
    sqlx::query_as!(
        Erasure,
        "SELECT id, app, user_id, actor, subscriptions, messages, requested_at, completed_at FROM erasures
         WHERE completed_at IS NULL AND requested_at < $1 ORDER BY id LIMIT 100",
        now - REQUEST_MAX
    )
    .fetch_all(pool)
    .await
}

/// Ends one of the user's subscriptions, or goes on with one that has ended: puts a chunk of its open dead letters aside, and
/// when none are left forgets all that is known of it. None: the user has no subscriptions any more, and whatever was sent
/// to them has been stopped.
pub async fn erase_subscription(
    pool: &PgPool,
    vault: &Vault,
    erasure: &Erasure,
    now: Timestamp,
) -> sqlx::Result<Option<Stop>> {
    let Some(user_id) = &erasure.user_id else { return Ok(None) };
    retrying(|| async move {
        loop {
            let next = sqlx::query_scalar!(
                "SELECT id FROM subscriptions WHERE app = $1 AND user_id = $2 ORDER BY shard, id LIMIT 1",
                erasure.app.0,
                user_id
            );
            let Some(id) = next.fetch_optional(pool).await? else { return Ok(None) };
            let mut tx = pool.begin().await?;
            let row = lock(&mut tx, erasure.app, SubscriptionId(id)).await?;
            // Somebody else may have erased it, or logged in there, since we looked: on to the next.
            let Some(row) = row.filter(|row| row.user_id.as_ref() == Some(user_id)) else { continue };
            let mut closing = Closing::default();
            let stop = end(&mut tx, &row, &mut closing, now).await?;
            if !put_letters_aside(&mut tx, erasure, &row, now).await? {
                forget(&mut tx, vault, &row).await?;
                sqlx::query!("UPDATE erasures SET subscriptions = subscriptions + 1 WHERE id = $1", erasure.id.0)
                    .execute(&mut *tx)
                    .await?;
            }
            closing.write(&mut tx, now).await?;
            tx.commit().await?;
            return Ok(Some(stop));
        }
    })
    .await
}

/// Discards a chunk of a subscription's open dead letters, so that their content can go. Returns whether there may be more.
async fn put_letters_aside(
    conn: &mut PgConnection,
    erasure: &Erasure,
    row: &SubscriptionRow,
    now: Timestamp,
) -> sqlx::Result<bool> {
    let messages = sqlx::query_scalar!(
        r#"UPDATE dead_letters SET state = 'discarded', settled_at = $3 WHERE ctid = ANY (ARRAY(
           SELECT ctid FROM dead_letters WHERE app = $1 AND subscription = $2 AND state = 'open'
           ORDER BY message, id LIMIT $4 FOR UPDATE))
         RETURNING message AS "message: MessageId""#,
        erasure.app.0,
        row.id.0,
        now,
        CHUNK
    )
    .fetch_all(&mut *conn)
    .await?;
    let n = i64::try_from(messages.len()).unwrap_or(i64::MAX);
    if n > 0 {
        look_again(conn, messages, now).await?;
        let filter = Filter { subscription: Some(row.id), ..Filter::default() };
        leave_trail(conn, erasure, json!(filter), n, now).await?;
    }
    Ok(n == CHUNK)
}

/// Says in the trail of dead letters what was put aside. For the audit log this is a part of the erasure.
async fn leave_trail(
    conn: &mut PgConnection,
    erasure: &Erasure,
    filter: Value,
    n: i64,
    now: Timestamp,
) -> sqlx::Result<()> {
    sqlx::query!(
        "INSERT INTO dead_letter_actions (app, operation, part, action, actor, filter, n, at)
         VALUES ($1, $2, 0, 'discard', $3, $4, $5, $6)",
        erasure.app.0,
        uuid_of(now),
        erasure.actor,
        filter,
        n,
        now
    )
    .execute(conn)
    .await
    .map(drop)
}

async fn forget(conn: &mut PgConnection, vault: &Vault, row: &SubscriptionRow) -> sqlx::Result<()> {
    // A look-up value that no endpoint has: the HMAC of the row's own id.
    let nowhere = vault.mac(Purpose::Endpoint, &[b"erased", row.id.0.as_bytes()]);
    let forgotten = sqlx::query!(
        "UPDATE subscriptions SET user_id = NULL, tags = '{}', attributes = '{}', locale = NULL, timezone = NULL,
           policy = NULL, keys_proven_at = NULL, endpoint_mac = $3, address = $4, token_version = token_version + 1
         WHERE shard = $1 AND id = $2 RETURNING app, origin_id",
        row.id.shard(),
        row.id.0,
        nowhere.as_slice(),
        vault.seal(ADDRESS, row.id, b"")
    )
    .fetch_one(&mut *conn)
    .await?;
    hooks::deliveries::forget(conn, vault, AppId(forgotten.app), row.id).await?;
    let browser = Person::of_browser(SubscriptionId(forgotten.origin_id));
    caps::forget(&mut *conn, AppId(forgotten.app), browser).await?;
    habits::forget(conn, AppId(forgotten.app), browser).await
}

/// Forgets in a chunk of messages that they were for the user, and has their content looked at soon. Returns whether there
/// may be more. Fails with a time-out if finding them takes longer than `patience`.
///
/// Messages name users only while something of them is under way (see [`delete_contents`](crate::store::operations::sweeps::delete_contents)),
/// so it is enough to look at those that have their content: at most a few minutes' worth, and what dead letters hold. Sending
/// pays for no index of users. A message that is being accepted in this very moment is not found, but forgets its users as
/// all do.
pub(crate) async fn redact_messages(
    pool: &PgPool,
    erasure: &Erasure,
    patience: Duration,
    now: Timestamp,
) -> sqlx::Result<bool> {
    let Some(user_id) = &erasure.user_id else { return Ok(false) };
    retrying(|| async move {
        let mut tx = pool.begin_with(BEGIN_BY_INDEX).await?;
        crate::store::limit_statements(&mut tx, patience).await?;
        let aside = put_letters_of_former_browsers_aside(&mut tx, erasure, user_id, now).await?;
        let redacted = sqlx::query!(
            r#"
            WITH naming AS (
                SELECT id FROM messages
                -- The app as text, so that the index of messages with content serves, not that of all the app's messages.
                WHERE content IS NOT NULL AND app::text = $1::text AND audience @> $2
                ORDER BY id LIMIT $5 FOR NO KEY UPDATE
            )
            UPDATE messages m
            SET audience = jsonb_build_object('users', (
                    SELECT jsonb_agg(CASE WHEN u.id <> to_jsonb($3::text) THEN u.id END ORDER BY u.place)
                    FROM jsonb_array_elements(m.audience -> 'users') WITH ORDINALITY AS u (id, place))),
                look_at = least(m.look_at, $4)
            FROM naming WHERE m.id = naming.id
            "#,
            erasure.app.0.to_string(),
            json!({"users": [user_id]}),
            user_id,
            now,
            CHUNK
        )
        .execute(&mut *tx)
        .await?
        .rows_affected();
        let n = i64::try_from(redacted).unwrap_or(i64::MAX);
        sqlx::query!("UPDATE erasures SET messages = messages + $2 WHERE id = $1", erasure.id.0, n)
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(n == CHUNK || aside == CHUNK)
    })
    .await
}

/// Discards a chunk of the open dead letters of messages that name the user, in browsers that a user has left since: nobody may
/// replay them any more, and what they hold may be the user's. Returns how many.
async fn put_letters_of_former_browsers_aside(
    conn: &mut PgConnection,
    erasure: &Erasure,
    user_id: &str,
    now: Timestamp,
) -> sqlx::Result<i64> {
    let discarded = sqlx::query!(
        "UPDATE dead_letters SET state = 'discarded', settled_at = $3 WHERE ctid = ANY (ARRAY(
           SELECT l.ctid FROM messages m
           JOIN dead_letters l ON l.app = m.app AND l.message = m.id AND l.state = 'open'
           JOIN subscriptions s ON s.shard = l.shard AND s.id = l.subscription AND s.user_left_at >= m.accepted_at
           WHERE m.content IS NOT NULL AND m.app::text = $1::text AND m.audience @> $2
           ORDER BY l.message, l.id LIMIT $4 FOR UPDATE OF l))",
        erasure.app.0.to_string(),
        json!({"users": [user_id]}),
        now,
        CHUNK
    )
    .execute(&mut *conn)
    .await?;
    let n = i64::try_from(discarded.rows_affected()).unwrap_or(i64::MAX);
    if n > 0 {
        leave_trail(conn, erasure, json!({"erasure": erasure.id}), n, now).await?;
    }
    Ok(n)
}

/// Forgets how often messages were sent to the user and what became of that, writes down that nothing names them any more, the erasure itself included,
/// and returns how it ended.
pub(crate) async fn complete(pool: &PgPool, erasure: &Erasure, now: Timestamp) -> sqlx::Result<Erasure> {
    let mut tx = pool.begin().await?;
    if let Some(user_id) = &erasure.user_id {
        let user = Person::of_user(erasure.app, user_id);
        caps::forget(&mut *tx, erasure.app, user).await?;
        habits::forget(&mut tx, erasure.app, user).await?;
    }
    let completed = sqlx::query_as!(
        Erasure,
        "UPDATE erasures SET user_id = NULL, completed_at = coalesce(completed_at, $2) WHERE id = $1
         RETURNING id, app, user_id, actor, subscriptions, messages, requested_at, completed_at",
        erasure.id.0,
        now
    )
    .fetch_one(&mut *tx)
    .await?;
    tx.commit().await?;
    Ok(completed)
}
