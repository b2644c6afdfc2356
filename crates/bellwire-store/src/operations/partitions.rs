//! Daily partitions of the tables that only grow, bounded by message id.
//!
//! A message's id is a UUIDv7, which begins with its time, so midnight corresponds to an id. All rows of a message are in the
//! partition of the day of its creation. Rows of days without a partition go into a default partition, so no row is refused.
//!
//! Each change here locks the table, and blocks it while it waits for the lock: behind a backup that reads the table for an
//! hour, all deliveries would wait. So a change that does not get its lock at once fails
//! ([`is_lock_timeout`](crate::is_lock_timeout)), and is repeated much later.

use chrono::{Days, NaiveDate};
use sqlx::{AssertSqlSafe, PgConnection, PgPool};
use uuid::Uuid;

use crate::connections::engine;
use crate::transactions::begin_by_index;
use bellwire_core::clock::{Timestamp, time_of};

const TABLES: [&str; 2] = ["attempts", "receipts"];
/// Number of past days with partitions, because clocks of replicas differ.
const DAYS_BEHIND: u64 = 1;
/// Number of future days with partitions. If maintenance is absent for longer, rows go into the default partition.
const DAYS_AHEAD: u64 = 8;
/// Maximum days ahead of scheduled messages. A day further ahead than [`DAYS_AHEAD`] gets partitions when the first message for
/// it exists.
const DAYS_OF_MESSAGES: u64 = 91;
/// Number of rows from which a default partition is crowded: moving or reading them would take too long.
const CROWD: i64 = 10_000;
/// Days from today to the first partition that is created beside a crowded default partition. Until then, rows of that day are
/// refused, but none exist yet.
const DAYS_CLEAR: u64 = 2;
/// Timeout of waiting for another change of partitions. Reading and writing are not blocked meanwhile.
const TURN_TIMEOUT: &str = "SET LOCAL lock_timeout = '3s'";
/// Timeout of waiting for readers and writers. All later ones wait meanwhile.
const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '100ms'";
/// Timeout of checking a large default partition, which takes minutes and blocks nothing.
const PROOF_TIMEOUT: &str = "SET LOCAL statement_timeout = '1h'";

/// Creates the default partitions, missing partitions of the days around `now`, and those of later days with messages. Moves
/// rows of these days out of the default partition. Returns the number created. Several processes may do this concurrently.
///
/// If the default partition is crowded after a long absence of maintenance, the days of its rows stay in it permanently, and
/// partitions begin with the day after tomorrow, or after the last of these days. On Citus rows cannot be moved: each day with
/// rows in the default partition stays.
pub async fn ensure(pool: &PgPool, now: Timestamp) -> Result<usize, sqlx::Error> {
    let today = now.date_naive();
    let later = days_of_messages(pool, today + Days::new(DAYS_AHEAD + 1)).await?;
    let mut made = 0;
    for table in TABLES {
        made += usize::from(ensure_default(pool, table).await?);
        let there = existing(pool, table).await?;
        let days = (0..=DAYS_BEHIND + DAYS_AHEAD).map(|n| today - Days::new(DAYS_BEHIND) + Days::new(n));
        let days = days.chain(later.iter().copied());
        let missing: Vec<_> = days.filter(|day| !there.contains(&name_of(table, *day))).collect();
        if missing.is_empty() {
            continue;
        }
        made += match is_crowded(pool, table).await? {
            true => {
                let clear = day_after_crowd(pool, table).await?.max(Some(today + Days::new(DAYS_CLEAR)));
                ensure_beside_crowd(pool, table, &missing, clear.unwrap_or(today)).await?
            }
            false => ensure_days(pool, table, &missing).await?,
        };
    }
    Ok(made)
}

/// Returns the days from `first` on that have (scheduled) messages.
async fn days_of_messages(pool: &PgPool, first: NaiveDate) -> Result<Vec<NaiveDate>, sqlx::Error> {
    let days: Vec<_> = (0..=DAYS_OF_MESSAGES).map(|n| first + Days::new(n)).collect();
    let midnights: Vec<Uuid> = days.iter().map(|day| midnight(*day)).collect();
    let found = fetch_all!(
        pool,
        scalar,
        r#"SELECT d.n AS "n!" FROM unnest($1::uuid[], $2::uuid[]) WITH ORDINALITY AS d (from_id, to_id, n)
           WHERE (SELECT true FROM messages WHERE id >= d.from_id AND id < d.to_id LIMIT 1) ORDER BY d.n"#,
        (&midnights[..midnights.len() - 1], &midnights[1..])
    )?;
    Ok(found.into_iter().filter_map(|n| days.get(usize::try_from(n - 1).ok()?).copied()).collect())
}

/// Returns the day after the last day with rows in the default partition.
async fn day_after_crowd(pool: &PgPool, table: &'static str) -> Result<Option<NaiveDate>, sqlx::Error> {
    let last = format!("SELECT message FROM {table}_default ORDER BY message DESC LIMIT 1");
    let last: Option<Uuid> = sqlx::query_scalar(AssertSqlSafe(last)).persistent(false).fetch_optional(pool).await?;
    Ok(last.and_then(time_of).map(|time| time.date_naive() + Days::new(1)))
}

