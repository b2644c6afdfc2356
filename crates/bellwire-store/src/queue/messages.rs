//! Messages for their senders: content, audience and counts.

use serde_json::Value;
use sqlx::PgPool;
use sqlx::types::Json;
use uuid::Uuid;

use crate::keyset::{Keyset, paged};
use crate::transactions::begin_by_index;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, CampaignId, MessageId};
use bellwire_core::message::MessageState;
use bellwire_segment::AudienceFilter;

#[derive(Debug, Clone)]
pub struct MessageRow {
    pub id: MessageId,
    /// Code from [`bellwire_core::delivery::Tier::code`].
    pub tier: i16,
    /// Stored state. `moving` shows whether the message is done.
    pub state: MessageState,
    /// `to` of the request.
    pub audience: Value,
    /// Filter of the recipients. `None`: no filter.
    pub filter: Option<Json<AudienceFilter>>,
    pub ttl_s: i32,
    /// Code from [`bellwire_core::delivery::Urgency::code`].
    pub urgency: i16,
    /// Hash of its collapse key. `None`: none.
    pub topic_header: Option<String>,
    pub policy: Option<Value>,
    pub replay_of: Option<MessageId>,
    pub campaign: Option<CampaignId>,
    /// Whether its pushes have Bellwire's envelope, with the token for receipts.
    pub enveloped: bool,
    pub content_deleted: bool,
    /// Time at which it was withdrawn. `None`: it was not.
    pub withdrawn_at: Option<Timestamp>,
    /// Number of deliveries, as counted at the acceptance.
    pub audience_estimate: i64,
    /// Sender: id of an API key (if `sent_by_key`) or of a teammate. `None`: neither.
    pub sent_by: Option<Uuid>,
    /// Whether `sent_by` is the id of an API key.
    pub sent_by_key: bool,
    /// Sender's own key for the message. `None`: none, or a later message took it over.
    pub key: Option<String>,
    /// Time of acceptance, or the scheduled time.
    pub accepted_at: Timestamp,
    /// Time at which the API accepted a scheduled message. `None`: same as `accepted_at`.
    pub received_at: Option<Timestamp>,
    pub expires_at: Timestamp,
    /// Whether fan-out is incomplete, or has not started for a scheduled message.
    pub expanding: bool,
    /// Whether any delivery has not ended or is not created yet.
    pub moving: bool,
}

/// Counts of a message's deliveries by state. In each snapshot: `targeted = queued + dispatching + retrying + accepted + gone +
/// expired + dead + cancelled + capped`. The API documents each count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeliveryCounts {
    pub targeted: i64,
    pub queued: i64,
    pub dispatching: i64,
    pub retrying: i64,
    pub accepted: i64,
    pub gone: i64,
    pub expired: i64,
    pub dead: i64,
    pub cancelled: i64,
    pub capped: i64,
    /// Recipients excluded by its sunset rule. They are not targeted.
    pub sunset: i64,
    pub acknowledged: i64,
    pub displayed: i64,
    pub clicked: i64,
    pub closed: i64,
}

