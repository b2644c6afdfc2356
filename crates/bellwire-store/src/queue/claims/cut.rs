//! Recipients that a batch takes from a cursor without a filter.

use serde_json::Value;
use sqlx::PgConnection;

use super::recipient::{Recipient, Sendability};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, LaneId, MessageId, SubscriptionId};

#[derive(Clone, Copy)]
pub(super) struct BatchScope {
    pub app: AppId,
    pub lane: LaneId,
    pub topic: Option<i32>,
    /// Message that the cursor's message removes from browsers. `None`: it is an ordinary message.
    pub withdraws: Option<MessageId>,
    /// Shard to read. `None`: all.
    pub shard: Option<i16>,
    pub after: SubscriptionId,
    pub accepted_at: Timestamp,
    /// Time as of which the filter evaluates person and time zone. `None`: now.
    pub assigned_at: Option<Timestamp>,
    /// Whether users are read for frequency caps.
    pub is_capped: bool,
}

pub(super) struct BatchChunk {
    pub recipients: Vec<Recipient>,
    pub after: SubscriptionId,
    /// Whether no recipients remain after the cut.
    pub is_last: bool,
    /// Number of candidates that are not recipients.
    pub passed: usize,
    /// Number of candidates excluded by the sunset rule.
    pub sunset: i64,
}

/// Takes up to `size` recipients after a cursor.
pub(super) async fn cut(
    conn: &mut PgConnection, place: &BatchScope, size: usize, now: Timestamp,
) -> sqlx::Result<BatchChunk> {
    let recipients = read_recipients(conn, place, size, now).await?;
    let after = recipients.last().map_or(place.after, |recipient| recipient.subscription);
    Ok(BatchChunk { is_last: recipients.len() < size, recipients, after, passed: 0, sunset: 0 })
}

/// Declares the statements of [`read_recipients`], for all shards or one.
macro_rules! recipients {
    (everybody, $place:ident, $size:ident, $now:ident, $within:literal $(, $shard:expr)?) => {
        query!(
            Sendable,
            r#"
            SELECT id, origin_id, address, policy, muted_until, timezone, CASE WHEN $6 THEN user_id END AS user_id, proven, life
            FROM subscriptions
            WHERE lane = $1 AND state = 'active' AND id > $2 AND since <= $3 AND (expires_at IS NULL OR expires_at > $4)
            "# + $within + r#"
            ORDER BY id LIMIT $5
            "#,
            ($place.lane.0, $place.after.0, $place.accepted_at, $now, $size, $place.is_capped $(, $shard)?)
        )
        .map(Recipient::from)
    };
    // Browsers that may have got a push of a withdrawn message.
    (removal, $message:ident, $place:ident, $size:ident, $now:ident, $within:literal $(, $shard:expr)?) => {
        query!(
            Sendable,
            r#"
        SELECT s.id, s.origin_id, s.address, s.policy, s.muted_until, s.timezone, NULL::text AS user_id, s.proven, s.life
        FROM (SELECT DISTINCT ON (a.subscription) a.shard, a.subscription FROM possible_arrivals a
              WHERE a.message = $1 AND a.subscription > $3
        "# + $within + r#"
              ORDER BY a.subscription) t
        JOIN subscriptions s ON s.shard = t.shard AND s.id = t.subscription
        WHERE s.lane = $2 AND s.state = 'active' AND (s.expires_at IS NULL OR s.expires_at > $4)
        ORDER BY t.subscription LIMIT $5
        "#,
            ($message, $place.lane.0, $place.after.0, $now, $size $(, $shard)?)
        )
        .map(Recipient::from)
    };
    ($topic:ident, $place:ident, $size:ident, $now:ident, $within:literal $(, $shard:expr)?) => {
        query!(
            Sendable,
            r#"
        SELECT s.id, s.origin_id, s.address, s.policy, s.muted_until, s.timezone, CASE WHEN $7 THEN s.user_id END AS user_id, s.proven, s.life
        FROM topic_members t JOIN subscriptions s ON s.shard = t.shard AND s.id = t.subscription
        WHERE t.topic = $1 AND t.lane = $2 AND t.subscription > $3 AND t.joined_at <= $4
          AND s.state = 'active' AND s.since <= $4 AND (s.expires_at IS NULL OR s.expires_at > $5)
        "# + $within + r#"
        ORDER BY t.subscription LIMIT $6
        "#,
            ($topic, $place.lane.0, $place.after.0, $place.accepted_at, $now, $size, $place.is_capped $(, $shard)?)
        )
        .map(Recipient::from)
    };
}

async fn read_recipients(
    conn: &mut PgConnection, place: &BatchScope, size: usize, now: Timestamp,
) -> sqlx::Result<Vec<Recipient>> {
    let size = i64::try_from(size).unwrap_or(i64::MAX);
    if let Some(MessageId(withdrawn)) = place.withdraws {
        return match place.shard {
            None => recipients!(removal, withdrawn, place, size, now, "").fetch_all(conn).await,
            Some(shard) => {
                recipients!(removal, withdrawn, place, size, now, "AND a.shard = $6", shard).fetch_all(conn).await
            }
        };
    }
    match (place.topic, place.shard) {
        (None, None) => recipients!(everybody, place, size, now, "").fetch_all(conn).await,
        (None, Some(shard)) => recipients!(everybody, place, size, now, "AND shard = $7", shard).fetch_all(conn).await,
        (Some(topic), None) => recipients!(topic, place, size, now, "").fetch_all(conn).await,
        (Some(topic), Some(shard)) => {
            recipients!(topic, place, size, now, "AND t.shard = $8", shard).fetch_all(conn).await
        }
    }
}

/// A row of an active subscription.
pub(super) struct Sendable {
    pub id: SubscriptionId,
    pub origin_id: SubscriptionId,
    pub address: Vec<u8>,
    pub policy: Option<Value>,
    pub muted_until: Option<Timestamp>,
    pub timezone: Option<String>,
    pub user_id: Option<String>,
    pub proven: bool,
    pub life: i32,
}

impl From<Sendable> for Recipient {
    fn from(row: Sendable) -> Self {
        Self {
            subscription: row.id,
            origin_id: row.origin_id,
            address: row.address,
            standing: Sendability::Sendable,
            policy: row.policy,
            muted_until: row.muted_until,
            timezone: row.timezone,
            user_id: row.user_id,
            proven: row.proven,
            life: row.life,
        }
    }
}
