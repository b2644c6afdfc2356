//! Flow control: limits set by an app or an operator, for a whole app or one lane.

use std::time::Duration;

use sqlx::{PgExecutor, PgPool};
use uuid::Uuid;

use crate::connections::engine;
use crate::operations::workers::Since;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{AppId, LaneId, SubscriptionId};
use bellwire_rules::policy::flow::Rate;

/// Maximum counted deliveries of each lane, and of each message in fan-out.
const COUNT_MAX: i64 = 10_000;
/// Maximum messages in fan-out that one count reads.
const CURSORS_MAX: i64 = 100;

/// Flow control in force. Without values: unlimited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Flow {
    pub app: AppId,
    /// Lane. `None`: all lanes of the app together.
    pub lane: Option<LaneId>,
    /// Maximum rate.
    pub rate: Option<Rate>,
    /// Maximum POSTs in flight.
    pub parallelism: Option<u32>,
    pub paused: bool,
    /// Tiers held by the runaway guard. See [guards](super::guards).
    pub held: Vec<Tier>,
    pub held_at: Option<Timestamp>,
    pub reset_at: Timestamp,
    /// Time of the change, always later than that of the previous one.
    pub changed_at: Timestamp,
}

struct FlowRow {
    app: AppId,
    lane: Option<i32>,
    rate: Option<i32>,
    period_ms: Option<i32>,
    parallelism: Option<i32>,
    paused: bool,
    held_tiers: Vec<i16>,
    held_at: Option<Timestamp>,
    reset_at: Timestamp,
    changed_at: Timestamp,
}

