//! Unit tests of `crates/bellwire-rules/src/explain/phrases.rs`, which includes them.

use super::*;

#[test]
fn spans_have_one_or_two_units() {
    for (seconds, words) in [
        (0.0, "0 s"),
        (0.12, "120 ms"),
        (1.0, "1 s"),
        (4.34, "4.3 s"),
        (59.96, "60 s"),
        (60.0, "1 min"),
        (725.0, "12 min 5 s"),
        (3_600.0, "1 h"),
        (11_100.0, "3 h 5 min"),
        (86_400.0, "1 d"),
        (3_032_000.0, "35 d 2 h"),
    ] {
        assert_eq!(span(seconds), words);
    }
    assert_eq!((range(1.6, 2.4), range(2.0, 2.0)), ("1.6 s to 2.4 s".to_owned(), "2 s".to_owned()));
}

#[test]
fn a_time_says_how_far_it_is() {
    let now: Timestamp = "2027-01-15T08:00:00Z".parse().unwrap();
    assert_eq!(time(now, now), "2027-01-15T08:00:00Z (now)");
    assert_eq!(time(now + TimeDelta::milliseconds(1_500), now), "2027-01-15T08:00:01.500Z (in 1.5 s)");
    assert_eq!(time(now - TimeDelta::minutes(3), now), "2027-01-15T07:57:00Z (3 min ago)");
}
