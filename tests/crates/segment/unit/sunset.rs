//! Unit tests of `crates/bellwire-segment/src/sunset.rs`, which includes them.

use super::*;
use bellwire_core::clock::Timestamp;

#[test]
fn clickers_newcomers_and_rarely_shown_stay_included() {
    let from: Timestamp = "2027-01-15T08:00:00Z".parse().unwrap();
    let days = TimeDelta::days;
    let rule = |unclicked, for_days: Option<i64>| Sunset {
        unclicked,
        unclicked_for_s: for_days.map(|n| n * 86_400),
        welcome_s: 30 * 86_400,
    };
    let shown = |n, over| Habits {
        unclicked: n,
        unclicked_between: (n > 0).then(|| (from, from + days(over))),
        ..Habits::default()
    };
    for (rule, habits, age, is_left_out) in [
        (rule(Some(10), None), shown(10, 0), days(30), true),
        (rule(Some(10), None), shown(9, 300), days(300), false),
        (rule(Some(10), None), shown(10, 0), days(29), false),
        (rule(None, Some(60)), shown(2, 60), days(90), true),
        (rule(None, Some(60)), shown(500, 59), days(90), false),
        (rule(Some(10), Some(60)), shown(10, 59), days(90), false),
        (rule(Some(10), Some(60)), shown(9, 60), days(90), false),
        (rule(Some(10), Some(60)), shown(10, 60), days(90), true),
        (rule(Some(1), None), Habits::default(), days(900), false),
        (rule(None, Some(0)), Habits::default(), days(900), false),
    ] {
        assert_eq!(rule.leaves_out(&habits, age), is_left_out, "{rule:?} {habits:?} {age}");
    }
}
