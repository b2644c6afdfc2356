//! Database engine: plain Postgres, or Citus, which keeps parts of some tables on other machines.
//!
//! Each connection checks when it is opened, and the whole process uses the result. Statements that cost more on plain Postgres
//! in the form for Citus exist in two forms. Those for Citus are right on both.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::PgConnection;

use bellwire_core::id::{SHARDS, SubscriptionId};

static IS_DISTRIBUTED: AtomicBool = AtomicBool::new(false);

/// Whether subscriptions, their topics, attempts and receipts lie in shards on the machines of a cluster.
pub fn is_distributed() -> bool {
    IS_DISTRIBUTED.load(Ordering::Relaxed)
}

/// Looks whether they are, in a database where Citus is installed.
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

/// Sets what a connection to a distributed database needs.
///
/// Prevents generic plans, which are hardly possible without a known shard. Also makes a statement for several shards of a machine use one
/// connection, one shard after the other. Otherwise Citus opens up to 16 connections, commits on each of them in two phases, and closes all
/// except one. Writing 500 attempts of all shards takes 27 µs of CPU each over one connection, 470 µs over many.
pub(super) async fn set(connection: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::raw_sql("SET plan_cache_mode = auto; SET citus.max_adaptive_executor_pool_size = 1")
        .execute(connection)
        .await
        .map(drop)
}

/// Stores the finding of a connection. A process that has met a distributed database treats all as distributed.
pub(crate) fn remember(is_distributed: bool) {
    if is_distributed && !IS_DISTRIBUTED.swap(true, Ordering::Relaxed) {
        tracing::info!("the database is distributed by Citus");
    }
}

/// Returns the parts of a walk over all subscriptions. On plain Postgres it is one unnamed part. On Citus it is shard by shard,
/// so that each statement reads one of them.
pub fn parts() -> Vec<Option<i16>> {
    if is_distributed() { (0..i16::from(SHARDS)).map(Some).collect() } else { vec![None] }
}

/// The shard of each of these ids.
pub fn shard_column(ids: &[SubscriptionId]) -> Vec<i16> {
    ids.iter().map(|id| id.shard()).collect()
}

/// Distinct shards of these ids. A statement with this list reads no other shards.
pub fn shards_of(ids: &[SubscriptionId]) -> Vec<i16> {
    let shards: BTreeSet<i16> = ids.iter().map(|id| id.shard()).collect();
    shards.into_iter().collect()
}