impl From<FlowRow> for Flow {
    fn from(row: FlowRow) -> Self {
        let positive = |n: i32| u32::try_from(n).ok().filter(|n| *n > 0);
        let rate = row.rate.and_then(positive).zip(row.period_ms.and_then(positive));
        Self {
            app: row.app,
            lane: row.lane.map(LaneId),
            rate: rate.map(|(n, period_ms)| Rate { n, period: Duration::from_millis(period_ms.into()) }),
            parallelism: row.parallelism.and_then(positive),
            paused: row.paused,
            held: row.held_tiers.into_iter().filter_map(Tier::from_code).collect(),
            held_at: row.held_at,
            reset_at: row.reset_at,
            changed_at: row.changed_at,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Sets limits. A new rate starts with a full period.
    Limits {
        /// Maximum rate.
        rate: Option<Rate>,
        /// Maximum POSTs in flight.
        parallelism: Option<u32>,
    },
    /// Pauses or resumes the flow.
    Paused(bool),
    Reset,
    Clear,
}

/// Stores a change, which workers read within a second. `id` is a new one.
pub async fn change(
    executor: impl PgExecutor<'_>, id: Uuid, app: AppId, lane: Option<LaneId>, change: Change, now: Timestamp,
) -> sqlx::Result<Flow> {
    let (limits, paused, reset) = match change {
        Change::Limits { rate, parallelism } => (Some((rate, parallelism)), None, false),
        Change::Paused(paused) => (None, Some(paused), false),
        Change::Reset => (None, None, true),
        Change::Clear => (Some((None, None)), Some(false), false),
    };
    let (rate, parallelism) = limits.unwrap_or_default();
    let number = |n: u32| i32::try_from(n).unwrap_or(i32::MAX);
    let row = fetch_one!(
        executor,
        FlowRow,
        r#"
        INSERT INTO flows AS f (id, app, lane, rate, period_ms, parallelism, paused, reset_at, changed_at)
        VALUES ($1, $2, $3, $4, $5, $6, coalesce($7, false), $8, $8)
        ON CONFLICT (app, lane) DO UPDATE
        SET rate = CASE WHEN $9 THEN excluded.rate ELSE f.rate END,
            period_ms = CASE WHEN $9 THEN excluded.period_ms ELSE f.period_ms END,
            parallelism = CASE WHEN $9 THEN excluded.parallelism ELSE f.parallelism END,
            paused = coalesce($7, f.paused),
            reset_at = CASE WHEN $10 OR f.rate IS NULL
                            THEN greatest(excluded.reset_at, f.reset_at + interval '1 microsecond')
                            ELSE f.reset_at END,
            changed_at = greatest(excluded.changed_at, f.changed_at + interval '1 microsecond')
        RETURNING app, lane, rate, period_ms, parallelism, paused, held_tiers, held_at, reset_at, changed_at
        "#,
        (id, app.0, lane.map(|lane| lane.0), rate.map(|rate| number(rate.n))),
        (rate.map(|rate| i32::try_from(rate.period.as_millis()).unwrap_or(i32::MAX)), parallelism.map(number), paused),
        (now, limits.is_some(), reset)
    )?;
    Ok(row.into())
}

/// Returns the flow control of an app or of one lane. `None`: it was never set.
pub async fn find(executor: impl PgExecutor<'_>, app: AppId, lane: Option<LaneId>) -> sqlx::Result<Option<Flow>> {
    let row = fetch_optional!(
        executor,
        FlowRow,
        "SELECT app, lane, rate, period_ms, parallelism, paused, held_tiers, held_at, reset_at, changed_at FROM flows
         WHERE app = $1 AND lane IS NOT DISTINCT FROM $2",
        (app.0, lane.map(|lane| lane.0))
    )?;
    Ok(row.map(Flow::from))
}

pub async fn changed(pool: &PgPool, since: Option<Since>) -> sqlx::Result<Vec<Flow>> {
    let rows = fetch_all!(
        pool,
        FlowRow,
        "/* read_flows */
         SELECT app, lane, rate, period_ms, parallelism, paused, held_tiers, held_at, reset_at, changed_at FROM flows
         WHERE $1::timestamptz IS NULL OR changed_at > $1
            OR age(xmin) <= (SELECT age($2::bigint::text::xid8::xid)) AND age(xmin) >= 0",
        (since.map(|since| since.changed_at), since.map(|since| since.transaction))
    )?;
    Ok(rows.into_iter().map(Flow::from).collect())
}

/// Due deliveries that were not sent yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DueCounts {
    /// Number of due queue rows, and of recipients before fan-out.
    pub deliveries: i64,
    pub or_more: bool,
    /// Due time of the oldest queue row.
    pub oldest_due_at: Option<Timestamp>,
}

/// Counts the waiting deliveries of an app's lanes, or of one lane, at a constant cost.
pub async fn waiting(pool: &PgPool, app: AppId, lane: Option<LaneId>, now: Timestamp) -> sqlx::Result<DueCounts> {
    let found = fetch_one!(
        pool,
        r#"
        WITH mine AS (SELECT id FROM lanes WHERE app = $1 AND ($2::integer IS NULL OR id = $2)),
        rows AS (
            SELECT n.n, o.due_at FROM mine CROSS JOIN generate_series(1, 3) AS t (tier),
            LATERAL (SELECT count(*) AS n FROM (SELECT FROM queue
                     WHERE lane = mine.id AND tier = t.tier AND due_at <= $3 LIMIT $4) c) n,
            LATERAL (SELECT min(due_at) AS due_at FROM (SELECT due_at FROM queue
                     WHERE lane = mine.id AND tier = t.tier AND due_at <= $3 ORDER BY due_at LIMIT 1) o) o
        )
        SELECT coalesce(sum(n), 0)::bigint AS "deliveries!", coalesce(max(n) = $4, false) AS "or_more!",
               min(due_at) AS oldest_due_at
        FROM rows
        "#,
        (app.0, lane.map(|lane| lane.0), now, COUNT_MAX)
    )?;
    let due = fetch_all!(
        pool,
        "SELECT c.lane, c.topic, c.after FROM cursors c JOIN lanes l ON l.id = c.lane
         WHERE l.app = $1 AND ($2::integer IS NULL OR l.id = $2) AND c.due_at <= $3 LIMIT $4",
        (app.0, lane.map(|lane| lane.0), now, CURSORS_MAX)
    )?;
    let (mut deliveries, mut or_more) = (found.deliveries, found.or_more || due.len() as i64 == CURSORS_MAX);
    for cursor in due {
        let left = left_of(pool, LaneId(cursor.lane), cursor.topic, cursor.after).await?;
        deliveries += left;
        or_more |= left == COUNT_MAX;
    }
    Ok(DueCounts { deliveries, or_more, oldest_due_at: found.oldest_due_at })
}

/// Returns the number of recipients after a cursor, counted up to [`COUNT_MAX`].
async fn left_of(pool: &PgPool, lane: LaneId, topic: Option<i32>, after: Uuid) -> sqlx::Result<i64> {
    macro_rules! left {
        ($of:literal, $beyond:literal $(, $bind:expr)*) => {
            fetch_one!(
                pool,
                scalar,
                r#"SELECT count(*) AS "n!" FROM (SELECT 1 FROM "# + $of + " WHERE lane = $1 AND " + $beyond + " LIMIT $3) AS rest",
                (lane.0, after, COUNT_MAX $(, $bind)*)
            )
        };
    }
    // See `walk`: an id ends in its shard.
    let shard = engine::is_distributed().then(|| SubscriptionId(after).shard());
    match (topic, shard) {
        (None, None) => left!("subscriptions", "state = 'active' AND id > $2"),
        (None, Some(shard)) => left!("subscriptions", "state = 'active' AND (shard, id) > ($4::smallint, $2)", shard),
        (Some(topic), None) => left!("topic_members", "subscription > $2 AND topic = $4", topic),
        (Some(topic), Some(shard)) => {
            left!("topic_members", "(shard, subscription) > ($5::smallint, $2) AND topic = $4", topic, shard)
        }
    }
}
