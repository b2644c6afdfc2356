//! Stops: what must not be sent any more, read by every worker several times a second.
//!
//! A reading takes up where the one before could not see: at the oldest transaction that was under way then. So no stop is
//! missed, however late its transaction commits and however long a worker was away.

use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::id::{MessageId, SubscriptionId};

/// What a stop says about its target, a message or a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum StopKind {
    /// The subscription ended, or is suspended.
    Unsubscribe,
    /// The subscription is gone.
    Gone,
    /// Another subscription takes its place.
    Replace,
    /// The subscription has another user: what was meant for the one before is not for it.
    User,
    /// The message was cancelled.
    Cancel,
    /// The message is paused.
    Pause,
    /// The message may be sent again.
    Resume,
}

impl StopKind {
    const ALL: [Self; 7] =
        [Self::Unsubscribe, Self::Gone, Self::Replace, Self::User, Self::Cancel, Self::Pause, Self::Resume];

    /// The name in the database.
    pub fn name(self) -> &'static str {
        match self {
            StopKind::Unsubscribe => "unsubscribe",
            StopKind::Gone => "gone",
            StopKind::Replace => "replace",
            StopKind::User => "user",
            StopKind::Cancel => "cancel",
            StopKind::Pause => "pause",
            StopKind::Resume => "resume",
        }
    }
}

/// One stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stop {
    /// Of two stops of one target, the one with the higher number holds.
    pub seq: i64,
    /// What it says.
    pub kind: StopKind,
    /// A subscription, or a message.
    pub target: Uuid,
    /// Of a subscription: the last of its lives whose deliveries are stopped. Of a message: 0.
    pub life: i32,
}

/// Where a reading takes up: the oldest transaction that was under way at the reading before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Horizon(i64);

impl Horizon {
    /// Before everything.
    const START: Self = Self(0);
    /// After everything: a first reading only learns where the next one takes up. Whatever was stopped before it is seen
    /// by the claims that come after it.
    const END: Self = Self(i64::MAX);
}

/// What a reading came to.
#[derive(Debug)]
pub struct Reading {
    /// Every stop that the reading before may not have seen, in the order of their numbers.
    pub stops: Vec<Stop>,
    /// Where the next reading takes up.
    pub horizon: Horizon,
}

/// Reads the stops that the last reading may have missed; none: this is the first.
pub async fn read(pool: &PgPool, last: Option<Horizon>) -> sqlx::Result<Reading> {
    let reading = read_from(pool, last.unwrap_or(Horizon::END)).await?;
    match last {
        // A standby took over that had not heard of everything: what it numbers anew must not be taken for old.
        Some(last) if reading.horizon < last => read_from(pool, Horizon::START).await,
        _ => Ok(reading),
    }
}

async fn read_from(pool: &PgPool, from: Horizon) -> sqlx::Result<Reading> {
    // One statement, and so one snapshot.
    let rows = sqlx::query!(
        r#"SELECT now.xmin::text::bigint AS "horizon!", s.seq AS "seq?", s.kind AS "kind?", s.target AS "target?", s.life
           FROM (SELECT pg_snapshot_xmin(pg_current_snapshot()) AS xmin) now
           LEFT JOIN stops s ON s.xid >= $1::bigint::text::xid8
           ORDER BY s.seq"#,
        from.0
    )
    .fetch_all(pool)
    .await?;
    let horizon = Horizon(rows.first().ok_or(sqlx::Error::RowNotFound)?.horizon);
    let stop = |(seq, kind, target, life): (Option<i64>, Option<String>, Option<Uuid>, Option<i32>)| {
        let kind = kind?;
        let kind = StopKind::ALL.into_iter().find(|known| known.name() == kind)?;
        Some(Stop { seq: seq?, kind, target: target?, life: life.unwrap_or(0) })
    };
    let stops = rows.into_iter().filter_map(|row| stop((row.seq, row.kind, row.target, row.life))).collect();
    Ok(Reading { stops, horizon })
}

/// Tells all workers of a message, with the transaction that makes it so and has locked its row.
pub async fn stop_message(
    conn: &mut PgConnection,
    kind: StopKind,
    message: MessageId,
    now: Timestamp,
) -> sqlx::Result<Stop> {
    let seq = sqlx::query_scalar!(
        "INSERT INTO stops (at, kind, target) VALUES ($1, $2, $3) RETURNING seq",
        now,
        kind.name(),
        message.0
    )
    .fetch_one(conn)
    .await?;
    Ok(Stop { seq, kind, target: message.0, life: 0 })
}

/// Tells all workers of a subscription as it lives now, with the transaction that makes it so and has locked its row.
pub async fn stop_subscription(
    conn: &mut PgConnection,
    kind: StopKind,
    subscription: SubscriptionId,
    now: Timestamp,
) -> sqlx::Result<Stop> {
    let row = sqlx::query!(
        r#"INSERT INTO stops (at, kind, target, life)
           SELECT $1, $2, id, life FROM subscriptions WHERE shard = $3 AND id = $4 RETURNING seq, life AS "life!""#,
        now,
        kind.name(),
        subscription.shard(),
        subscription.0
    )
    .fetch_one(conn)
    .await?;
    Ok(Stop { seq: row.seq, kind, target: subscription.0, life: row.life })
}
