//! Holds of lanes, subscriptions and keys.

use bellwire_core::clock::Timestamp;
use bellwire_rules::policy::hold::{
    Alarm, FIRST, Hold, HoldReason, KEY_FIRST, KeyWatch, REMEMBERED_FOR, of_refused_key, of_throttled_subscription,
    reopens_at,
};
use std::time::Duration;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_timestamp(1_800_000_000, 0).unwrap() + Duration::from_millis(ms)
}

#[test]
fn a_header_holds_for_its_time() {
    let mut hold = Hold::default();
    assert_eq!(hold.until(at(0)), None);
    assert_eq!(hold.throttled(at(0), at(0), Some(Duration::from_secs(120))), at(120_000));
    assert_eq!(hold.until(at(119_999)), Some(at(120_000)));
    assert_eq!(hold.until(at(120_000)), None);
    // A shorter wish does not shorten it.
    assert_eq!(hold.throttled(at(1), at(0), Some(Duration::from_secs(5))), at(120_000));
    assert_eq!(hold.throttled(at(1), at(0), None), at(120_000));
}

#[test]
fn hold_without_header_doubles_to_60_seconds() {
    let mut hold = Hold::default();
    let mut now = at(0);
    let mut lengths_s = Vec::new();
    for _ in 0..8 {
        let until = hold.throttled(now, now, None);
        lengths_s.push((until - now).num_seconds());
        now = until;
    }
    assert_eq!(lengths_s, [1, 2, 4, 8, 16, 32, 60, 60]);
}

#[test]
fn streams_refused_together_double_once() {
    let mut hold = Hold::default();
    for n in 0..100 {
        assert_eq!(hold.throttled(at(n), at(0), None), at(1_000));
    }
    assert_eq!(hold.throttled(at(1_100), at(1_000), None), at(3_100));
}

#[test]
fn only_later_success_shortens_the_next_hold() {
    let mut hold = Hold::default();
    hold.throttled(at(0), at(0), None);
    hold.succeeded(at(0));
    assert_eq!(hold.throttled(at(1_000), at(1_000), None), at(3_000));
    hold.succeeded(at(3_000));
    assert_eq!(hold.throttled(at(3_500), at(3_400), None), at(4_500));
}

#[test]
fn hold_ends_in_probes_until_success() {
    let mut hold = Hold::default();
    assert!(!hold.is_shut_or_probing());
    hold.throttled(at(0), at(0), None);
    hold.succeeded(at(0));
    assert!(hold.is_shut_or_probing() && !hold.is_probe(at(999)) && hold.is_probe(at(1_000)));
    hold.succeeded(at(1_000));
    assert!(!hold.is_shut_or_probing() && !hold.is_probe(at(1_000)));
    hold.throttled(at(2_000), at(2_000), Some(Duration::from_secs(2)));
    hold.stop_probing_late(at(63_999));
    assert!(hold.is_shut_or_probing());
    hold.stop_probing_late(at(64_000));
    assert!(!hold.is_shut_or_probing());
    hold.throttled(at(70_000), at(70_000), None);
    hold.release(at(70_500));
    assert!(!hold.is_shut_or_probing(), "an operator released it");
}

#[test]
fn subscription_hold_uses_header_or_grows() {
    let held = |at_ms, until_ms| HoldReason { at: at(at_ms), until: at(until_ms) };
    let of = of_throttled_subscription;
    assert_eq!(of(None, at(0), at(5), Some(Duration::from_secs(30))), held(5, 30_005));
    let (mut before, mut now, mut lengths_s) = (None, at(0), Vec::new());
    for _ in 0..8 {
        let next = of(before, now, now, None);
        assert_eq!(of(Some(next), now, now + Duration::from_secs(2), None), next, "under way when it began");
        lengths_s.push((next.until - next.at).num_seconds());
        (now, before) = (next.until, Some(next));
    }
    assert_eq!(lengths_s, [1, 2, 4, 8, 16, 32, 60, 60]);
    assert_eq!(of(before, now + REMEMBERED_FOR, now + REMEMBERED_FOR, None).until, now + REMEMBERED_FOR + FIRST);
    assert_eq!(of(Some(held(9_000, 9_000)), at(9_000), at(9_000), None), held(9_000, 10_000), "an acceptance");
}

