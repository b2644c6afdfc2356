//! Metrics over time: [notes](super::notes), summed by minute, hour and day, and read without the log of attempts.

use std::ops::RangeInclusive;
use std::time::Duration;

use futures_util::stream::BoxStream;
use sqlx::{PgConnection, PgPool};
use uuid::Uuid;

use crate::outcomes::notes::CHARTED_ABOVE;
use crate::transactions::begin;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{AppId, LaneId, MessageId};
use bellwire_core::lane::Gateway;

/// Id that stands for all messages of a lane.
pub const EVERY_MESSAGE: MessageId = MessageId(Uuid::nil());
/// Id that stands for all lanes of a push service.
const EVERY_LANE: LaneId = LaneId(0);
/// Notes summed in one transaction.
const CHUNK: i64 = 10_000;
/// Maximum rows read of one step: some seconds of work.
pub const ROWS_MAX: usize = 1_000_000;

/// Length of a row of `rollups`, stored as a number in `rollups.step`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum RollupStep {
    Minute = 1,
    Hour = 2,
    Day = 3,
}

impl RollupStep {
    pub const ALL: [Self; 3] = [Self::Minute, Self::Hour, Self::Day];

    /// Returns the additional retention of rows of this step. The first bucket of a range begins at most this long before the
    /// range, and must be complete.
    pub fn slack(self) -> Duration {
        match self {
            RollupStep::Minute => Duration::from_secs(3_600),
            RollupStep::Hour | RollupStep::Day => Duration::from_secs(86_400),
        }
    }

    /// Returns its length in seconds.
    pub fn seconds(self) -> i64 {
        match self {
            RollupStep::Minute => 60,
            RollupStep::Hour => 3_600,
            RollupStep::Day => 86_400,
        }
    }
}

/// Retention of metrics over time.
#[derive(Debug, Clone, Copy)]
pub struct MetricsKept {
    /// Retention of minutes.
    pub minutes: Duration,
    /// Retention of hours.
    pub hours: Duration,
    /// Retention of days.
    pub days: Duration,
}

impl MetricsKept {
    /// Default retention of a server.
    pub const DEFAULT: Self = Self {
        minutes: Duration::from_secs(2 * 86_400),
        hours: Duration::from_secs(90 * 86_400),
        days: Duration::from_secs(1_825 * 86_400),
    };

    pub fn of(self, step: RollupStep) -> Duration {
        match step {
            RollupStep::Minute => self.minutes,
            RollupStep::Hour => self.hours,
            RollupStep::Day => self.days,
        }
    }
}

