//! Shared state of replicas: live workers, and lane states.

use std::time::Duration;

use sqlx::{PgExecutor, PgPool};
use uuid::Uuid;

use crate::queue::stops::Horizon;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::LaneId;
use bellwire_rules::policy::breaker::{PROBE_PATIENCE, Snapshot};
use bellwire_rules::policy::hold::HoldReason;
use bellwire_rules::policy::lane_state::LaneState;
use bellwire_rules::policy::payload_limit::Learned;

/// Time without a heartbeat after which a worker counts as dead, by the database's clock. Workers that count its heartbeats
/// notice it earlier.
pub const SILENCE: Duration = Duration::from_secs(15);

pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Whether all of Bellwire's sessions on this database belong to this process.
pub async fn is_alone(pool: &PgPool, session: &str) -> sqlx::Result<bool> {
    fetch_one!(
        pool,
        scalar,
        r#"SELECT NOT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database()
             AND application_name LIKE 'bellwire %' AND application_name <> $1) AS "alone!""#,
        (session)
    )
}

/// Workers that share the work, as seen by one of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Replicas {
    /// Number of live workers, this one included.
    pub workers: u32,
    /// Number of workers with a smaller id.
    pub rank: u32,
    /// Whether older workers may not have noticed this worker yet, and still use larger shares.
    pub newcomer: bool,
}

impl Replicas {
    pub const ALONE: Self = Self { workers: 1, rank: 0, newcomer: false };
}

/// State of a worker, as other workers read it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WorkerRow {
    pub id: Uuid,
    /// Start of the worker, by its clock.
    pub started_at: Timestamp,
    /// Time of its last heartbeat, by its clock.
    pub beat_at: Timestamp,
    /// Count of its heartbeats.
    pub beats: i64,
}

#[derive(Debug)]
pub struct Beat {
    /// Rows of all other workers, in no order.
    pub peers: Vec<WorkerRow>,
    pub database: Timestamp,
}

impl Replicas {
    /// Computes the workers that share the work with `worker`, from peers with recent heartbeats.
    pub fn of(worker: Uuid, started_at: Timestamp, peers: &[WorkerRow], now: Timestamp) -> Self {
        let alive = || peers.iter().filter(|peer| peer.beat_at >= now - SILENCE);
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX - 1);
        let is_older = |peer: &WorkerRow| (peer.started_at, peer.id) < (started_at, worker);
        Self {
            workers: 1 + count(alive().count()),
            rank: count(alive().filter(|peer| peer.id < worker).count()),
            newcomer: now < started_at + SILENCE && alive().any(is_older),
        }
    }
}

/// Adds a worker to the list. `session` is the application name of its database sessions, if its process has its own.
pub async fn enter(pool: &PgPool, worker: Uuid, session: Option<&str>, started_at: Timestamp) -> sqlx::Result<()> {
    execute!(
        pool,
        "INSERT INTO workers (id, started_at, beat_at, version, session, beats) VALUES ($1, $2, $2, $3, $4, 1)",
        (worker, started_at, VERSION, session)
    )
}

/// Stores the heartbeat of a worker and reads the other workers. The write is not flushed: after a crash of Postgres all
/// workers count again. `None`: the worker is not on the list.
pub async fn beat(pool: &PgPool, worker: Uuid, now: Timestamp) -> sqlx::Result<Option<Beat>> {
    let found = fetch_all!(
        pool,
        r#"/* heartbeat */
        WITH me AS (
            UPDATE workers SET beats = beats + 1, beat_at = $2 WHERE id = $1
            RETURNING set_config('synchronous_commit', 'off', true)
        )
        SELECT clock_timestamp() AS "database!", w.id AS "id?", w.started_at AS "started_at?", w.beat_at AS "beat_at?", w.beats AS "beats?"
        FROM (SELECT count(*) AS n FROM me) m LEFT JOIN workers w ON w.id <> $1 WHERE m.n = 1
        "#,
        (worker, now)
    )?;
    let Some(database) = found.first().map(|row| row.database) else { return Ok(None) };
    let peers = found.into_iter().filter_map(|row| {
        let (id, started_at, beat_at, beats) = (row.id?, row.started_at?, row.beat_at?, row.beats?);
        Some(WorkerRow { id, started_at, beat_at, beats })
    });
    Ok(Some(Beat { peers: peers.collect(), database }))
}

