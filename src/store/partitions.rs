//! Daily partitions of the tables that only grow, bounded by message id.
//!
//! A message's id is a UUIDv7, which begins with its time, so midnight is an id too, and everything about a message lies
//! in the partition of the day that it was made. What no partition covers (a message older or newer than the days made
//! ahead) goes into a default partition: nothing is ever refused for want of one.

use chrono::{Days, NaiveDate};
use sqlx::{AssertSqlSafe, PgConnection, PgPool};
use uuid::Uuid;

use crate::clock::Timestamp;

/// The partitioned tables.
const TABLES: [&str; 2] = ["attempts", "receipts"];
/// Days that have partitions before today: clocks of other replicas, messages of just now.
const DAYS_BEHIND: u64 = 1;
/// Days that have partitions after today: how long maintenance may be away before rows go into the default partition.
const DAYS_AHEAD: u64 = 8;
/// Changing partitions waits for running transactions, and everybody else behind it: better to try again later.
const LOCK_TIMEOUT: &str = "SET LOCAL lock_timeout = '3s'";

/// Makes the default partitions and those of the days around `now` that are missing, moving rows of those days out of
/// the default partition. Answers how many it made. Several processes may do this at once.
pub async fn ensure(pool: &PgPool, now: Timestamp) -> Result<usize, sqlx::Error> {
    let today = now.date_naive();
    let mut made = 0;
    for table in TABLES {
        made += usize::from(ensure_default(pool, table).await?);
        for day in (0..=DAYS_BEHIND + DAYS_AHEAD).map(|n| today - Days::new(DAYS_BEHIND) + Days::new(n)) {
            made += usize::from(ensure_day(pool, table, day).await?);
        }
    }
    Ok(made)
}

/// Drops the partitions of all days that ended before `cutoff`, and such rows of the default partition. Answers how many
/// partitions it dropped. The cutoff must lie further back than the longest time to live.
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
        let mut connection = pool.acquire().await?;
        execute(&mut connection, format!("DELETE FROM {table}_default WHERE message < '{}'", midnight(first_kept)))
            .await?;
    }
    Ok(dropped)
}

/// A partition only grows and is dropped whole, and is read by its key alone: vacuum finds nothing to do in it, and
/// statistics by every tenth row decide nothing. During a campaign on a young partition both cost Postgres a quarter of
/// its CPU time.
const APPEND_ONLY: &str = "autovacuum_vacuum_insert_threshold = -1, autovacuum_analyze_threshold = 1000000, \
                           autovacuum_analyze_scale_factor = 1";

async fn ensure_default(pool: &PgPool, table: &'static str) -> Result<bool, sqlx::Error> {
    let name = format!("{table}_default");
    let Some(mut tx) = lock_if_missing(pool, table, &name).await? else { return Ok(false) };
    execute(&mut tx, format!("CREATE TABLE {name} PARTITION OF {table} DEFAULT")).await?;
    tx.commit().await?;
    Ok(true)
}

async fn ensure_day(pool: &PgPool, table: &'static str, day: NaiveDate) -> Result<bool, sqlx::Error> {
    let name = name_of(table, day);
    let (from, to) = (midnight(day), midnight(day + Days::new(1)));
    let Some(mut tx) = lock_if_missing(pool, table, &name).await? else { return Ok(false) };
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

/// [`lock`]s the table if it lacks a partition of that name, and still lacks it then.
async fn lock_if_missing(
    pool: &PgPool,
    table: &str,
    name: &String,
) -> Result<Option<sqlx::PgTransaction<'static>>, sqlx::Error> {
    if existing(pool, table).await?.contains(name) {
        return Ok(None);
    }
    let mut tx = lock(pool, table).await?;
    let another_was_faster = existing(&mut *tx, table).await?.contains(name);
    Ok((!another_was_faster).then_some(tx))
}

/// Begins a transaction in which nobody else changes the table's partitions, while rows may still be written.
async fn lock(pool: &PgPool, table: &str) -> Result<sqlx::PgTransaction<'static>, sqlx::Error> {
    let mut tx = pool.begin().await?;
    sqlx::query(LOCK_TIMEOUT).execute(&mut *tx).await?;
    execute(&mut tx, format!("LOCK TABLE {table} IN SHARE UPDATE EXCLUSIVE MODE")).await?;
    Ok(tx)
}

/// Runs a statement that no parameter can express. Its parts are our own table names, days and ids.
async fn execute(connection: &mut PgConnection, sql: String) -> Result<(), sqlx::Error> {
    sqlx::query(AssertSqlSafe(sql)).persistent(false).execute(connection).await?;
    Ok(())
}

async fn existing(executor: impl sqlx::PgExecutor<'_>, table: &str) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar!(
        r#"SELECT child.relname::text AS "name!"
           FROM pg_inherits JOIN pg_class child ON child.oid = inhrelid
           WHERE inhparent = to_regclass($1)"#,
        table
    )
    .fetch_all(executor)
    .await
}

/// The smallest id of a day: its first millisecond and nothing else.
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
mod tests {
    use super::*;

    #[test]
    fn a_message_lies_between_the_midnights_of_its_day() {
        let day = NaiveDate::from_ymd_opt(2026, 11, 20).unwrap();
        let last_ms = day.and_hms_milli_opt(23, 59, 59, 999).unwrap().and_utc().timestamp();
        let id = Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, last_ms as u64, 999_000_000));
        assert!(midnight(day) < id && id < midnight(day + Days::new(1)));
        let first = Uuid::new_v7(uuid::Timestamp::from_unix(uuid::NoContext, (last_ms - 86_399) as u64, 0));
        assert!(midnight(day) < first, "the version stands after the time");
    }

    #[test]
    fn a_partitions_name_tells_its_day() {
        let day = NaiveDate::from_ymd_opt(2026, 1, 2).unwrap();
        assert_eq!(name_of("attempts", day), "attempts_20260102");
        assert_eq!(day_of("attempts", "attempts_20260102"), Some(day));
        assert_eq!(day_of("attempts", "attempts_default"), None);
        assert_eq!(day_of("receipts", "attempts_20260102"), None);
    }
}
