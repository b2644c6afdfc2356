//! Pauses, resumes and cancels messages. The change itself, the stop for all workers, and the fan-out cursors commit together.
//! Waiting rows follow in chunks, because there can be millions: the first with the change, the others by [`go_on`]. Leased
//! rows are left to their worker, which reads the stop.

use sqlx::{PgConnection, PgPool};

use crate::keys::audit::AuditEntry;
use crate::operations::retrying::retrying;
use crate::outcomes::ledger::take::{self, CHUNK};
use crate::outcomes::ledger::unsent::{self, How, STOPPED};
use crate::queue::stops::{Stop, StopKind, stop_message};
use crate::results::ChunkProgress;
use crate::transactions::begin;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{AppId, MessageId};
use bellwire_core::message::MessageState;

/// Requested change of a message's state.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MessageOrder {
    /// Nothing is sent until it is resumed. Its time to live keeps running.
    Pause,
    /// Sending continues.
    Resume,
    /// Nothing more is sent, permanently.
    Cancel,
}

/// Result of a change.
#[derive(Debug)]
pub enum Steered {
    /// The message does not exist.
    Unknown,
    /// Every delivery has ended, so nothing can be changed.
    Done,
    /// The message was cancelled before, which is permanent.
    Cancelled,
    /// The message already had that state.
    Already,
    /// The message has that state now.
    Now {
        /// Stop for this process's dispatch, to apply before the response.
        stop: Stop,
        /// Whether rows are left for [`go_on`].
        progress: ChunkProgress,
    },
}

/// Changes the state of a message. Writes `entry` to the audit log if that changes anything.
pub async fn steer(
    pool: &PgPool, app: AppId, id: MessageId, turn: MessageOrder, entry: &AuditEntry, now: Timestamp,
) -> Result<Steered, sqlx::Error> {
    retrying(|| async move {
        let mut tx = begin(pool).await?;
        let steered = steer_within(&mut tx, app, id, turn, now).await?;
        if matches!(steered, Steered::Now { .. }) {
            entry.record(&mut tx, 1, now).await?;
            tx.commit().await?;
        }
        Ok(steered)
    })
    .await
}

/// Changes the state of a message in the caller's transaction. Commit it if the result is [`Steered::Now`].
pub(crate) async fn steer_within(
    conn: &mut PgConnection, app: AppId, id: MessageId, turn: MessageOrder, now: Timestamp,
) -> Result<Steered, sqlx::Error> {
    let found = fetch_optional!(
        &mut *conn,
        r#"SELECT state AS "state: MessageState", accepted_at FROM messages WHERE id = $1 AND app = $2 FOR NO KEY UPDATE"#,
        (id.0, app.0)
    )?;
    let Some(message) = found else { return Ok(Steered::Unknown) };
    let kind = match (message.state, turn) {
        (MessageState::Cancelled, MessageOrder::Cancel)
        | (MessageState::Paused, MessageOrder::Pause)
        | (MessageState::Sending, MessageOrder::Resume) => return Ok(Steered::Already),
        (MessageState::Cancelled, _) => return Ok(Steered::Cancelled),
        (_, MessageOrder::Pause) => StopKind::Pause,
        (_, MessageOrder::Resume) => StopKind::Resume,
        (_, MessageOrder::Cancel) => StopKind::Cancel,
    };
    if !is_moving(conn, id, now).await? {
        return Ok(Steered::Done);
    }
    match turn {
        MessageOrder::Pause => {
            set_state(conn, id, MessageState::Paused, None).await?;
            set_cursors_due(conn, id, None).await?;
        }
        MessageOrder::Resume => {
            set_state(conn, id, MessageState::Sending, Some(now)).await?;
            set_cursors_due(conn, id, Some(now.max(message.accepted_at))).await?;
        }
        MessageOrder::Cancel => {}
    }
    let stop = match turn {
        MessageOrder::Cancel => cancel_locked(conn, id, now).await?,
        MessageOrder::Pause | MessageOrder::Resume => stop_message(conn, kind, id, now).await?,
    };
    let progress = chunk(conn, id, turn, now).await?;
    if turn == MessageOrder::Cancel && message.accepted_at > now && !is_moving(conn, id, now).await? {
        forget(conn, id, now).await?;
    }
    Ok(Steered::Now { stop, progress })
}

/// Completes a message that was cancelled before it was due. No worker has it, so nothing can be requeued. Its content is
/// deleted as after a normal end.
async fn forget(conn: &mut PgConnection, id: MessageId, now: Timestamp) -> Result<(), sqlx::Error> {
    execute!(conn, "UPDATE messages SET never_began = true, look_at = $2 WHERE id = $1", (id.0, now))
}

/// Cancels a message whose row is locked: deletes its cursors and writes a stop. [`go_on`] cancels its waiting rows.
pub(crate) async fn cancel_locked(conn: &mut PgConnection, id: MessageId, now: Timestamp) -> Result<Stop, sqlx::Error> {
    set_state(conn, id, MessageState::Cancelled, None).await?;
    execute!(&mut *conn, "DELETE FROM cursors WHERE message = $1", (id.0))?;
    stop_message(conn, StopKind::Cancel, id, now).await
}

