//! Push services that are unreachable through the proxy, with the time since when, for alerts.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

use super::ProxyError;
use bellwire_core::lane::Gateway;

/// Unreachable push services. Other hosts are left out, because a proxy may block them on purpose.
#[derive(Debug)]
pub(crate) struct Troubles {
    /// Minimum duration of an outage for an alert.
    told_after: Duration,
    since: Mutex<HashMap<Gateway, Since>>,
}

#[derive(Debug)]
struct Since {
    first: Instant,
    words: String,
    is_told: bool,
}

/// A push service that has been unreachable through the proxy for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// The push service that cannot be reached.
    pub gateway: Gateway,
    /// Last error of the proxy, without secrets.
    pub words: String,
}

impl Troubles {
    pub(crate) fn new(told_after: Duration) -> Self {
        Self { told_after, since: Mutex::default() }
    }

    /// Records that the proxy opened no tunnel.
    pub(crate) fn refused(&self, gateway: Gateway, why: &ProxyError, now: Instant) {
        let (mut since, words) = (self.since.lock(), why.to_string());
        let known = since.entry(gateway).or_insert_with(|| {
            warn!(target: "bellwire::gateway::egress::trouble", gateway = gateway.name(), why = words, "the proxy lets no connection through to a push service");
            Since { first: now, words: String::new(), is_told: false }
        });
        known.words = words;
    }

    pub(crate) fn passed(&self, gateway: Gateway) {
        if self.since.lock().remove(&gateway).is_some() {
            info!(target: "bellwire::gateway::egress::trouble", gateway = gateway.name(), "the proxy lets connections through to a push service again");
        }
    }

    /// Returns push services that were unreachable for `told_after` and have no alert yet.
    pub(crate) fn untold(&self, now: Instant) -> Vec<Trouble> {
        let lasts = |since: &&Since| !since.is_told && now.saturating_duration_since(since.first) >= self.told_after;
        let since = self.since.lock();
        let lasting = since.iter().filter(|(_, since)| lasts(since));
        lasting.map(|(gateway, since)| Trouble { gateway: *gateway, words: since.words.clone() }).collect()
    }

    pub(crate) fn told(&self, gateway: Gateway) {
        if let Some(since) = self.since.lock().get_mut(&gateway) {
            since.is_told = true;
        }
    }
}

#[cfg(test)]
#[path = "../../../../tests/crates/gateway/unit/egress/trouble.rs"]
mod tests;