pub async fn any(executor: impl PgExecutor<'_>, now: Timestamp) -> sqlx::Result<bool> {
    fetch_one!(
        executor,
        scalar,
        r#"SELECT EXISTS (SELECT FROM workers WHERE beat_at >= $1) AS "any!""#,
        (now - SILENCE)
    )
}

/// Returns the version of each live worker.
pub async fn versions(pool: &PgPool, now: Timestamp) -> sqlx::Result<Vec<String>> {
    fetch_all!(pool, scalar, "SELECT version FROM workers WHERE beat_at >= $1 ORDER BY id", (now - SILENCE))
}

/// Stores lane state, in one statement: the longer hold unless released since, the later breaker, and the later limit.
/// `tripped` counts a breaker that opened by itself, unless another worker counted that opening.
pub async fn share(pool: &PgPool, state: &LaneState, worker: Uuid, tripped: bool, now: Timestamp) -> sqlx::Result<()> {
    execute!(
        pool,
        r#"
        WITH tripped AS (
            INSERT INTO breaker_trips AS t (minute, lane, n)
            SELECT date_trunc('minute', $8::timestamptz), $1, 1
            WHERE $9 AND NOT EXISTS (
                SELECT FROM lane_states WHERE lane = $1 AND origin = $2 AND breaker = 'open' AND open_until > $8)
            ON CONFLICT (minute, lane) DO UPDATE SET n = t.n + 1
        ),
        released AS (SELECT max(released_at) AS at FROM lane_states WHERE lane = $1 AND origin IN ($2, '*'))
        INSERT INTO lane_states AS s (lane, origin, held_at, held_until, breaker, open_until, open_ms, breaker_changed_at,
                                      changed_at, payload_max, payload_at, breaker_of)
        SELECT $1, $2, CASE WHEN $3 >= coalesce(r.at, '-infinity') THEN $3 END,
               CASE WHEN $3 >= coalesce(r.at, '-infinity') THEN $10::timestamptz END, $4, $5, $6, $7, $8, $11, $12, $13
        FROM released r
        ON CONFLICT (lane, origin) DO UPDATE
        SET (held_at, held_until, reason, note) = (
                SELECT CASE WHEN longer THEN excluded.held_at ELSE s.held_at END,
                       CASE WHEN longer THEN excluded.held_until ELSE s.held_until END,
                       CASE WHEN longer THEN NULL ELSE s.reason END,
                       CASE WHEN longer THEN NULL ELSE s.note END
                FROM (SELECT coalesce(excluded.held_until > coalesce(s.held_until, '-infinity'), false) AS longer) l
            ),
            (breaker, breaker_of, open_until, open_ms) = (
                SELECT CASE WHEN later THEN excluded.breaker ELSE s.breaker END,
                       CASE WHEN later THEN excluded.breaker_of ELSE s.breaker_of END,
                       CASE WHEN later THEN excluded.open_until ELSE s.open_until END,
                       CASE WHEN later THEN excluded.open_ms ELSE s.open_ms END
                FROM (SELECT excluded.breaker_changed_at IS NOT NULL
                         AND excluded.breaker_changed_at >= coalesce(s.breaker_changed_at, '-infinity') AS later) l
            ),
            breaker_changed_at = greatest(s.breaker_changed_at, excluded.breaker_changed_at),
            payload_max = CASE WHEN excluded.payload_at >= coalesce(s.payload_at, '-infinity')
                               THEN excluded.payload_max ELSE s.payload_max END,
            payload_at = greatest(s.payload_at, excluded.payload_at),
            changed_at = excluded.changed_at
        "#,
        (state.lane.0, &*state.origin, state.held.map(|held| held.at)),
        (state.breaker.map(|breaker| breaker.state.name()), state.breaker.and_then(|breaker| breaker.open_until())),
        (state.breaker.map(|breaker| breaker.open_ms()), state.breaker.map(|breaker| breaker.changed_at), now),
        (tripped, state.held.map(|held| held.until)),
        (state.payload.and_then(|learned| i32::try_from(learned.max?).ok()), state.payload.map(|learned| learned.at)),
        (state.alone.then_some(worker))
    )
}

