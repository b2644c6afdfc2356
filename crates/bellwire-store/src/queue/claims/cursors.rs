//! Defers and removes due cursors without taking a batch.

use sqlx::{PgConnection, PgPool};

use super::due::DueSpan;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{LaneId, MessageId};
use bellwire_core::message::MessageState;

pub async fn next_cursor(pool: &PgPool, span: DueSpan) -> sqlx::Result<Option<MessageId>> {
    let message = fetch_optional!(
        pool,
        scalar,
        "SELECT message FROM cursors WHERE lane = $1 AND tier = $2 AND due_at BETWEEN $3 AND $4 ORDER BY due_at LIMIT 1",
        (span.lane.0, span.tier.code(), span.since, span.now)
    )?;
    Ok(message.map(MessageId))
}

/// Defers a due cursor until `until`. Returns `false` if it is absent or no longer due.
pub async fn postpone_cursor(
    pool: &PgPool, message: MessageId, lane: LaneId, now: Timestamp, until: Timestamp,
) -> sqlx::Result<bool> {
    let postponed = rows_affected!(
        pool,
        "UPDATE cursors SET due_at = $4 WHERE message = $1 AND lane = $2 AND due_at <= $3",
        (message.0, lane.0, now, until)
    )?;
    Ok(postponed == 1)
}

/// Handles a locked cursor whose message must not be sent now. If the message is cancelled, deletes the cursor; if it is
/// paused, parks it. Returns `false` if the message is to be sent. Pausing or cancelling a message handles its cursors; this is
/// for a cursor that was created concurrently.
pub(super) async fn put_aside(
    conn: &mut PgConnection, message: MessageId, lane: LaneId, state: MessageState,
) -> sqlx::Result<bool> {
    match state {
        MessageState::Scheduled | MessageState::Sending => return Ok(false),
        MessageState::Cancelled => {
            execute!(conn, "DELETE FROM cursors WHERE message = $1 AND lane = $2", (message.0, lane.0))?;
        }
        // Read anew: it may have been resumed before the cursor was locked. Later it cannot be, since a resume locks that, too.
        MessageState::Paused => {
            execute!(
                conn,
                "UPDATE cursors c SET due_at = 'infinity' FROM messages m
                 WHERE c.message = $1 AND c.lane = $2 AND m.id = c.message AND m.state = 'paused'",
                (message.0, lane.0)
            )?;
        }
    }
    Ok(true)
}
