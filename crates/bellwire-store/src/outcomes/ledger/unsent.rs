//! Ends deliveries without another POST: writes log, counts, dead letters and events.

use sqlx::PgConnection;

use super::closing::Closing;
use super::dead_letters::{Cause, DeadLetter, DeadLetters};
use super::log::{LogEntry, copy_new};
use super::take::{self, QueuedDelivery};
use crate::connections::engine;
use crate::hooks;
use crate::outcomes::notes;
use crate::queue::stops::{StopKind, stop_subscription};
use bellwire_core::clock::{Timestamp, uuid_of};
use bellwire_core::delivery::Ending;
use bellwire_core::id::{AppId, DeadLetterId, SubscriptionId};
use bellwire_rules::classify::DeadReason;

/// Stored reason of a claimed delivery that was cancelled, or whose subscription ended. A crashed worker may have sent it.
pub const STOPPED: &str = "stopped";

/// Ending of dequeued deliveries, each with the reason to log.
#[derive(Debug, Clone, Copy)]
pub enum How {
    /// Accepted: receipts arrived before the responses of the push services.
    Accepted(&'static str),
    Gone(&'static str),
    Expired(&'static str),
    Cancelled(&'static str),
    Dead {
        reason: DeadReason,
        app: AppId,
        id: DeadLetterId,
    },
}

impl How {
    fn ending(self) -> Ending {
        match self {
            How::Accepted(_) => Ending::Accepted,
            How::Gone(_) => Ending::Gone,
            How::Expired(_) => Ending::Expired,
            How::Cancelled(_) => Ending::Cancelled,
            How::Dead { .. } => Ending::Dead,
        }
    }

    fn reason(self) -> &'static str {
        match self {
            How::Accepted(reason) | How::Gone(reason) | How::Expired(reason) | How::Cancelled(reason) => reason,
            How::Dead { reason, .. } => reason.name(),
        }
    }

    /// Returns the reason for dead letters. `None`: it leaves none.
    fn cause(self) -> Option<Cause> {
        match self {
            How::Accepted(_) | How::Cancelled(_) => None,
            How::Gone(_) => Some(Cause::Gone),
            How::Expired(_) => Some(Cause::Expired),
            How::Dead { reason, .. } => Some(Cause::Dead(reason)),
        }
    }
}

/// Ends rows that the same transaction has dequeued. The transaction must not take locks [earlier in the order](crate)
/// afterwards.
pub async fn end(conn: &mut PgConnection, rows: Vec<QueuedDelivery>, how: How, now: Timestamp) -> sqlx::Result<()> {
    let mut closing = Closing::default();
    end_within(conn, rows, how, &mut closing, now).await?;
    closing.write(conn, now).await
}

/// Like [`end`], but leaves the shared rows to the caller's `closing`.
pub async fn end_within(
    conn: &mut PgConnection, mut rows: Vec<QueuedDelivery>, how: How, closing: &mut Closing, now: Timestamp,
) -> sqlx::Result<()> {
    if rows.is_empty() {
        return Ok(());
    }
    rows.sort_unstable_by_key(|row| (row.message, row.subscription));
    let entry = |row: &QueuedDelivery| LogEntry {
        message: row.message,
        subscription: row.subscription,
        number: row.retries,
        at: now,
        ending: how.ending().code(),
        status: None,
        took_ms: None,
        reason: Some(how.reason()),
    };
    if engine::is_distributed() {
        copy_new(conn, &rows.iter().map(entry).collect::<Vec<_>>()).await?;
    } else {
        log_unsent(conn, &rows, how, now).await?;
    }
    notes::write_unsent(conn, &rows, how.ending(), now).await?;
    hooks::notes::write_unsent(conn, &rows, how.ending(), now).await?;
    for row in &rows {
        closing.ended_unsent(row, how.ending());
    }
    write_dead_letters(conn, &rows, how, closing, now).await
}

/// Logs the endings, except of deliveries that are logged already.
async fn log_unsent(conn: &mut PgConnection, rows: &[QueuedDelivery], how: How, now: Timestamp) -> sqlx::Result<()> {
    execute!(
        conn,
        "INSERT INTO attempts (message, subscription, attempt, shard, at, ending, reason)
         SELECT message, subscription, attempt, shard, $5, $6, $7
         FROM unnest($1::uuid[], $2::uuid[], $3::integer[], $4::smallint[]) AS t (message, subscription, attempt, shard)
         ON CONFLICT DO NOTHING",
        rows,
        |row| (row.message, row.subscription, row.retries, row.subscription.shard()),
        (now, how.ending().code(), how.reason())
    )
}

/// Writes the dead letters of these rows, if the ending leaves any.
pub(super) async fn write_dead_letters(
    conn: &mut PgConnection, rows: &[QueuedDelivery], how: How, closing: &mut Closing, now: Timestamp,
) -> sqlx::Result<()> {
    let Some(cause) = how.cause() else { return Ok(()) };
    let mut dead_letters = DeadLetters::default();
    for row in rows {
        let (id, app) = match how {
            How::Dead { id, app, .. } => (id, Some(app)),
            _ => (DeadLetterId(uuid_of(now)), None),
        };
        let QueuedDelivery { subscription, message, lane, tier, retries } = *row;
        let dead = DeadLetter {
            id,
            app,
            message,
            subscription,
            lane,
            tier,
            cause,
            status: None,
            detail: None,
            retries,
            policy: None,
            at: now,
        };
        dead_letters.push(dead, closing);
    }
    dead_letters.write(conn).await
}

/// Cancels all unleased waiting deliveries of a subscription.
pub async fn cancel_subscription(
    conn: &mut PgConnection, subscription: SubscriptionId, reason: &'static str, closing: &mut Closing, now: Timestamp,
) -> sqlx::Result<()> {
    let rows = take::of_subscription(conn, subscription, now).await?;
    end_within(conn, rows, How::Cancelled(reason), closing, now).await
}

/// Cancels the waiting deliveries of a locked subscription that were for its former user. Notifies all workers, and stores the
/// time, so that earlier dead letters are not replayed. Messages to topics and broadcasts stay.
pub async fn cancel_previous_users(
    conn: &mut PgConnection, subscription: SubscriptionId, now: Timestamp,
) -> sqlx::Result<()> {
    stop_subscription(&mut *conn, StopKind::User, subscription, now).await?;
    let rows = take::of_previous_users(conn, subscription, now).await?;
    end(conn, rows, How::Cancelled("another user"), now).await
}
