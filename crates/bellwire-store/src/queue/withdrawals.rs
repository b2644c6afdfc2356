//! Withdraws messages: cancels the deliveries that are not sent, and removes the others from browsers.
//!
//! A second message, the removal, tells service workers to close the notification. It is created when no push of the withdrawn
//! message can start any longer and every outcome is logged. So its recipients are certain, and no push of the withdrawn message
//! replaces the removal at a push service. After a crash that takes until the leases have expired.

use serde_json::{Value, json};
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::keys::audit::AuditEntry;
use crate::operations::retrying::retrying;
use crate::queue::sending;
use crate::queue::sending::{Addressed, Audience, NewMessage};
use crate::queue::steering::{self, MessageOrder, Steered};
use crate::queue::stops::Stop;
use crate::queue::updates;
use crate::results::ChunkProgress;
use crate::transactions::{begin, begin_by_index};
use bellwire_core::clock::{Timestamp, uuid_of};
use bellwire_core::delivery::{Tier, Urgency};
use bellwire_core::id::{AppId, CampaignId, LaneId, MessageId, SubscriptionId};
use bellwire_core::message::{Content, Notification};
use bellwire_core::template::MessageContent;
use bellwire_vault::{CONTENT, Vault};

/// Time to live of a removal in seconds: four weeks, the longest that push services keep a message. A device may have shown the
/// message and be offline since.
const TTL_S: i32 = 2_419_200;
/// Maximum recipients of a removal that become queue rows at once.
const ROWS_MAX: usize = 100;
/// Text of a removal where a browser must show one, if the app has none.
const NOTICE: &str = "This message is no longer available.";

/// Result of a request.
#[derive(Debug)]
pub enum Withdrawn {
    /// The app has no such message, or it is a removal itself.
    Unknown,
    /// It was withdrawn before.
    Already,
    /// It is withdrawn now. The stop is for this process's dispatch. `None`: every delivery had ended.
    Now(Option<Stop>),
}

/// Withdraws a message: cancels what waits, and records that the rest is to be removed. [`advance`] continues.
pub async fn request(
    pool: &PgPool,
    app: AppId,
    id: MessageId,
    sent_by: Option<Uuid>,
    entry: &AuditEntry,
    now: Timestamp,
) -> sqlx::Result<Withdrawn> {
    retrying(|| async move {
        let mut tx = begin(pool).await?;
        let withdrawn = request_within(&mut tx, app, id, sent_by, now).await?;
        if matches!(withdrawn, Withdrawn::Now(_)) {
            entry.record(&mut tx, 1, now).await?;
            tx.commit().await?;
        }
        Ok(withdrawn)
    })
    .await
}

/// Withdraws a message in the caller's transaction. Commit it if the result is [`Withdrawn::Now`].
pub(crate) async fn request_within(
    conn: &mut PgConnection,
    app: AppId,
    id: MessageId,
    sent_by: Option<Uuid>,
    now: Timestamp,
) -> sqlx::Result<Withdrawn> {
    let steered = steering::steer_within(conn, app, id, MessageOrder::Cancel, now).await?;
    let recorded = rows_affected!(
        &mut *conn,
        "INSERT INTO withdrawals (message, app, at, sent_by)
         SELECT id, app, $3, $4 FROM messages WHERE id = $1 AND app = $2 AND withdraws IS NULL ON CONFLICT DO NOTHING",
        (id.0, app.0, now, sent_by)
    )?;
    Ok(match steered {
        Steered::Unknown => Withdrawn::Unknown,
        _ if recorded == 0 => match exists(conn, id).await? {
            true => Withdrawn::Already,
            false => Withdrawn::Unknown,
        },
        Steered::Now { stop, .. } => Withdrawn::Now(Some(stop)),
        Steered::Done | Steered::Cancelled | Steered::Already => Withdrawn::Now(None),
    })
}

