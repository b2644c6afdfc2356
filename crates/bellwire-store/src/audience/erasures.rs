//! Erasure of a user: their subscriptions end and lose all their data, open dead letters are discarded with their content, and
//! the user is removed from recipients of messages. Ids of subscriptions stay, because the counts of past messages include
//! them.
//!
//! An erasure is stored before it begins, and runs in small transactions, in the request or by maintenance. Repeating a step
//! has no effect.

mod browser;

use std::slice;
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::Serialize;
use serde_json::{Value, json};
use sqlx::{PgConnection, PgPool};
use utoipa::ToSchema;

use crate::audience::lost_endpoint::{Lost, lost_endpoint_mac};
use crate::audience::subscriptions::end;
use crate::audience::subscriptions::row::{Right, SubscriptionKeys, SubscriptionRow, left_by_users, lock};
use crate::audience::{diagnoses, engagement_stats, opt_in, user_shards};
use crate::hooks;
use crate::keys::audit;
use crate::operations::retrying::retrying;
use crate::outcomes::dead_letters::DeadLetterFilter;
use crate::outcomes::dead_letters::handling::look_again;
use crate::outcomes::ledger::closing::Closing;
use crate::queue::caps;
use crate::queue::stops::Stop;
use crate::transactions::{self, begin_by_index};
use crate::triggers::housekeeping;
use bellwire_core::clock::{Timestamp, uuid_of};
use bellwire_core::id::{AppId, ErasureId, MessageId, SubscriptionId};
use bellwire_core::person::Person;
use bellwire_vault::{ADDRESS, Vault};

/// Dead letters or messages changed in one transaction.
const CHUNK: i64 = 1_000;
/// Time for which the request works on an erasure before maintenance may take over.
const REQUEST_MAX: Duration = Duration::from_secs(30);

/// Erasure of a user. The audit log keeps the same figures longer, under the user's label.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ErasureResponse)]
pub struct Erasure {
    /// Id of the erasure.
    pub id: ErasureId,
    /// App of the user.
    #[serde(skip)]
    pub app: AppId,
    /// User to erase. `None`: complete.
    #[serde(skip)]
    pub user_id: Option<String>,
    /// Caller of the erasure.
    #[serde(skip)]
    pub actor: String,
    /// Subscriptions unsubscribed and erased so far, including former ones of the same browsers.
    pub subscriptions: i64,
    /// Messages from whose recipients the user was removed. Most messages drop their recipients when the last delivery has
    /// ended, and are not counted.
    pub messages: i64,
    /// Open dead letters that were discarded with their content.
    pub dead_letters: i64,
    /// Pending or failed webhook requests from which the user was removed.
    pub webhook_requests: i64,
    /// Time of the request.
    pub requested_at: DateTime<Utc>,
    /// Time of completion. Null: still running.
    pub completed_at: Option<DateTime<Utc>>,
}

impl Erasure {
    fn asked(&self) -> ErasureRequest<'_> {
        ErasureRequest { app: self.app, actor: &self.actor }
    }
}

/// Stores a new erasure of a user. Returns the running one if there is one.
pub async fn begin(
    conn: &mut PgConnection, app: AppId, user_id: &str, actor: &str, now: Timestamp,
) -> sqlx::Result<Erasure> {
    fetch_one!(
        conn,
        Erasure,
        "INSERT INTO erasures AS e (id, app, user_id, actor, requested_at) VALUES ($1, $2, $3, $4, $5)
         ON CONFLICT (app, user_id) WHERE completed_at IS NULL DO UPDATE SET actor = e.actor
         RETURNING id, app, user_id, actor, subscriptions, messages, dead_letters, webhook_requests, requested_at,
           completed_at",
        (uuid_of(now), app.0, user_id, actor, now)
    )
}

