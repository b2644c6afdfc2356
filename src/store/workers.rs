//! What replicas tell each other: who is alive, and what was learned of a gateway.

use std::time::Duration;

use sqlx::PgPool;
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::id::LaneId;
use crate::policy::breaker::{Snapshot, State};

/// A worker that has not been heard of for so long is taken for dead.
pub const SILENCE: Duration = Duration::from_secs(15);

/// Says that this worker lives, forgets the dead, and answers how many live, itself included.
pub async fn beat(pool: &PgPool, worker: Uuid, started_at: Timestamp, now: Timestamp) -> sqlx::Result<usize> {
    let live = sqlx::query_scalar!(
        r#"
        WITH mine AS (
            INSERT INTO workers (id, started_at, beat_at) VALUES ($1, $2, $3)
            ON CONFLICT (id) DO UPDATE SET beat_at = excluded.beat_at
        ),
        dead AS (DELETE FROM workers WHERE id <> $1 AND beat_at < $4)
        SELECT count(*) AS "n!" FROM workers WHERE id <> $1 AND beat_at >= $4
        "#,
        worker,
        started_at,
        now,
        now - SILENCE
    )
    .fetch_one(pool)
    .await?;
    Ok(1 + usize::try_from(live).unwrap_or(0))
}

/// Whether any worker lives.
pub async fn any(pool: &PgPool, now: Timestamp) -> sqlx::Result<bool> {
    sqlx::query_scalar!(r#"SELECT EXISTS (SELECT FROM workers WHERE beat_at >= $1) AS "any!""#, now - SILENCE)
        .fetch_one(pool)
        .await
}

/// Takes a worker off the list: it stops.
pub async fn leave(pool: &PgPool, worker: Uuid) -> sqlx::Result<()> {
    sqlx::query!("DELETE FROM workers WHERE id = $1", worker).execute(pool).await.map(drop)
}

/// What one worker learned of a lane and all obey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneState {
    /// The lane.
    pub lane: LaneId,
    /// The origin within it.
    pub origin: String,
    /// No POST before.
    pub held_until: Option<Timestamp>,
    /// Where its breaker stands.
    pub breaker: Option<Snapshot>,
}

/// Records what was learned: the longer hold stands, and the later breaker.
pub async fn share(pool: &PgPool, state: &LaneState, now: Timestamp) -> sqlx::Result<()> {
    let open_until = state.breaker.and_then(|breaker| match breaker.state {
        State::Open { until } => Some(until),
        State::Closed | State::HalfOpen => None,
    });
    sqlx::query!(
        r#"
        INSERT INTO lane_states AS s (lane, origin, held_until, breaker, open_until, open_ms, breaker_changed_at, changed_at)
        VALUES ($1, $2, $3, $4, $5, $6, $7, $8)
        ON CONFLICT (lane, origin) DO UPDATE
        SET held_until = greatest(s.held_until, excluded.held_until),
            (breaker, open_until, open_ms) = (
                SELECT CASE WHEN later THEN excluded.breaker ELSE s.breaker END,
                       CASE WHEN later THEN excluded.open_until ELSE s.open_until END,
                       CASE WHEN later THEN excluded.open_ms ELSE s.open_ms END
                FROM (SELECT excluded.breaker_changed_at IS NOT NULL
                         AND excluded.breaker_changed_at >= coalesce(s.breaker_changed_at, '-infinity') AS later) l
            ),
            breaker_changed_at = greatest(s.breaker_changed_at, excluded.breaker_changed_at),
            changed_at = excluded.changed_at
        "#,
        state.lane.0,
        state.origin,
        state.held_until,
        state.breaker.map(|breaker| breaker.state.name()),
        open_until,
        state.breaker.map(|breaker| i32::try_from(breaker.open_for.as_millis()).unwrap_or(i32::MAX)),
        state.breaker.map(|breaker| breaker.changed_at),
        now,
    )
    .execute(pool)
    .await
    .map(drop)
}

/// The lane states that changed since, or all of them.
pub async fn lane_states(pool: &PgPool, since: Option<Timestamp>) -> sqlx::Result<Vec<LaneState>> {
    let rows = sqlx::query!(
        r#"
        SELECT lane, origin, held_until, breaker, open_until, open_ms, breaker_changed_at FROM lane_states
        WHERE $1::timestamptz IS NULL OR changed_at > $1
        "#,
        since
    )
    .fetch_all(pool)
    .await?;
    let breaker =
        |name: Option<String>, until: Option<Timestamp>, open_ms: Option<i32>, changed_at: Option<Timestamp>| {
            let state = match (name.as_deref()?, until) {
                ("open", Some(until)) => State::Open { until },
                ("half_open", _) => State::HalfOpen,
                _ => State::Closed,
            };
            let open_for = Duration::from_millis(open_ms.and_then(|ms| u64::try_from(ms).ok()).unwrap_or(0));
            Some(Snapshot { state, open_for, changed_at: changed_at? })
        };
    Ok(rows
        .into_iter()
        .map(|row| LaneState {
            lane: LaneId(row.lane),
            origin: row.origin,
            held_until: row.held_until,
            breaker: breaker(row.breaker, row.open_until, row.open_ms, row.breaker_changed_at),
        })
        .collect())
}
