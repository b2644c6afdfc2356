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

/// Returns the pause after this many failures in a row, at least one.
pub fn wait_after(failures: i32) -> Duration {
    let place = usize::try_from(failures.max(1) - 1).unwrap_or(0);
    Duration::from_secs(WAITS_S[place.min(WAITS_S.len() - 1)])
}

#[cfg(test)]
mod tests {
    use chrono::DateTime;

    use super::*;

    #[test]
    fn renewal_begins_with_a_third_left() {
        let from = DateTime::UNIX_EPOCH;
        assert_eq!(renew_at(from, from + TimeDelta::days(90)), from + TimeDelta::days(60));
        assert_eq!(renew_at(from, from + TimeDelta::hours(160)), from + TimeDelta::minutes(6_400));
        assert_eq!(renew_at(from, from - TimeDelta::days(1)), from - TimeDelta::days(1), "nonsense is due at once");
    }

    #[test]
    fn authority_is_asked_less_often_over_time() {
        assert_eq!([0, 1, 2, 6, 100].map(|n| wait_after(n).as_secs()), [60, 60, 300, 21_600, 21_600]);
        let first_hour: Vec<u64> = (1..=4).map(|n| wait_after(n).as_secs()).collect();
        assert!(first_hour.iter().sum::<u64>() > 3_600, "the fifth try: {first_hour:?}");
    }
}
