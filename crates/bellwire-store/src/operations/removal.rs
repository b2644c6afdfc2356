//! Deletion of an app. The app is unreachable at once and its flow is closed: no delivery is claimed or sent. Deliveries in
//! progress are cancelled. Then its rows are deleted in chunks, keys and lanes last. Each step selects remaining rows, so any
//! process can continue after an interruption.
//!
//! Attempts, receipts and counts per minute stay until their retention ends. They are no longer accessible, contain only ids
//! and lane numbers, and are dropped by day.

use std::time::Duration;

use sqlx::{PgConnection, PgPool, Postgres, Transaction};
use uuid::Uuid;

use crate::audience::audience_counts::Difference;
use crate::audience::membership::forget_topics;
use crate::audience::subscriptions::row::SubscriptionKeys;
use crate::audience::{engagement_stats, user_shards};
use crate::database_now;
use crate::hooks::webhooks;
use crate::operations::retrying::retrying;
use crate::outcomes::ledger::take::{self, QueuedDelivery};
use crate::outcomes::ledger::unsent::{self, How};
use crate::queue::claims::LEASE;
use crate::queue::flows::{self, Change, Flow};
use crate::queue::steering::cancel_locked;
use crate::queue::stops::Stop;
use crate::transactions::{self, begin_by_index};
use bellwire_core::clock::Timestamp;
use bellwire_core::fact::Loss;
use bellwire_core::id::{AppId, LaneId, MessageId, SubscriptionId};

/// Time after which requests accepted before the deletion started have ended: no statement takes longer.
const REQUESTS_END: Duration = Duration::from_secs(60);
const MESSAGES_AT_ONCE: i64 = 100;
/// Rows that one transaction deletes.
const CHUNK: i64 = 10_000;
/// Maximum parent rows that one transaction deletes, with their dependent rows: a message with its counts, a subscription with
/// its topics.
const CHUNK_OF_MANY: i64 = 2_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalProgress {
    More,
    /// Work remains for later: workers hold deliveries, requests may be running, or losses are not in the metrics yet.
    Later,
    Gone,
}

/// Begins the deletion of an app: it can no longer be found, its keys are revoked, and nothing is sent. Returns the stops for
/// this process's dispatch. Repeating it has no effect.
pub async fn begin(conn: &mut PgConnection, app: AppId, flow: Uuid, now: Timestamp) -> sqlx::Result<Flow> {
    execute!(&mut *conn, "UPDATE apps SET deleting_at = coalesce(deleting_at, $2) WHERE id = $1", (app.0, now))?;
    execute!(&mut *conn, "UPDATE api_keys SET revoked_at = coalesce(revoked_at, $2) WHERE app = $1", (app.0, now))?;
    flows::change(conn, flow, app, None, Change::Paused(true), now).await
}