async fn exists(conn: &mut PgConnection, id: MessageId) -> sqlx::Result<bool> {
    fetch_one!(conn, scalar, r#"SELECT EXISTS (SELECT FROM withdrawals WHERE message = $1) AS "exists!""#, (id.0))
}

/// Records that all messages of a locked campaign are withdrawn. Returns the number of those that were not.
pub async fn request_of_campaign(
    conn: &mut PgConnection,
    campaign: CampaignId,
    sent_by: Option<Uuid>,
    now: Timestamp,
) -> sqlx::Result<u64> {
    rows_affected!(
        conn,
        "INSERT INTO withdrawals (message, app, at, sent_by)
         SELECT id, app, $2, $3 FROM messages WHERE campaign = $1 AND withdraws IS NULL ORDER BY id ON CONFLICT DO NOTHING",
        (campaign.0, now, sent_by)
    )
}

/// Returns withdrawn messages of which some deliveries have not ended.
pub async fn waiting(pool: &PgPool) -> sqlx::Result<Vec<MessageId>> {
    fetch_all!(
        pool,
        scalar,
        r#"SELECT message AS "message: MessageId" FROM withdrawals WHERE ended_at IS NULL ORDER BY message LIMIT 1000"#
    )
}

/// Returns the messages of a campaign whose withdrawals have not ended.
pub async fn waiting_of_campaign(pool: &PgPool, campaign: CampaignId) -> sqlx::Result<Vec<MessageId>> {
    fetch_all!(
        pool,
        scalar,
        r#"SELECT w.message AS "message: MessageId" FROM messages m JOIN withdrawals w ON w.message = m.id
           WHERE m.campaign = $1 AND w.ended_at IS NULL ORDER BY w.message"#,
        (campaign.0)
    )
}

/// Continues a withdrawal, until the removal exists or none is needed. `More`: some deliveries have not ended.
pub async fn advance(pool: &PgPool, vault: &Vault, id: MessageId, now: Timestamp) -> sqlx::Result<ChunkProgress> {
    cancel(pool, id, now).await?;
    retrying(|| async move {
        let mut tx = begin_by_index(pool).await?;
        let Some(withdrawn) = lock(&mut tx, id).await? else { return Ok(ChunkProgress::Done) };
        for message in updates::of(&mut tx, id).await?.into_iter().chain([id]) {
            if steering::is_moving(&mut tx, message, now).await? {
                return Ok(ChunkProgress::More);
            }
        }
        let removal = withdrawn.removal(vault, now);
        let recipients = recipients(&mut tx, id).await?;
        let (removal, made) = (removal.id, create(&mut tx, vault, &withdrawn, removal, recipients, now).await?);
        end(&mut tx, id, made.then_some(removal), now).await?;
        tx.commit().await?;
        Ok(ChunkProgress::Done)
    })
    .await
}

/// Cancels what waits of a withdrawn message. A request did that before, but not for the messages of a campaign, and replays.
async fn cancel(pool: &PgPool, id: MessageId, now: Timestamp) -> sqlx::Result<()> {
    let app = fetch_optional!(
        pool,
        scalar,
        r#"SELECT app AS "app: AppId" FROM withdrawals WHERE message = $1 AND ended_at IS NULL"#,
        (id.0)
    )?;
    let Some(app) = app else { return Ok(()) };
    retrying(|| async move {
        let mut tx = begin(pool).await?;
        steering::steer_within(&mut tx, app, id, MessageOrder::Cancel, now).await?;
        updates::cancel(&mut tx, app, id, now).await?;
        tx.commit().await
    })
    .await?;
    while steering::go_on(pool, id, now).await? == ChunkProgress::More {}
    Ok(())
}

/// A withdrawn message, with what its removal needs.
pub(super) struct WithdrawnRow {
    id: MessageId,
    /// What its delivery ids derive from.
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

/// Locks a withdrawal that has not ended. `None`: it has, or another process continues it.
async fn lock(conn: &mut PgConnection, id: MessageId) -> sqlx::Result<Option<WithdrawnRow>> {
    let locked = fetch_optional!(
        &mut *conn,
        "SELECT sent_by FROM withdrawals WHERE message = $1 AND ended_at IS NULL FOR UPDATE SKIP LOCKED",
        (id.0)
    )?;
    let Some(locked) = locked else { return Ok(None) };
    load(conn, id, locked.sent_by).await
}

/// Reads a message that is removed from browsers. `None`: retention has deleted it.
pub(super) async fn load(
    conn: &mut PgConnection,
    id: MessageId,
    sent_by: Option<Uuid>,
) -> sqlx::Result<Option<WithdrawnRow>> {
    // A later message with the same collapse key has replaced this one at push services, and must not be replaced itself.
    fetch_optional!(
        conn,
        WithdrawnRow,
        r#"SELECT m.id AS "id: MessageId", coalesce(m.root, m.replay_of, m.id) AS "root!", m.app AS "app: AppId", a.name AS app_name,
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
    vault: &Vault,
    app: AppId,
    (app_name, notice): (&str, Option<&Value>),
    tag: Option<String>,
    now: Timestamp,
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

/// RemovalRecipients of a removal.
pub(super) enum RemovalRecipients {
    Few(Vec<SubscriptionId>),
    /// Lanes of the withdrawn message, and the number of its accepted deliveries.
    Many(Vec<LaneId>, i64),
}

/// Returns the subscriptions that may have got a push of a message: those whose push service accepted it, did not respond to a
/// POST, or failed after it, and those whose worker was stopped or crashed.
pub(super) async fn recipients(conn: &mut PgConnection, id: MessageId) -> sqlx::Result<RemovalRecipients> {
    // The statement of a cursor, in `claims::cut`, has the same condition.
    let few = fetch_all!(
        &mut *conn,
        scalar,
        r#"SELECT DISTINCT a.subscription AS "id: SubscriptionId" FROM attempts a
             JOIN subscriptions s ON s.shard = a.shard AND s.id = a.subscription
           WHERE a.message = $1 AND s.state IN ('active', 'replaced')
             AND (a.ending = 1 OR a.took_ms IS NOT NULL AND (a.status IS NULL OR a.status >= 500)
               OR a.ending = 6 AND a.reason = 'stopped')
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
    conn: &mut PgConnection,
    vault: &Vault,
    withdrawn: &WithdrawnRow,
    message: NewMessage,
    recipients: RemovalRecipients,
    now: Timestamp,
) -> sqlx::Result<bool> {
    let id = message.id;
    match recipients {
        RemovalRecipients::Few(ids) if ids.is_empty() => return Ok(false),
        RemovalRecipients::Few(ids) => {
            let addressed = Addressed { message, audience: Audience::Subscriptions(ids) };
            let sent = sending::send(conn, vault, &[&addressed], None, now).await?;
            if sent.iter().any(|sent| !sent.unknown.is_empty()) {
                return Err(sqlx::Error::RowNotFound); // deleted meanwhile: the next round finds the others
            }
        }
        RemovalRecipients::Many(lanes, accepted) => sending::fan_out(conn, &message, None, &lanes, accepted).await?,
    }
    execute!(
        conn,
        "UPDATE messages SET withdraws = $2, withdraws_root = $3 WHERE id = $1",
        (id.0, withdrawn.id.0, withdrawn.root)
    )?;
    Ok(true)
}

/// Records the end of a withdrawal. Its open dead letters are discarded, and messages that replayed others are withdrawn, too.
async fn end(conn: &mut PgConnection, id: MessageId, removal: Option<MessageId>, now: Timestamp) -> sqlx::Result<()> {
    execute!(
        &mut *conn,
        "UPDATE withdrawals SET ended_at = $2, removal = $3 WHERE message = $1",
        (id.0, now, removal.map(|id| id.0))
    )?;
    execute!(
        &mut *conn,
        "UPDATE dead_letters SET state = 'discarded', settled_at = $2 WHERE message = $1 AND state = 'open'",
        (id.0, now)
    )?;
    execute!(
        conn,
        "INSERT INTO withdrawals (message, app, at, sent_by)
         SELECT DISTINCT l.replay, w.app, w.at, w.sent_by FROM withdrawals w JOIN dead_letters l ON l.message = w.message
         WHERE w.message = $1 AND l.state = 'replayed' ON CONFLICT DO NOTHING",
        (id.0)
    )
}

/// A withdrawal, as shown with its message.
#[derive(Debug)]
pub struct Withdrawal {
    pub at: Timestamp,
    /// Message that removes it from browsers. `None`: none is needed, or none yet.
    pub removal: Option<MessageId>,
    pub ended_at: Option<Timestamp>,
    /// Pushes of the removal that push services accepted.
    pub accepted: i64,
    /// Browsers that closed the notification.
    pub removed: i64,
    /// Browsers that had not shown it, and will not.
    pub prevented: i64,
    /// Browsers in which it was clicked or closed before.
    pub missed: i64,
}

/// Returns the withdrawals of a campaign's messages, summed. `None`: none was withdrawn.
pub async fn of_campaign(pool: &PgPool, campaign: CampaignId) -> sqlx::Result<Option<Withdrawal>> {
    let sum = fetch_one!(
        pool,
        r#"SELECT min(w.at) AS at, CASE WHEN bool_and(w.ended_at IS NOT NULL) THEN max(w.ended_at) END AS ended_at,
             coalesce(sum((SELECT sum(accepted) FROM message_counts WHERE message = w.removal)), 0)::bigint AS "accepted!",
             coalesce(sum(r.removed), 0)::bigint AS "removed!", coalesce(sum(r.prevented), 0)::bigint AS "prevented!",
             coalesce(sum(r.missed), 0)::bigint AS "missed!"
           FROM messages m JOIN withdrawals w ON w.message = m.id LEFT JOIN receipt_counts r ON r.message = w.removal
           WHERE m.campaign = $1"#,
        (campaign.0)
    )?;
    Ok(sum.at.map(|at| Withdrawal {
        at,
        removal: None,
        ended_at: sum.ended_at,
        accepted: sum.accepted,
        removed: sum.removed,
        prevented: sum.prevented,
        missed: sum.missed,
    }))
}

/// Returns the withdrawal of a message. `None`: it is not withdrawn.
pub async fn of(pool: &PgPool, id: MessageId) -> sqlx::Result<Option<Withdrawal>> {
    fetch_optional!(
        pool,
        Withdrawal,
        r#"SELECT w.at, w.removal AS "removal: MessageId", w.ended_at,
             (SELECT coalesce(sum(accepted), 0)::bigint FROM message_counts WHERE message = w.removal) AS "accepted!",
             coalesce(r.removed, 0) AS "removed!", coalesce(r.prevented, 0) AS "prevented!", coalesce(r.missed, 0) AS "missed!"
           FROM withdrawals w LEFT JOIN receipt_counts r ON r.message = w.removal WHERE w.message = $1"#,
        (id.0)
    )
}
