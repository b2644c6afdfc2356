//! What replicas tell each other: who is alive, and what was learned of a gateway.

use std::time::Duration;

use sqlx::PgPool;
use uuid::Uuid;

use crate::clock::Timestamp;
use crate::id::LaneId;

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

/// Takes a worker off the list: it stops.
pub async fn leave(pool: &PgPool, worker: Uuid) -> sqlx::Result<()> {
    sqlx::query!("DELETE FROM workers WHERE id = $1", worker).execute(pool).await.map(drop)
}

/// A hold that one worker learned of and all obey.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// The lane.
    pub lane: LaneId,
    /// The origin within it.
    pub origin: String,
    /// No POST before.
    pub until: Timestamp,
}

/// Records a hold, unless a longer one stands.
pub async fn hold(pool: &PgPool, hold: &Hold, now: Timestamp) -> sqlx::Result<()> {
    sqlx::query!(
        r#"
        INSERT INTO lane_states AS s (lane, origin, held_until, changed_at) VALUES ($1, $2, $3, $4)
        ON CONFLICT (lane, origin) DO UPDATE
        SET held_until = greatest(s.held_until, excluded.held_until), changed_at = excluded.changed_at
        "#,
        hold.lane.0,
        hold.origin,
        hold.until,
        now
    )
    .execute(pool)
    .await
    .map(drop)
}

/// The holds that last beyond `now`.
pub async fn holds(pool: &PgPool, now: Timestamp) -> sqlx::Result<Vec<Hold>> {
    let rows =
        sqlx::query!(r#"SELECT lane, origin, held_until AS "until!" FROM lane_states WHERE held_until > $1"#, now)
            .fetch_all(pool)
            .await?;
    Ok(rows.into_iter().map(|row| Hold { lane: LaneId(row.lane), origin: row.origin, until: row.until }).collect())
}
