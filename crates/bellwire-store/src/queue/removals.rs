//! Removals: messages that remove another one from browsers, or update it there, and their recipients.

use serde_json::{Value, json};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::queue::sending::{self, Addressed, Audience, NewMessage};
use bellwire_core::clock::{Timestamp, uuid_of};
use bellwire_core::delivery::{Tier, Urgency};
use bellwire_core::id::{AppId, LaneId, MessageId, SubscriptionId};
use bellwire_core::message::{Content, Notification};
use bellwire_core::template::MessageContent;
use bellwire_vault::{CONTENT, Vault};

/// Time to live of a removal in seconds: four weeks, the longest that push services keep a message. A device may have shown the
/// message and be offline since.
const TTL_S: i32 = 2_419_200;
/// Maximum recipients of a removal that become queue rows at once: as many as a message may name.
const ROWS_MAX: usize = 1_000;
/// Text of a removal where a browser must show one, if the app has none.
const NOTICE: &str = "This message is no longer available.";

/// A withdrawn message, with what its removal needs.
pub(super) struct WithdrawnRow {
    id: MessageId,
    /// Id that its delivery ids derive from.
    root: Uuid,
    app: AppId,
    app_name: String,
    notice: Option<Value>,
    sent_by: Option<Uuid>,
    tier: i16,
    urgency: i16,
    content: Option<Vec<u8>>,
    topic_header: Option<String>,
}

