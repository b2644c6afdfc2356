//! What runs the database: Postgres alone, or Citus, which keeps parts of some tables on other machines.
//!
//! Every connection looks when it is opened, and the whole process goes by what they find: of statements that cost more on plain
//! Postgres in the form that Citus takes there are two, and those for Citus are right on both.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::PgConnection;

use bellwire_core::id::{SHARDS, SubscriptionId};

static IS_DISTRIBUTED: AtomicBool = AtomicBool::new(false);

/// Whether subscriptions, their topics, attempts and receipts lie in shards on the machines of a cluster.
pub(crate) fn is_distributed() -> bool {
    IS_DISTRIBUTED.load(Ordering::Relaxed)
}

/// Looks whether they are, in a database where Citus is installed.
pub(crate) async fn look(connection: &mut PgConnection) -> sqlx::Result<bool> {
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
/// A generic plan leaves open which shard it is for, and hardly any that does can be made. And a statement for several shards of a machine
/// goes there by one connection, one after the other: Citus would open up to 16, commit on each of them in two phases, and close
/// all but one of them again. Writing 500 attempts of all shards takes 27 µs of CPU each by one connection, 470 µs by many.
pub(super) async fn set(connection: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::raw_sql("SET plan_cache_mode = auto; SET citus.max_adaptive_executor_pool_size = 1")
        .execute(connection)
        .await
        .map(drop)
}

/// Remembers what a connection found. A process that has met a distributed database goes on as if all were.
pub(in crate::store) fn remember(is_distributed: bool) {
    if is_distributed && !IS_DISTRIBUTED.swap(true, Ordering::Relaxed) {
        tracing::info!("the database is distributed by Citus");
    }
}

/// What a walk over all subscriptions does one after the other, each a part of them: everything at once on plain Postgres, where none is
/// named; shard by shard where these lie apart, so that each statement asks one of them.
pub(crate) fn parts() -> Vec<Option<i16>> {
    if is_distributed() { (0..i16::from(SHARDS)).map(Some).collect() } else { vec![None] }
}

/// The shards that these lie in, each once: a statement that is given them asks no others.
pub(crate) fn shards_of(ids: &[SubscriptionId]) -> Vec<i16> {
    let shards: BTreeSet<i16> = ids.iter().map(|id| id.shard()).collect();
    shards.into_iter().collect()
}
