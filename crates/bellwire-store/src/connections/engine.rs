//! Database engine: plain Postgres, or Citus, which stores parts of some tables on other machines.
//!
//! Each connection detects the engine when it is opened, and the whole process uses the result. Statements that would be slower
//! on plain Postgres in the form for Citus exist in two forms. The form for Citus is correct on both.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::PgConnection;

use bellwire_core::id::{SHARDS, SubscriptionId};

static IS_DISTRIBUTED: AtomicBool = AtomicBool::new(false);

/// Whether subscriptions, their topics, attempts and receipts are distributed over the machines of a Citus cluster.
pub fn is_distributed() -> bool {
    IS_DISTRIBUTED.load(Ordering::Relaxed)
}

/// Detects whether the tables are distributed, in a database with Citus installed.
pub async fn look(connection: &mut PgConnection) -> sqlx::Result<bool> {
    // A table that plain Postgres does not have: the macros could not check it.
    let found: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM pg_catalog.pg_dist_partition WHERE logicalrelid = to_regclass('subscriptions') AND partmethod = 'h'",
    )
    .persistent(false)
    .fetch_one(connection)
    .await?;
    Ok(found == 1)
}

/// Applies the settings for a distributed database.
///
/// Disables generic plans, which rarely work without a known shard. Also lets a statement for several shards of a machine use
/// one connection for one shard after the other. Otherwise Citus opens up to 16 connections, commits on each in two phases, and
/// closes all except one. Writing 500 attempts of all shards takes 27 µs of CPU each over one connection, 470 µs over many.
pub(super) async fn set(connection: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::raw_sql("SET plan_cache_mode = auto; SET citus.max_adaptive_executor_pool_size = 1")
        .execute(connection)
        .await
        .map(drop)
}

/// Stores the detected engine. After one distributed database, the process treats all databases as distributed.
pub(crate) fn remember(is_distributed: bool) {
    if is_distributed && !IS_DISTRIBUTED.swap(true, Ordering::Relaxed) {
        tracing::info!("the database is distributed by Citus");
    }
}

/// Returns the shards for a scan of all subscriptions, one per statement. On plain Postgres it is a single `None`.
pub fn parts() -> Vec<Option<i16>> {
    if is_distributed() { (0..i16::from(SHARDS)).map(Some).collect() } else { vec![None] }
}

/// Returns the shard of each id.
pub fn shard_column(ids: &[SubscriptionId]) -> Vec<i16> {
    ids.iter().map(|id| id.shard()).collect()
}

/// Returns the distinct shards of these ids. A statement with this list reads no other shards.
pub fn shards_of(ids: &[SubscriptionId]) -> Vec<i16> {
    let shards: BTreeSet<i16> = ids.iter().map(|id| id.shard()).collect();
    shards.into_iter().collect()
}
