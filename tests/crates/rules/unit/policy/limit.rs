//! Unit tests of `crates/bellwire-rules/src/policy/limit.rs`, which includes them.

use super::*;

/// Answers of which every `one_in`-th is a failure.
fn answered(limit: &mut Limit, answers: u32, one_in: u32) {
    for n in 1..=answers {
        if n % one_in == 0 { limit.failed() } else { limit.succeeded() }
    }
}

fn at_64() -> Limit {
    let mut limit = Limit::new(256);
    (0..32).for_each(|_| limit.succeeded());
    assert_eq!(limit.get(), 64);
    limit
}

#[test]
fn limit_doubles_until_congestion_then_adds_one() {
    let mut limit = at_64();
    limit.congested();
    assert_eq!(limit.get(), 32);
    (0..33).for_each(|_| limit.succeeded());
    assert_eq!(limit.get(), 33);
}

#[test]
fn burst_of_throttling_counts_once_within_bounds() {
    let mut limit = Limit::new(256);
    (0..32).for_each(|_| limit.congested());
    assert_eq!(limit.get(), 16);
    (0..10_000).for_each(|_| limit.congested());
    assert_eq!(limit.get(), 1);
    (0..1_000_000).for_each(|_| limit.succeeded());
    assert_eq!(limit.get(), 256);
}

#[test]
fn few_failures_keep_the_limit() {
    for one_in in [200, 100, 20] {
        let mut limit = Limit::new(256);
        answered(&mut limit, 1_000, one_in);
        assert_eq!(limit.get(), 256, "one in {one_in}");
    }
}

#[test]
fn many_failures_halve_the_limit_once_per_round() {
    let mut limit = at_64();
    (0..32).for_each(|_| limit.succeeded()); // the rest of the first round
    assert_eq!(limit.get(), 96);
    (0..20).for_each(|_| limit.failed());
    assert_eq!(limit.get(), 96);
    limit.failed();
    assert_eq!(limit.get(), 48, "more than a tenth of twice 96, in slow start");
    (0..96).for_each(|_| limit.failed());
    assert_eq!(limit.get(), 48, "those that were in flight say nothing");
    (0..7).for_each(|_| limit.failed());
    assert_eq!(limit.get(), 48);
    limit.failed();
    assert_eq!(limit.get(), 24, "the eighth of the next 64");
}

#[test]
fn a_new_round_forgives() {
    let mut limit = Limit::new(32);
    for _ in 0..10 {
        (0..4).for_each(|_| limit.failed());
        (0..28).for_each(|_| limit.succeeded());
    }
    assert_eq!(limit.get(), 32);
}

#[test]
fn throttling_halves_at_once_whatever_is_tolerated() {
    let mut limit = at_64();
    limit.congested();
    assert_eq!(limit.get(), 32);
}

#[test]
fn gateway_failing_a_third_gets_less_load() {
    let mut limit = Limit::new(256);
    answered(&mut limit, 10_000, 3);
    assert!(limit.get() <= 8, "{limit:?}");
}

#[test]
fn less_is_tolerated_than_what_trips_a_breaker() {
    let trips = crate::policy::TierSettings::DEFAULT.circuit_failure_threshold;
    assert!(f64::from(ROUND_MIN * SLOW_START / TOLERATED_IN + 1) / f64::from(ROUND_MIN) < trips);
}

#[test]
fn growth_slows_near_the_known_limit() {
    let mut limit = Limit::new(256);
    limit.limit = 80.0;
    limit.congested();
    let mut rounds_to = |goal: u32| {
        let answers = (0..).take_while(|_| {
            limit.succeeded();
            limit.get() < goal
        });
        answers.count() as u32 / goal
    };
    assert!((15..=20).contains(&rounds_to(60)), "one a round");
    assert!((170..=224).contains(&rounds_to(88)), "one in eight rounds");
    assert!((25..=32).contains(&rounds_to(120)), "one a round");
}

#[test]
fn share_bounds_the_limit_and_returns_room() {
    let mut limit = Limit::new(4);
    (0..1000).for_each(|_| limit.succeeded());
    assert_eq!(limit.get(), 4);
    limit.set_max(0);
    assert_eq!(limit.get(), 1, "everybody may send at least one");
    limit.set_max(2);
    (0..1000).for_each(|_| limit.succeeded());
    assert_eq!(limit.get(), 2);
}
