//! Retention: deletes expired rows in chunks. Each chunk is a transaction of some tens of milliseconds that uses an index and
//! skips locked rows. Functions return the number of deleted rows; 0 means that none are left.

use std::collections::BTreeMap;
use std::time::Duration;

use sqlx::PgPool;

use crate::audience::diagnoses;
use crate::audience::membership::forget_topics;
use crate::audience::subscriptions::row::SubscriptionKeys;
use crate::audience::user_shards;
use crate::outcomes::rollups::RollupStep;
use crate::transactions::{begin, begin_by_index};
use bellwire_core::clock::{Timestamp, first_uuid_of};
use bellwire_core::id::{AppId, MessageId, SubscriptionId};
use bellwire_rules::policy::hold::KNOWN_FOR;

const STOPS_KEPT: Duration = Duration::from_secs(3600);
const STREAM_EVENTS_KEPT: Duration = Duration::from_secs(24 * 3600);
const IDEMPOTENCY_KEPT: Duration = Duration::from_secs(48 * 3600);
/// Retention of reliability metrics: one day more than the longest period that is read.
const RELIABILITY_KEPT: Duration = Duration::from_secs(2 * 86_400);
/// Retention of an unused throttle row.
const THROTTLES_KEPT: Duration = Duration::from_secs(3600);
/// Retention of suspects of a mass prune. It is confirmed within an hour, or starts again.
const SUSPECTS_KEPT: Duration = Duration::from_secs(86_400);
/// Chunk size for rows that no other rows depend on.
const CHUNK: i64 = 10_000;
/// Chunk size for rows that are deleted with dependent rows: a message with its counts, a subscription with its topics.
const CHUNK_OF_MANY: i64 = 2_000;

/// Reads a chunk of messages after `after` whose attempts are deleted, and deletes those without references, with their counts.
/// Returns the last one read. `None`: no more. Messages with waiting deliveries, or with content for open dead letters, stay
/// until a later round.
///
/// `cutoff` as for [`drop_before`](crate::operations::partitions::drop_before): a message is never deleted before its attempts.
pub async fn clear_messages(pool: &PgPool, cutoff: Timestamp, after: MessageId) -> sqlx::Result<Option<MessageId>> {
    let mut tx = begin_by_index(pool).await?;
    let midnight = cutoff.date_naive().and_time(chrono::NaiveTime::MIN).and_utc();
    let last = fetch_optional!(
        &mut *tx,
        scalar,
        r#"
        WITH looked AS (
            SELECT id, content IS NULL
                       -- Not EXISTS, which may be planned as a look at the whole table.
                       AND (SELECT true FROM cursors WHERE message = m.id LIMIT 1) IS NULL
                       AND (SELECT true FROM batches WHERE message = m.id LIMIT 1) IS NULL
                       AND (SELECT true FROM queue WHERE message = m.id LIMIT 1) IS NULL
                       AND (SELECT true FROM dead_letters WHERE app = m.app AND message = m.id AND state = 'open' LIMIT 1)
                         IS NULL AS free
            FROM messages m WHERE id > $1 AND id < $2 ORDER BY id LIMIT $3 FOR UPDATE SKIP LOCKED
        ),
        deleted AS (DELETE FROM messages m USING looked l WHERE m.id = l.id AND l.free RETURNING m.id),
        counts AS (DELETE FROM message_counts c USING deleted d WHERE c.message = d.id),
        charts AS (DELETE FROM rollups r USING deleted d WHERE r.step IN (1, 2, 3) AND r.message = d.id),
        receipts AS (DELETE FROM receipt_counts r USING deleted d WHERE r.message = d.id),
        removed AS (DELETE FROM removed_deliveries c USING deleted d WHERE c.message = d.id),
        clears AS (DELETE FROM click_clears c USING deleted d WHERE c.message = d.id),
        withdrawn AS (DELETE FROM withdrawals w USING deleted d WHERE w.message = d.id),
        parts AS (DELETE FROM campaign_parts p USING deleted d WHERE p.message = d.id),
        keys AS (DELETE FROM message_keys k USING deleted d WHERE k.message = d.id)
        SELECT id FROM looked ORDER BY id DESC LIMIT 1
        "#,
        (after.0, first_uuid_of(midnight), CHUNK_OF_MANY)
    )?;
    tx.commit().await?;
    Ok(last.map(MessageId))
}