/// Number of a user's subscriptions, ended ones included.
pub async fn subscriptions_of(conn: &mut PgConnection, app: AppId, user_id: &str) -> sqlx::Result<i64> {
    let shards = user_shards::of(&mut *conn, app, Some(&[user_id.to_owned()])).await?;
    fetch_one!(
        conn,
        scalar,
        r#"SELECT count(*) AS "n!" FROM subscriptions
           WHERE app = $1 AND user_id = $2 AND ($3::smallint[] IS NULL OR shard = ANY ($3))"#,
        (app.0, user_id, shards.as_deref())
    )
}

pub async fn find(pool: &PgPool, app: AppId, id: ErasureId) -> sqlx::Result<Option<Erasure>> {
    fetch_optional!(
        pool,
        Erasure,
        "SELECT id, app, user_id, actor, subscriptions, messages, dead_letters, webhook_requests, requested_at,
           completed_at FROM erasures
         WHERE app = $1 AND id = $2",
        (app.0, id.0)
    )
}

/// Returns erasures that no request works on, the oldest first.
pub async fn abandoned(pool: &PgPool, now: Timestamp) -> sqlx::Result<Vec<Erasure>> {
    fetch_all!(
        pool,
        Erasure,
        "SELECT id, app, user_id, actor, subscriptions, messages, dead_letters, webhook_requests, requested_at,
           completed_at FROM erasures
         WHERE completed_at IS NULL AND requested_at < $1 ORDER BY id LIMIT 100",
        (now - REQUEST_MAX)
    )
}

/// Erases one more subscription of the user in part: ends it, discards a chunk of its open dead letters, and after the last one
/// deletes its data. Former and later subscriptions of the same browser are erased first, also those without a user, because
/// they may have the user's data. `None`: no subscription is left.
pub async fn erase_subscription(
    pool: &PgPool, vault: &Vault, erasure: &Erasure, now: Timestamp,
) -> sqlx::Result<Option<Stop>> {
    let Some(user_id) = &erasure.user_id else { return Ok(None) };
    retrying(|| async move {
        loop {
            let shards = user_shards::of(pool, erasure.app, Some(slice::from_ref(user_id))).await?;
            let next = fetch_optional!(
                pool,
                scalar,
                "SELECT id FROM subscriptions
                 WHERE app = $1 AND user_id = $2 AND ($3::smallint[] IS NULL OR shard = ANY ($3)) ORDER BY shard, id LIMIT 1",
                (erasure.app.0, user_id, shards.as_deref())
            )?;
            let Some(id) = next else { return Ok(None) };
            let id =
                browser::farthest(&mut *pool.acquire().await?, erasure.app, SubscriptionId(id), Some(user_id)).await?;
            let mut tx = transactions::begin(pool).await?;
            let row = lock(&mut tx, erasure.app, id).await?;
            // It may have been erased, or have another user, since the last read: skip it.
            let theirs = |row: &SubscriptionRow| row.user_id.as_ref().is_none_or(|user| user == user_id);
            let Some(row) = row.filter(theirs) else { continue };
            let mut closing = Closing::default();
            let erased = erase_row(&mut tx, vault, &erasure.asked(), &row, &mut closing, now).await?;
            add(&mut tx, erasure.id, &erased).await?;
            closing.write(&mut tx, now).await?;
            if let Some(browser) = erased.browser {
                housekeeping::forget(&mut tx, erasure.app, browser, now).await?;
            }
            tx.commit().await?;
            return Ok(Some(erased.stop));
        }
    })
    .await
}

#[derive(Debug, Clone, Copy)]
pub struct ErasureRequest<'a> {
    pub app: AppId,
    /// Caller: id of an API key or teammate, `local`, or `browser`.
    pub actor: &'a str,
}

/// Result of one transaction on a subscription.
struct Erased {
    stop: Stop,
    /// Whether the subscription's data are deleted. If not, more dead letters are left to discard.
    done: bool,
    letters: i64,
    webhook_requests: i64,
    /// Person of the browser, once its data are deleted.
    browser: Option<Person>,
}

