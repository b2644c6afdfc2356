//! How many connections to Postgres a process may open, what for, and whether Postgres has as many.
//!
//! | for | `api` | `worker` | `maintenance` |
//! |---|---|---|---|
//! | requests and maintenance | half | 2, for metrics and health | half |
//! | sends, which share their commits | 2 | | |
//! | dispatch | | half | |
//! | the heartbeat | | 1 | |
//!
//! *Half* is of `BELLWIRE_DATABASE_CONNECTIONS` (fewer beside an embedded Postgres with little memory) without those for sends and the heartbeat, whatever roles the process has: one that has
//! fewer opens fewer. Nothing listens: there is no `LISTEN` that would keep one more.

use std::time::Duration;

use sqlx::PgPool;
use tracing::{info, warn};

use super::context::Context;
use crate::config::{Config, Roles};
use crate::store;
use crate::store::connections::try_all;
use crate::store::operations::setup::{self, Settings};
use crate::store::queue::sending::WRITERS;

/// Connections of a worker that nothing but its heartbeat uses.
const HEARTBEAT: u32 = 1;
/// How often connections that stay open are tried: more often than firewalls forget those that say nothing.
const TRY_EVERY: Duration = Duration::from_secs(60);
/// Connections for requests of a process that is asked for its health and metrics alone.
const ASIDE: u32 = 2;

/// The most connections of a process, by what they are for. 0: none is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shares {
    pub requests: u32,
    pub sends: u32,
    pub dispatch: u32,
    pub heartbeat: u32,
}

impl Shares {
    /// Those of a process with these roles that may open so many, at least 6.
    pub(super) fn of(connections: u32, roles: Roles) -> Self {
        let shared = connections.saturating_sub(WRITERS + HEARTBEAT);
        let dispatch = shared / 2;
        let requests = shared - dispatch;
        Self {
            requests: if roles.api || roles.maintenance { requests } else { requests.min(ASIDE) },
            sends: if roles.api { WRITERS } else { 0 },
            dispatch: if roles.worker { dispatch } else { 0 },
            heartbeat: if roles.worker { HEARTBEAT } else { 0 },
        }
    }

    /// All of them.
    pub(super) fn sum(self) -> u32 {
        self.requests + self.sends + self.dispatch + self.heartbeat
    }
}

/// Opens those connections that work needs at once, and says how many this process may open and Postgres has.
pub(super) async fn open(context: &Context, config: &Config) {
    let shares = Shares::of(config.connections(), config.roles);
    let Context { pool, sending_pool, worker_pool, .. } = context;
    let used = |n: u32, pool: &PgPool| (n > 0).then(|| pool.clone());
    let pools = [(shares.requests, pool), (shares.sends, sending_pool), (shares.dispatch, worker_pool)];
    let opening = pools.into_iter().filter_map(|(n, pool)| used(n, pool));
    futures_util::future::join_all(opening.map(|pool| async move { store::open_all(&pool).await })).await;
    let open = pool.size() + sending_pool.size() + worker_pool.size();
    match setup::settings(pool).await {
        Ok(Settings { connections, connections_max, .. }) => {
            info!(most = shares.sum(), open, in_use = connections, of = connections_max, "connections to Postgres");
            if let Some(missing) = missing(shares.sum(), open, connections, connections_max) {
                warn!(
                    most = shares.sum(),
                    open,
                    in_use = connections,
                    of = connections_max,
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

/// Tries connections that stay open, now and then, for ever.
pub(super) async fn try_on(pool: PgPool) {
    loop {
        tokio::time::sleep(TRY_EVERY).await;
        try_all(&pool).await;
    }
}

/// How many connections Postgres has too few for a process that may have `most` and has `open` of all that are `in_use`. None: enough.
fn missing(most: u32, open: u32, in_use: i64, of: i64) -> Option<i64> {
    let wanted = in_use + i64::from(most.saturating_sub(open));
    (wanted > of).then_some(wanted - of)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_opens_no_more_than_it_may_and_only_what_its_roles_use() {
        let roles = |api, worker, maintenance| Roles { api, worker, maintenance };
        for (connections, given, sum) in [
            (25, roles(true, true, true), 25),
            (25, roles(true, false, false), 13),
            (25, roles(false, true, false), 14),
            (25, roles(false, true, true), 23),
            (25, roles(true, false, true), 13),
            (6, roles(true, true, true), 6),
            (6, roles(false, true, false), 4),
            (500, roles(true, true, true), 500),
        ] {
            let shares = Shares::of(connections, given);
            assert_eq!(shares.sum(), sum, "{connections} {given:?}");
            assert!(shares.requests > 0 && (shares.dispatch > 0) == given.worker, "{shares:?}");
        }
    }

    #[test]
    fn what_is_open_is_counted_once() {
        assert_eq!(missing(25, 25, 97, 97), None);
        assert_eq!(missing(25, 20, 97, 97), Some(5));
        assert_eq!(missing(25, 0, 0, 20), Some(5));
    }
}
