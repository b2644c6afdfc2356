//! Trips, probes, doubling, and the exchange between replicas.

use bellwire_core::clock::Timestamp;
use bellwire_rules::classify::Health;
use bellwire_rules::policy::TierSettings;
use bellwire_rules::policy::breaker::{Breaker, BreakerState, PROBES, Permission, Snapshot};
use std::time::Duration;

/// The guide's figures, but for openings that grow to a minute.
const GUIDE: TierSettings = TierSettings { circuit_open_max: Duration::from_secs(60), ..TierSettings::GUIDE };
const S: u64 = 1_000;

fn at(ms: u64) -> Timestamp {
    Timestamp::from_timestamp(1_800_000_000, 0).unwrap() + Duration::from_millis(ms)
}

fn tripped_at(ms: u64) -> Breaker {
    let mut breaker = Breaker::closed(at(0));
    fail(&mut breaker, ms);
    breaker
}

fn begin(breaker: &mut Breaker, ms: u64) -> u64 {
    match breaker.permit(at(ms), false) {
        Permission::Go(number) => number,
        other => panic!("the breaker is closed: {other:?}"),
    }
}

fn post(breaker: &mut Breaker, ms: u64, health: Health, settings: &TierSettings) -> Option<BreakerState> {
    let number = begin(breaker, ms);
    breaker.record(number, at(ms), at(ms), health, settings)
}

/// Five failures in a row; returns how long the breaker opened for.
fn fail(breaker: &mut Breaker, ms: u64) -> Duration {
    for _ in 0..5 {
        post(breaker, ms, Health::Failing, &GUIDE);
    }
    breaker.snapshot().open_for
}

fn probes_fail(breaker: &mut Breaker, ms: u64) -> Duration {
    for _ in 0..PROBES {
        assert_eq!(breaker.permit(at(ms), true), Permission::Probe);
        breaker.record_probe(at(ms), Health::Failing, &GUIDE);
    }
    breaker.snapshot().open_for
}

#[test]
fn fifth_failure_in_a_row_trips() {
    let mut breaker = Breaker::closed(at(0));
    for _ in 0..4 {
        assert_eq!(post(&mut breaker, 1, Health::Failing, &GUIDE), None);
    }
    assert_eq!(post(&mut breaker, 1, Health::Alive, &GUIDE), None);
    for _ in 0..4 {
        assert_eq!(post(&mut breaker, 2, Health::Failing, &GUIDE), None);
        assert_eq!(post(&mut breaker, 2, Health::Unknown, &GUIDE), None);
    }
    let until = at(3) + GUIDE.circuit_open;
    assert_eq!(post(&mut breaker, 3, Health::Failing, &GUIDE), Some(BreakerState::Open { until }));
    assert_eq!(breaker.permit(at(4), true), Permission::Wait(until));
}

/// `failures` of `attempts` spread evenly over a time; whether that trips, and at which attempt.
fn tripping_attempt(attempts: u32, failures: u32, over_ms: u64, settings: &TierSettings) -> Option<u32> {
    let mut breaker = Breaker::closed(at(0));
    (1..=attempts).find(|n| {
        let failed = u64::from(*n) * u64::from(failures) / u64::from(attempts)
            != u64::from(*n - 1) * u64::from(failures) / u64::from(attempts);
        let health = if failed { Health::Failing } else { Health::Alive };
        post(&mut breaker, u64::from(*n) * over_ms / u64::from(attempts), health, settings).is_some()
    })
}

#[test]
fn failure_share_trips_after_400_attempts() {
    for (attempts, failures, over_ms, expected) in [
        (400, 20, 50 * S, Some(400)),
        (399, 199, 50 * S, None),
        (1_000, 49, 50 * S, None),
        (10_000, 5_000, 50 * S, Some(400)),
        (400, 200, 600 * S, None), // never 400 within a minute
    ] {
        assert_eq!(tripping_attempt(attempts, failures, over_ms, &GUIDE), expected, "{failures} of {attempts}");
    }
    let strict = TierSettings { circuit_failure_threshold: 0.01, ..GUIDE };
    assert_eq!(tripping_attempt(1_000, 10, 50 * S, &strict), Some(400));
}

