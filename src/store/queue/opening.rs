//! What dispatch reads to open a message or a lane: the message with what is said elsewhere about how it is delivered, the
//! lane with its key.

use serde_json::Value;
use sqlx::PgPool;

use crate::model::clock::Timestamp;
use crate::model::delivery::{Tier, Urgency};
use crate::model::hook::Heard;
use crate::model::id::{AppId, LaneId, MessageId, VapidKeyId};
use crate::model::lane::Gateway;
use crate::policy::calendar::Calendar;
use crate::policy::caps::{Caps, Counted};
use crate::store::outcomes::notes::CHARTED_ABOVE;

/// What dispatch needs of a message. The content is still sealed.
#[derive(Debug)]
pub(crate) struct MessageRow {
    /// Its id.
    pub id: MessageId,
    /// What its deliveries' ids are derived from: what all messages of its run of a campaign share, or the message that it
    /// replays, or itself.
    pub root: MessageId,
    /// The app it belongs to.
    pub app: AppId,
    /// Its tier.
    pub tier: Tier,
    /// Sealed JSON of the content; none: it was deleted, since every delivery had ended.
    pub content: Option<Vec<u8>>,
    /// Time to live in seconds.
    pub ttl_s: u32,
    /// How urgently to wake the device.
    pub urgency: Urgency,
    /// The `Topic` header, 32 characters.
    pub topic_header: Option<String>,
    /// Delivery policies that count for it, as they were stored.
    pub policies: StoredPolicies,
    /// Whether it is meant for named users or subscriptions, and so for whoever used them then.
    pub personal: bool,
    /// When its app lets deliveries of its tier go.
    pub calendar: Calendar,
    /// The frequency caps that hold for it.
    pub caps: Vec<Counted>,
    /// Seconds within which its app wants it accepted.
    pub sla_s: Option<u32>,
    /// When its time to live began.
    pub accepted_at: Timestamp,
    /// Whether it has figures over time of its own.
    pub charted: bool,
    /// What its app's webhooks are told of.
    pub heard: Heard,
    /// When it ends.
    pub expires_at: Timestamp,
    /// The span of the request that it came with, if that was traced.
    pub traceparent: Option<String>,
}

/// The policies that may count for a message, but for those of its recipients.
#[derive(Debug, Default)]
pub(crate) struct StoredPolicies {
    /// The message's own.
    pub message: Option<Value>,
    /// Its topic's, if it was addressed to one.
    pub topic: Option<Value>,
    /// Its app's for its tier.
    pub tier: Option<Value>,
    /// The app's maximum of `retries`.
    pub max_retries: u32,
}

/// Reads messages, each named once, for dispatch. Those that are not there are left out.
pub(crate) async fn load_messages(pool: &PgPool, ids: &[MessageId]) -> sqlx::Result<Vec<MessageRow>> {
    let rows = sqlx::query!(
        r#"
        SELECT m.app, m.root, m.replay_of, m.id, m.tier, m.content, m.ttl_s, m.urgency, m.topic_header, m.policy, m.accepted_at, m.expires_at, m.traceparent,
               m.audience_estimate > $2 AS "charted!",
               m.audience ?| ARRAY['users', 'subscriptions'] AS "personal!", a.max_retries, a.timezone, a.quiet_hours, a.caps, a.heard, t.policy AS topic_policy, s.policy AS "tier_policy?", s.off_peak,
               s.sla_seconds
        FROM unnest($1::uuid[]) AS wanted (id)
        JOIN messages m ON m.id = wanted.id
        JOIN apps a ON a.id = m.app
        LEFT JOIN topics t ON t.id = m.topic
        LEFT JOIN tier_settings s ON s.app = m.app AND s.tier = m.tier
        "#,
        ids as &[MessageId],
        CHARTED_ABOVE
    )
    .fetch_all(pool)
    .await?;
    let tier = |code| Tier::from_code(code).expect("checked by the table");
    let opened = rows.into_iter().map(|row| MessageRow {
        id: MessageId(row.id),
        root: MessageId(row.root.or(row.replay_of).unwrap_or(row.id)),
        app: AppId(row.app),
        tier: tier(row.tier),
        content: row.content,
        ttl_s: u32::try_from(row.ttl_s).expect("checked by the table"),
        urgency: Urgency::from_code(row.urgency).expect("checked by the table"),
        topic_header: row.topic_header,
        policies: StoredPolicies {
            message: row.policy,
            topic: row.topic_policy,
            tier: row.tier_policy,
            max_retries: u32::try_from(row.max_retries).expect("checked by the table"),
        },
        personal: row.personal,
        calendar: Calendar::restore(&row.timezone, row.quiet_hours, row.off_peak),
        caps: row.caps.map_or_else(Vec::new, |caps| Caps::restore(Some(caps)).of(tier(row.tier))),
        sla_s: row.sla_seconds.and_then(|seconds| u32::try_from(seconds).ok()),
        accepted_at: row.accepted_at,
        charted: row.charted,
        heard: Heard(row.heard),
        expires_at: row.expires_at,
        traceparent: row.traceparent,
    });
    Ok(opened.collect())
}

/// What dispatch needs of a lane. The private key is still sealed.
#[derive(Debug)]
pub(crate) struct LaneRow {
    /// Which push service.
    pub gateway: Gateway,
    /// The app it belongs to.
    pub app: AppId,
    /// The app's weight.
    pub weight: u32,
    /// The key that signs for it.
    pub vapid_key: VapidKeyId,
    /// Sealed private key.
    pub private_key: Vec<u8>,
    /// The `sub` claim.
    pub subject: String,
}

/// Reads one lane with its key.
pub(crate) async fn load_lane(pool: &PgPool, id: LaneId) -> sqlx::Result<Option<LaneRow>> {
    let row = sqlx::query!(
        r#"
        SELECT l.gateway AS "gateway: Gateway", l.app, a.weight, v.id AS vapid_key, v.private_key, v.subject
        FROM lanes l JOIN apps a ON a.id = l.app JOIN vapid_keys v ON v.id = l.vapid_key WHERE l.id = $1
        "#,
        id.0
    )
    .fetch_optional(pool)
    .await?;
    Ok(row.map(|row| LaneRow {
        gateway: row.gateway,
        app: AppId(row.app),
        weight: u32::try_from(row.weight).expect("checked by the table"),
        vapid_key: VapidKeyId(row.vapid_key),
        private_key: row.private_key,
        subject: row.subject,
    }))
}