/// Returns the number of consecutive days from today for which every table has a partition.
pub async fn days_ahead(pool: &PgPool, now: Timestamp) -> Result<u64, sqlx::Error> {
    let today = now.date_naive();
    let mut ahead = DAYS_AHEAD + 1;
    for table in TABLES {
        let there = existing(pool, table).await?;
        let days = (0..ahead).take_while(|n| there.contains(&name_of(table, today + Days::new(*n))));
        ahead = days.count() as u64;
    }
    Ok(ahead)
}

/// Drops the partitions of all days that ended before `cutoff`. Returns the number. The cutoff must be older than the longest
/// time to live.
pub async fn drop_before(pool: &PgPool, cutoff: Timestamp) -> Result<usize, sqlx::Error> {
    let first_kept = cutoff.date_naive();
    let mut dropped = 0;
    for table in TABLES {
        for name in existing(pool, table).await? {
            if day_of(table, &name).is_some_and(|day| day < first_kept) {
                let mut tx = lock(pool, table).await?;
                execute(&mut tx, format!("DROP TABLE IF EXISTS {name}")).await?;
                tx.commit().await?;
                dropped += 1;
            }
        }
    }
    Ok(dropped)
}

/// Deletes a chunk of rows in default partitions of days that ended before `cutoff`. Returns the number of rows.
pub async fn clear_defaults(pool: &PgPool, cutoff: Timestamp) -> Result<u64, sqlx::Error> {
    let mut deleted = 0;
    for table in TABLES {
        let mut tx = begin_by_index(pool).await?;
        let cutoff = midnight(cutoff.date_naive());
        let delete = match engine::is_distributed() {
            // A row's place says nothing where its table lies in parts.
            true => format!("DELETE FROM {table}_default WHERE message < '{cutoff}'"),
            false => format!(
                "DELETE FROM {table}_default WHERE ctid = ANY (ARRAY(SELECT ctid FROM {table}_default \
                 WHERE message < '{cutoff}' ORDER BY message LIMIT {CROWD}))"
            ),
        };
        deleted += execute(&mut tx, delete).await?;
        tx.commit().await?;
    }
    Ok(deleted)
}

/// Storage parameters of partitions. They only grow, are dropped as a whole, and are read only by key, so vacuum and frequent
/// statistics have no use. During a campaign on a young partition, both cost a quarter of Postgres's CPU time.
const APPEND_ONLY: &str = "autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 1000000, \
                           autovacuum_analyze_scale_factor = 1";

async fn ensure_default(pool: &PgPool, table: &'static str) -> Result<bool, sqlx::Error> {
    let name = format!("{table}_default");
    let Some(mut tx) = lock_if_missing(pool, table, &name).await? else { return Ok(false) };
    execute(&mut tx, format!("CREATE TABLE {name} PARTITION OF {table} DEFAULT")).await?;
    tx.commit().await?;
    Ok(true)
}

/// Whether the default partition has too many rows to move, or to check under a lock.
async fn is_crowded(pool: &PgPool, table: &'static str) -> Result<bool, sqlx::Error> {
    let counted = format!("SELECT count(*) FROM (SELECT message FROM {table}_default LIMIT {CROWD} + 1) rows");
    let rows: i64 = sqlx::query_scalar(AssertSqlSafe(counted)).persistent(false).fetch_one(pool).await?;
    Ok(rows > CROWD)
}

async fn ensure_days(pool: &PgPool, table: &'static str, days: &[NaiveDate]) -> Result<usize, sqlx::Error> {
    let mut made = 0;
    for day in days {
        made += usize::from(ensure_day(pool, table, *day).await?);
    }
    Ok(made)
}

/// Creates the partitions of days from `clear` on. A constraint, validated without blocking, proves that the default partition
/// has no rows of these days. Otherwise Postgres would read all of it for each partition, with the table locked.
async fn ensure_beside_crowd(
    pool: &PgPool, table: &'static str, missing: &[NaiveDate], clear: NaiveDate,
) -> Result<usize, sqlx::Error> {
    let days: Vec<_> = missing.iter().copied().filter(|day| *day >= clear).collect();
    if days.is_empty() {
        return Ok(0);
    }
    let alter = format!("ALTER TABLE {table}_default");
    let end_of_crowd = format!("{alter} DROP CONSTRAINT IF EXISTS {table}_crowd");
    let mut tx = lock(pool, table).await?;
    execute(&mut tx, end_of_crowd.clone()).await?; // of a try that broke off
    let check = format!("ADD CONSTRAINT {table}_crowd CHECK (message < '{}') NOT VALID", midnight(clear));
    execute(&mut tx, format!("{alter} {check}")).await?;
    tx.commit().await?;
    let made = async {
        let mut tx = lock(pool, table).await?;
        sqlx::query(PROOF_TIMEOUT).execute(&mut *tx).await?;
        execute(&mut tx, format!("{alter} VALIDATE CONSTRAINT {table}_crowd")).await?;
        tx.commit().await?;
        ensure_days(pool, table, &days).await
    };
    let made = made.await;
    let mut tx = lock(pool, table).await?;
    execute(&mut tx, end_of_crowd).await?;
    tx.commit().await?;
    made
}