/// Reads a message with its counts in one statement and so in one snapshot, because the sum must be exact. The function is long
/// because of its columns.
pub async fn account(
    pool: &PgPool, app: AppId, id: MessageId, now: Timestamp,
) -> Result<Option<(MessageRow, DeliveryCounts)>, sqlx::Error> {
    let mut tx = begin_by_index(pool).await?;
    let found = fetch_optional!(
        &mut *tx,
        r#"SELECT m.id, m.tier, m.state AS "state: MessageState", m.audience,
             m.filter AS "filter: Json<AudienceFilter>", m.ttl_s, m.urgency, m.topic_header, m.policy, m.replay_of, m.campaign,
             m.enveloped, m.content IS NULL AS "content_deleted!", m.audience_estimate, m.accepted_at, m.received_at, m.expires_at,
             (SELECT at FROM withdrawals WHERE message = m.id) AS withdrawn_at,
             m.sent_by, EXISTS (SELECT FROM api_keys WHERE id = m.sent_by) AS "sent_by_key!",
             (SELECT key FROM message_keys WHERE message = m.id LIMIT 1) AS key,
             EXISTS (SELECT 1 FROM cursors WHERE message = m.id)
               OR m.accepted_at > $3 AND m.state <> 'cancelled' AND EXISTS (SELECT 1 FROM campaigns_in_motion WHERE message = m.id)
               AS "expanding!",
             c.targeted AS "targeted!", c.accepted AS "accepted!", c.gone AS "gone!", c.expired AS "expired!",
             c.dead AS "dead!", c.cancelled AS "cancelled!", c.capped AS "capped!", c.sunset AS "sunset!", q.queued AS "queued!",
             q.dispatching AS "row_dispatching!", q.retrying AS "retrying!", p.dispatching AS "batch_dispatching!",
             r.acknowledged AS "acknowledged!", r.displayed AS "displayed!", r.clicked AS "clicked!", r.closed AS "closed!"
         FROM messages m,
         LATERAL (SELECT coalesce(sum(targeted), 0)::bigint AS targeted, coalesce(sum(accepted), 0)::bigint AS accepted,
             coalesce(sum(gone), 0)::bigint AS gone, coalesce(sum(expired), 0)::bigint AS expired,
             coalesce(sum(dead), 0)::bigint AS dead, coalesce(sum(cancelled), 0)::bigint AS cancelled,
             coalesce(sum(capped), 0)::bigint AS capped, coalesce(sum(sunset), 0)::bigint AS sunset
             FROM message_counts WHERE message = m.id) c,
         LATERAL (SELECT count(*) FILTER (WHERE held) AS dispatching,
             count(*) FILTER (WHERE NOT held AND retries = 0) AS queued,
             count(*) FILTER (WHERE NOT held AND retries > 0) AS retrying
             FROM (SELECT retries, lease IS NOT NULL AND due_at > $3 AS held FROM queue WHERE message = m.id) w) q,
         LATERAL (SELECT coalesce(sum(cardinality(recipients)), 0)::bigint AS dispatching FROM batches
             WHERE message = m.id) p,
         LATERAL (SELECT coalesce(max(acknowledged), 0) AS acknowledged, coalesce(max(displayed), 0) AS displayed,
             coalesce(max(clicked), 0) AS clicked, coalesce(max(closed), 0) AS closed
             FROM receipt_counts WHERE message = m.id) r
         WHERE m.id = $1 AND m.app = $2"#,
        (id.0, app.0, now)
    )?;
    tx.commit().await?;
    Ok(found.map(|row| {
        let dispatching = row.row_dispatching + row.batch_dispatching;
        let account = DeliveryCounts {
            targeted: row.targeted,
            queued: row.queued,
            dispatching,
            retrying: row.retrying,
            accepted: row.accepted,
            gone: row.gone,
            expired: row.expired,
            dead: row.dead,
            cancelled: row.cancelled,
            capped: row.capped,
            sunset: row.sunset,
            acknowledged: row.acknowledged,
            displayed: row.displayed,
            clicked: row.clicked,
            closed: row.closed,
        };
        let message = MessageRow {
            id: MessageId(row.id),
            tier: row.tier,
            state: row.state,
            audience: row.audience,
            filter: row.filter,
            ttl_s: row.ttl_s,
            urgency: row.urgency,
            topic_header: row.topic_header,
            policy: row.policy,
            replay_of: row.replay_of.map(MessageId),
            campaign: row.campaign.map(CampaignId),
            enveloped: row.enveloped,
            content_deleted: row.content_deleted,
            withdrawn_at: row.withdrawn_at,
            audience_estimate: row.audience_estimate,
            sent_by: row.sent_by,
            sent_by_key: row.sent_by_key,
            key: row.key,
            accepted_at: row.accepted_at,
            received_at: row.received_at,
            expires_at: row.expires_at,
            expanding: row.expanding,
            moving: row.expanding || dispatching + row.queued + row.retrying > 0,
        };
        (message, account)
    }))
}

/// Returns the message that has the sender's key.
pub async fn by_key(pool: &PgPool, app: AppId, key: &str) -> Result<Option<MessageId>, sqlx::Error> {
    let found = fetch_optional!(
        pool,
        scalar,
        "SELECT m.id FROM message_keys k JOIN messages m ON m.id = k.message WHERE k.app = $1 AND k.key = $2",
        (app.0, key)
    )?;
    Ok(found.map(MessageId))
}

/// Values needed to interpret a message's receipts.
#[derive(Debug)]
pub struct Terms {
    /// Whether its pushes have the token for receipts.
    pub enveloped: bool,
    pub expires_at: Timestamp,
}

/// Reads the values needed to interpret a message's receipts. `None`: unknown message.
pub async fn terms(pool: &PgPool, app: AppId, id: MessageId) -> Result<Option<Terms>, sqlx::Error> {
    fetch_optional!(pool, Terms, "SELECT enveloped, expires_at FROM messages WHERE id = $1 AND app = $2", (id.0, app.0))
}

