//! Unit tests of `crates/bellwire-net/src/acme/schedule.rs`, which includes them.

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
