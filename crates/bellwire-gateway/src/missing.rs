//! Hosts without a DNS record, and the time since when they have none.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Maximum hosts. Without room, each lookup of a further host counts as its first.
const HOSTS_MAX: usize = 10_000;
/// Age from which entries are removed when there is no room. Such hosts receive no more pushes.
const KEPT: Duration = Duration::from_secs(7 * 86_400);

pub(super) struct Missing {
    gone_after: Duration,
    since: Mutex<HashMap<Box<str>, Instant>>,
}

impl Missing {
    /// Creates a list in which a host is gone after it was missing for `gone_after`.
    pub(super) fn new(gone_after: Duration) -> Self {
        Self { gone_after, since: Mutex::default() }
    }

    /// Records that a host has no DNS record. Returns whether it has been missing for `gone_after` without
    /// interruption.
    pub(super) fn missed(&self, host: &str, now: Instant) -> bool {
        let mut since = self.since.lock();
        let first = since.get(host).copied();
        if first.is_none() {
            if since.len() >= HOSTS_MAX {
                since.retain(|_, first| now.saturating_duration_since(*first) < KEPT);
            }
            if since.len() < HOSTS_MAX {
                since.insert(host.into(), now);
            }
        }
        first.is_some_and(|first| now.saturating_duration_since(first) >= self.gone_after)
    }

    pub(super) fn found(&self, host: &str) {
        self.since.lock().remove(host);
    }
}

#[cfg(test)]
#[path = "../../../tests/crates/gateway/unit/missing.rs"]
mod tests;
