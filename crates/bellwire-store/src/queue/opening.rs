//! Data that dispatch reads for a message or a lane: the message, its app's delivery settings, and the lane with its key.

use std::collections::{BTreeSet, HashMap};

use serde_json::Value;
use sqlx::PgPool;

use crate::outcomes::notes::CHARTED_ABOVE;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::{Tier, Urgency};
use bellwire_core::hook::WebhookKinds;
use bellwire_core::id::{AppId, LaneId, MessageId, VapidKeyId};
use bellwire_core::lane::Gateway;
use bellwire_rules::policy::calendar::Calendar;
use bellwire_rules::policy::caps::{CapSet, Caps};

/// Data of a message for dispatch. The content is still encrypted.
#[derive(Debug)]
pub struct MessageRow {
    pub id: MessageId,
    /// Id from which delivery ids are derived: shared by all messages of a campaign run, or that of the replayed message, or
    /// its own.
    pub root: MessageId,
    pub app: AppId,
    pub tier: Tier,
    /// Encrypted JSON of the content. `None`: deleted, because every delivery had ended.
    pub content: Option<Vec<u8>>,
    pub ttl_s: u32,
    pub urgency: Urgency,
    /// `Topic` header, 32 characters.
    pub topic_header: Option<String>,
    /// Delivery policy of the message, as stored.
    pub policy: Option<Value>,
    /// Delivery policy of its topic, as stored.
    pub topic_policy: Option<Value>,
    /// Whether it names users or subscriptions, and so is not for later users of a browser.
    pub personal: bool,
    pub accepted_at: Timestamp,
    /// Time of its last resume, if recent. `None`: none.
    pub resumed_at: Option<Timestamp>,
    /// Whether it has metrics of its own.
    pub charted: bool,
    pub expires_at: Timestamp,
    /// Trace context of the send request, if it was traced.
    pub traceparent: Option<String>,
    /// Id that the delivery ids of the removed message derive from. `None`: it is an ordinary message.
    pub withdraws_root: Option<MessageId>,
    /// Whether it shows new content instead of removing the message.
    pub is_update: bool,
}

#[derive(Debug)]
pub struct Conditions {
    /// Maximum `retries` of a policy.
    pub max_retries: u32,
    /// Delivery policy of the tier, as stored.
    pub policy: Option<Value>,
    pub calendar: Calendar,
    pub caps: Vec<CapSet>,
    /// SLA in seconds. `None`: none.
    pub sla_s: Option<u32>,
    pub heard: WebhookKinds,
}

/// Messages that were just written and need not be read.
#[derive(Debug, Default)]
pub struct FreshMessages {
    pub messages: Vec<MessageRow>,
    /// Delivery settings of their apps and tiers at that time, if they were read.
    pub conditions: HashMap<(AppId, Tier), Conditions>,
}

/// Reads distinct messages for dispatch. Missing ones are omitted.
pub async fn load_messages(pool: &PgPool, ids: &[MessageId]) -> sqlx::Result<Vec<MessageRow>> {
    let rows = fetch_all!(
        pool,
        r#"/* load_messages */
        SELECT m.app, m.root, m.replay_of, m.id, m.tier, m.content, m.ttl_s, m.urgency, m.policy, m.accepted_at, m.resumed_at, m.expires_at, m.traceparent,
               m.withdraws_root, m.is_update,
               -- A removal must not replace a later message at the push service.
               CASE WHEN m.withdraws IS NULL OR NOT EXISTS (
                 SELECT FROM messages l WHERE l.app = m.app AND l.topic_header = m.topic_header AND l.id > m.withdraws
                   AND l.withdraws IS DISTINCT FROM m.withdraws) THEN m.topic_header END AS topic_header,
               m.audience_estimate > $2 AS "charted!",
               m.audience ?| ARRAY['users', 'subscriptions'] AS "personal!", t.policy AS topic_policy
        FROM unnest($1::uuid[]) AS wanted (id)
        JOIN messages m ON m.id = wanted.id
        LEFT JOIN topics t ON t.id = m.topic
        "#,
        (ids as &[MessageId], CHARTED_ABOVE)
    )?;
    let opened = rows.into_iter().map(|row| MessageRow {
        id: MessageId(row.id),
        root: MessageId(row.root.or(row.replay_of).unwrap_or(row.id)),
        app: AppId(row.app),
        tier: Tier::from_code(row.tier).expect("checked by the table"),
        content: row.content,
        ttl_s: u32::try_from(row.ttl_s).expect("checked by the table"),
        urgency: Urgency::from_code(row.urgency).expect("checked by the table"),
        topic_header: row.topic_header,
        policy: row.policy,
        topic_policy: row.topic_policy,
        personal: row.personal,
        accepted_at: row.accepted_at,
        resumed_at: row.resumed_at,
        charted: row.charted,
        expires_at: row.expires_at,
        traceparent: row.traceparent,
        withdraws_root: row.withdraws_root.map(MessageId),
        is_update: row.is_update,
    });
    Ok(opened.collect())
}

