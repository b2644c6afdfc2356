//! Archive of failed deliveries, for reading. [`handling`] replays and discards them.
//!
//! Statements are built from the given filters and planned each time, because one plan for all filters would be slow for most
//! of them.

pub mod handling;
pub mod trail;

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use sqlx::postgres::{PgPool, Postgres};
use sqlx::{FromRow, QueryBuilder};
use utoipa::{IntoParams, ToSchema};

use crate::connections::engine::{shard_column, shards_of};
use crate::keyset::Keyset;
use crate::transactions::begin_by_index;
use bellwire_core::clock::first_uuid_of;
use bellwire_core::delivery::{Ending, Tier};
use bellwire_core::id::{AppId, DeadLetterId, MessageId, SubscriptionId};
use bellwire_core::lane::Gateway;
use bellwire_core::named;
use bellwire_core::request_time;
use bellwire_rules::classify::DeadReason;

pub const GROUPS_MAX: i64 = 1000;

named! {
    /// State of a dead letter.
    #[schema(as = DeadLetterState)]
    pub enum DeadLetterState {
        /// Can be replayed or discarded. A failed delivery creates an open dead letter, which keeps the content of its message.
        Open = "open",
        /// Replayed in a new message, which has the result of the delivery.
        Replayed = "replayed",
        /// Discarded by a caller, or by the erasure of its user. Retention deletes it.
        Discarded = "discarded",
        /// Gone or expired: recorded without content, and cannot be replayed.
        Closed = "closed",
    }
}

/// Filter of dead letters. All given members must match.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub struct DeadLetterFilter {
    /// This dead letter only. Not for requests.
    #[serde(skip_deserializing, skip_serializing_if = "Option::is_none")]
    #[schema(ignore)]
    #[param(ignore)]
    pub id: Option<DeadLetterId>,
    /// Reason of the failure: `bad_request`, `retries_exhausted` …, or `gone` or `expired`.
    #[serde(default, deserialize_with = "reason", skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Complete error text of the push service. Empty: it sent none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// HTTP status of the last response.
    #[serde(default, deserialize_with = "status", skip_serializing_if = "Option::is_none")]
    pub status: Option<i16>,
    /// State of the dead letters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub state: Option<DeadLetterState>,
    /// Message that the delivery belongs to.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<MessageId>,
    /// Recipient of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub subscription: Option<SubscriptionId>,
    /// Topic of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// Tier of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub tier: Option<Tier>,
    /// Push service of the recipient.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub gateway: Option<Gateway>,
    /// Earliest time of the failure, to the millisecond.
    #[serde(default, deserialize_with = "request_time::optional", skip_serializing_if = "Option::is_none")]
    pub since: Option<DateTime<Utc>>,
    /// Time before which the delivery failed.
    #[serde(default, deserialize_with = "request_time::optional", skip_serializing_if = "Option::is_none")]
    pub until: Option<DateTime<Utc>>,
    /// Number of retries that were made.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retries: Option<i32>,
}

fn reason<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<String>, D::Error> {
    let closed = [Ending::Gone.name(), Ending::Expired.name()];
    match Option::<String>::deserialize(deserializer)? {
        Some(name) if DeadReason::from_name(&name).is_none() && !closed.contains(&name.as_str()) => {
            let names: Vec<_> = DeadReason::ALL.map(DeadReason::name).into_iter().chain(closed).collect();
            Err(serde::de::Error::custom(format!("must be one of {}", names.join(", "))))
        }
        reason => Ok(reason),
    }
}

fn status<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<i16>, D::Error> {
    match Option::<i16>::deserialize(deserializer)? {
        Some(status) if !(100..1000).contains(&status) => Err(serde::de::Error::custom("must be 100 to 999")),
        status => Ok(status),
    }
}

impl DeadLetterFilter {
    /// Creates a filter for one dead letter.
    pub fn one(id: DeadLetterId) -> Self {
        Self { id: Some(id), ..Self::default() }
    }

    /// Names of all members that requests may contain.
    pub const NAMES: [&str; 12] = [
        "reason",
        "detail",
        "status",
        "state",
        "message",
        "subscription",
        "topic",
        "tier",
        "gateway",
        "since",
        "until",
        "retries",
    ];
}