/// Ends a locked subscription and discards a chunk of its open dead letters. Deletes its data after the last chunk.
async fn erase_row(
    conn: &mut PgConnection, vault: &Vault, asked: &ErasureRequest<'_>, row: &SubscriptionRow, closing: &mut Closing,
    now: Timestamp,
) -> sqlx::Result<Erased> {
    let stop = end(conn, row, closing, now).await?;
    let letters = put_letters_aside(conn, asked, row, now).await?;
    let done = letters < CHUNK;
    let forgotten = match done {
        true => Some(forget(conn, vault, asked.app, row, now).await?),
        false => None,
    };
    let webhook_requests = forgotten.map_or(0, |(n, _)| n);
    Ok(Erased { stop, done, letters, webhook_requests, browser: forgotten.map(|(_, browser)| browser) })
}

async fn add(conn: &mut PgConnection, id: ErasureId, erased: &Erased) -> sqlx::Result<()> {
    execute!(
        conn,
        "UPDATE erasures SET subscriptions = subscriptions + $2, dead_letters = dead_letters + $3,
           webhook_requests = webhook_requests + $4
         WHERE id = $1",
        (id.0, i64::from(erased.done), erased.letters, erased.webhook_requests)
    )
}

/// Erases a part of one subscription and of the browser's former ones, in one transaction. Returns the stops for workers, and
/// whether the erasure is complete. `None`: the subscription does not exist, or the caller may not erase it. Repeating it has
/// no effect.
pub async fn erase_one(
    pool: &PgPool, vault: &Vault, asked: &ErasureRequest<'_>, id: SubscriptionId, right: Right<'_>, now: Timestamp,
) -> sqlx::Result<Option<(Stop, bool)>> {
    retrying(|| async move {
        let mut tx = transactions::begin(pool).await?;
        let Some(wanted) = lock(&mut tx, asked.app, id).await?.filter(|row| right.covers(vault, row)) else {
            return Ok(None);
        };
        let next = browser::farthest(&mut tx, asked.app, id, wanted.user_id.as_deref()).await?;
        // Deleted since we looked: the one that was asked for is left.
        let row = if next == id { wanted } else { lock(&mut tx, asked.app, next).await?.unwrap_or(wanted) };
        let mut closing = Closing::default();
        let erased = erase_row(&mut tx, vault, asked, &row, &mut closing, now).await?;
        closing.write(&mut tx, now).await?;
        if let Some(browser) = erased.browser {
            housekeeping::forget(&mut tx, asked.app, browser, now).await?;
        }
        tx.commit().await?;
        Ok(Some((erased.stop, erased.done && row.id == id)))
    })
    .await
}

/// Discards a chunk of a subscription's open dead letters, so that their content can be deleted. Returns the number. If it is
/// [`CHUNK`], there may be more.
async fn put_letters_aside(
    conn: &mut PgConnection, asked: &ErasureRequest<'_>, row: &SubscriptionRow, now: Timestamp,
) -> sqlx::Result<i64> {
    let messages = fetch_all!(
        &mut *conn,
        scalar,
        r#"UPDATE dead_letters SET state = 'discarded', settled_at = $3 WHERE ctid = ANY (ARRAY(
           SELECT ctid FROM dead_letters WHERE app = $1 AND subscription = $2 AND state = 'open'
           ORDER BY message, id LIMIT $4 FOR UPDATE))
         RETURNING message AS "message: MessageId""#,
        (asked.app.0, row.id.0, now, CHUNK)
    )?;
    let n = i64::try_from(messages.len()).unwrap_or(i64::MAX);
    if n > 0 {
        look_again(conn, messages, now).await?;
        let filter = DeadLetterFilter { subscription: Some(row.id), ..DeadLetterFilter::default() };
        leave_trail(conn, asked, json!(filter), n, now).await?;
    }
    Ok(n)
}

/// Records the discarded dead letters in the list of actions. The audit log has only the erasure.
async fn leave_trail(
    conn: &mut PgConnection, asked: &ErasureRequest<'_>, filter: Value, n: i64, now: Timestamp,
) -> sqlx::Result<()> {
    execute!(
        conn,
        "INSERT INTO dead_letter_actions (app, operation, part, action, actor, filter, n, at)
         VALUES ($1, $2, 0, 'discard', $3, $4, $5, $6)",
        (asked.app.0, uuid_of(now), asked.actor, filter, n, now)
    )
}