/// Returns the apps being deleted, with the time of the request.
pub async fn begun(pool: &PgPool) -> sqlx::Result<Vec<(AppId, Timestamp)>> {
    query!(r#"SELECT id, deleting_at AS "at!" FROM apps WHERE deleting_at IS NOT NULL ORDER BY deleting_at"#)
        .map(|row| (AppId(row.id), row.at))
        .fetch_all(pool)
        .await
}

/// Executes the next step of a deletion that was begun at `begun_at`.
pub async fn step(pool: &PgPool, app: AppId, begun_at: Timestamp, now: Timestamp) -> sqlx::Result<RemovalProgress> {
    if !cancel_messages(pool, app, now).await?.is_empty()
        || cancel_waiting(pool, app, now).await? > 0
        || cancel_lost_batches(pool, app, now).await? > 0
    {
        return Ok(RemovalProgress::More);
    }
    if is_moving(pool, app).await? || now < begun_at + REQUESTS_END {
        return Ok(RemovalProgress::Later);
    }
    let people = delete_subscriptions(pool, app).await? + delete_cap_uses(pool, app).await?;
    if people > 0 || forget_people(pool, app).await? + delete_archive(pool, app).await? > 0 {
        return Ok(RemovalProgress::More);
    }
    if is_noted(pool, app).await? {
        return Ok(RemovalProgress::Later);
    }
    if delete_messages(pool, app).await? > 0 {
        return Ok(RemovalProgress::More);
    }
    delete_rest(pool, app).await?;
    Ok(RemovalProgress::Gone)
}

/// Cancels some of the messages that are fanned out or claimed by workers. Returns the stops for this process's dispatch; empty
/// if no message is left.
pub async fn cancel_messages(pool: &PgPool, app: AppId, now: Timestamp) -> sqlx::Result<Vec<Stop>> {
    let mut tx = begin_by_index(pool).await?;
    let messages = fetch_all!(
        &mut *tx,
        scalar,
        r#"
        WITH mine AS MATERIALIZED (SELECT id FROM lanes WHERE app = $1),
        moving AS (
            SELECT c.message FROM mine JOIN cursors c ON c.lane = mine.id
            UNION SELECT p.message FROM mine JOIN batches p ON p.lane = mine.id
            -- What is under a lease is due when that runs out: not all that waits is looked at.
            UNION SELECT q.message FROM mine CROSS JOIN generate_series(1, 3) AS t (tier)
                  JOIN queue q ON q.lane = mine.id AND q.tier = t.tier AND q.due_at > $2 AND q.due_at <= $3
                  WHERE q.lease IS NOT NULL
        )
        SELECT m.id FROM moving JOIN messages m ON m.id = moving.message AND m.state <> 'cancelled' ORDER BY m.id LIMIT $4
        "#,
        (app.0, now, now + LEASE, MESSAGES_AT_ONCE)
    )?;
    tx.commit().await?;
    let mut stops = Vec::with_capacity(messages.len());
    for message in messages {
        let cancelled = retrying(|| async move {
            let mut tx = transactions::begin(pool).await?;
            fetch_optional!(&mut *tx, "SELECT id FROM messages WHERE id = $1 FOR NO KEY UPDATE", (message))?;
            let stop = cancel_locked(&mut tx, MessageId(message), now).await?;
            tx.commit().await?;
            Ok(stop)
        });
        stops.push(cancelled.await?);
    }
    Ok(stops)
}

/// Cancels a chunk of waiting deliveries that are not leased, and returns their number.
async fn cancel_waiting(pool: &PgPool, app: AppId, now: Timestamp) -> sqlx::Result<usize> {
    retrying(|| async move {
        let mut tx = begin_by_index(pool).await?;
        let rows = take::of_app(&mut tx, app, now).await?;
        end_deleted(tx, rows, now).await
    })
    .await
}

/// Cancels remaining deliveries of batches whose workers have crashed. Returns the number.
async fn cancel_lost_batches(pool: &PgPool, app: AppId, now: Timestamp) -> sqlx::Result<usize> {
    retrying(|| async move {
        let mut tx = begin_by_index(pool).await?;
        let rows = take::of_lost_batches(&mut tx, app, now).await?;
        end_deleted(tx, rows, now).await
    })
    .await
}

async fn end_deleted(
    mut tx: Transaction<'_, Postgres>, rows: Vec<QueuedDelivery>, now: Timestamp,
) -> sqlx::Result<usize> {
    let n = rows.len();
    unsent::end(&mut tx, rows, How::Cancelled("app deleted"), now).await?;
    tx.commit().await?;
    Ok(n)
}

/// Whether workers hold deliveries of the app.
async fn is_moving(pool: &PgPool, app: AppId) -> sqlx::Result<bool> {
    let mut tx = begin_by_index(pool).await?;
    fetch_one!(
        &mut *tx,
        scalar,
        r#"SELECT EXISTS (
             SELECT 1 FROM lanes l WHERE l.app = $1 AND (
               (SELECT true FROM cursors WHERE lane = l.id LIMIT 1) OR (SELECT true FROM batches WHERE lane = l.id LIMIT 1)
               OR (SELECT true FROM queue WHERE lane = l.id LIMIT 1))) AS "moving!""#,
        (app.0)
    )
}

/// Whether notes of its lanes are not in the metrics yet. They must be added while lanes and messages exist; otherwise counts
/// of deleted messages would reappear.
async fn is_noted(pool: &PgPool, app: AppId) -> sqlx::Result<bool> {
    fetch_one!(
        pool,
        scalar,
        r#"SELECT EXISTS (SELECT FROM audience_changes WHERE lane IN (SELECT id FROM lanes WHERE app = $1))
               OR EXISTS (SELECT FROM rollup_notes WHERE lane IN (SELECT id FROM lanes WHERE app = $1)) AS "noted!""#,
        (app.0)
    )
}

