//! Removes messages from the browsers of one person: on request, and after a click on another of them (`clear_on_click`).

use serde_json::json;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::removals::{RemovalRecipients, create, is_withdrawn, load, send_to};
use crate::connections::engine::shards_of;
use crate::keys::audit::AuditEntry;
use crate::operations::retrying::retrying;
use crate::outcomes::ledger::take;
use crate::outcomes::ledger::unsent::{self, How, STOPPED};
use crate::queue::sending::NewMessage;
use crate::queue::updates;
use crate::transactions::{begin, begin_by_index};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, MessageId, SubscriptionId};
use bellwire_vault::Vault;

/// Clicks read at a time.
const CHUNK: i64 = 200;
/// Pages of clicks handled in one round.
const PAGES: usize = 50;

/// Result of a removal from some browsers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cleared {
    /// A push to one of them may be on its way, so it cannot be removed yet.
    Sending,
    /// The removal is stored. `None`: none of them can have the message, or it was removed before.
    Done(Option<MessageId>),
}

/// A request to remove a message from a user's browsers.
#[derive(Debug, Clone, Copy)]
pub struct UserRemoval<'a> {
    pub app: AppId,
    pub user: &'a str,
    pub sent_by: Option<Uuid>,
}

/// Removes a message from a user's browsers, and cancels what waits for them.
pub async fn from_user(
    pool: &PgPool, vault: &Vault, of: UserRemoval<'_>, message: MessageId, entry: &AuditEntry, now: Timestamp,
) -> sqlx::Result<Cleared> {
    retrying(|| async move {
        let mut tx = begin_by_index(pool).await?;
        let browsers = browsers(&mut tx, of.app, of.user).await?;
        let cleared = clear(&mut tx, vault, message, browsers, of.sent_by, now).await?;
        // What waited for these browsers stays cancelled, even if a push is on its way.
        entry.record(&mut tx, 1, now).await?;
        tx.commit().await.map(|()| cleared)
    })
    .await
}

/// Closes notifications with a tag in all browsers of a user, by a message that withdraws itself. `None`: the user has no active
/// browser.
pub async fn tag_of_user(
    pool: &PgPool, vault: &Vault, of: UserRemoval<'_>, message: NewMessage, entry: &AuditEntry, now: Timestamp,
) -> sqlx::Result<Option<MessageId>> {
    let mut tx = begin(pool).await?;
    let browsers = browsers(&mut tx, of.app, of.user).await?;
    let id = message.id;
    let message = NewMessage { audience: json!({"withdraws": null}), ..message };
    if !send_to(&mut tx, vault, message, browsers, now).await? {
        return Ok(None);
    }
    execute!(&mut *tx, "UPDATE messages SET withdraws = id, withdraws_root = id WHERE id = $1", (id.0))?;
    entry.record(&mut tx, 1, now).await?;
    tx.commit().await?;
    Ok(Some(id))
}

async fn browsers(conn: &mut PgConnection, app: AppId, user: &str) -> sqlx::Result<Vec<SubscriptionId>> {
    fetch_all!(
        conn,
        scalar,
        r#"SELECT id AS "id: SubscriptionId" FROM subscriptions WHERE app = $1 AND user_id = $2 AND state = 'active' ORDER BY id"#,
        (app.0, user)
    )
}

/// Removes a message from some browsers, in the caller's transaction.
async fn clear(
    conn: &mut PgConnection, vault: &Vault, id: MessageId, browsers: Vec<SubscriptionId>, sent_by: Option<Uuid>,
    now: Timestamp,
) -> sqlx::Result<Cleared> {
    // Whole withdrawals reach these browsers, too.
    if is_withdrawn(conn, id).await? {
        return Ok(Cleared::Done(None));
    }
    let Some(row) = load(conn, id, sent_by).await? else { return Ok(Cleared::Done(None)) };
    let mut same = updates::of(conn, id).await?;
    same.push(id);
    let mut looked_at = 0;
    while let Some(message) = same.get(looked_at).copied() {
        same.extend(replays(conn, message, &browsers).await?);
        looked_at += 1;
    }
    for message in &same {
        let lost = maybe_sent(conn, *message, &browsers).await?;
        for browser in &browsers {
            let waiting = take::of_delivery(conn, row.app(), *message, *browser, now).await?;
            let reason = if lost.contains(browser) { STOPPED } else { "message cancelled" };
            unsent::end(conn, waiting.into_iter().collect(), How::Cancelled(reason), now).await?;
        }
        if is_sending(conn, *message, &browsers).await? {
            return Ok(Cleared::Sending);
        }
    }
    let recipients = recipients(conn, id, &same, &browsers).await?;
    let removal = row.removal(vault, now);
    let made = removal.id;
    let is_made = create(conn, vault, &row, removal, RemovalRecipients::Few(recipients), now).await?;
    Ok(Cleared::Done(is_made.then_some(made)))
}

/// Returns the messages that replayed deliveries of a message to these browsers.
async fn replays(conn: &mut PgConnection, id: MessageId, browsers: &[SubscriptionId]) -> sqlx::Result<Vec<MessageId>> {
    fetch_all!(
        conn,
        scalar,
        r#"SELECT DISTINCT replay AS "replay!: MessageId" FROM dead_letters
           WHERE message = $1 AND subscription = ANY ($2) AND state = 'replayed'"#,
        (id.0, browsers as &[SubscriptionId])
    )
}