/// Stored columns of [`Conditions`]: of the app and of its tier.
#[derive(Debug)]
pub struct StoredConditions {
    /// Value of `apps.max_retries`.
    pub max_retries: i16,
    /// Time zone of the app's calendar.
    pub timezone: String,
    /// Value of `apps.quiet_hours`.
    pub quiet_hours: Option<Value>,
    /// Frequency caps of all tiers.
    pub caps: Option<Value>,
    /// Value of `apps.heard`.
    pub heard: i32,
    /// Value of `tier_settings.policy`.
    pub policy: Option<Value>,
    /// Value of `tier_settings.off_peak`.
    pub off_peak: Option<Value>,
    /// Value of `tier_settings.sla_seconds`.
    pub sla_seconds: Option<i32>,
}

impl Conditions {
    pub fn restore(tier: Tier, stored: StoredConditions) -> Self {
        Self {
            max_retries: u32::try_from(stored.max_retries).expect("checked by the table"),
            policy: stored.policy,
            calendar: Calendar::restore(&stored.timezone, stored.quiet_hours, stored.off_peak),
            caps: stored.caps.map_or_else(Vec::new, |caps| Caps::restore(Some(caps)).of(tier)),
            sla_s: stored.sla_seconds.and_then(|seconds| u32::try_from(seconds).ok()),
            heard: WebhookKinds(stored.heard),
        }
    }
}

/// Reads the delivery settings of apps for these tiers. Missing apps are omitted.
pub async fn load_conditions(
    pool: &PgPool, of: &BTreeSet<(AppId, Tier)>,
) -> sqlx::Result<HashMap<(AppId, Tier), Conditions>> {
    let rows = fetch_all!(
        pool,
        r#"/* load_conditions */
        SELECT a.id AS "app!", wanted.tier AS "tier!", a.max_retries AS "max_retries!", a.timezone AS "timezone!", a.quiet_hours, a.caps,
               a.heard AS "heard!", s.policy AS "policy?", s.off_peak,
               s.sla_seconds
        FROM unnest($1::uuid[], $2::smallint[]) AS wanted (app, tier)
        JOIN apps a ON a.id = wanted.app
        LEFT JOIN tier_settings s ON s.app = wanted.app AND s.tier = wanted.tier
        "#,
        of,
        |(app, tier)| (app.0, tier.code())
    )?;
    let said = rows.into_iter().map(|row| {
        let tier = Tier::from_code(row.tier).expect("it was asked for");
        let stored = StoredConditions {
            max_retries: row.max_retries,
            timezone: row.timezone,
            quiet_hours: row.quiet_hours,
            caps: row.caps,
            heard: row.heard,
            policy: row.policy,
            off_peak: row.off_peak,
            sla_seconds: row.sla_seconds,
        };
        ((AppId(row.app), tier), Conditions::restore(tier, stored))
    });
    Ok(said.collect())
}

/// Data of a lane for dispatch. The private key is still encrypted.
#[derive(Debug)]
pub struct LaneRow {
    pub gateway: Gateway,
    pub app: AppId,
    pub weight: u32,
    pub vapid_key: VapidKeyId,
    /// Encrypted private key.
    pub private_key: Vec<u8>,
    /// Contact in the `sub` claim.
    pub subject: String,
}

pub async fn load_lane(pool: &PgPool, id: LaneId) -> sqlx::Result<Option<LaneRow>> {
    let row = fetch_optional!(
        pool,
        r#"
        SELECT l.gateway AS "gateway: Gateway", l.app, a.weight, v.id AS vapid_key, v.private_key, v.subject
        FROM lanes l JOIN apps a ON a.id = l.app JOIN vapid_keys v ON v.id = l.vapid_key WHERE l.id = $1
        "#,
        (id.0)
    )?;
    Ok(row.map(|row| LaneRow {
        gateway: row.gateway,
        app: AppId(row.app),
        weight: u32::try_from(row.weight).expect("checked by the table"),
        vapid_key: VapidKeyId(row.vapid_key),
        private_key: row.private_key,
        subject: row.subject,
    }))
}