/// Returns an app's messages beyond the page's key, the nearest ids first. With a topic, only messages to it.
pub async fn list(
    pool: &PgPool, app: AppId, topic: Option<i32>, page: Keyset, now: Timestamp,
) -> Result<Vec<MessageRow>, sqlx::Error> {
    // A campaign of which half the queue is would have the planner look through all of it for each other message.
    let mut tx = begin_by_index(pool).await?;
    let rows = paged!(&mut *tx, page, MessageRow,
        [r#"SELECT m.id, tier, state AS "state: MessageState", audience, filter AS "filter: Json<AudienceFilter>", ttl_s, urgency, topic_header, policy,
             replay_of AS "replay_of: MessageId", campaign AS "campaign: CampaignId", enveloped, content IS NULL AS "content_deleted!", audience_estimate, accepted_at, received_at, expires_at,
             (SELECT at FROM withdrawals WHERE message = m.id) AS withdrawn_at,
             (SELECT key FROM message_keys WHERE message = m.id LIMIT 1) AS key, expanding AS "expanding!",
             sent_by, EXISTS (SELECT FROM api_keys WHERE id = m.sent_by) AS "sent_by_key!",
             expanding OR EXISTS (SELECT 1 FROM queue WHERE message = m.id)
               OR EXISTS (SELECT 1 FROM batches WHERE message = m.id) AS "moving!"
         -- Each half has an index of its own, and only one of them is read.
         FROM ((SELECT id FROM messages WHERE $3::integer IS NULL AND app = $1 AND withdraws IS NULL AND id"# < "$2 ORDER BY id" DESC "LIMIT $4)
               UNION ALL
               (SELECT id FROM messages WHERE topic = $3 AND app = $1 AND id" < "$2 ORDER BY id" DESC "LIMIT $4)) page
         JOIN messages m ON m.id = page.id,
         LATERAL (SELECT EXISTS (SELECT 1 FROM cursors WHERE message = m.id)
                    OR m.accepted_at > $5 AND m.state <> 'cancelled'
                       AND EXISTS (SELECT 1 FROM campaigns_in_motion WHERE message = m.id) AS expanding) e
         ORDER BY m.id" DESC],
        (app.0, page.beyond, topic, page.limit, now)
    )?;
    tx.commit().await?;
    Ok(rows)
}

/// Number of a message's deliveries so far, by ending.
#[derive(Debug)]
pub struct Ended {
    pub message: MessageId,
    pub targeted: i64,
    pub accepted: i64,
    pub gone: i64,
    pub expired: i64,
    pub dead: i64,
    pub cancelled: i64,
    pub capped: i64,
    pub displayed: i64,
    pub clicked: i64,
}

/// Reads the progress of messages. Those without deliveries are omitted. Waiting deliveries are not read, so the cost does not
/// depend on their number.
pub async fn ended(pool: &PgPool, ids: &[MessageId]) -> Result<Vec<Ended>, sqlx::Error> {
    fetch_all!(
        pool,
        Ended,
        r#"SELECT message, sum(targeted)::bigint AS "targeted!", sum(accepted)::bigint AS "accepted!", sum(gone)::bigint AS "gone!",
             sum(expired)::bigint AS "expired!", sum(dead)::bigint AS "dead!", sum(cancelled)::bigint AS "cancelled!",
             sum(capped)::bigint AS "capped!", coalesce(max(r.displayed), 0) AS "displayed!", coalesce(max(r.clicked), 0) AS "clicked!"
         FROM message_counts LEFT JOIN receipt_counts r USING (message) WHERE message = ANY ($1) GROUP BY message"#,
        (ids as &[MessageId])
    )
}

/// Encrypted content of a message, and its recipients.
#[derive(Debug)]
pub struct SealedMessage {
    pub id: MessageId,
    /// `to` of the request.
    pub audience: Value,
    /// Number of deliveries, as counted at the acceptance.
    pub audience_estimate: i64,
    /// Encrypted [`bellwire_core::message::Content`]. `None`: deleted.
    pub content: Option<Vec<u8>>,
}

/// Reads these messages. Those that do not exist in the app are omitted.
pub async fn sealed(pool: &PgPool, app: AppId, ids: &[MessageId]) -> sqlx::Result<Vec<SealedMessage>> {
    fetch_all!(
        pool,
        SealedMessage,
        r#"SELECT id AS "id: MessageId", audience, audience_estimate, content FROM messages WHERE id = ANY ($1) AND app = $2"#,
        (ids as &[MessageId], app.0)
    )
}
