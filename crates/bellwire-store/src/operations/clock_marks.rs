//! Detects that the database's clock was set back. Every stored due time would otherwise be too late by that much.
//!
//! Each check stores the time. If a check finds an earlier time, it moves the due times back by the difference, once among all
//! servers. Times chosen by people stay: `send_at`, schedules, sessions, and an operator's older holds.

use std::time::Duration;

use chrono::TimeDelta;
use sqlx::{PgConnection, PgPool};

use crate::limit_statements;
use crate::operations::retrying::retrying;
use crate::transactions::begin;
use bellwire_core::clock::Timestamp;

/// Tolerated step: more than the clocks of servers differ, and more than the interval of checks.
pub const TOLERATED: TimeDelta = TimeDelta::seconds(5);
/// Timeout of moving a large backlog.
const SHIFT_WITHIN: Duration = Duration::from_secs(600);

/// Stores the current time, or moves due times if the clock was set back.
pub async fn look(pool: &PgPool, now: Timestamp) -> sqlx::Result<()> {
    let mark = fetch_one!(
        pool,
        scalar,
        "INSERT INTO clock_marks AS m (at) VALUES ($1) ON CONFLICT (one) DO UPDATE SET at = greatest(m.at, excluded.at) RETURNING at",
        (now)
    )?;
    if mark - now <= TOLERATED {
        return Ok(());
    }
    retrying(|| shift(pool, now)).await
}

async fn shift(pool: &PgPool, now: Timestamp) -> sqlx::Result<()> {
    let mut tx = begin(pool).await?;
    limit_statements(&mut tx, SHIFT_WITHIN).await?;
    let mark = fetch_one!(&mut *tx, scalar, "SELECT at FROM clock_marks FOR UPDATE")?;
    let back = mark - now;
    if back <= TOLERATED {
        return Ok(()); // another server has moved everything
    }
    let step_us = back.num_microseconds().unwrap_or(i64::MAX);
    // What was due between the last look and the change is due, too.
    let was_due = mark + TOLERATED;
    shift_deliveries(&mut tx, now, was_due, step_us).await?;
    shift_lanes(&mut tx, now, step_us).await?;
    execute!(&mut *tx, "UPDATE clock_marks SET at = $1", (now))?;
    tracing::warn!(back_s = back.num_seconds(), "the database's clock was set back: what waits is moved along");
    tx.commit().await
}

/// Keeps due deliveries due, and moves retries, deferred deliveries and apps' turns. Scheduled deliveries that were not due
/// stay.
async fn shift_deliveries(
    conn: &mut PgConnection, now: Timestamp, was_due: Timestamp, step_us: i64,
) -> sqlx::Result<()> {
    execute!(
        &mut *conn,
        "UPDATE queue SET due_at = CASE WHEN due_at <= $2 THEN $1 ELSE due_at - $3::bigint * interval '1 microsecond' END
         WHERE due_at > $1 AND due_at < 'infinity'
           AND (due_at <= $2 OR lease IS NULL AND (retries > 0 OR due_at > scheduled_at))",
        (now, was_due, step_us)
    )?;
    execute!(
        &mut *conn,
        "UPDATE cursors SET due_at = CASE WHEN due_at <= $2 THEN $1 ELSE due_at - $3::bigint * interval '1 microsecond' END
         WHERE due_at > $1 AND due_at < 'infinity' AND (due_at <= $2 OR pace_us IS NOT NULL)",
        (now, was_due, step_us)
    )?;
    execute!(&mut *conn, "UPDATE batches SET due_at = $1 WHERE due_at > $1 AND due_at <= $2", (now, was_due))?;
    execute!(
        &mut *conn,
        "UPDATE throttles SET next_at = next_at - $2::bigint * interval '1 microsecond' WHERE next_at > $1",
        (now, step_us)
    )?;
    execute!(
        conn,
        "WITH breakers AS (
           UPDATE webhooks SET open_until = open_until - $2::bigint * interval '1 microsecond' WHERE open_until > $1)
         UPDATE webhook_deliveries SET due_at = due_at - $2::bigint * interval '1 microsecond'
         WHERE state = 'pending' AND due_at > $1",
        (now, step_us)
    )
}

/// Moves holds and breaker openings that began after the current time of the clock. Earlier ones keep their end.
async fn shift_lanes(conn: &mut PgConnection, now: Timestamp, step_us: i64) -> sqlx::Result<()> {
    execute!(
        conn,
        "UPDATE lane_states s
         SET held_until = CASE WHEN held_at > $1 THEN held_until - step ELSE held_until END,
             held_at = CASE WHEN held_at > $1 THEN held_at - step ELSE held_at END,
             released_at = CASE WHEN released_at > $1 THEN released_at - step ELSE released_at END,
             key_held_until = CASE WHEN key_held_at > $1 THEN key_held_until - step ELSE key_held_until END,
             key_held_at = CASE WHEN key_held_at > $1 THEN key_held_at - step ELSE key_held_at END,
             key_released_at = CASE WHEN key_released_at > $1 THEN key_released_at - step ELSE key_released_at END,
             open_until = CASE WHEN breaker_changed_at > $1 THEN open_until - step ELSE open_until END,
             breaker_changed_at = CASE WHEN breaker_changed_at > $1 THEN breaker_changed_at - step ELSE breaker_changed_at END,
             probe_until = CASE WHEN probe_until > $1 THEN probe_until - step ELSE probe_until END,
             payload_at = CASE WHEN payload_at > $1 THEN payload_at - step ELSE payload_at END,
             changed_at = $1
         FROM (SELECT $2::bigint * interval '1 microsecond' AS step) t
         WHERE s.changed_at > $1",
        (now, step_us)
    )
}