/// Whether a withdrawal of the message was recorded.
pub(super) async fn is_withdrawn(conn: &mut PgConnection, id: MessageId) -> sqlx::Result<bool> {
    fetch_one!(conn, scalar, r#"SELECT EXISTS (SELECT FROM withdrawals WHERE message = $1) AS "exists!""#, (id.0))
}

/// Reads a message that is removed from browsers. `None`: retention has deleted it.
pub(super) async fn load(
    conn: &mut PgConnection, id: MessageId, sent_by: Option<Uuid>,
) -> sqlx::Result<Option<WithdrawnRow>> {
    // A later message with the same collapse key has replaced this one at push services, and must not be replaced itself.
    fetch_optional!(
        conn,
        WithdrawnRow,
        r#"SELECT m.id AS "id: MessageId", coalesce(m.withdraws_root, m.root, m.replay_of, m.id) AS "root!", m.app AS "app: AppId", a.name AS app_name,
             a.withdrawal_notice AS notice, $2::uuid AS sent_by, m.tier, m.urgency, m.content,
             CASE WHEN NOT EXISTS (SELECT FROM messages l WHERE l.app = m.app AND l.topic_header = m.topic_header AND l.id > m.id
                                    AND l.withdraws IS DISTINCT FROM m.id)
               THEN m.topic_header END AS topic_header
           FROM messages m JOIN apps a ON a.id = m.app WHERE m.id = $1"#,
        (id.0, sent_by)
    )
}

impl WithdrawnRow {
    pub(super) fn app(&self) -> AppId {
        self.app
    }

    /// Composes the message that removes this one from browsers. Its text is shown by browsers without Bellwire's service worker,
    /// and by those that cannot close notifications.
    pub(super) fn removal(&self, vault: &Vault, now: Timestamp) -> NewMessage {
        NewMessage {
            tier: Tier::from_code(self.tier).expect("checked by the table"),
            urgency: Urgency::from_code(self.urgency).expect("checked by the table"),
            audience: json!({"withdraws": self.id}),
            topic_header: self.topic_header.clone(),
            sent_by: self.sent_by,
            ..removal(vault, self.app, (&self.app_name, self.notice.as_ref()), self.tag(vault), now)
        }
    }

    /// Returns the tag of the withdrawn notification, if its content still exists and names one.
    fn tag(&self, vault: &Vault) -> Option<String> {
        let content = vault.open(CONTENT, self.id, self.content.as_deref()?).ok()?;
        match MessageContent::from_json(&content).ok()? {
            MessageContent::Literal(Content::Notification { content, .. }) => content.tag,
            _ => None,
        }
    }
}

/// Composes a removal with the app's name and notice, for a notification with this tag.
pub fn removal(
    vault: &Vault, app: AppId, (app_name, notice): (&str, Option<&Value>), tag: Option<String>, now: Timestamp,
) -> NewMessage {
    let id = MessageId(uuid_of(now));
    let text = |name: &str| notice.and_then(|notice| notice[name].as_str()).map(str::to_owned);
    let notice = Notification {
        title: text("title").unwrap_or_else(|| app_name.to_owned()),
        body: Some(text("body").unwrap_or_else(|| NOTICE.to_owned())),
        tag,
        silent: true,
        ..Notification::default()
    };
    let content = MessageContent::Literal(Content::Notification { content: Box::new(notice), compact: None });
    let content = content.to_json().expect("a notification is JSON");
    NewMessage {
        id,
        app,
        tier: Tier::Transactional,
        audience: Value::Null,
        filter: None,
        content: vault.seal(CONTENT, id, &content),
        ttl_s: TTL_S,
        urgency: Urgency::Normal,
        topic_header: None,
        policy: None,
        enveloped: true,
        clear_on_click: false,
        accepted_at: now,
        received_at: None,
        by_cursors: false,
        key: None,
        traceparent: None,
        sent_by: None,
    }
}

/// Recipients of a removal.
pub(super) enum RemovalRecipients {
    Few(Vec<SubscriptionId>),
    /// Lanes of the withdrawn message, and the number of its accepted deliveries.
    Many(Vec<LaneId>, i64),
}

/// Returns the subscriptions that may have got a push of a message: those whose push service accepted it, did not respond to a
/// POST, or failed after it, and those whose worker was stopped or crashed.
pub(super) async fn recipients(conn: &mut PgConnection, id: MessageId) -> sqlx::Result<RemovalRecipients> {
    let few = fetch_all!(
        &mut *conn,
        scalar,
        r#"SELECT DISTINCT a.subscription AS "id!: SubscriptionId" FROM possible_arrivals a
             JOIN subscriptions s ON s.shard = a.shard AND s.id = a.subscription
           WHERE a.message = $1 AND s.state IN ('active', 'replaced')
           ORDER BY 1 LIMIT $2"#,
        (id.0, ROWS_MAX as i64 + 1)
    )?;
    if few.len() <= ROWS_MAX {
        return Ok(RemovalRecipients::Few(few));
    }
    let lanes = fetch_all!(
        conn,
        r#"SELECT lane AS "lane: LaneId", accepted FROM message_counts WHERE message = $1 ORDER BY lane"#,
        (id.0)
    )?;
    let accepted = lanes.iter().map(|row| row.accepted).sum();
    Ok(RemovalRecipients::Many(lanes.into_iter().map(|row| row.lane).collect(), accepted))
}

/// Stores a removal with its recipients. Returns `false` if no browser can have the withdrawn message.
pub(super) async fn create(
    conn: &mut PgConnection, vault: &Vault, withdrawn: &WithdrawnRow, message: NewMessage,
    recipients: RemovalRecipients, now: Timestamp,
) -> sqlx::Result<bool> {
    let (id, clear_on_click) = (message.id, message.clear_on_click);
    match recipients {
        RemovalRecipients::Few(ids) => {
            if !send_to(conn, vault, message, ids, now).await? {
                return Ok(false);
            }
        }
        RemovalRecipients::Many(lanes, accepted) => sending::fan_out(conn, &message, None, &lanes, accepted).await?,
    }
    execute!(
        conn,
        "UPDATE messages SET withdraws = $2, withdraws_root = $3, clear_on_click = $4 WHERE id = $1",
        (id.0, withdrawn.id.0, withdrawn.root, clear_on_click)
    )?;
    Ok(true)
}

/// Stores a message to named browsers, without those that were deleted since they were read. Returns `false` if none is left.
pub(super) async fn send_to(
    conn: &mut PgConnection, vault: &Vault, message: NewMessage, mut ids: Vec<SubscriptionId>, now: Timestamp,
) -> sqlx::Result<bool> {
    let mut addressed = Addressed { message, audience: Audience::All };
    while !ids.is_empty() {
        addressed.audience = Audience::Subscriptions(ids.clone());
        let sent = sending::send(conn, vault, &[&addressed], None, now).await?;
        let unknown: Vec<SubscriptionId> = sent.into_iter().flat_map(|sent| sent.unknown).collect();
        if unknown.is_empty() {
            return Ok(true);
        }
        ids.retain(|id| !unknown.contains(id));
    }
    Ok(false)
}