/// Appends the conditions of a filter to a statement that reads `dead_letters l JOIN lanes g`.
fn push_filter(query: &mut QueryBuilder<Postgres>, app: AppId, filter: &DeadLetterFilter) {
    query.push(" WHERE l.app = ").push_bind(app);
    // Written out, so that the planner sees that the index of open dead letters serves.
    if let Some(state) = filter.state {
        query.push(format_args!(" AND l.state = '{}'", state.name()));
    }
    if let Some(id) = filter.id {
        query.push(" AND l.id = ").push_bind(id.0);
    }
    if let Some(reason) = &filter.reason {
        query.push(" AND l.reason = ").push_bind(reason.clone());
    }
    if let Some(detail) = &filter.detail {
        query.push(" AND coalesce(l.detail, '') = ").push_bind(detail.clone());
    }
    if let Some(status) = filter.status {
        query.push(" AND l.status = ").push_bind(status);
    }
    if let Some(message) = filter.message {
        query.push(" AND l.message = ").push_bind(message);
    }
    if let Some(subscription) = filter.subscription {
        query.push(" AND l.shard = ").push_bind(subscription.shard());
        query.push(" AND l.subscription = ").push_bind(subscription);
    }
    if let Some(topic) = &filter.topic {
        query.push(" AND EXISTS (SELECT 1 FROM messages m WHERE m.id = l.message AND m.audience ->> 'topic' = ");
        query.push_bind(topic.clone()).push(")");
    }
    if let Some(tier) = filter.tier {
        query.push(" AND l.tier = ").push_bind(tier.code());
    }
    if let Some(gateway) = filter.gateway {
        query.push(" AND g.gateway = ").push_bind(gateway);
    }
    if let Some(since) = filter.since {
        query.push(" AND l.id >= ").push_bind(first_uuid_of(since));
    }
    if let Some(until) = filter.until {
        query.push(" AND l.id < ").push_bind(first_uuid_of(until));
    }
    if let Some(retries) = filter.retries {
        query.push(" AND l.retries = ").push_bind(retries);
    }
}

/// A delivery that ended in failure.
#[derive(Debug, Clone, FromRow, Serialize, ToSchema)]
#[schema(as = DeadLetterResponse)]
pub struct DeadLetterRow {
    /// Id of the dead letter.
    pub id: DeadLetterId,
    /// State of the dead letter.
    pub state: DeadLetterState,
    /// Reason of the failure: `bad_request`, `unauthorized`, `payload_too_large`, `non_retryable`, `redirected`, `http_4xx`,
    /// `endpoint_forbidden`, `retries_exhausted`, `lease_exhausted`, `tampered`, `replayed`, `unsealable`, `unrenderable`,
    /// `too_long`; or `gone` or `expired`.
    pub reason: String,
    /// HTTP status of the last response. Null: no response.
    pub status: Option<i16>,
    /// Error text of the push service. Null: none.
    pub detail: Option<String>,
    /// Number of retries that were made.
    pub retries: i32,
    /// Tier of the message.
    #[sqlx(try_from = "i16")]
    pub tier: Tier,
    /// Push service of the recipient.
    pub gateway: Gateway,
    /// Message that was sent.
    pub message: MessageId,
    /// Title of the message, as in the list of messages. Only in lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[sqlx(default)]
    pub title: Option<String>,
    /// Recipient of the message.
    pub subscription: SubscriptionId,
    /// Time at which the delivery failed.
    pub at: DateTime<Utc>,
    /// Time at which the dead letter was replayed or discarded. Null: still open.
    pub settled_at: Option<DateTime<Utc>>,
    /// Message that replays it. Null: not replayed.
    pub replay: Option<MessageId>,
    /// Number of attempts in its history.
    pub attempts: i64,
}

/// Returns an app's dead letters beyond the page's key that match a filter, the nearest ids first.
pub async fn list(
    pool: &PgPool, app: AppId, filter: &DeadLetterFilter, page: Keyset,
) -> sqlx::Result<Vec<DeadLetterRow>> {
    let mut query = QueryBuilder::new(
        "SELECT l.id, l.state, l.reason, l.status, l.detail, l.retries, l.tier, g.gateway, l.message, l.subscription, \
           l.at, l.settled_at, l.replay, 0::bigint AS attempts \
         FROM dead_letters l JOIN lanes g ON g.id = l.lane",
    );
    push_filter(&mut query, app, filter);
    query.push(" AND l.id").push(page.towards.comparison()).push_bind(page.beyond);
    query.push(" ORDER BY l.id").push(page.towards.order()).push("LIMIT ").push_bind(page.limit);
    let mut letters: Vec<DeadLetterRow> = query.build_query_as().persistent(false).fetch_all(pool).await?;
    let attempts = attempts_of(pool, &letters).await?;
    for letter in &mut letters {
        letter.attempts = attempts.get(&(letter.message, letter.subscription)).copied().unwrap_or(0);
    }
    Ok(letters)
}