/// Deletes all data of a locked subscription, except its id. Returns the number of webhook requests from which its user was
/// removed.
async fn forget(
    conn: &mut PgConnection, vault: &Vault, app: AppId, row: &SubscriptionRow, now: Timestamp,
) -> sqlx::Result<(i64, Person)> {
    let nowhere = lost_endpoint_mac(vault, row.id, Lost::Erased);
    let forgotten = fetch_one!(
        &mut *conn,
        "UPDATE subscriptions SET user_id = NULL, tags = '{}', attributes = '{}', locale = NULL, timezone = NULL,
           policy = NULL, muted_until = NULL, keys_proven_at = NULL, consent_at = NULL, consent_source = NULL, endpoint_mac = $3, address = $4,
           token_version = token_version + 1, replaced_by = NULL, replaced_by_life = NULL, former = NULL
         WHERE shard = $1 AND id = $2 RETURNING origin_id",
        (row.id.shard(), row.id.0, nowhere.as_slice(), vault.seal(ADDRESS, row.id, b""))
    )?;
    browser::part(conn, row.id).await?;
    diagnoses::forget(conn, row.id).await?;
    opt_in::forget(conn, row.id).await?;
    user_shards::doubt(conn, app, row.user_id.as_deref().map(|user| (row.id, user)).into_iter(), now).await?;
    let webhook_requests = hooks::deliveries::forget(conn, vault, app, row.id).await?;
    let browser = Person::of_browser(SubscriptionId(forgotten.origin_id));
    caps::forget(&mut *conn, browser).await?;
    engagement_stats::forget(conn, app, browser).await?;
    Ok((webhook_requests, browser))
}

/// Removes the user from the recipients of a chunk of messages, and schedules a check of their content. Returns whether there
/// may be more. Fails with a timeout if the search takes longer than `patience`.
///
/// Messages name users only while they are in progress (see [`delete_contents`](crate::operations::sweeps::delete_contents)),
/// so only messages with content are read: those of a few minutes, and those of dead letters. So no index of users is needed. A
/// message that is being accepted is not found, but drops its users at its end like all others. A scheduled message is read
/// before it is due. If the user was the only recipient, its content is deleted.
pub async fn redact_messages(
    pool: &PgPool, erasure: &Erasure, patience: Duration, now: Timestamp,
) -> sqlx::Result<bool> {
    let Some(user_id) = &erasure.user_id else { return Ok(false) };
    retrying(|| async move {
        let mut tx = begin_by_index(pool).await?;
        crate::limit_statements(&mut tx, patience).await?;
        let aside = put_letters_of_former_browsers_aside(&mut tx, erasure, user_id, now).await?;
        let redacted = rows_affected!(
            &mut *tx,
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
            (erasure.app.0.to_string(), json!({"users": [user_id]}), user_id, now, CHUNK)
        )?;
        let n = i64::try_from(redacted).unwrap_or(i64::MAX);
        execute!(
            &mut *tx,
            "UPDATE erasures SET messages = messages + $2, dead_letters = dead_letters + $3 WHERE id = $1",
            (erasure.id.0, n, aside)
        )?;
        tx.commit().await?;
        Ok(n == CHUNK || aside == CHUNK)
    })
    .await
}

/// Returns browsers that a user has left and that have open dead letters of messages to that user, with the time of leaving.
async fn browsers_left_with_letters(
    conn: &mut PgConnection, app: AppId, user_id: &str,
) -> sqlx::Result<(Vec<SubscriptionId>, Vec<Timestamp>)> {
    let of = query!(
        scalar,
        r#"SELECT DISTINCT l.subscription AS "id: SubscriptionId" FROM messages m
           JOIN dead_letters l ON l.app = m.app AND l.message = m.id AND l.state = 'open'
           WHERE m.content IS NOT NULL AND m.app::text = $1::text AND m.audience @> $2"#,
        (app.0.to_string(), json!({"users": [user_id]}))
    );
    let keys = SubscriptionKeys::of(of.fetch_all(&mut *conn).await?);
    left_by_users(conn, &keys).await
}