async fn ensure_day(pool: &PgPool, table: &'static str, day: NaiveDate) -> Result<bool, sqlx::Error> {
    let name = name_of(table, day);
    let (from, to) = (midnight(day), midnight(day + Days::new(1)));
    let Some(mut tx) = lock_if_missing(pool, table, &name).await? else { return Ok(false) };
    if engine::is_distributed() {
        // Citus makes it on every machine, unless the default partition holds rows of that day: these stay where they are, and those
        // that come with them. The days after it have their own.
        if holds_rows(&mut tx, table, from, to).await? {
            return Ok(false);
        }
        let bounds = format!("FOR VALUES FROM ('{from}') TO ('{to}')");
        execute(&mut tx, format!("CREATE TABLE {name} PARTITION OF {table} {bounds} WITH ({APPEND_ONLY})")).await?;
        tx.commit().await?;
        return Ok(true);
    }
    // Attaching a table that is already filled keeps the rows visible all the time, and locks writers out only of the
    // default partition, which is normally empty.
    execute(&mut tx, format!("LOCK TABLE {table}_default IN ACCESS EXCLUSIVE MODE")).await?;
    execute(&mut tx, format!("CREATE TABLE {name} (LIKE {table} INCLUDING ALL) WITH ({APPEND_ONLY})")).await?;
    execute(
        &mut tx,
        format!(
            "WITH moved AS (DELETE FROM {table}_default WHERE message >= '{from}' AND message < '{to}' RETURNING *) \
             INSERT INTO {name} SELECT * FROM moved"
        ),
    )
    .await?;
    execute(&mut tx, format!("ALTER TABLE {table} ATTACH PARTITION {name} FOR VALUES FROM ('{from}') TO ('{to}')"))
        .await?;
    tx.commit().await?;
    Ok(true)
}

/// Whether the default partition has rows of messages with ids in this range.
async fn holds_rows(connection: &mut PgConnection, table: &str, from: Uuid, to: Uuid) -> Result<bool, sqlx::Error> {
    let found = format!(
        "SELECT count(*) FROM (SELECT message FROM {table}_default WHERE message >= '{from}' AND message < '{to}' LIMIT 1) rows"
    );
    let rows: i64 = sqlx::query_scalar(AssertSqlSafe(found)).persistent(false).fetch_one(connection).await?;
    Ok(rows > 0)
}

/// Locks the table if it lacks the partition. `None` if another process has created it.
async fn lock_if_missing(
    pool: &PgPool, table: &str, name: &String,
) -> Result<Option<sqlx::PgTransaction<'static>>, sqlx::Error> {
    if existing(pool, table).await?.contains(name) {
        return Ok(None);
    }
    let mut tx = lock(pool, table).await?;
    let another_was_faster = existing(&mut *tx, table).await?.contains(name);
    Ok((!another_was_faster).then_some(tx))
}

/// Begins a transaction that locks out other changes of the table's partitions. Rows can still be written.
async fn lock(pool: &PgPool, table: &str) -> Result<sqlx::PgTransaction<'static>, sqlx::Error> {
    let mut tx = begin_by_index(pool).await?;
    sqlx::query(TURN_TIMEOUT).execute(&mut *tx).await?;
    execute(&mut tx, format!("LOCK TABLE {table} IN SHARE UPDATE EXCLUSIVE MODE")).await?;
    sqlx::query(LOCK_TIMEOUT).execute(&mut *tx).await?;
    Ok(tx)
}

/// Runs a statement that cannot use parameters. Its parts are Bellwire's own table names, days and ids.
async fn execute(connection: &mut PgConnection, sql: String) -> Result<u64, sqlx::Error> {
    Ok(sqlx::query(AssertSqlSafe(sql)).persistent(false).execute(connection).await?.rows_affected())
}

async fn existing(executor: impl sqlx::PgExecutor<'_>, table: &str) -> Result<Vec<String>, sqlx::Error> {
    fetch_all!(
        executor,
        scalar,
        r#"SELECT child.relname::text AS "name!"
           FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid
           WHERE inhparent = to_regclass($1)"#,
        (table)
    )
}

/// Returns the smallest UUIDv7 of a day.
fn midnight(day: NaiveDate) -> Uuid {
    let start = day.and_time(chrono::NaiveTime::MIN).and_utc().timestamp_millis();
    Uuid::from_u128(u128::try_from(start).unwrap_or(0) << 80)
}

fn name_of(table: &str, day: NaiveDate) -> String {
    format!("{table}_{}", day.format("%Y%m%d"))
}

fn day_of(table: &str, name: &str) -> Option<NaiveDate> {
    let day = name.strip_prefix(table)?.strip_prefix('_')?;
    NaiveDate::parse_from_str(day, "%Y%m%d").ok()
}

#[cfg(test)]
#[path = "../../../../tests/crates/store/unit/operations/partitions.rs"]
mod tests;
