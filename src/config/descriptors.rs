//! Number of file descriptors that the settings may need.
//!
//! | for | descriptors |
//! |---|---|
//! | clients, of each listener | `connections_max` |
//! | Postgres | `database_connections`, as many again where standbys are read, and one for the heartbeat |
//! | push services and webhooks | a few origins at once, each with as many connections as it may have |
//! | everything else | the runtime, logs, look-ups of names, the embedded Postgres's pipe |

use super::Config;

/// Connections to one host of webhooks' receivers, at most: enough for several that hang to leave others theirs.
pub(crate) const RECEIVER_CONNECTIONS: u32 = 64;
/// Push services' origins that are sent to at once, beyond which there are hardly ever more.
const ORIGINS: u64 = 16;
/// Hosts of webhooks' receivers that take all the connections that one may have.
const RECEIVERS: u64 = 2;
/// Clients of the listener for metrics.
const SCRAPERS: u64 = 16;
/// Descriptors that are neither clients nor outgoing connections.
const OTHERS: u64 = 128;

impl Config {
    /// Descriptors that a process with these settings may want at once.
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
mod tests {
    use super::*;
    use crate::config::Flags;

    #[test]
    fn what_the_settings_want_follows_from_them() {
        let of = |pairs: &[(&'static str, &str)]| {
            let flags = Flags::from_pairs(pairs.iter().map(|(key, value)| (*key, (*value).to_owned())));
            Config::load(&flags).unwrap().descriptors()
        };
        let (all, few) = (of(&[]), of(&[("connections_max", "1000")]));
        assert_eq!(all - few, 9_000);
        assert!((10_000..11_000).contains(&all), "{all}");
        assert!(of(&[("roles", "api")]) < all && of(&[("connections_per_gateway", "64")]) > all);
    }
}
