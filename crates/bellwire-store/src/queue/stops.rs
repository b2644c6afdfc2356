//! Stops: messages and subscriptions whose deliveries must no longer be sent. Each worker reads them several times a second.
//!
//! A read covers everything that the snapshot of the previous read did not show. So no stop is missed, even if its transaction
//! commits late or the worker was disconnected for long.

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use bellwire_core::clock::Timestamp;
use bellwire_core::event_type::EventType;
use bellwire_core::id::{MessageId, SubscriptionId};
use bellwire_core::named;

named! {
    /// Effect of a stop on its message or subscription.
    pub enum StopKind {
        /// The subscription ended or was suspended.
        Unsubscribe = "unsubscribe",
        /// The subscription is gone.
        Gone = "gone",
        /// Another subscription replaces it.
        Replace = "replace",
        /// The subscription has another user. Deliveries for the former user must not be sent.
        User = "user",
        /// The message was cancelled.
        Cancel = "cancel",
        /// The message is paused.
        Pause = "pause",
        /// The message may be sent again.
        Resume = "resume",
    }
}

impl StopKind {
    /// Returns the event of a message's stop.
    fn event(self) -> EventType {
        match self {
            StopKind::Cancel => EventType::MessageCancelled,
            StopKind::Pause => EventType::MessagePaused,
            _ => EventType::MessageResumed,
        }
    }
}

/// Stop of a message or of a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop {
    /// Sequence number. Of two stops for one target, the higher number counts.
    pub seq: i64,
    /// Kind of the stop.
    pub kind: StopKind,
    /// Id of a subscription or a message.
    pub target: Uuid,
    /// Last life of the subscription whose deliveries are stopped. 0 for a message.
    pub life: i32,
}

/// Horizon of a read: the snapshot that it saw.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Horizon {
    /// Snapshot, as text of the type `pg_snapshot`.
    snapshot: String,
    /// Oldest transaction running at the time.
    xmin: i64,
}

impl Horizon {
    /// Returns the oldest transaction that was running then. Rows that the read did not see belong to it or to later ones.
    pub fn oldest_transaction(&self) -> i64 {
        self.xmin
    }
}

const NOTHING: &str = "1:1:";

/// Result of a read.
#[derive(Debug)]
pub struct StopsRead {
    /// Stops that the previous read could not see, in order of sequence.
    pub stops: Vec<Stop>,
    /// Start of the next read.
    pub horizon: Horizon,
}

/// Reads the stops that the last read could not see. The first read (`None`) only determines the start of the next one: claims
/// see earlier stops.
pub async fn read(pool: &PgPool, last: Option<&Horizon>) -> sqlx::Result<StopsRead> {
    let reading = read_from(pool, last.map(|last| &*last.snapshot)).await?;
    match last {
        // A standby took over that had not heard of everything: what it numbers anew must not be taken for old.
        Some(last) if reading.horizon.xmin < last.xmin => read_from(pool, Some(NOTHING)).await,
        _ => Ok(reading),
    }
}

async fn read_from(pool: &PgPool, seen: Option<&str>) -> sqlx::Result<StopsRead> {
    // One statement, and so one snapshot. What was under way for long, a backup's dump or a large import, does not make
    // each reading include again all stops since then.
    let rows = fetch_all!(
        pool,
        r#"/* read_stops */ SELECT now.snapshot::text AS "snapshot!", pg_snapshot_xmin(now.snapshot)::text::bigint AS "xmin!",
             s.seq AS "seq?", s.kind AS "kind?", s.target AS "target?", s.life
           FROM (SELECT pg_current_snapshot() AS snapshot) now
           LEFT JOIN stops s ON s.xid >= pg_snapshot_xmin($1::text::pg_snapshot)
                             AND NOT pg_visible_in_snapshot(s.xid, $1::text::pg_snapshot)
           ORDER BY s.seq"#,
        (seen)
    )?;
    let first = rows.first().ok_or(sqlx::Error::RowNotFound)?;
    let horizon = Horizon { snapshot: first.snapshot.clone(), xmin: first.xmin };
    let stop = |(seq, kind, target, life): (Option<i64>, Option<String>, Option<Uuid>, Option<i32>)| {
        Some(Stop { seq: seq?, kind: StopKind::from_name(&kind?)?, target: target?, life: life.unwrap_or(0) })
    };
    let stops = rows.into_iter().filter_map(|row| stop((row.seq, row.kind, row.target, row.life))).collect();
    Ok(StopsRead { stops, horizon })
}

/// Writes a stop of a message for all workers and live streams, in the transaction that changed and locked its row.
pub async fn stop_message(
    conn: &mut PgConnection, kind: StopKind, message: MessageId, now: Timestamp,
) -> sqlx::Result<Stop> {
    let seq = fetch_one!(
        conn,
        scalar,
        "WITH told AS (
           INSERT INTO stream_events (at, app, kind, data)
           SELECT $1, app, $4, jsonb_build_object('message', 'msg_' || id) FROM messages WHERE id = $3)
         INSERT INTO stops (at, kind, target) VALUES ($1, $2, $3) RETURNING seq",
        (now, kind.name(), message.0, kind.event().name())
    )?;
    Ok(Stop { seq, kind, target: message.0, life: 0 })
}

/// Writes a stop of a subscription in its current life for all workers, in the transaction that changed and locked its row.
pub async fn stop_subscription(
    conn: &mut PgConnection, kind: StopKind, subscription: SubscriptionId, now: Timestamp,
) -> sqlx::Result<Stop> {
    let life = fetch_one!(
        &mut *conn,
        scalar,
        "SELECT life FROM subscriptions WHERE shard = $1 AND id = $2",
        (subscription.shard(), subscription.0)
    )?;
    // A statement of its own: one that reads the subscription, too, would run on another machine of a Citus cluster. `xid` would be a
    // transaction of that machine, by which no worker would find the stop.
    let seq = query!(
        scalar,
        "INSERT INTO stops (at, kind, target, life) VALUES ($1, $2, $3, $4) RETURNING seq",
        (now, kind.name(), subscription.0, life)
    );
    Ok(Stop { seq: seq.fetch_one(conn).await?, kind, target: subscription.0, life })
}
