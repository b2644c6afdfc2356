//! Events of an app. Each event is written in the transaction that causes it. Equal events within a minute are one event with a
//! count, so that a burst of failures is not a burst of events.
//!
//! All equal failures within a minute share a row, so [`record`] must be the last call in its transaction. Then the row is
//! locked only during the commit, and no lock is taken after it.

use chrono::{DurationRound as _, TimeDelta};
use serde::{Deserialize, Serialize};
use sqlx::types::Json;
use sqlx::{PgConnection, PgPool};
use utoipa::ToSchema;

use crate::keyset::{Keyset, paged};
use bellwire_core::clock::{Timestamp, uuid_of};
use bellwire_core::delivery::Tier;
use bellwire_core::event_type::EventType;
use bellwire_core::id::{AppId, DeadLetterId, EventId, LaneId, MessageId, VapidKeyId};
use bellwire_core::lane::Gateway;

/// Content of an event. It is a stable interface: members may be added, but not changed or removed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "data")]
pub enum EventData {
    #[serde(rename = "dead_letter.created")]
    DeadLetterCreated(DeadLetterCreated),
    #[serde(rename = "subscription.gone")]
    SubscriptionGone(SubscriptionGone),
    #[serde(rename = "sla.missed")]
    SlaMissed(SlaMissed),
}

/// Deliveries failed for the same reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DeadLetterCreated {
    /// Reason of the failures.
    pub reason: String,
    /// First dead letter of the minute.
    pub dead_letter: DeadLetterId,
}

/// Subscriptions of one push service and VAPID key are gone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SubscriptionGone {
    /// Number of the lane.
    #[schema(value_type = i32)]
    pub lane: LaneId,
    /// Push service of the subscriptions.
    pub gateway: Gateway,
    /// VAPID key of the subscriptions.
    pub vapid_key: VapidKeyId,
}

/// Deliveries of a tier were accepted later than its SLA.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SlaMissed {
    /// Tier of the deliveries.
    pub tier: Tier,
    /// SLA in seconds, from the message's acceptance by the API.
    pub sla_seconds: u32,
    /// First such message of the minute.
    pub message: MessageId,
}

impl EventData {
    fn kind(&self) -> EventType {
        match self {
            Self::DeadLetterCreated(_) => EventType::DeadLetterCreated,
            Self::SubscriptionGone(_) => EventType::SubscriptionGone,
            Self::SlaMissed(_) => EventType::SlaMissed,
        }
    }

    /// Returns the part that distinguishes events of one kind, app and minute.
    fn subject(&self) -> String {
        match self {
            Self::DeadLetterCreated(data) => data.reason.clone(),
            Self::SubscriptionGone(data) => data.lane.to_string(),
            Self::SlaMissed(data) => data.tier.name().to_owned(),
        }
    }
}

/// Event of an app, with the number of its occurrences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// App of the event.
    pub app: AppId,
    /// Content of the event.
    pub body: EventData,
    /// Number of occurrences, at least one.
    pub n: i64,
}

impl Event {
    /// Creates an event: `n` deliveries of a message were accepted later than its tier's `sla_seconds`, failed or expired.
    pub fn sla_missed(app: AppId, tier: Tier, sla_seconds: u32, message: MessageId, n: i64) -> Self {
        Self { app, body: EventData::SlaMissed(SlaMissed { tier, sla_seconds, message }), n }
    }
}

/// Writes events, adding to those of the same minute. It must be the last call in its transaction, see [above](self).
pub async fn record(conn: &mut PgConnection, mut events: Vec<Event>, now: Timestamp) -> sqlx::Result<()> {
    let key = |event: &Event| (event.app, event.body.kind(), event.body.subject());
    events.sort_by_cached_key(key);
    events.dedup_by(|next, first| {
        let alike = key(next) == key(first);
        first.n += if alike { next.n } else { 0 };
        alike
    });
    if events.is_empty() {
        return Ok(());
    }
    execute!(
        conn,
        r#"
        INSERT INTO events AS e (id, app, kind, subject, minute, n, body, at)
        SELECT t.id, t.app, t.kind, t.subject, $7, t.n, t.body, $8
        FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::bigint[], $6::jsonb[])
            AS t (id, app, kind, subject, n, body)
        ORDER BY t.app, t.kind, t.subject
        ON CONFLICT (app, kind, subject, minute) DO UPDATE SET n = e.n + excluded.n, pending = true
        "#,
        events,
        |it| (uuid_of(now), it.app.0, it.body.kind().name().to_owned(), it.body.subject(), it.n, Json(&it.body)),
        (now.duration_trunc(TimeDelta::minutes(1)).unwrap_or(now), now)
    )
}

