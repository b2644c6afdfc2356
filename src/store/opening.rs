//! What dispatch reads to open a message: the message, and what is said elsewhere about how it is delivered.

use serde_json::Value;
use sqlx::PgPool;

use crate::clock::Timestamp;
use crate::delivery::{Tier, Urgency};
use crate::id::{AppId, MessageId};

/// What dispatch needs of a message. The content is still sealed.
#[derive(Debug)]
pub struct MessageRow {
    /// Its id.
    pub id: MessageId,
    /// Whose it is.
    pub app: AppId,
    /// Its tier.
    pub tier: Tier,
    /// Sealed JSON of the content.
    pub content: Vec<u8>,
    /// Time to live in seconds.
    pub ttl_s: u32,
    /// How urgently to wake the device.
    pub urgency: Urgency,
    /// The `Topic` header, 32 characters.
    pub topic_header: Option<String>,
    /// Delivery policies that count for it, as they were stored.
    pub policies: StoredPolicies,
    /// When its time to live began.
    pub accepted_at: Timestamp,
    /// When it ends.
    pub expires_at: Timestamp,
}

/// The policies that may count for a message, but for those of its recipients.
#[derive(Debug, Default)]
pub struct StoredPolicies {
    /// The message's own.
    pub message: Option<Value>,
    /// Its topic's, if it was addressed to one.
    pub topic: Option<Value>,
    /// Its app's for its tier.
    pub tier: Option<Value>,
    /// The app's maximum of `retries`.
    pub max_retries: u32,
}

/// Reads one message for dispatch.
pub async fn load_message(pool: &PgPool, id: MessageId) -> sqlx::Result<Option<MessageRow>> {
    let row = sqlx::query!(
        r#"
        SELECT m.app, m.tier, m.content, m.ttl_s, m.urgency, m.topic_header, m.policy, m.accepted_at, m.expires_at,
               a.max_retries, t.policy AS topic_policy, s.policy AS tier_policy
        FROM messages m
        JOIN apps a ON a.id = m.app
        LEFT JOIN topics t ON t.id = m.topic
        LEFT JOIN tier_settings s ON s.app = m.app AND s.tier = m.tier
        WHERE m.id = $1
        "#,
        id.0
    )
    .fetch_optional(pool)
    .await?;
    Ok(row.map(|row| MessageRow {
        id,
        app: AppId(row.app),
        tier: Tier::from_code(row.tier).expect("checked by the table"),
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
        accepted_at: row.accepted_at,
        expires_at: row.expires_at,
    }))
}
