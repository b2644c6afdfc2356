//! What runs the database: Postgres alone, or Citus, which keeps parts of some tables on other machines.
//!
//! Every connection looks when it is opened, and the whole process goes by what they find: of statements that cost more on plain
//! Postgres in the form that Citus takes there are two, and those for Citus are right on both.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use sqlx::PgConnection;

use crate::model::id::SubscriptionId;

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

/// Remembers what a connection found. A process that has met a distributed database goes on as if all were.
pub(super) fn remember(is_distributed: bool) {
    if is_distributed && !IS_DISTRIBUTED.swap(true, Ordering::Relaxed) {
        tracing::info!("the database is distributed by Citus");
    }
}

/// The shards that these lie in, each once: a statement that is given them asks no others.
pub(crate) fn shards_of(ids: &[SubscriptionId]) -> Vec<i16> {
    let shards: BTreeSet<i16> = ids.iter().map(|id| id.shard()).collect();
    shards.into_iter().collect()
}