/// Builds the events of subscriptions that are gone, from their number per lane.
pub async fn subscriptions_gone(conn: &mut PgConnection, lanes: &[(LaneId, i64)]) -> sqlx::Result<Vec<Event>> {
    if lanes.is_empty() {
        return Ok(Vec::new());
    }
    let found = fetch_all!(
        conn,
        r#"SELECT l.id, l.app, l.vapid_key, l.gateway AS "gateway: Gateway", t.n AS "n!"
           FROM unnest($1::integer[], $2::bigint[]) AS t (lane, n) JOIN lanes l ON l.id = t.lane"#,
        lanes,
        |(lane, n)| (*lane, *n)
    )?;
    Ok(found
        .into_iter()
        .map(|row| {
            let gateway = row.gateway;
            let data = SubscriptionGone { lane: LaneId(row.id), gateway, vapid_key: VapidKeyId(row.vapid_key) };
            Event { app: AppId(row.app), body: EventData::SubscriptionGone(data), n: row.n }
        })
        .collect())
}

#[derive(Debug, Clone)]
pub struct EventRow {
    /// Id of the event, a UUIDv7 of its first occurrence.
    pub id: EventId,
    /// Number of occurrences within its minute.
    pub n: i64,
    pub body: serde_json::Value,
    pub at: Timestamp,
}

/// Returns an app's events beyond the page's key, the nearest ids first.
pub async fn list(pool: &PgPool, app: AppId, page: Keyset) -> sqlx::Result<Vec<EventRow>> {
    paged!(pool, page, EventRow,
        ["SELECT id, n, body, at FROM events WHERE app = $1 AND id" < "$2 ORDER BY id" DESC "LIMIT $3"],
        (app.0, page.beyond, page.limit)
    )
}

/// Adds up to `limit` events of minutes before `until` to the app's stream, and events whose count has changed since. A lock
/// until the end of the transaction makes positions ascend in commit order, regardless of the events' times. Positions start
/// with the current time in microseconds, so that a restored backup does not repeat them.
pub async fn add_to_stream(
    conn: &mut PgConnection, app: AppId, until: Timestamp, now: Timestamp, limit: i64,
) -> sqlx::Result<()> {
    execute!(
        &mut *conn,
        "SELECT FROM pg_advisory_xact_lock(hashtextextended('bellwire.events:' || $1::uuid::text, 0))",
        (app.0)
    )?;
    execute!(
        conn,
        "WITH new AS (
           SELECT id FROM events WHERE app = $1 AND pending AND minute < $2 ORDER BY id LIMIT $4
           FOR NO KEY UPDATE SKIP LOCKED
         ), numbered AS (
           SELECT id, row_number() OVER (ORDER BY id) AS n FROM new
         )
         UPDATE events e
         SET pending = false, seq = numbered.n + greatest($3, (SELECT max(seq) FROM events WHERE app = $1))
         FROM numbered WHERE e.id = numbered.id",
        (app.0, until, now.timestamp_micros(), limit)
    )
}

/// An event and its position in the stream.
#[derive(Debug, Clone)]
pub struct StreamRow {
    pub id: EventId,
    pub n: i64,
    pub body: serde_json::Value,
    pub at: Timestamp,
    pub seq: i64,
}

/// Returns events of an app after a position of its stream, in order.
pub async fn stream(pool: &PgPool, app: AppId, after: i64, limit: i64) -> sqlx::Result<Vec<StreamRow>> {
    fetch_all!(
        pool,
        StreamRow,
        r#"SELECT id, n, body, at, seq AS "seq!" FROM events WHERE app = $1 AND seq > $2 ORDER BY seq LIMIT $3"#,
        (app.0, after, limit)
    )
}

#[cfg(test)]
#[path = "../../../../tests/crates/store/unit/outcomes/events.rs"]
mod tests;
