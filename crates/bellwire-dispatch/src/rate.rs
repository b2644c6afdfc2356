//! Recent rates of lanes, from which batch sizes are computed.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use bellwire_core::id::LaneId;

/// Assumed rate of a lane before its first measurement, in deliveries per second.
const FIRST: usize = 125;
const WINDOW: Duration = Duration::from_secs(1);

/// Responses per second of each lane.
#[derive(Default)]
pub(super) struct Rates(Mutex<HashMap<LaneId, RateMeter>>);

struct RateMeter {
    since: Instant,
    count: usize,
    per_second: usize,
}

impl Rates {
    pub(super) fn count(&self, lane: LaneId, now: Instant) {
        let mut rates = self.0.lock();
        let rate = rates.entry(lane).or_insert_with(|| RateMeter { since: now, count: 0, per_second: FIRST });
        rate.count += 1;
        let elapsed = now.saturating_duration_since(rate.since);
        if elapsed >= WINDOW {
            let millis = usize::try_from(elapsed.as_millis()).unwrap_or(usize::MAX);
            *rate = RateMeter { since: now, count: 0, per_second: rate.count * 1000 / millis };
        }
    }

    /// Returns the rate of the last full second with responses.
    pub(super) fn per_second(&self, lane: LaneId) -> usize {
        self.0.lock().get(&lane).map_or(FIRST, |rate| rate.per_second)
    }
}

#[cfg(test)]
#[path = "../../../tests/crates/dispatch/unit/rate.rs"]
mod tests;
