//! Makes deliveries due again that were deferred because their lane was held or its breaker open, when an operator opens the
//! lane earlier.
//!
//! Such a row is due later than its policy planned, by at most [`DEFER_MAX`] and [`SPREAD`], and is not leased. A row that
//! waits for the end of quiet hours within the next minute looks the same: it is claimed and deferred once more.

use sqlx::PgPool;

use crate::results::ChunkProgress;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::LaneId;
use bellwire_rules::policy::hold::{DEFER_MAX, SPREAD};

/// Rows that one transaction changes.
const CHUNK: i64 = 10_000;

/// Makes the next chunk of a lane's deliveries that were deferred beyond `opens_at` due then: urgent ones at once, the others
/// spread over time. Rows that are being settled are skipped, and workers may still defer some with outdated state. So callers
/// repeat it some seconds later.
pub async fn recall(pool: &PgPool, lane: LaneId, opens_at: Timestamp, now: Timestamp) -> sqlx::Result<ChunkProgress> {
    let opens_at = opens_at.max(now); // a repetition that comes late spreads what it finds, too
    let done = rows_affected!(
        pool,
        "UPDATE queue
         SET due_at = CASE WHEN tier = 1 THEN $2
             ELSE $2 + ($4 - $2) * (get_byte(uuid_send(subscription), 14) / 256.0) END -- an octet that is random
         WHERE ctid = ANY (ARRAY(
           SELECT ctid FROM queue
           WHERE lane = $1 AND tier = ANY (ARRAY[1, 2, 3]) AND due_at > $2::timestamptz AND due_at <= $3
             AND (tier = 1 OR due_at > $4::timestamptz) AND due_at > scheduled_at AND lease IS NULL AND NOT has_turn
           LIMIT $5 FOR UPDATE SKIP LOCKED))",
        (lane.0, opens_at, now + DEFER_MAX + SPREAD, opens_at + SPREAD, CHUNK)
    )?;
    Ok(ChunkProgress::after(done == CHUNK.unsigned_abs()))
}
