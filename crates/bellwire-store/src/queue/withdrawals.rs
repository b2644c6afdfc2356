//! Withdraws messages: cancels the deliveries that are not sent, and removes the others from browsers.
//!
//! A second message, the removal, tells service workers to close the notification. It is created when no push of the withdrawn
//! message can start any longer and every outcome is logged. So its recipients are certain, and no push of the withdrawn message
//! replaces the removal at a push service. After a crash that takes until the leases have expired.

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use super::removals::{WithdrawnRow, create, is_withdrawn, load, recipients};
use crate::keys::audit::AuditEntry;
use crate::operations::retrying::retrying;
use crate::queue::steering::{self, MessageOrder, Steered};
use crate::queue::stops::Stop;
use crate::queue::updates;
use crate::results::ChunkProgress;
use crate::transactions::{begin, begin_by_index};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, CampaignId, MessageId};
use bellwire_vault::Vault;

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
    pool: &PgPool, app: AppId, id: MessageId, sent_by: Option<Uuid>, entry: &AuditEntry, now: Timestamp,
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
    conn: &mut PgConnection, app: AppId, id: MessageId, sent_by: Option<Uuid>, now: Timestamp,
) -> sqlx::Result<Withdrawn> {
    let steered = steering::steer_within(conn, app, id, MessageOrder::Cancel, now).await?;
    let recorded = rows_affected!(
        &mut *conn,
        "INSERT INTO withdrawals (message, app, at, sent_by)
         SELECT id, app, $3, $4 FROM messages WHERE id = $1 AND app = $2 AND withdraws IS NULL ON CONFLICT DO NOTHING",
        (id.0, app.0, now, sent_by)
    )?;
    for replay in record_all_replays(conn, vec![id]).await? {
        steering::steer_within(conn, app, replay, MessageOrder::Cancel, now).await?;
    }
    Ok(match steered {
        Steered::Unknown => Withdrawn::Unknown,
        _ if recorded == 0 => match is_withdrawn(conn, id).await? {
            true => Withdrawn::Already,
            false => Withdrawn::Unknown,
        },
        Steered::Now { stop, .. } => Withdrawn::Now(Some(stop)),
        Steered::Done | Steered::Cancelled | Steered::Already => Withdrawn::Now(None),
    })
}

/// Records that the messages that replayed deliveries of a withdrawn message are withdrawn, too. Returns those that were not.
async fn record_replays(conn: &mut PgConnection, id: MessageId) -> sqlx::Result<Vec<MessageId>> {
    fetch_all!(
        conn,
        scalar,
        r#"INSERT INTO withdrawals (message, app, at, sent_by)
           SELECT DISTINCT l.replay, w.app, w.at, w.sent_by FROM withdrawals w JOIN dead_letters l ON l.message = w.message
           WHERE w.message = $1 AND l.state = 'replayed' ON CONFLICT DO NOTHING RETURNING message AS "message: MessageId""#,
        (id.0)
    )
}

/// Does so for these messages, and for replays of replays.
async fn record_all_replays(conn: &mut PgConnection, mut open: Vec<MessageId>) -> sqlx::Result<Vec<MessageId>> {
    let mut replays = Vec::new();
    while let Some(of) = open.pop() {
        let new = record_replays(conn, of).await?;
        open.extend(&new);
        replays.extend(new);
    }
    Ok(replays)
}

/// Records that all messages of a locked campaign are withdrawn. Returns the number of those that were not, and the messages that
/// replayed some of their deliveries: the order to the campaign does not reach these, so [`advance`] cancels them.
pub async fn request_of_campaign(
    conn: &mut PgConnection, campaign: CampaignId, sent_by: Option<Uuid>, now: Timestamp,
) -> sqlx::Result<(u64, Vec<MessageId>)> {
    let recorded = rows_affected!(
        &mut *conn,
        "INSERT INTO withdrawals (message, app, at, sent_by)
         SELECT id, app, $2, $3 FROM messages WHERE campaign = $1 AND withdraws IS NULL ORDER BY id ON CONFLICT DO NOTHING",
        (campaign.0, now, sent_by)
    )?;
    let replayed = fetch_all!(
        &mut *conn,
        scalar,
        r#"SELECT id AS "id: MessageId" FROM messages m
           WHERE campaign = $1 AND EXISTS (SELECT FROM dead_letters WHERE message = m.id AND state = 'replayed') ORDER BY id"#,
        (campaign.0)
    )?;
    Ok((recorded, record_all_replays(conn, replayed).await?))
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
    // One chunk: the next round continues.
    steering::go_on(pool, id, now).await.map(drop)
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

/// Records the end of a withdrawal. Its open dead letters are discarded, and messages that replayed others are withdrawn, too.
async fn end(conn: &mut PgConnection, id: MessageId, removal: Option<MessageId>, now: Timestamp) -> sqlx::Result<()> {
    execute!(
        &mut *conn,
        "UPDATE withdrawals SET ended_at = $2, removal = $3 WHERE message = $1",
        (id.0, now, removal.map(|id| id.0))
    )?;
    execute!(
        &mut *conn,
        "UPDATE dead_letters SET state = 'discarded', settled_at = $2
         WHERE message IN (SELECT $1::uuid UNION ALL SELECT id FROM messages WHERE withdraws = $1 AND is_update) AND state = 'open'",
        (id.0, now)
    )?;
    record_replays(conn, id).await.map(drop)
}

/// A withdrawal, as shown with its message.
#[derive(Debug)]
pub struct Withdrawal {
    pub at: Timestamp,
    /// Message that removes it from browsers. `None`: none is needed, or none yet.
    pub removal: Option<MessageId>,
    pub ended_at: Option<Timestamp>,
    /// Browsers to which the removal is sent.
    pub targeted: i64,
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
             coalesce(sum((SELECT sum(targeted) FROM message_counts WHERE message = w.removal)), 0)::bigint AS "targeted!",
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
        targeted: sum.targeted,
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
             (SELECT coalesce(sum(targeted), 0)::bigint FROM message_counts WHERE message = w.removal) AS "targeted!",
             coalesce(r.removed, 0) AS "removed!", coalesce(r.prevented, 0) AS "prevented!", coalesce(r.missed, 0) AS "missed!"
           FROM withdrawals w LEFT JOIN receipt_counts r ON r.message = w.removal WHERE w.message = $1"#,
        (id.0)
    )
}
