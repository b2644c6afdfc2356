//! Number of file descriptors that the settings may need.
//!
//! | for | descriptors |
//! |---|---|
//! | clients, of each listener | `connections_max` |
//! | Postgres | `database_connections`, twice with standbys for reading, and one for the heartbeat |
//! | push services and webhooks | several origins, each with its maximum of connections |
//! | other | the runtime, logs, DNS, the pipe of the embedded Postgres |

use super::Config;

/// Maximum connections to one host of webhook receivers: enough that several stalled receivers leave connections for others.
pub(crate) const RECEIVER_CONNECTIONS: u32 = 64;
/// Assumed number of push service origins in use at a time.
const ORIGINS: u64 = 16;
/// Assumed number of webhook receivers with all their connections in use.
const RECEIVERS: u64 = 2;
/// Maximum clients of the metrics listener.
const SCRAPERS: u64 = 16;
/// Descriptors for anything else.
const OTHERS: u64 = 128;

impl Config {
    /// Returns the number of descriptors that a process with these settings may need.
    pub(crate) fn descriptors(&self) -> u64 {
        let clients = u64::from(self.connections_max) + self.metrics_listen.map_or(0, |_| SCRAPERS);
        let pools = if self.read_database_url.is_some() { 2 } else { 1 };
        let postgres = u64::from(self.connections()) * pools + 1;
        let gateways = if self.roles.worker { ORIGINS * u64::from(self.connections_per_gateway) } else { 0 };
        let receivers = if self.roles.maintenance { RECEIVERS * u64::from(RECEIVER_CONNECTIONS) } else { 0 };
        clients + postgres + gateways + receivers + OTHERS
    }
}

#[cfg(test)]
#[path = "../../tests/unit/descriptors.rs"]
mod tests;