/// Columns of `lane_states` that workers use.
#[derive(Debug)]
pub(crate) struct StateRow {
    pub lane: LaneId,
    pub origin: String,
    pub held_at: Option<Timestamp>,
    pub held_until: Option<Timestamp>,
    pub released_at: Option<Timestamp>,
    pub key_held_at: Option<Timestamp>,
    pub key_held_until: Option<Timestamp>,
    pub key_released_at: Option<Timestamp>,
    pub breaker: Option<String>,
    pub alone: bool,
    pub open_until: Option<Timestamp>,
    pub open_ms: Option<i32>,
    pub breaker_changed_at: Option<Timestamp>,
    pub payload_max: Option<i32>,
    pub payload_at: Option<Timestamp>,
}

impl From<StateRow> for LaneState {
    fn from(row: StateRow) -> Self {
        let held = |at: Option<Timestamp>, until: Timestamp| HoldReason { at: at.unwrap_or(until), until };
        let breaker = row.breaker.zip(row.breaker_changed_at).and_then(|(name, changed_at)| {
            Snapshot::from_row(&name, row.open_until, row.open_ms.unwrap_or(0), changed_at)
        });
        let max = row.payload_max.and_then(|max| u32::try_from(max).ok());
        let payload = row.payload_at.map(|at| Learned { max, at });
        Self {
            lane: row.lane,
            origin: row.origin.into(),
            held: row.held_until.map(|until| held(row.held_at, until)),
            released_at: row.released_at,
            key_held: row.key_held_until.map(|until| held(row.key_held_at, until)),
            key_released_at: row.key_released_at,
            breaker,
            alone: row.alone,
            payload,
        }
    }
}

/// Position from which the next read of lane states and flows continues. A read may repeat some rows, which has no effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Since {
    /// Rows of this transaction or a later one are read: none is missed, even if it commits long after its `changed_at`.
    pub(crate) transaction: i64,
    /// Rows changed after this time are read, too. After a failover, the new primary may number transactions from a lower
    /// value.
    pub(crate) changed_at: Timestamp,
}

impl Since {
    /// Position after a read with this horizon.
    pub fn new(horizon: &Horizon, changed_at: Timestamp) -> Self {
        Self { transaction: horizon.oldest_transaction(), changed_at }
    }
}

/// Returns the lane states that changed since a position, or all of them.
pub async fn lane_states(pool: &PgPool, worker: Uuid, since: Option<Since>) -> sqlx::Result<Vec<LaneState>> {
    let rows = fetch_all!(
        pool,
        StateRow,
        r#"/* read_lane_states */
        SELECT lane, origin, held_at, held_until, released_at, key_held_at, key_held_until, key_released_at, breaker,
               breaker_of IS NOT NULL AND breaker_of <> $2 AS "alone!", open_until, open_ms, breaker_changed_at, payload_max,
               payload_at
        FROM lane_states
        WHERE $1::timestamptz IS NULL OR changed_at > $1
           OR age(xmin) <= (SELECT age($3::bigint::text::xid8::xid)) AND age(xmin) >= 0
        "#,
        (since.map(|since| since.changed_at), worker, since.map(|since| since.transaction))
    )?;
    Ok(rows.into_iter().map(LaneState::from).collect())
}

/// Requests the right to send the probes of a half-open breaker. One worker has it at a time; a crashed worker loses it at its
/// end. `known` is the breaker in the caller's memory: if it is outdated, the result is `None`. Returns the end of the right.
/// The breaker is then half-open, also in the row.
pub async fn lease_probe(
    pool: &PgPool, lane: LaneId, origin: &str, worker: Uuid, known: Snapshot, now: Timestamp,
) -> sqlx::Result<Option<Timestamp>> {
    fetch_optional!(
        pool,
        scalar,
        r#"
        INSERT INTO lane_states AS s (lane, origin, breaker, open_ms, breaker_changed_at, changed_at, prober, probe_until)
        VALUES ($1, $2, 'half_open', $3, $8, $4, $5, $6)
        ON CONFLICT (lane, origin) DO UPDATE
        SET breaker = 'half_open', open_until = NULL, open_ms = excluded.open_ms, changed_at = excluded.changed_at,
            breaker_changed_at = excluded.breaker_changed_at, prober = excluded.prober, probe_until = excluded.probe_until
        WHERE (s.prober IS NULL OR s.prober = $5 OR s.probe_until <= $4)
          AND coalesce(s.breaker_changed_at, '-infinity') <= $7
        RETURNING probe_until AS "probe_until!"
        "#,
        (lane.0, origin, known.open_ms(), now, worker, now + PROBE_PATIENCE, known.changed_at, known.followed_at(now))
    )
}