/// Adds a chunk of notes to their minutes, hours and days in one transaction, so that each note counts once, even after an
/// interruption. Returns whether the chunk was full, so that more notes may wait. Only one call runs at a time; a concurrent
/// call returns at once.
pub async fn fold(pool: &PgPool) -> sqlx::Result<bool> {
    let mut tx = begin(pool).await?;
    let alone = fetch_one!(
        &mut *tx,
        scalar,
        r#"SELECT pg_try_advisory_xact_lock(hashtextextended('bellwire.rollups', 0)) AS "alone!""#
    )?;
    if !alone {
        return Ok(false);
    }
    let folded = fetch_one!(
        &mut *tx,
        scalar,
        r#"
        WITH taken AS (
            DELETE FROM rollup_notes WHERE ctid = ANY (ARRAY(SELECT ctid FROM rollup_notes LIMIT $1))
            RETURNING minute, lane, tier, message, fact, n
        ),
        -- Added up before each goes to six places: settlings of one-time codes all note the same few facts of a minute.
        noted AS (SELECT minute, lane, tier, message, fact, sum(n) AS n FROM taken GROUP BY minute, lane, tier, message, fact),
        -- The lane's gateway outlives its app in the sum of all apps alone, where the lane is not shown.
        known AS (SELECT o.*, coalesce(l.gateway, 'other') AS gateway FROM noted o LEFT JOIN lanes l ON l.id = o.lane),
        placed AS (
            SELECT $2::uuid AS message, p.lane, k.gateway, k.tier, k.minute, k.fact, k.n
            FROM known k CROSS JOIN LATERAL (VALUES (k.lane), ($3)) AS p (lane)
            UNION ALL
            SELECT message, lane, gateway, tier, minute, fact, n FROM known WHERE message IS NOT NULL
        ),
        summed AS (
            SELECT s.step, message, lane, date_trunc(s.unit, minute, 'UTC') AS start, tier, gateway, fact, sum(n)::bigint AS n
            FROM placed CROSS JOIN (VALUES (1::smallint, 'minute'), (2, 'hour'), (3, 'day')) AS s (step, unit)
            GROUP BY s.step, message, lane, 4, tier, gateway, fact
        ),
        added AS (
            INSERT INTO rollups AS r (step, message, lane, start, tier, gateway, facts, ns)
            SELECT step, message, lane, start, tier, gateway, array_agg(fact ORDER BY fact), array_agg(n ORDER BY fact)
            FROM summed GROUP BY step, message, lane, start, tier, gateway
            ON CONFLICT (step, message, lane, start, tier, gateway) DO UPDATE SET (facts, ns) = (
                SELECT array_agg(fact ORDER BY fact), array_agg(n ORDER BY fact)
                FROM (SELECT fact, sum(n)::bigint AS n
                      FROM (SELECT * FROM unnest(r.facts, r.ns) UNION ALL SELECT * FROM unnest(excluded.facts, excluded.ns))
                          AS both_of (fact, n)
                      GROUP BY fact) AS sums)
        )
        SELECT count(*) AS "n!" FROM taken
        "#,
        (CHUNK, EVERY_MESSAGE.0, EVERY_LANE.0)
    )?;
    tx.commit().await?;
    Ok(folded == CHUNK)
}

#[derive(Debug, Clone)]
pub struct LaneOf {
    pub lane: LaneId,
    pub app: AppId,
    pub gateway: Gateway,
}

/// Returns the lanes of an app, or of all apps. If `only` is not empty, only these.
pub async fn lanes(pool: &PgPool, app: Option<AppId>, only: &[LaneId]) -> sqlx::Result<Vec<LaneOf>> {
    fetch_all!(
        pool,
        LaneOf,
        r#"SELECT id AS "lane: LaneId", app AS "app: AppId", gateway AS "gateway: Gateway"
           FROM lanes WHERE ($1::uuid IS NULL OR app = $1) AND ($2 OR id = ANY ($3)) ORDER BY id"#,
        (app.map(|app| app.0), only.is_empty(), only as &[LaneId])
    )
}

/// Returns which of these messages, of an app or any app, have metrics of their own.
pub async fn charted(pool: &PgPool, app: Option<AppId>, messages: &[MessageId]) -> sqlx::Result<Vec<MessageId>> {
    let rows = fetch_all!(
        pool,
        scalar,
        "SELECT id FROM messages WHERE id = ANY ($1) AND ($2::uuid IS NULL OR app = $2) AND audience_estimate > $3",
        (messages as &[MessageId], app.map(|app| app.0), CHARTED_ABOVE)
    )?;
    Ok(rows.into_iter().map(MessageId).collect())
}

#[derive(Debug, Clone)]
pub struct RollupFilter {
    /// Lanes. `None`: the sums over all lanes.
    pub lanes: Option<Vec<LaneId>>,
    /// Messages. Empty: the sums over all messages.
    pub messages: Vec<MessageId>,
    /// Push services. Empty: all.
    pub gateways: Vec<Gateway>,
    /// Tier codes ([`Tier::code`]), 0 for rows without a tier. Empty: all.
    pub tiers: Vec<i16>,
    /// Range of facts to read, by [`Fact::code`](bellwire_core::fact::Fact::code). Most facts of a row are about latency.
    pub facts: RangeInclusive<i16>,
}

