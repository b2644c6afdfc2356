//! Reports of workers about their lanes: current limits, and last errors of push services.

use chrono::{DateTime, Utc};
use serde::Serialize;
use sqlx::PgPool;
use utoipa::ToSchema;
use uuid::Uuid;

use super::workers::SILENCE;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::LaneId;

/// Last response of a push service to a POST that it did not accept, except about gone subscriptions.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, ToSchema)]
pub struct LastError {
    #[serde(skip)]
    pub lane: LaneId,
    /// Time of the response.
    pub at: DateTime<Utc>,
    /// HTTP status. Null: no response.
    pub status: Option<i16>,
    /// Text of the response without endpoints and tokens, or the transport failure. Null: empty.
    pub detail: Option<String>,
}

/// Replaces the limits reported by a worker for all its lanes.
pub async fn tell_limits(pool: &PgPool, worker: Uuid, limits: &[(LaneId, i32)]) -> sqlx::Result<()> {
    let (lanes, limits): (Vec<LaneId>, Vec<i32>) = limits.iter().copied().unzip();
    // A worker that was taken for dead meanwhile tells with its next heartbeat. An app may have been deleted under it.
    execute!(
        pool,
        "WITH idle AS (DELETE FROM lane_limits WHERE worker = $1 AND lane <> ALL ($2))
         INSERT INTO lane_limits AS l (worker, lane, concurrency)
         SELECT w.id, told.lane, told.concurrency
         FROM workers w, unnest($2::integer[], $3::integer[]) AS told (lane, concurrency) JOIN lanes ON lanes.id = told.lane
         WHERE w.id = $1
         ON CONFLICT (worker, lane) DO UPDATE SET concurrency = excluded.concurrency
         WHERE l.concurrency <> excluded.concurrency",
        (worker, &lanes as &[LaneId], &limits)
    )
}

/// Stores the last errors of push services, one row per lane. A later stored error stays.
pub async fn tell_words(pool: &PgPool, words: &[LastError]) -> sqlx::Result<()> {
    let lanes: Vec<LaneId> = words.iter().map(|row| row.lane).collect();
    let at: Vec<Timestamp> = words.iter().map(|row| row.at).collect();
    let status: Vec<Option<i16>> = words.iter().map(|row| row.status).collect();
    let detail: Vec<Option<String>> = words.iter().map(|row| row.detail.clone()).collect();
    // In the order of their numbers, so that two workers that tell of the same lanes do not wait for each other. An app may be
    // deleted while its last answers come in.
    execute!(
        pool,
        "INSERT INTO lane_words AS w (lane, at, status, detail)
         SELECT told.lane, told.at, told.status, told.detail
         FROM unnest($1::integer[], $2::timestamptz[], $3::smallint[], $4::text[]) AS told (lane, at, status, detail)
              JOIN lanes ON lanes.id = told.lane
         ORDER BY told.lane
         ON CONFLICT (lane) DO UPDATE SET at = excluded.at, status = excluded.status, detail = excluded.detail
         WHERE w.at < excluded.at",
        (&lanes as &[LaneId], &at, &status as &[Option<i16>], &detail as &[Option<String>])
    )
}

/// Returns the maximum concurrent POSTs of these lanes, summed over all live workers. Unused lanes are omitted.
pub async fn limits(pool: &PgPool, lanes: &[LaneId], now: Timestamp) -> sqlx::Result<Vec<(LaneId, i64)>> {
    query!(
        r#"SELECT lane, sum(concurrency)::bigint AS "concurrency!" FROM lane_limits JOIN workers ON workers.id = worker
           WHERE lane = ANY ($1) AND beat_at >= $2 GROUP BY lane"#,
        (lanes as &[LaneId], now - SILENCE)
    )
    .map(|row| (LaneId(row.lane), row.concurrency))
    .fetch_all(pool)
    .await
}

/// Returns the last errors of these lanes, if any.
pub async fn last_words(pool: &PgPool, lanes: &[LaneId]) -> sqlx::Result<Vec<LastError>> {
    fetch_all!(
        pool,
        LastError,
        "SELECT lane, at, status, detail FROM lane_words WHERE lane = ANY ($1)",
        (lanes as &[LaneId])
    )
}
