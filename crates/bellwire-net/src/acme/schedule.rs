//! Rules for the time of a certificate's next order. Pure.

use std::time::Duration;

use chrono::TimeDelta;

use bellwire_core::clock::Timestamp;

/// Pauses in seconds, by the number of failures in a row. Let's Encrypt allows five failures per hostname and hour.
const WAITS_S: [u64; 6] = [60, 300, 900, 3_600, 10_800, 21_600];

/// Returns the time of renewal: when a third of the validity is left, which is thirty days of ninety.
pub fn renew_at(not_before: Timestamp, not_after: Timestamp) -> Timestamp {
    not_after - (not_after - not_before).max(TimeDelta::zero()) / 3
}

/// Returns the pause after this number of failures in a row, at least one.
pub fn wait_after(failures: i32) -> Duration {
    let place = usize::try_from(failures.max(1) - 1).unwrap_or(0);
    Duration::from_secs(WAITS_S[place.min(WAITS_S.len() - 1)])
}

#[cfg(test)]
#[path = "../../../../tests/crates/net/unit/acme/schedule.rs"]
mod tests;
