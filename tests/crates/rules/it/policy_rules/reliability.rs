//! Service level indicators: counting and judging.

use bellwire_core::delivery::Tier;
use bellwire_core::id::LaneId;
use bellwire_rules::policy::reliability::{
    Accepted, MetricReading, ReliabilityCount, ReliabilityState, ReliabilityTally, Sli, Sums, read,
};
use std::time::Duration;

const LANE: LaneId = LaneId(7);

fn sums(counts: &[(ReliabilityCount, u64)]) -> Sums {
    let mut sums = Sums::default();
    counts.iter().for_each(|(count, n)| sums.add(*count as i16, *n));
    sums
}

fn reading(sli: Sli, counts: &[(ReliabilityCount, u64)]) -> MetricReading {
    read(&sums(counts), 1).into_iter().find(|reading| reading.sli == sli).unwrap()
}

#[test]
fn each_sli_is_judged_by_its_own_lines() {
    use ReliabilityCount::*;
    type Case = (Sli, fn(u64) -> Vec<(ReliabilityCount, u64)>, [(u64, ReliabilityState); 4]);
    let cases: [Case; 5] = [
        (
            Sli::FirstRetrySuccess,
            |n| vec![(FirstAccepted, n), (FirstRetries, 1000)],
            [
                (851, ReliabilityState::Ok),
                (850, ReliabilityState::Warn),
                (600, ReliabilityState::Warn),
                (599, ReliabilityState::Alert),
            ],
        ),
        (
            Sli::SecondRetrySuccess,
            |n| vec![(SecondAccepted, n), (SecondRetries, 1000)],
            [
                (601, ReliabilityState::Ok),
                (600, ReliabilityState::Warn),
                (400, ReliabilityState::Warn),
                (399, ReliabilityState::Alert),
            ],
        ),
        (
            Sli::BackoffStretch,
            |n| vec![(StretchMs, n), (PlannedMs, 1000), (Stretched, 100)],
            [
                (1499, ReliabilityState::Ok),
                (1500, ReliabilityState::Warn),
                (3000, ReliabilityState::Warn),
                (3001, ReliabilityState::Alert),
            ],
        ),
        (
            Sli::TtlExpiredPurges,
            |n| vec![(RetriesExpired, n), (Retries, 1000)],
            [
                (49, ReliabilityState::Ok),
                (50, ReliabilityState::Warn),
                (150, ReliabilityState::Warn),
                (151, ReliabilityState::Alert),
            ],
        ),
        (
            Sli::BreakerTrips,
            |n| vec![(BreakerTrips, n)],
            [
                (0, ReliabilityState::Ok),
                (1, ReliabilityState::Warn),
                (5, ReliabilityState::Warn),
                (6, ReliabilityState::Alert),
            ],
        ),
    ];
    for (sli, counts, expected) in cases {
        for (n, state) in expected {
            assert_eq!(reading(sli, &counts(n)).state, state, "{sli:?} {n}");
        }
    }
}

#[test]
fn a_share_of_few_samples_says_nothing() {
    use ReliabilityCount::*;
    let few = reading(Sli::FirstRetrySuccess, &[(FirstAccepted, 0), (FirstRetries, 99)]);
    assert_eq!((few.state, few.value), (ReliabilityState::Unknown, Some(0.0)));
    let enough = reading(Sli::FirstRetrySuccess, &[(FirstAccepted, 0), (FirstRetries, 100)]);
    assert_eq!(enough.state, ReliabilityState::Alert);
    assert_eq!(reading(Sli::BackoffStretch, &[]).value, None);
}

#[test]
fn counts_survive_the_table_round_trip() {
    let tally = ReliabilityTally::default();
    let second = Duration::from_secs(1);
    tally.retried(LANE, Tier::Promotional, 1);
    tally.retried(LANE, Tier::Promotional, 3);
    let stretch = Some((second * 3, second * 2));
    tally.accepted(LANE, Tier::Promotional, &Accepted { retries: 1, delay: second * 3, stretch });
    let at_once = Accepted { retries: 2, delay: second / 20, stretch: Some((second, Duration::ZERO)) };
    tally.accepted(LANE, Tier::Promotional, &at_once);
    tally.accepted(LANE, Tier::Promotional, &Accepted { retries: 400, delay: second * 90_000, stretch: None });
    tally.lagged(LANE, Tier::Promotional, [second / 100, second * 2].into_iter());
    tally.count(LANE, None, ReliabilityCount::BreakerTrips, 1);
    let mut told = tally.take();
    assert!(tally.take().is_empty());
    let before = told.remove(&(LANE, Some(Tier::Promotional))).unwrap();
    let mut sums = Sums::default();
    before.rows().for_each(|(sli, n)| sums.add(sli, n));
    assert_eq!(sums, before);
    let of = |count| sums.of(count);
    assert_eq!(
        [
            of(ReliabilityCount::Retries),
            of(ReliabilityCount::FirstRetries),
            of(ReliabilityCount::FirstAccepted),
            of(ReliabilityCount::SecondAccepted)
        ],
        [2, 1, 1, 1]
    );
    assert_eq!(
        [of(ReliabilityCount::StretchMs), of(ReliabilityCount::PlannedMs), of(ReliabilityCount::Stretched)],
        [3000, 2000, 1]
    );
    assert_eq!(sums.attempts_to_success(), [0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(sums.delay(), [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(sums.lag(), [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(told[&(LANE, None)].of(ReliabilityCount::BreakerTrips), 1);
}

#[test]
fn what_could_not_be_told_is_told_later() {
    let tally = ReliabilityTally::default();
    tally.count(LANE, None, ReliabilityCount::TokensLate, 2);
    let taken = tally.take();
    tally.count(LANE, None, ReliabilityCount::TokensLate, 3);
    tally.put_back(taken);
    assert_eq!(tally.take()[&(LANE, None)].of(ReliabilityCount::TokensLate), 5);
}
