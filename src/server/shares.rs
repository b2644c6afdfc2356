//! Maximum connections of a process to Postgres, by purpose.
//!
//! | for | `api` | `worker` | `maintenance` |
//! |---|---|---|---|
//! | requests and maintenance | half | 2, for metrics and health | half |
//! | sends, which share their commits | 2, of fewer than 7 connections 1 | | |
//! | dispatch | | half | |
//! | the heartbeat, the reader of stops | | 1 each | |
//!
//! *Half* means half of `BELLWIRE_DATABASE_CONNECTIONS` (lower with an embedded Postgres with little memory), less the connections of the
//! other rows, for any roles of the process: a process with fewer roles opens fewer. No connection is reserved for `LISTEN`.

use crate::config::Roles;
use bellwire_store::queue::sending::WRITERS;

/// Connections reserved for a worker's heartbeat and its reader of stops, one each.
const RESERVED: u32 = 2;
/// Connections for requests of a process without the role `api`, which serves only health and metrics.
const ASIDE: u32 = 2;

/// Maximum connections of a process, by purpose. 0: none is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shares {
    pub requests: u32,
    pub sends: u32,
    pub dispatch: u32,
    pub reserved: u32,
}

impl Shares {
    /// Shares of a process with these roles and a maximum of `n` connections, at least 6.
    pub(super) fn of(connections: u32, roles: Roles) -> Self {
        // Requests keep two: one may wait for a second connection while it holds the first.
        let sends = if connections > WRITERS + RESERVED + 2 { WRITERS } else { 1 };
        let shared = connections.saturating_sub(sends + RESERVED);
        let dispatch = shared / 2;
        let requests = shared - dispatch;
        Self {
            requests: if roles.api || roles.maintenance { requests } else { requests.min(ASIDE) },
            sends: if roles.api { sends } else { 0 },
            dispatch: if roles.worker { dispatch } else { 0 },
            reserved: if roles.worker { RESERVED } else { 0 },
        }
    }

    pub(super) fn sum(self) -> u32 {
        self.requests + self.sends + self.dispatch + self.reserved
    }
}

#[cfg(test)]
#[path = "../../tests/unit/server/shares.rs"]
mod tests;