/// Returns which of these browsers have a waiting delivery of a message that a crashed worker may have sent.
async fn maybe_sent(
    conn: &mut PgConnection, id: MessageId, browsers: &[SubscriptionId],
) -> sqlx::Result<Vec<SubscriptionId>> {
    fetch_all!(
        conn,
        scalar,
        r#"SELECT subscription AS "id: SubscriptionId" FROM queue WHERE message = $1 AND subscription = ANY ($2) AND leases > 0"#,
        (id.0, browsers as &[SubscriptionId])
    )
}

/// Whether a delivery of a message to one of these browsers has not ended, or is still to be created.
async fn is_sending(conn: &mut PgConnection, id: MessageId, browsers: &[SubscriptionId]) -> sqlx::Result<bool> {
    fetch_one!(
        conn,
        scalar,
        r#"SELECT EXISTS (SELECT FROM cursors WHERE message = $1)
             OR EXISTS (SELECT FROM queue WHERE message = $1 AND subscription = ANY ($2))
             OR EXISTS (SELECT FROM batches WHERE message = $1 AND recipients && $2) AS "sending!""#,
        (id.0, browsers as &[SubscriptionId])
    )
}

/// Returns which of these browsers may have got a message, by itself or one of the `same`, and records that it is removed from them.
/// Repeats return nothing.
async fn recipients(
    conn: &mut PgConnection, id: MessageId, same: &[MessageId], browsers: &[SubscriptionId],
) -> sqlx::Result<Vec<SubscriptionId>> {
    let reached = fetch_all!(
        &mut *conn,
        scalar,
        r#"SELECT DISTINCT a.subscription AS "id!: SubscriptionId" FROM possible_arrivals a
           WHERE a.message = ANY ($1) AND a.subscription = ANY ($2) AND a.shard = ANY ($3)
           ORDER BY 1"#,
        (same as &[MessageId], browsers as &[SubscriptionId], &shards_of(browsers))
    )?;
    fetch_all!(
        conn,
        scalar,
        r#"INSERT INTO removed_deliveries (message, subscription) SELECT $1, * FROM unnest($2::uuid[])
           ON CONFLICT DO NOTHING RETURNING subscription AS "id: SubscriptionId""#,
        (id.0, &reached as &[SubscriptionId])
    )
}

/// Records clicks on messages with `clear_on_click`. [`after_clicks`] removes them from the other browsers of the person.
pub(crate) async fn clicked(
    conn: &mut PgConnection, messages: &[MessageId], subscriptions: &[SubscriptionId],
) -> sqlx::Result<()> {
    execute!(
        conn,
        "INSERT INTO click_clears (message, subscription) SELECT * FROM unnest($1::uuid[], $2::uuid[]) ON CONFLICT DO NOTHING",
        (messages as &[MessageId], subscriptions as &[SubscriptionId])
    )
}

/// Removes messages that were clicked in one browser from the person's others, at most [`PAGES`] pages. A click stays recorded
/// while a push to one of them may be on its way. The newest messages come first, so that paused ones delay no others.
pub async fn after_clicks(pool: &PgPool, vault: &Vault, now: Timestamp) -> sqlx::Result<()> {
    let mut before = (MessageId(Uuid::max()), SubscriptionId(Uuid::max()));
    let mut fanning_out = None;
    for _ in 0..PAGES {
        let clicks = fetch_all!(
            pool,
            r#"SELECT message AS "message: MessageId", subscription AS "subscription: SubscriptionId" FROM click_clears
               WHERE (message, subscription) < ($1, $2) ORDER BY message DESC, subscription DESC LIMIT $3"#,
            (before.0.0, before.1.0, CHUNK)
        )?;
        let Some(last) = clicks.last() else { break };
        before = (last.message, last.subscription);
        for click in &clicks {
            // Its other clicks wait for the same.
            if fanning_out == Some(click.message) {
                continue;
            }
            let cleared = after_click(pool, vault, click.message, click.subscription, now).await?;
            if cleared == Cleared::Sending && has_cursors(pool, click.message).await? {
                fanning_out = Some(click.message);
            }
        }
    }
    Ok(())
}

async fn has_cursors(pool: &PgPool, id: MessageId) -> sqlx::Result<bool> {
    fetch_one!(pool, scalar, r#"SELECT EXISTS (SELECT FROM cursors WHERE message = $1) AS "exists!""#, (id.0))
}

async fn after_click(
    pool: &PgPool, vault: &Vault, message: MessageId, clicked: SubscriptionId, now: Timestamp,
) -> sqlx::Result<Cleared> {
    retrying(|| async move {
        let mut tx = begin_by_index(pool).await?;
        let taken = rows_affected!(
            &mut *tx,
            "DELETE FROM click_clears WHERE message = $1 AND subscription = $2",
            (message.0, clicked.0)
        )?;
        let accepted_at =
            fetch_optional!(&mut *tx, scalar, "SELECT accepted_at FROM messages WHERE id = $1", (message.0))?;
        let person = fetch_optional!(
            &mut *tx,
            // A click on a message for the former user of a browser says nothing about the present one.
            r#"SELECT app AS "app: AppId", user_id FROM subscriptions
               WHERE shard = $2 AND id = $1 AND (user_left_at IS NULL OR user_left_at <= $3)"#,
            (clicked.0, clicked.shard(), accepted_at)
        )?;
        let others = match person.and_then(|person| Some((person.app, person.user_id?))) {
            Some((app, user)) => browsers(&mut tx, app, &user).await?,
            None => Vec::new(),
        };
        let others: Vec<SubscriptionId> = others.into_iter().filter(|other| *other != clicked).collect();
        let cleared = match taken == 0 || others.is_empty() {
            true => Cleared::Done(None),
            false => clear(&mut tx, vault, message, others, None, now).await?,
        };
        if cleared != Cleared::Sending {
            tx.commit().await?;
        }
        Ok(cleared)
    })
    .await
}