/// Rows of one step within a period.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Piece {
    /// Length of each row.
    pub step: RollupStep,
    /// Start of the first row.
    pub from: Timestamp,
    /// End of the period: the last row begins before it.
    pub until: Timestamp,
}

/// Counts of a lane, tier and message in a step.
#[derive(Debug)]
pub struct RollupRow {
    pub start: Timestamp,
    /// Lane of the counts. `None`: the whole push service.
    pub lane: Option<LaneId>,
    pub gateway: Gateway,
    /// Tier of the counts, if any.
    pub tier: Option<Tier>,
    /// Message of the counts. `None`: all messages.
    pub message: Option<MessageId>,
    /// Fact numbers, by [`Fact::code`](bellwire_core::fact::Fact::code).
    pub facts: Vec<i16>,
    /// Count of each fact.
    pub ns: Vec<i64>,
}

/// Reads the rows of a piece in any order, at most [`ROWS_MAX`] + 1. With that many rows, the result is incomplete.
pub fn read<'c>(
    conn: &'c mut PgConnection, wanted: &RollupFilter, piece: Piece,
) -> BoxStream<'c, sqlx::Result<RollupRow>> {
    let lanes = wanted.lanes.clone().unwrap_or_else(|| vec![EVERY_LANE]);
    let messages = if wanted.messages.is_empty() { vec![EVERY_MESSAGE] } else { wanted.messages.clone() };
    let gateways: Vec<String> = wanted.gateways.iter().map(|gateway| gateway.name().to_owned()).collect();
    // Facts are stored in order.
    query!(
        r#"SELECT start, lane, gateway AS "gateway: Gateway", tier, message,
                  facts[width_bucket($8::smallint, facts) + 1 : width_bucket($9::smallint, facts)] AS "facts!",
                  ns[width_bucket($8::smallint, facts) + 1 : width_bucket($9::smallint, facts)] AS "ns!"
           FROM rollups
           WHERE step = $1 AND message = ANY ($2) AND lane = ANY ($3) AND start >= $4 AND start < $5
             AND (cardinality($6::smallint[]) = 0 OR tier = ANY ($6))
             AND (cardinality($7::text[]) = 0 OR gateway = ANY ($7)) LIMIT $10"#,
        (piece.step as i16, &messages as &[MessageId], &lanes as &[LaneId], piece.from, piece.until, &wanted.tiers),
        (&gateways, wanted.facts.start() - 1, *wanted.facts.end(), i64::try_from(ROWS_MAX).expect("it is small") + 1)
    )
    .map(|row| RollupRow {
        start: row.start,
        lane: Some(LaneId(row.lane)).filter(|lane| *lane != EVERY_LANE),
        gateway: row.gateway,
        tier: Tier::from_code(row.tier),
        message: Some(MessageId(row.message)).filter(|message| *message != EVERY_MESSAGE),
        facts: row.facts,
        ns: row.ns,
    })
    .fetch(conn)
}

/// Returns active subscriptions by lane, consistent with [`read`]: changes that are not in the metrics yet are not counted.
pub async fn active(conn: &mut PgConnection) -> sqlx::Result<Vec<(LaneId, i64)>> {
    query!(
        r#"SELECT lane AS "lane!", sum(n)::bigint AS "n!"
           FROM (SELECT lane, n FROM audience_counts WHERE topic = 0
                 UNION ALL
                 SELECT lane, CASE WHEN fact = 40 THEN -n ELSE n END FROM rollup_notes WHERE fact BETWEEN 40 AND 46) AS known
           GROUP BY lane"#
    )
    .map(|row| (LaneId(row.lane), row.n))
    .fetch_all(conn)
    .await
}

/// Returns the time of the oldest note that is not in the metrics yet, to the minute or better.
pub async fn oldest_note(conn: &mut PgConnection) -> sqlx::Result<Option<Timestamp>> {
    fetch_one!(
        conn,
        scalar,
        "SELECT least((SELECT min(minute) FROM rollup_notes), (SELECT min(at) FROM audience_changes))"
    )
}