async fn delete_subscriptions(pool: &PgPool, app: AppId) -> sqlx::Result<u64> {
    let mut tx = begin_by_index(pool).await?;
    let mine = fetch_all!(
        &mut *tx,
        scalar,
        r#"SELECT id AS "id: SubscriptionId" FROM subscriptions WHERE app = $1 ORDER BY id LIMIT $2"#,
        (app.0, CHUNK_OF_MANY)
    )?;
    let keys = SubscriptionKeys::of(mine);
    if keys.ids.is_empty() {
        return Ok(0);
    }
    let deleted = fetch_all!(
        &mut *tx,
        r#"DELETE FROM subscriptions s USING unnest($1::smallint[], $2::uuid[]) AS k (shard, id)
           WHERE s.shard = k.shard AND s.id = k.id
           RETURNING s.id AS "id: SubscriptionId", s.lane AS "lane: LaneId", s.state = 'active' AS "was_active!""#,
        (&keys.shards, &keys.ids as &[SubscriptionId])
    )?;
    let (mut changes, now) = (Difference::default(), database_now(&mut *tx).await?);
    deleted.iter().filter(|row| row.was_active).for_each(|row| changes.lost(row.lane, now, Loss::Deleted));
    changes.write(&mut tx).await?;
    let deleted = SubscriptionKeys::of(deleted.into_iter().map(|row| row.id).collect());
    forget_topics(&mut tx, &deleted).await?;
    execute!(
        &mut *tx,
        "DELETE FROM throttles t USING unnest($1::smallint[], $2::uuid[]) AS k (shard, id)
         WHERE t.shard = k.shard AND t.subscription = k.id",
        (&deleted.shards, &deleted.ids as &[SubscriptionId])
    )?;
    tx.commit().await?;
    Ok(deleted.ids.len() as u64)
}

async fn delete_messages(pool: &PgPool, app: AppId) -> sqlx::Result<u64> {
    let mut tx = begin_by_index(pool).await?;
    let deleted = rows_affected!(
        &mut *tx,
        "WITH mine AS (SELECT id FROM messages WHERE app = $1 ORDER BY id LIMIT $2 FOR UPDATE),
         counts AS (DELETE FROM message_counts c USING mine m WHERE c.message = m.id),
         campaigns AS (DELETE FROM campaigns_in_motion k USING mine m WHERE k.message = m.id),
         charts AS (DELETE FROM rollups r USING mine m WHERE r.step IN (1, 2, 3) AND r.message = m.id),
         removed AS (DELETE FROM removed_deliveries c USING mine m WHERE c.message = m.id),
         clears AS (DELETE FROM click_clears c USING mine m WHERE c.message = m.id),
         receipts AS (DELETE FROM receipt_counts r USING mine m WHERE r.message = m.id)
         DELETE FROM messages USING mine WHERE messages.id = mine.id",
        (app.0, CHUNK_OF_MANY)
    )?;
    tx.commit().await?;
    Ok(deleted)
}

/// Declares a statement that deletes a chunk of an app's rows from a table.
macro_rules! delete_of {
    ($table:literal, $app:expr) => {
        query!(
            "DELETE FROM "
                + $table
                + " WHERE ctid = ANY (ARRAY(SELECT ctid FROM "
                + $table
                + " WHERE app = $1 LIMIT $2))",
            ($app.0, CHUNK)
        )
    };
}

async fn delete_cap_uses(pool: &PgPool, app: AppId) -> sqlx::Result<u64> {
    let mut tx = begin_by_index(pool).await?;
    let deleted = delete_of!("cap_uses", app).execute(&mut *tx).await?.rows_affected();
    tx.commit().await?;
    Ok(deleted)
}

/// Deletes the engagement of people without subscriptions.
async fn forget_people(pool: &PgPool, app: AppId) -> sqlx::Result<u64> {
    Ok(engagement_stats::forget_app(pool, app).await? + user_shards::forget_app(pool, app).await?)
}