/// Discards a chunk of open dead letters of messages to the user, in browsers that now have another user. They can no longer be
/// replayed, and may contain the user's data. Returns their number.
async fn put_letters_of_former_browsers_aside(
    conn: &mut PgConnection, erasure: &Erasure, user_id: &str, now: Timestamp,
) -> sqlx::Result<i64> {
    let (left, left_at) = browsers_left_with_letters(conn, erasure.app, user_id).await?;
    let discarded = rows_affected!(
        &mut *conn,
        "UPDATE dead_letters SET state = 'discarded', settled_at = $3 WHERE ctid = ANY (ARRAY(
           SELECT l.ctid FROM messages m
           JOIN dead_letters l ON l.app = m.app AND l.message = m.id AND l.state = 'open'
           JOIN unnest($5::uuid[], $6::timestamptz[]) AS b (id, left_at) ON b.id = l.subscription AND b.left_at >= m.accepted_at
           WHERE m.content IS NOT NULL AND m.app::text = $1::text AND m.audience @> $2
           ORDER BY l.message, l.id LIMIT $4 FOR UPDATE OF l))",
        (erasure.app.0.to_string(), json!({"users": [user_id]}), now, CHUNK, &left as &[SubscriptionId], &left_at)
    )?;
    let n = i64::try_from(discarded).unwrap_or(i64::MAX);
    if n > 0 {
        leave_trail(conn, &erasure.asked(), json!({"erasure": erasure.id}), n, now).await?;
    }
    Ok(n)
}

/// Completes an erasure, and returns its result. Deletes the user's shard entries, cap counts and engagement, removes the user
/// from pending events, and clears the user id in the erasure itself.
pub async fn complete(pool: &PgPool, vault: &Vault, erasure: &Erasure, now: Timestamp) -> sqlx::Result<Erasure> {
    if let Some(user_id) = &erasure.user_id {
        // In its own transaction: it waits for registrations, and must not block other work.
        user_shards::forget(pool, erasure.app, user_id).await?;
    }
    let mut tx = transactions::begin(pool).await?;
    let mut told = 0;
    if let Some(user_id) = &erasure.user_id {
        let user = Person::of_user(erasure.app, user_id);
        caps::forget(&mut *tx, user).await?;
        engagement_stats::forget(&mut tx, erasure.app, user).await?;
        told = hooks::deliveries::forget_user(&mut tx, vault, erasure.app, user_id, erasure.requested_at).await?;
    }
    let completed = fetch_one!(
        &mut *tx,
        Erasure,
        "UPDATE erasures SET user_id = NULL, completed_at = coalesce(completed_at, $2), webhook_requests = webhook_requests + $3
         WHERE id = $1
         RETURNING id, app, user_id, actor, subscriptions, messages, dead_letters, webhook_requests, requested_at,
           completed_at",
        (erasure.id.0, now, told)
    )?;
    if erasure.user_id.is_some() {
        prove(&mut tx, &completed, now).await?;
    }
    if let Some(user_id) = &erasure.user_id {
        housekeeping::forget(&mut tx, erasure.app, Person::of_user(erasure.app, user_id), now).await?;
    }
    tx.commit().await?;
    Ok(completed)
}

/// Writes the result of an erasure to the audit log, with the caller of its request.
async fn prove(conn: &mut PgConnection, done: &Erasure, now: Timestamp) -> sqlx::Result<()> {
    let Erasure { id, app, subscriptions, messages, dead_letters, webhook_requests, requested_at, .. } = done;
    let detail = json!({
        "erasure": id,
        "subscriptions": subscriptions,
        "messages": messages,
        "dead_letters": dead_letters,
        "webhook_requests": webhook_requests,
    });
    audit::repeat(
        conn,
        *app,
        (audit::AuditAction::UserErased, *requested_at),
        audit::AuditAction::UserErasureCompleted,
        detail,
        now,
    )
    .await
}