#[test]
fn open_breaker_half_opens_with_three_probes() {
    let mut breaker = tripped_at(0);
    assert_eq!(breaker.permit(at(30 * S - 1), true), Permission::Wait(at(30 * S)));
    for _ in 0..3 {
        assert_eq!(breaker.permit(at(30 * S), true), Permission::Probe);
    }
    assert_eq!(breaker.snapshot().state, BreakerState::HalfOpen);
    assert_eq!(breaker.permit(at(31 * S), true), Permission::Wait(at(32 * S)), "not until the probes are given up");
    assert_eq!(breaker.record_probe(at(31 * S), Health::Alive, &GUIDE), Some(BreakerState::Closed));
    begin(&mut breaker, 31 * S);
}

#[test]
fn only_the_prober_probes() {
    let mut breaker = tripped_at(0);
    assert_eq!(breaker.permit(at(30 * S), false), Permission::Wait(at(31 * S)));
    assert_eq!(breaker.permit(at(30 * S), true), Permission::Probe);
}

#[test]
fn unanswered_probes_are_replaced() {
    let mut breaker = tripped_at(0);
    for _ in 0..3 {
        assert_eq!(breaker.permit(at(30 * S), true), Permission::Probe);
    }
    assert_eq!(breaker.record_probe(at(31 * S), Health::Unknown, &GUIDE), None);
    assert_eq!(breaker.permit(at(31 * S), true), Permission::Probe);
    assert_eq!(breaker.permit(at(31 * S), true), Permission::Wait(at(32 * S)));
    assert_eq!(breaker.permit(at(44 * S + 500), true), Permission::Wait(at(45 * S)));
    assert_eq!(breaker.permit(at(45 * S), true), Permission::Probe);
}

#[test]
fn responses_from_before_the_trip_are_ignored() {
    let mut breaker = Breaker::closed(at(0));
    let before: Vec<_> = (0..10).map(|_| begin(&mut breaker, 0)).collect();
    fail(&mut breaker, 0);
    let answered = |breaker: &mut Breaker, ms, health| breaker.record(before[0], at(0), at(ms), health, &GUIDE);
    assert_eq!(answered(&mut breaker, 1, Health::Alive), None);
    assert_eq!(breaker.record_probe(at(1), Health::Alive, &GUIDE), None);
    breaker.permit(at(30 * S), true);
    assert_eq!(answered(&mut breaker, 30 * S, Health::Alive), None);
    assert_eq!(breaker.snapshot().state, BreakerState::HalfOpen);
    breaker.record_probe(at(30 * S), Health::Alive, &GUIDE);
    for number in before {
        assert_eq!(breaker.record(number, at(0), at(31 * S), Health::Failing, &GUIDE), None, "they are of the past");
    }
    assert_eq!(breaker.snapshot().state, BreakerState::Closed);
}

#[test]
fn fast_failures_count_by_start_of_post() {
    // A thousand POSTs begin together; one in twenty fails within a millisecond, the others take their time.
    let settings = &TierSettings::DEFAULT;
    let mut breaker = Breaker::closed(at(0));
    let posts: Vec<_> = (0..1_000).map(|n| begin(&mut breaker, n / 100)).collect();
    for number in posts.iter().filter(|number| **number % 20 == 7) {
        assert_eq!(breaker.record(*number, at(5), at(6), Health::Failing, settings), None, "{number}");
    }
    for number in posts.iter().filter(|number| **number % 20 != 7) {
        assert_eq!(breaker.record(*number, at(5), at(500), Health::Alive, settings), None);
    }
    // When all of them fail, five suffice, and those that give no answer at all do not hold it up.
    let mut down = Breaker::closed(at(0));
    let posts: Vec<_> = (0..1_000).map(|_| begin(&mut down, 0)).collect();
    let tripped = posts
        .iter()
        .filter(|number| **number % 7 != 0)
        .position(|number| down.record(*number, at(0), at(1), Health::Failing, settings).is_some());
    assert_eq!(tripped, Some(4));
}

#[test]
fn our_threshold_is_five_times_the_guides() {
    for (failures, expected) in [(99, None), (100, Some(400))] {
        assert_eq!(tripping_attempt(400, failures, 50 * S, &TierSettings::DEFAULT), expected, "{failures} of 400");
    }
}

#[test]
fn repeated_trips_double_up_to_a_minute() {
    let mut breaker = tripped_at(0);
    let mut ms = 0;
    let mut lengths_s = vec![breaker.snapshot().open_for.as_secs()];
    for _ in 0..3 {
        ms += breaker.snapshot().open_for.as_secs() * S;
        lengths_s.push(probes_fail(&mut breaker, ms).as_secs());
    }
    assert_eq!(lengths_s, [30, 60, 60, 60]);

    ms += 60 * S;
    breaker.permit(at(ms), true);
    breaker.record_probe(at(ms), Health::Alive, &GUIDE);
    let mut soon = breaker.clone();
    assert_eq!(fail(&mut soon, ms + 59 * S).as_secs(), 60);
    assert_eq!(fail(&mut breaker, ms + 60 * S + 1).as_secs(), 30);
}