/// Deletes dead letters with their actions, events, stream rows, stored responses, and events of users with their effects.
async fn delete_archive(pool: &PgPool, app: AppId) -> sqlx::Result<u64> {
    let mut tx = begin_by_index(pool).await?;
    let letters = delete_of!("dead_letters", app);
    let trail = delete_of!("dead_letter_actions", app);
    let events = delete_of!("events", app);
    let told = delete_of!("stream_events", app);
    let answers = delete_of!("idempotency_keys", app);
    let user_events = delete_of!("user_events", app);
    let conversions = delete_of!("conversions", app);
    let opt_ins = delete_of!("opt_in_subscribers", app);
    let opt_in_counts = delete_of!("opt_in_counts", app);
    let entries = query!(
        "DELETE FROM trigger_entries WHERE ctid = ANY (ARRAY(
           SELECT e.ctid FROM triggers t JOIN trigger_entries e ON e.campaign = t.campaign WHERE t.app = $1 LIMIT $2))",
        (app.0, CHUNK)
    );
    execute!(&mut *tx, "SET LOCAL bellwire.dead_letter_retention = 'on'")?;
    let deleted = letters.execute(&mut *tx).await?.rows_affected()
        + trail.execute(&mut *tx).await?.rows_affected()
        + events.execute(&mut *tx).await?.rows_affected()
        + told.execute(&mut *tx).await?.rows_affected()
        + user_events.execute(&mut *tx).await?.rows_affected()
        + conversions.execute(&mut *tx).await?.rows_affected()
        + opt_ins.execute(&mut *tx).await?.rows_affected()
        + opt_in_counts.execute(&mut *tx).await?.rows_affected()
        + entries.execute(&mut *tx).await?.rows_affected()
        + answers.execute(&mut *tx).await?.rows_affected();
    tx.commit().await?;
    Ok(deleted)
}

/// Deletes the remaining rows: settings, lanes with their reports, keys and the app itself, whose slug is then free. Fails if
/// another table still refers to any of them.
async fn delete_rest(pool: &PgPool, app: AppId) -> sqlx::Result<()> {
    let mut tx = transactions::begin(pool).await?;
    webhooks::remove_all(&mut tx, app).await?;
    execute!(
        &mut *tx,
        "DELETE FROM trigger_counts WHERE campaign IN (SELECT id FROM campaigns WHERE app = $1)",
        (app.0)
    )?;
    execute!(&mut *tx, "DELETE FROM campaigns WHERE app = $1", (app.0))?;
    execute!(&mut *tx, "DELETE FROM diagnoses WHERE app = $1", (app.0))?;
    execute!(&mut *tx, "DELETE FROM withdrawals WHERE app = $1", (app.0))?;
    execute!(&mut *tx, "DELETE FROM message_keys WHERE app = $1", (app.0))?;
    execute!(&mut *tx, "DELETE FROM imports WHERE app = $1", (app.0))?;
    execute!(&mut *tx, "DELETE FROM exports WHERE app = $1", (app.0))?;
    execute!(&mut *tx, "DELETE FROM held_back WHERE app = $1", (app.0))?;
    execute!(&mut *tx, "DELETE FROM topics WHERE app = $1", (app.0))?;
    execute!(&mut *tx, "DELETE FROM segments WHERE app = $1", (app.0))?;
    execute!(&mut *tx, "DELETE FROM templates WHERE app = $1", (app.0))?;
    execute!(&mut *tx, "DELETE FROM tier_settings WHERE app = $1", (app.0))?;
    execute!(&mut *tx, "DELETE FROM identity_keys WHERE app = $1", (app.0))?;
    execute!(&mut *tx, "DELETE FROM erasures WHERE app = $1", (app.0))?;
    execute!(&mut *tx, "DELETE FROM alerts WHERE app = $1", (app.0))?;
    execute!(&mut *tx, "DELETE FROM flows WHERE app = $1", (app.0))?;
    execute!(&mut *tx, "DELETE FROM guards WHERE app = $1", (app.0))?;
    execute!(
        &mut *tx,
        "WITH suspects AS (DELETE FROM gone_suspects WHERE lane IN (SELECT id FROM lanes WHERE app = $1))
         DELETE FROM gone_watches WHERE lane IN (SELECT id FROM lanes WHERE app = $1)",
        (app.0)
    )?;
    execute!(&mut *tx, "DELETE FROM lane_states WHERE lane IN (SELECT id FROM lanes WHERE app = $1)", (app.0))?;
    execute!(&mut *tx, "DELETE FROM lanes WHERE app = $1", (app.0))?;
    execute!(&mut *tx, "DELETE FROM vapid_keys WHERE app = $1", (app.0))?;
    execute!(&mut *tx, "DELETE FROM teammate_roles WHERE app = $1", (app.0))?;
    execute!(&mut *tx, "DELETE FROM api_keys WHERE app = $1", (app.0))?;
    execute!(&mut *tx, "DELETE FROM apps WHERE id = $1", (app.0))?;
    tx.commit().await
}