/// Returns the number of attempts for each of these dead letters.
async fn attempts_of(
    pool: &PgPool, letters: &[DeadLetterRow],
) -> sqlx::Result<HashMap<(MessageId, SubscriptionId), i64>> {
    let ids: Vec<SubscriptionId> = letters.iter().map(|letter| letter.subscription).collect();
    let mut tx = begin_by_index(pool).await?;
    // A delivery can have left several dead letters.
    let counted = fetch_all!(
        &mut *tx,
        r#"SELECT a.message AS "message: MessageId", a.subscription AS "subscription: SubscriptionId", count(*) AS "n!"
           FROM (SELECT DISTINCT * FROM unnest($1::uuid[], $2::uuid[], $3::smallint[])) AS d (message, subscription, shard)
           JOIN attempts a ON a.shard = d.shard AND a.message = d.message AND a.subscription = d.subscription
           WHERE a.shard = ANY ($4) GROUP BY a.message, a.subscription"#,
        letters,
        |letter| (letter.message),
        (&ids as &[SubscriptionId], &shard_column(&ids), &shards_of(&ids))
    )?;
    tx.commit().await?;
    Ok(counted.into_iter().map(|row| ((row.message, row.subscription), row.n)).collect())
}

/// Property by which dead letters are grouped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum GroupBy {
    /// Reason of the failure.
    Reason,
    /// Error text of the push service. Null: none.
    Detail,
    /// Push service of the recipient.
    Gateway,
    /// HTTP status of the last response. Null: no response.
    Status,
    /// Tier of the message.
    Tier,
    /// Message that the delivery belongs to.
    Message,
    /// Day of the failure (UTC).
    Day,
}

impl GroupBy {
    fn sql(self) -> &'static str {
        match self {
            GroupBy::Reason => "l.reason",
            GroupBy::Detail => "l.detail",
            GroupBy::Gateway => "g.gateway",
            GroupBy::Status => "l.status::text",
            GroupBy::Tier => "(ARRAY['transactional', 'promotional', 'engagement'])[l.tier]",
            GroupBy::Message => "'msg_' || l.message",
            GroupBy::Day => "to_char(l.at AT TIME ZONE 'UTC', 'YYYY-MM-DD')",
        }
    }
}

/// Group of dead letters with the same value of a property.
#[derive(Debug, Clone, PartialEq, Eq, FromRow, Serialize, ToSchema)]
pub struct DeadLetterGroup {
    /// Value of the property.
    pub key: Option<String>,
    pub count: i64,
    /// Time of the latest failure.
    pub newest: DateTime<Utc>,
}

/// Counts the matching dead letters by a property, the largest groups first, at most [`GROUPS_MAX`].
pub async fn groups(
    pool: &PgPool, app: AppId, filter: &DeadLetterFilter, by: GroupBy,
) -> sqlx::Result<Vec<DeadLetterGroup>> {
    let mut query = QueryBuilder::new("SELECT ");
    query.push(by.sql()).push(" AS key, count(*) AS count, max(l.at) AS newest FROM dead_letters l ");
    query.push("JOIN lanes g ON g.id = l.lane");
    push_filter(&mut query, app, filter);
    query.push(" GROUP BY 1 ORDER BY 2 DESC, 1 LIMIT ").push_bind(GROUPS_MAX);
    query.build_query_as().persistent(false).fetch_all(pool).await
}

#[derive(Debug, Clone)]
pub struct Enclosed {
    pub policy: Option<Value>,
    /// Encrypted content of the message. `None`: deleted.
    pub content: Option<Vec<u8>>,
}

pub async fn enclosed(pool: &PgPool, app: AppId, id: DeadLetterId) -> sqlx::Result<Option<Enclosed>> {
    fetch_optional!(
        pool,
        Enclosed,
        r#"SELECT l.policy, m.content AS "content?" FROM dead_letters l LEFT JOIN messages m ON m.id = l.message
           WHERE l.app = $1 AND l.id = $2"#,
        (app.0, id.0)
    )
}

#[cfg(test)]
#[path = "../../../../tests/crates/store/unit/outcomes/dead_letters.rs"]
mod tests;