#[test]
fn a_hold_is_shared_and_can_be_released() {
    let mut hold = Hold::default();
    let held = |at_ms, until_ms| HoldReason { at: at(at_ms), until: at(until_ms) };
    hold.extend(held(0, 5_000));
    assert_eq!(hold.extend(held(10, 4_000)), at(5_000));
    assert_eq!(hold.until(at(4_999)), Some(at(5_000)));
    hold.release(at(10));
    assert_eq!(hold.until(at(0)), None);
    hold.extend(held(9, 9_000));
    assert_eq!(hold.until(at(11)), None, "it was set before the release");
}

#[test]
fn release_applies_once_to_earlier_holds() {
    let mut hold = Hold::default();
    hold.throttled(at(0), at(0), Some(Duration::from_secs(3_600)));
    hold.throttled(at(2_000), at(0), Some(Duration::from_secs(1)));
    hold.release(at(1_000)); // heard of late
    assert_eq!(hold.until(at(2_000)), Some(at(3_000)));
    hold.throttled(at(4_000), at(4_000), Some(Duration::from_secs(10)));
    hold.release(at(1_000));
    assert_eq!(hold.until(at(4_000)), Some(at(14_000)));
}

#[test]
fn key_is_held_at_nine_refusals_of_ten() {
    for (answers, refused, alarm) in [(19, 19, false), (20, 20, true), (20, 18, true), (20, 17, false), (100, 90, true)]
    {
        let mut watch = KeyWatch::default();
        let alarmed = (0..answers).any(|n| watch.record(at(n), n >= answers - refused, true).is_some());
        assert_eq!(alarmed, alarm, "{refused} of {answers}");
    }
    let mut slow = KeyWatch::default();
    assert!(!(0..100).any(|n| slow.record(at(n * 4_000), true, true).is_some()), "20 answers in 80 s");
}

#[test]
fn refusals_of_strangers_never_hold_a_key() {
    let mut watch = KeyWatch::default();
    let alarms: Vec<_> = (0..1_000).filter_map(|n| watch.record(at(n), true, false)).collect();
    assert_eq!(alarms, [Alarm::Doubtful; 50]);
    let mut watch = KeyWatch::default();
    let mut answers = (0..1_000).map(|n| (n, n % 5 != 0)); // four strangers beside each acceptance
    assert!(answers.all(|(n, refused)| watch.record(at(n), refused, false).is_none()));
}

#[test]
fn unproven_results_do_not_affect_key_holds() {
    let mut watch = KeyWatch::default();
    let alarm = (0..40).find_map(|n| Some((n, watch.record(at(n), true, n % 2 == 1)?)));
    assert_eq!(alarm, Some((19, Alarm::Doubtful)));
    let alarm = (20..40).filter_map(|n| watch.record(at(n), true, n % 2 == 1)).next_back();
    assert_eq!(alarm, Some(Alarm::Refused), "the twentieth of the proven");
}

#[test]
fn one_fault_raises_one_alarm() {
    let mut watch = KeyWatch::default();
    assert_eq!((0..39).filter(|n| watch.record(at(*n), true, true).is_some()).count(), 1);
}

#[test]
fn deferred_deliveries_resume_spread_out_urgent_first() {
    let due = |urgent, randomness| (reopens_at(at(0), urgent, randomness) - at(0)).num_milliseconds();
    assert_eq!([0.0, 0.25, 0.5, 1.0].map(|randomness| due(false, randomness)), [0, 500, 1_000, 2_000]);
    assert_eq!(due(true, 0.9), 0);
}

#[test]
fn refused_key_is_held_an_hour_at_most() {
    let (mut now, mut before, mut minutes) = (at(0), None, Vec::new());
    for _ in 0..5 {
        let held = of_refused_key(before, now);
        assert_eq!(of_refused_key(Some(held), now + Duration::from_secs(1)), held, "in force");
        minutes.push((held.until - held.at).num_minutes());
        (now, before) = (held.until, Some(held));
    }
    assert_eq!(minutes, [10, 20, 40, 60, 60]);
    let later = now + Duration::from_secs(3600);
    assert_eq!(of_refused_key(before, later).until, later + KEY_FIRST);
}