/// Deletes a chunk of subscriptions that ended before `cutoff`, with the rest of their topics. Suspended ones have not ended.
pub async fn clear_subscriptions(pool: &PgPool, cutoff: Timestamp, now: Timestamp) -> sqlx::Result<u64> {
    let mut tx = begin_by_index(pool).await?;
    let ended = fetch_all!(
        &mut *tx,
        scalar,
        r#"SELECT id AS "id: SubscriptionId" FROM subscriptions
           WHERE state IN ('gone', 'unsubscribed', 'replaced', 'expired') AND ended_at < $1 ORDER BY ended_at LIMIT $2"#,
        (cutoff, CHUNK_OF_MANY)
    )?;
    let keys = SubscriptionKeys::of(ended);
    if keys.ids.is_empty() {
        return Ok(0);
    }
    // One that came back since stays.
    let deleted = fetch_all!(
        &mut *tx,
        r#"DELETE FROM subscriptions s USING unnest($1::smallint[], $2::uuid[]) AS k (shard, id)
           WHERE s.shard = k.shard AND s.id = k.id
             AND s.state IN ('gone', 'unsubscribed', 'replaced', 'expired') AND s.ended_at < $3
           RETURNING s.id AS "id: SubscriptionId", s.app AS "app: AppId", s.user_id"#,
        (&keys.shards, &keys.ids as &[SubscriptionId], cutoff)
    )?;
    let mut users: BTreeMap<AppId, Vec<(SubscriptionId, &str)>> = BTreeMap::new();
    for row in &deleted {
        users.entry(row.app).or_default().extend(row.user_id.as_deref().map(|user| (row.id, user)));
    }
    for (app, users) in users {
        user_shards::doubt(&mut tx, app, users.into_iter(), now).await?;
    }
    let deleted = SubscriptionKeys::of(deleted.into_iter().map(|row| row.id).collect());
    forget_topics(&mut tx, &deleted).await?;
    tx.commit().await?;
    Ok(deleted.ids.len() as u64)
}

/// Deletes a chunk of metrics of one step from before `cutoff`.
pub async fn clear_rollups(pool: &PgPool, step: RollupStep, cutoff: Timestamp) -> sqlx::Result<u64> {
    let mut tx = begin_by_index(pool).await?;
    let deleted = rows_affected!(
        &mut *tx,
        "DELETE FROM rollups WHERE ctid = ANY (ARRAY(
           SELECT ctid FROM rollups WHERE step = $1 AND start < $2 ORDER BY start LIMIT $3 FOR UPDATE SKIP LOCKED))",
        (step as i16, cutoff, CHUNK)
    )?;
    tx.commit().await?;
    Ok(deleted)
}

/// Declares a statement that deletes a chunk of a table's rows from before a time.
macro_rules! delete_before {
    ($table:literal, $time:literal, $before:expr) => {
        query!(
            "DELETE FROM "
                + $table
                + " WHERE ctid = ANY (ARRAY(SELECT ctid FROM "
                + $table
                + " WHERE "
                + $time
                + " < $1 ORDER BY "
                + $time
                + " LIMIT $2 FOR UPDATE SKIP LOCKED))",
            ($before, CHUNK)
        )
    };
}

/// Deletes a chunk of rows with a short retention: stops, stream rows, stored responses, reliability metrics, breaker trips,
/// holds of subscriptions, suspects of a mass prune, and diagnoses.
pub async fn clear_brief(pool: &PgPool, now: Timestamp) -> sqlx::Result<u64> {
    let mut tx = begin_by_index(pool).await?;
    let stops = delete_before!("stops", "at", now - STOPS_KEPT);
    let told = query!(
        scalar,
        r#"WITH deleted AS (
             DELETE FROM stream_events WHERE ctid = ANY (ARRAY(
               SELECT ctid FROM stream_events WHERE at < $1 ORDER BY at LIMIT $2 FOR UPDATE SKIP LOCKED))
             RETURNING xid, seq),
           -- What a dump brought of another cluster is later than any transaction of this one.
           last AS (
             SELECT xid, seq FROM deleted WHERE xid < pg_snapshot_xmin(pg_current_snapshot())
             ORDER BY xid DESC, seq DESC LIMIT 1),
           moved AS (
             UPDATE stream_floor f SET xid = last.xid, seq = last.seq FROM last
             WHERE (last.xid, last.seq) > (f.xid, f.seq) OR f.xid > pg_snapshot_xmin(pg_current_snapshot()))
           SELECT count(*) AS "n!" FROM deleted"#,
        (now - STREAM_EVENTS_KEPT, CHUNK)
    );
    let answers = delete_before!("idempotency_keys", "created_at", now - IDEMPOTENCY_KEPT);
    let reliability = delete_before!("reliability_counts", "minute", now - RELIABILITY_KEPT);
    let trips = delete_before!("breaker_trips", "minute", now - RELIABILITY_KEPT);
    let holds = delete_before!("subscription_holds", "held_until", now - KNOWN_FOR);
    let suspects = delete_before!("gone_suspects", "first_at", now - SUSPECTS_KEPT);
    let diagnoses = delete_before!("diagnoses", "created_at", now - diagnoses::KEPT_FOR);
    let deleted = stops.execute(&mut *tx).await?.rows_affected()
        + u64::try_from(told.fetch_one(&mut *tx).await?).unwrap_or(0)
        + answers.execute(&mut *tx).await?.rows_affected()
        + reliability.execute(&mut *tx).await?.rows_affected()
        + trips.execute(&mut *tx).await?.rows_affected()
        + suspects.execute(&mut *tx).await?.rows_affected()
        + diagnoses.execute(&mut *tx).await?.rows_affected()
        + holds.execute(&mut *tx).await?.rows_affected();
    tx.commit().await?;
    Ok(deleted)
}

