//! Hosts that DNS says do not exist, and for how long it has been saying so.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// Hosts that are remembered. Whoever finds no room is asked for again and again, as if each time were the first.
const HOSTS_MAX: usize = 10_000;
/// When there is no room, what has been missing for so long makes some: nothing is sent to it any more.
const KEPT: Duration = Duration::from_secs(7 * 86_400);

/// Remembers since when hosts have been missing.
pub(super) struct Missing {
    gone_after: Duration,
    since: Mutex<HashMap<Box<str>, Instant>>,
}

impl Missing {
    /// One who takes a host for gone that has been missing for so long.
    pub(super) fn new(gone_after: Duration) -> Self {
        Self { gone_after, since: Mutex::default() }
    }

    /// Notes that DNS knows no such host. True if it is gone: DNS said so before, long enough ago, and never knew it since.
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

    /// Notes that DNS knows a host.
    pub(super) fn found(&self, host: &str) {
        self.since.lock().remove(host);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_host_is_gone_that_has_been_missing_for_hours_at_every_look() {
        let (missing, now) = (Missing::new(6 * HOUR), Instant::now());
        assert_eq!([0, 1, 5].map(|hours| missing.missed("a.example", now + HOUR * hours)), [false; 3]);
        assert!(missing.missed("a.example", now + HOUR * 6));
        assert!(!missing.missed("b.example", now + HOUR * 6), "each for itself");
        missing.found("a.example");
        assert!(!missing.missed("a.example", now + HOUR * 7), "it begins anew");
    }

    #[test]
    fn however_many_are_missing_memory_is_bounded_and_room_comes_back() {
        let (missing, now) = (Missing::new(6 * HOUR), Instant::now());
        for n in 0..HOSTS_MAX {
            missing.missed(&format!("{n}.example"), now);
        }
        assert!(!missing.missed("late.example", now) && !missing.missed("late.example", now + 7 * HOUR), "no room");
        assert!(!missing.missed("late.example", now + KEPT));
        assert!(missing.missed("late.example", now + KEPT + 6 * HOUR));
    }
}