#[test]
fn guide_openings_are_constant_and_configurable() {
    let mut breaker = Breaker::closed(at(0));
    for _ in 0..5 {
        post(&mut breaker, 0, Health::Failing, &TierSettings::GUIDE);
    }
    for n in 1..4 {
        assert_eq!(breaker.snapshot().state, BreakerState::Open { until: at(n * 30 * S) });
        for _ in 0..PROBES {
            breaker.permit(at(n * 30 * S), true);
            breaker.record_probe(at(n * 30 * S), Health::Failing, &TierSettings::GUIDE);
        }
    }
    let settings = TierSettings { circuit_failures_in_a_row: 3, circuit_attempts_min: 10, ..GUIDE };
    assert_eq!(tripping_attempt(10, 1, 10 * S, &settings), Some(10));
    assert_eq!(tripping_attempt(9, 1, 9 * S, &settings), None);
    assert_eq!(tripping_attempt(3, 3, S, &settings), Some(3));
}

#[test]
fn configured_long_opening_stays_constant() {
    let patient = TierSettings { circuit_open: Duration::from_secs(300), ..GUIDE };
    let mut breaker = Breaker::closed(at(0));
    for _ in 0..5 {
        post(&mut breaker, 0, Health::Failing, &patient);
    }
    for ms in [300 * S, 600 * S] {
        assert_eq!(breaker.snapshot().state, BreakerState::Open { until: at(ms) });
        for _ in 0..PROBES {
            assert_eq!(breaker.permit(at(ms), true), Permission::Probe);
            breaker.record_probe(at(ms), Health::Failing, &patient);
        }
    }
    assert_eq!(breaker.snapshot().open_for, patient.circuit_open);
}

#[test]
fn operator_opens_at_once_and_closes_by_probing() {
    let mut breaker = Breaker::closed(at(0));
    breaker.force_close(at(1));
    begin(&mut breaker, 1);
    breaker.force_open(at(2), at(900 * S));
    assert_eq!(breaker.permit(at(3), true), Permission::Wait(at(900 * S)));
    breaker.force_close(at(4));
    assert_eq!(breaker.permit(at(4), true), Permission::Probe);
    assert_eq!(breaker.record_probe(at(5), Health::Alive, &GUIDE), Some(BreakerState::Closed));
    let mut failing = tripped_at(0);
    failing.force_close(at(1));
    assert_eq!(probes_fail(&mut failing, 1).as_secs(), 60);
}

#[test]
fn replicas_follow_later_state_without_revoking_probes() {
    let mut ours = Breaker::closed(at(0));
    let theirs = tripped_at(5);
    ours.adopt(theirs.snapshot());
    assert_eq!(ours.permit(at(6), true), Permission::Wait(at(30 * S + 5)));
    ours.adopt(Breaker::closed(at(1)).snapshot());
    assert_eq!(ours.snapshot(), theirs.snapshot());

    for _ in 0..3 {
        assert_eq!(ours.permit(at(31 * S), true), Permission::Probe);
    }
    ours.adopt(Snapshot { state: BreakerState::HalfOpen, changed_at: at(32 * S), ..theirs.snapshot() });
    assert_eq!(ours.permit(at(32 * S), true), Permission::Wait(at(33 * S)));
    ours.adopt(Snapshot { state: BreakerState::Closed, changed_at: at(33 * S), ..theirs.snapshot() });
    begin(&mut ours, 33 * S);
}

#[test]
fn a_row_reads_back_as_what_was_stored() {
    let mut half_open = tripped_at(0);
    half_open.force_close(at(1));
    for breaker in [Breaker::closed(at(0)), tripped_at(0), half_open] {
        let kept = breaker.snapshot();
        let row = (kept.state.name(), kept.open_until(), kept.open_ms());
        assert_eq!(Snapshot::from_row(row.0, row.1, row.2, kept.changed_at), Some(kept));
    }
    assert_eq!(Snapshot::from_row("ajar", None, 0, at(0)), None);
}

#[test]
fn a_restored_breaker_goes_on_where_it_stood() {
    let left = tripped_at(0).snapshot();
    let mut restored = Breaker::restore(left);
    assert_eq!(restored.permit(at(1), true), Permission::Wait(at(30 * S)));
    assert_eq!(probes_fail(&mut restored, 30 * S).as_secs(), 60);
}
