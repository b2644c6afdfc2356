//! Opens the connections to Postgres that a process needs at once, and keeps them open.

use std::time::Duration;

use sqlx::PgPool;
use tracing::{info, warn};

use super::context::Context;
use super::shares::Shares;
use crate::config::Config;
use bellwire_store as store;
use bellwire_store::connections::try_all;
use bellwire_store::operations::setup::{self, DatabaseSettings};

/// Interval of keep-alives on open connections. Firewalls drop idle connections later than that.
const TRY_EVERY: Duration = Duration::from_secs(60);
/// Opens the connections that work needs at once, and logs the maximum of this process and of Postgres.
pub(super) async fn open(context: &Context, config: &Config) {
    let shares = Shares::of(config.connections(), config.roles);
    let Context { pool, sending_pool, worker_pool, .. } = context;
    let used = |n: u32, pool: &PgPool| (n > 0).then(|| pool.clone());
    let pools = [(shares.requests, pool), (shares.sends, sending_pool), (shares.dispatch, worker_pool)];
    let opening = pools.into_iter().filter_map(|(n, pool)| used(n, pool));
    futures_util::future::join_all(opening.map(|pool| async move { store::open_all(&pool).await })).await;
    let open = pool.size() + sending_pool.size() + worker_pool.size();
    match setup::settings(pool).await {
        Ok(DatabaseSettings { connections, connections_max, .. }) => {
            info!(
                most = shares.sum(),
                opened_here = open,
                of_all_clients = connections,
                max_connections = connections_max,
                "connections to Postgres"
            );
            if let Some(missing) = missing(shares.sum(), open, connections, connections_max) {
                warn!(
                    most = shares.sum(),
                    opened_here = open,
                    of_all_clients = connections,
                    max_connections = connections_max,
                    "Postgres has {missing} connections fewer than this server may want: what finds none waits, and fails after ten \
                     seconds. Raise max_connections, which takes a restart of Postgres, or give each server fewer by \
                     BELLWIRE_DATABASE_CONNECTIONS"
                );
            }
        }
        Err(error) => {
            info!(%error, most = shares.sum(), open, "Postgres could not be asked how many connections it has")
        }
    }
}

/// Keeps open connections alive in an endless loop.
pub(super) async fn try_on(pool: PgPool) {
    loop {
        tokio::time::sleep(TRY_EVERY).await;
        try_all(&pool).await;
    }
}

/// Returns the number of connections that Postgres lacks for a process with `open` of `most` connections, while
/// `in_use` of `of` are in use. `None` if there are enough.
fn missing(most: u32, open: u32, in_use: i64, of: i64) -> Option<i64> {
    let wanted = in_use + i64::from(most.saturating_sub(open));
    (wanted > of).then_some(wanted - of)
}

#[cfg(test)]
#[path = "../../tests/unit/server/connections.rs"]
mod tests;