/// Whether any delivery has not ended or is not created yet. A scheduled message to a whole audience may have none yet.
pub(super) async fn is_moving(conn: &mut PgConnection, id: MessageId, now: Timestamp) -> Result<bool, sqlx::Error> {
    fetch_one!(
        conn,
        scalar,
        r#"SELECT EXISTS (SELECT 1 FROM cursors WHERE message = $1) OR EXISTS (SELECT 1 FROM queue WHERE message = $1)
           OR EXISTS (SELECT 1 FROM batches WHERE message = $1)
           OR EXISTS (SELECT 1 FROM campaigns_in_motion k JOIN messages m ON m.id = k.message
                      WHERE k.message = $1 AND m.accepted_at > $2 AND m.state <> 'cancelled') AS "moving!""#,
        (id.0, now)
    )
}

async fn set_state(
    conn: &mut PgConnection, id: MessageId, state: MessageState, resumed_at: Option<Timestamp>,
) -> Result<(), sqlx::Error> {
    execute!(conn, "UPDATE messages SET state = $2, resumed_at = $3 WHERE id = $1", (id.0, state.name(), resumed_at))?;
    Ok(())
}

/// Sets the due time of the message's cursors. `None`: parked until it is resumed.
async fn set_cursors_due(conn: &mut PgConnection, id: MessageId, due_at: Option<Timestamp>) -> Result<(), sqlx::Error> {
    execute!(
        conn,
        "UPDATE cursors SET due_at = coalesce($2, 'infinity'::timestamptz) WHERE message = $1",
        (id.0, due_at)
    )?;
    Ok(())
}

/// Applies the message's state to the next chunk of waiting rows, in a separate transaction. The request that changed the state
/// calls it until it is done. So does maintenance, for rows that workers parked or queued before they read the change.
pub async fn go_on(pool: &PgPool, id: MessageId, now: Timestamp) -> Result<ChunkProgress, sqlx::Error> {
    retrying(|| async move {
        let mut tx = begin(pool).await?;
        // Held until the chunk is done: no other turn comes in between.
        let row = fetch_optional!(
            &mut *tx,
            r#"SELECT state AS "state: MessageState", resumed_at FROM messages WHERE id = $1 FOR SHARE"#,
            (id.0)
        )?;
        let turn = match row {
            Some(row) if row.state == MessageState::Cancelled => MessageOrder::Cancel,
            Some(row) if row.state == MessageState::Paused => MessageOrder::Pause,
            Some(row) if row.resumed_at.is_some() => MessageOrder::Resume,
            _ => return Ok(ChunkProgress::Done),
        };
        let progress = chunk(&mut tx, id, turn, now).await?;
        tx.commit().await?;
        Ok(progress)
    })
    .await
}

async fn chunk(
    conn: &mut PgConnection, id: MessageId, turn: MessageOrder, now: Timestamp,
) -> Result<ChunkProgress, sqlx::Error> {
    let changed = match turn {
        MessageOrder::Pause => park(conn, id, now).await?,
        MessageOrder::Resume => unpark(conn, id, now).await?,
        MessageOrder::Cancel => cancel(conn, id, now).await?,
    };
    Ok(ChunkProgress::after(changed == CHUNK.unsigned_abs()))
}

async fn park(conn: &mut PgConnection, id: MessageId, now: Timestamp) -> Result<u64, sqlx::Error> {
    let done = rows_affected!(
        conn,
        "UPDATE queue SET due_at = 'infinity', lease = NULL WHERE ctid = ANY (ARRAY(
           SELECT ctid FROM queue WHERE message = $1 AND due_at < 'infinity' AND (lease IS NULL OR due_at <= $2)
           LIMIT $3 FOR UPDATE SKIP LOCKED))",
        (id.0, now, CHUNK)
    )?;
    Ok(done)
}

async fn unpark(conn: &mut PgConnection, id: MessageId, now: Timestamp) -> Result<u64, sqlx::Error> {
    let done = rows_affected!(
        conn,
        "UPDATE queue SET due_at = greatest(scheduled_at, $2) WHERE ctid = ANY (ARRAY(
           SELECT ctid FROM queue WHERE message = $1 AND due_at = 'infinity' LIMIT $3 FOR UPDATE SKIP LOCKED))",
        (id.0, now, CHUNK)
    )?;
    Ok(done)
}

async fn cancel(conn: &mut PgConnection, id: MessageId, now: Timestamp) -> Result<u64, sqlx::Error> {
    // Their workers crashed, maybe after the POST: the reason differs, because a withdrawal has to reach their browsers.
    let lost = take::lost_of_message(conn, id, now).await?;
    let rows = take::of_message(conn, id, now).await?;
    let changed = (lost.len() + rows.len()) as u64;
    unsent::end(conn, lost, How::Cancelled(STOPPED), now).await?;
    unsent::end(conn, rows, How::Cancelled("message cancelled"), now).await?;
    Ok(changed)
}
