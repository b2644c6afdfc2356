//! Gives a message that was sent new content: in the database, and in the browsers that have it, by another message, the update.

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::removals::{RemovalRecipients, create, is_withdrawn, load, recipients};
use crate::connections::engine::shards_of;
use crate::keys::audit::AuditEntry;
use crate::operations::retrying::retrying;
use crate::queue::sending::NewMessage;
use crate::queue::steering::{self, MessageOrder};
use crate::transactions::begin_by_index;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, MessageId, SubscriptionId};
use bellwire_vault::{CONTENT, Vault};

/// Time before the due time in which workers may have read a scheduled message.
const SOON: chrono::TimeDelta = chrono::TimeDelta::seconds(30);

/// Result of an update.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Updated {
    Unknown,
    /// It was withdrawn.
    Withdrawn,
    /// Deliveries of it, or of an earlier update, have not ended.
    Sending,
    /// Nothing was sent yet: it is sent with the new content.
    InPlace,
    /// The update is stored. `None`: no browser has the message.
    Sent(Option<MessageId>),
}

/// New content of a message.
#[derive(Debug, Clone, Copy)]
pub struct NewContent<'a> {
    /// JSON of [`MessageContent`](bellwire_core::template::MessageContent), not encrypted.
    pub plain: &'a [u8],
    pub sent_by: Option<Uuid>,
}

/// Updates a message. Writes `entry` to the audit log if that changes anything.
pub async fn update(
    pool: &PgPool, vault: &Vault, (app, id): (AppId, MessageId), content: NewContent<'_>, entry: &AuditEntry,
    now: Timestamp,
) -> sqlx::Result<Updated> {
    retrying(|| async move {
        let mut tx = begin_by_index(pool).await?;
        let updated = update_within(&mut tx, vault, (app, id), content, now).await?;
        if matches!(updated, Updated::InPlace | Updated::Sent(_)) {
            entry.record(&mut tx, 1, now).await?;
            tx.commit().await?;
        }
        Ok(updated)
    })
    .await
}

async fn update_within(
    conn: &mut PgConnection, vault: &Vault, (app, id): (AppId, MessageId), content: NewContent<'_>, now: Timestamp,
) -> sqlx::Result<Updated> {
    let found = fetch_optional!(
        &mut *conn,
        r#"SELECT accepted_at, state = 'cancelled' AS "is_cancelled!", ttl_s, clear_on_click, audience,
             audience ?| ARRAY['users', 'subscriptions'] AS "is_personal!"
           FROM messages m WHERE id = $1 AND app = $2 AND withdraws IS NULL FOR NO KEY UPDATE"#,
        (id.0, app.0)
    )?;
    let Some(message) = found else { return Ok(Updated::Unknown) };
    // A statement of its own: one that waited for the lock would not see the withdrawal that was recorded meanwhile.
    if is_withdrawn(conn, id).await? {
        return Ok(Updated::Withdrawn);
    }
    execute!(
        &mut *conn,
        "UPDATE messages SET content = $2 WHERE id = $1 AND content IS NOT NULL",
        (id.0, vault.seal(CONTENT, id, content.plain))
    )?;
    let is_moving = steering::is_moving(conn, id, now).await?;
    if is_moving && message.accepted_at > now + SOON && !message.is_cancelled {
        return Ok(Updated::InPlace);
    }
    if cancel(conn, app, id, now).await? || is_moving {
        return Ok(Updated::Sending);
    }
    let Some(row) = load(conn, id, content.sent_by).await? else { return Ok(Updated::Unknown) };
    let update = row.removal(vault, now);
    let update = NewMessage {
        content: vault.seal(CONTENT, update.id, content.plain),
        ttl_s: message.ttl_s,
        clear_on_click: message.clear_on_click,
        // What names its recipients is not for a later user of the same browser.
        audience: if message.is_personal { message.audience } else { update.audience },
        ..update
    };
    let (made, mut recipients) = (update.id, recipients(conn, id).await?);
    if let RemovalRecipients::Few(ids) = &mut recipients {
        let kept = still_theirs(conn, id, ids, message.accepted_at).await?;
        ids.retain(|id| kept.contains(id));
    }
    if !create(conn, vault, &row, update, recipients, now).await? {
        return Ok(Updated::Sent(None));
    }
    execute!(conn, "UPDATE messages SET is_update = true WHERE id = $1", (made.0))?;
    Ok(Updated::Sent(Some(made)))
}

/// Returns which of these browsers belong to the same user as when the message was accepted, and still have it.
async fn still_theirs(
    conn: &mut PgConnection, id: MessageId, browsers: &[SubscriptionId], accepted_at: Timestamp,
) -> sqlx::Result<Vec<SubscriptionId>> {
    let removed = fetch_all!(
        &mut *conn,
        scalar,
        r#"SELECT subscription AS "id: SubscriptionId" FROM removed_deliveries WHERE message = $1"#,
        (id.0)
    )?;
    let theirs = fetch_all!(
        conn,
        scalar,
        r#"SELECT id AS "id: SubscriptionId" FROM subscriptions
           WHERE shard = ANY ($1) AND id = ANY ($2) AND (user_left_at IS NULL OR user_left_at <= $3)"#,
        (&shards_of(browsers), browsers as &[SubscriptionId], accepted_at)
    )?;
    Ok(theirs.into_iter().filter(|id| !removed.contains(id)).collect())
}

/// Returns the updates of a message, the oldest first.
pub(super) async fn of(conn: &mut PgConnection, id: MessageId) -> sqlx::Result<Vec<MessageId>> {
    fetch_all!(
        conn,
        scalar,
        r#"SELECT id AS "id: MessageId" FROM messages WHERE withdraws = $1 AND is_update ORDER BY id"#,
        (id.0)
    )
}

/// Cancels what waits of a message's updates. Returns whether a push of one may be on its way.
pub(super) async fn cancel(conn: &mut PgConnection, app: AppId, id: MessageId, now: Timestamp) -> sqlx::Result<bool> {
    let mut is_moving = false;
    for update in of(conn, id).await? {
        steering::steer_within(conn, app, update, MessageOrder::Cancel, now).await?;
        is_moving |= steering::is_moving(conn, update, now).await?;
    }
    Ok(is_moving)
}