/// Deletes unused throttles in a chunk after a (shard, subscription). Returns the last row read; `None`: no more. There is no
/// index by time, because it would make every send more expensive.
pub async fn clear_throttles(
    pool: &PgPool, now: Timestamp, (shard, after): (i16, SubscriptionId),
) -> sqlx::Result<Option<(i16, SubscriptionId)>> {
    let mut tx = begin_by_index(pool).await?;
    let last = fetch_optional!(
        &mut *tx,
        "WITH looked AS (
           SELECT shard, subscription, next_at FROM throttles WHERE (shard, subscription) > ($1, $2)
           ORDER BY shard, subscription LIMIT $4 FOR UPDATE SKIP LOCKED),
         deleted AS (
           DELETE FROM throttles t USING looked l
           WHERE t.shard = l.shard AND t.subscription = l.subscription AND l.next_at < $3)
         SELECT shard, subscription FROM looked ORDER BY shard DESC, subscription DESC LIMIT 1",
        (shard, after.0, now - THROTTLES_KEPT, CHUNK)
    )?;
    tx.commit().await?;
    Ok(last.map(|row| (row.shard, SubscriptionId(row.subscription))))
}

/// Declares a statement that deletes a chunk of a table's rows with an id below a limit, by an index that begins with the app.
macro_rules! delete_of_apps {
    ($table:literal, $id:literal, $below:expr) => {
        query!(
            "DELETE FROM "
                + $table
                + " WHERE ctid = ANY (ARRAY(SELECT o.row FROM apps a, LATERAL (
               SELECT ctid AS row FROM "
                + $table
                + " WHERE app = a.id AND "
                + $id
                + " < $1 LIMIT $2 FOR UPDATE SKIP LOCKED) o LIMIT $2))",
            ($below, CHUNK)
        )
    };
}

/// Deletes a chunk of the expired archive: dead letters, their actions and events from before `cutoff`, and alerts and erasures
/// completed before it.
pub async fn clear_archive(pool: &PgPool, cutoff: Timestamp) -> sqlx::Result<u64> {
    let first_kept = first_uuid_of(cutoff);
    let letters = delete_of_apps!("dead_letters", "id", first_kept);
    let trail = delete_of_apps!("dead_letter_actions", "operation", first_kept);
    let events = delete_of_apps!("events", "id", first_kept);
    let alerts = query!(
        "DELETE FROM alerts WHERE id = ANY (ARRAY(
           SELECT id FROM alerts WHERE resolved_at < $1 LIMIT $2 FOR UPDATE SKIP LOCKED))",
        (cutoff, CHUNK)
    );
    let erasures = query!(
        "DELETE FROM erasures WHERE id = ANY (ARRAY(
           SELECT id FROM erasures WHERE id < $1 AND completed_at < $2 LIMIT $3 FOR UPDATE SKIP LOCKED))",
        (first_kept, cutoff, CHUNK)
    );
    let mut tx = begin(pool).await?;
    execute!(&mut *tx, "SET LOCAL bellwire.dead_letter_retention = 'on'")?;
    let parts = trail.execute(&mut *tx).await?.rows_affected();
    tx.commit().await?;
    Ok(parts
        + letters.execute(pool).await?.rows_affected()
        + events.execute(pool).await?.rows_affected()
        + alerts.execute(pool).await?.rows_affected()
        + erasures.execute(pool).await?.rows_affected())
}
