//! What operators watch: how well retries do, by the rule book's five reliability metrics, and the two histograms beside them.
//!
//! Workers count in memory ([`Tally`]), add to the table `reliability_counts` every few seconds, and whoever asks reads the last
//! hour's sums. Nothing here touches the account of messages, which is exact; a worker that dies takes the last seconds
//! of its counts with it.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;

use crate::model::delivery::Tier;
use crate::model::id::{AppId, LaneId};
use crate::model::lane::Gateway;

/// Reliability metrics are of the last hour.
pub(crate) const WINDOW: Duration = Duration::from_secs(3600);
/// A share of fewer samples than this says nothing.
pub(crate) const SAMPLES_MIN: u64 = 100;
/// What goes on for so many hours is sustained.
pub(crate) const SUSTAINED_HOURS: u32 = 3;

/// POSTs until acceptance that have a class of their own; the last class is "more".
const ATTEMPT_CLASSES: usize = 11;
/// Upper ends of the classes of delays, in seconds; the last class has none.
pub(crate) const DELAYS_S: [f64; 12] =
    [0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 900.0, 3_600.0, 21_600.0, 86_400.0];
const DELAY_CLASSES: usize = DELAYS_S.len() + 1;
const COUNTS: usize = 13;
/// Everything that is counted of a lane and tier.
const CODES: usize = COUNTS + ATTEMPT_CLASSES + 2 * DELAY_CLASSES;

/// What is counted. The numbers are stored in `reliability_counts.metric` and never change their meaning; the classes of the
/// histograms follow them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i16)]
pub enum Count {
    /// Deliveries that made their first retry.
    FirstRetries = 0,
    /// Those of them that it got accepted.
    FirstAccepted = 1,
    /// Deliveries that made their second retry.
    SecondRetries = 2,
    /// Those of them that it got accepted.
    SecondAccepted = 3,
    /// POSTs that were retries.
    Retries = 4,
    /// Deliveries whose time to live ended while they waited for a retry.
    RetriesExpired = 5,
    /// Milliseconds from the failure to the acceptance of the retry after it, summed.
    StretchMs = 6,
    /// Milliseconds that the policy had planned between the two, summed.
    PlannedMs = 7,
    /// Retries that the two sums are over.
    Stretched = 8,
    /// Times that the lane's breaker opened; stored in a table of its own, `breaker_trips`.
    BreakerTrips = 9,
    /// Queue rows changed or put back by hand.
    TokenFailures = 10,
    /// Queue rows whose token was right but late.
    TokensLate = 11,
    /// Deliveries accepted later than the tier's `sla_seconds`, dead or expired.
    SlaMissed = 12,
}

/// Sums over some lanes, tiers and minutes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sums([u64; CODES]);

impl Default for Sums {
    fn default() -> Self {
        Self([0; CODES])
    }
}

impl Sums {
    /// Adds what the table holds under a number; numbers of a newer version are ignored.
    pub fn add(&mut self, sli: i16, n: u64) {
        if let Some(sum) = usize::try_from(sli).ok().and_then(|code| self.0.get_mut(code)) {
            *sum += n;
        }
    }

    /// Adds other sums.
    pub fn merge(&mut self, others: &Sums) {
        self.0.iter_mut().zip(others.0).for_each(|(sum, n)| *sum += n);
    }

    /// One count.
    pub fn of(&self, count: Count) -> u64 {
        self.0[count as usize]
    }

    /// Accepted deliveries by how many POSTs it took: 1, 2, … 10, more.
    pub fn attempts_to_success(&self) -> &[u64] {
        &self.0[COUNTS..COUNTS + ATTEMPT_CLASSES]
    }

    /// Accepted deliveries by how long after its message a gateway took them: classes that end at [`DELAYS_S`].
    pub fn delay(&self) -> &[u64] {
        &self.0[COUNTS + ATTEMPT_CLASSES..][..DELAY_CLASSES]
    }

    /// Queue rows by how much later than scheduled they were claimed: classes that end at [`DELAYS_S`].
    pub fn lag(&self) -> &[u64] {
        &self.0[COUNTS + ATTEMPT_CLASSES + DELAY_CLASSES..]
    }

    /// Everything that is not zero, as the table holds it.
    pub fn rows(&self) -> impl Iterator<Item = (i16, u64)> + '_ {
        (0..).zip(self.0).filter(|(_, n)| *n > 0)
    }
}

/// A lane with what there was to count of it.
#[derive(Debug)]
pub struct LaneSums {
    /// Its number.
    pub lane: LaneId,
    /// The app it belongs to.
    pub app: AppId,
    /// The push service it leads to.
    pub gateway: Gateway,
    /// By tier; what belongs to none stands under none.
    pub tiers: BTreeMap<Option<Tier>, Sums>,
}

/// An acceptance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Accepted {
    /// Retries that went before it.
    pub retries: u32,
    /// Since its message was accepted.
    pub delay: Duration,
    /// For a retry: since the failure before it, as it was and as it was planned.
    pub stretch: Option<(Duration, Duration)>,
}

/// What a process has counted since it last told the database.
#[derive(Debug, Default)]
pub(crate) struct Tally(Mutex<HashMap<(LaneId, Option<Tier>), Sums>>);

impl Tally {
    /// Counts events; those that belong to no tier are the lane's.
    pub(crate) fn count(&self, lane: LaneId, tier: Option<Tier>, count: Count, n: u64) {
        self.0.lock().entry((lane, tier)).or_default().0[count as usize] += n;
    }

    /// Counts the POST of a retry, the first of which has number 1.
    pub(crate) fn retried(&self, lane: LaneId, tier: Tier, number: u32) {
        let sums = &mut self.0.lock();
        let sums = &mut sums.entry((lane, Some(tier))).or_default().0;
        sums[Count::Retries as usize] += 1;
        match number {
            1 => sums[Count::FirstRetries as usize] += 1,
            2 => sums[Count::SecondRetries as usize] += 1,
            _ => {}
        }
    }

    /// Counts an acceptance. Immediate retries have no stretch: nothing was planned.
    pub(crate) fn accepted(&self, lane: LaneId, tier: Tier, accepted: &Accepted) {
        let sums = &mut self.0.lock();
        let sums = &mut sums.entry((lane, Some(tier))).or_default().0;
        match accepted.retries {
            1 => sums[Count::FirstAccepted as usize] += 1,
            2 => sums[Count::SecondAccepted as usize] += 1,
            _ => {}
        }
        if let Some((actual, planned)) = accepted.stretch.filter(|(_, planned)| !planned.is_zero()) {
            sums[Count::StretchMs as usize] += millis(actual);
            sums[Count::PlannedMs as usize] += millis(planned);
            sums[Count::Stretched as usize] += 1;
        }
        sums[COUNTS + (accepted.retries as usize).min(ATTEMPT_CLASSES - 1)] += 1;
        sums[COUNTS + ATTEMPT_CLASSES + class(accepted.delay)] += 1;
    }

    /// Counts queue rows by how much later than scheduled they were claimed.
    pub(crate) fn lagged(&self, lane: LaneId, tier: Tier, lags: impl Iterator<Item = Duration>) {
        let sums = &mut self.0.lock();
        let sums = &mut sums.entry((lane, Some(tier))).or_default().0;
        lags.for_each(|lag| sums[COUNTS + ATTEMPT_CLASSES + DELAY_CLASSES + class(lag)] += 1);
    }

    /// Takes everything out.
    pub(crate) fn take(&self) -> HashMap<(LaneId, Option<Tier>), Sums> {
        std::mem::take(&mut self.0.lock())
    }

    /// Puts back what could not be told.
    pub(crate) fn put_back(&self, sums: HashMap<(LaneId, Option<Tier>), Sums>) {
        let mut all = self.0.lock();
        for (key, sums) in sums {
            all.entry(key).or_default().merge(&sums);
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX / 2)
}

fn class(duration: Duration) -> usize {
    let seconds = duration.as_secs_f64();
    DELAYS_S.iter().position(|end| seconds <= *end).unwrap_or(DELAYS_S.len())
}

/// How a reliability metric stands against its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, utoipa::ToSchema)]
#[schema(as = SliState)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// Too few samples to tell.
    Unknown,
    /// It meets its target.
    Ok,
    /// Between target and alert.
    Warn,
    /// Past the line.
    Alert,
}

/// The rule book's reliability metrics (heading "Figures to expose").
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Sli {
    /// Accepted at retry 1 ÷ deliveries that made retry 1.
    FirstRetrySuccess,
    /// Accepted at retry 2 ÷ deliveries that made retry 2.
    SecondRetrySuccess,
    /// Time from a failure to the acceptance of the retry after it ÷ planned delay.
    BackoffStretch,
    /// Deliveries that expired while they waited for a retry ÷ all that were due one.
    TtlExpiredPurges,
    /// Openings of a lane's breaker in an hour.
    BreakerTrips,
}

impl Sli {
    /// Every reliability metric.
    pub(crate) const ALL: [Sli; 5] = [
        Sli::FirstRetrySuccess,
        Sli::SecondRetrySuccess,
        Sli::BackoffStretch,
        Sli::TtlExpiredPurges,
        Sli::BreakerTrips,
    ];

    /// The name used in JSON, metrics and alerts.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Sli::FirstRetrySuccess => "first_retry_success",
            Sli::SecondRetrySuccess => "second_retry_success",
            Sli::BackoffStretch => "backoff_stretch",
            Sli::TtlExpiredPurges => "ttl_expired_purges",
            Sli::BreakerTrips => "breaker_trips",
        }
    }

    /// Beyond the first it meets its target, beyond the second it is an alert. For success rates, more is better.
    pub(crate) fn lines(self) -> (f64, f64) {
        match self {
            Sli::FirstRetrySuccess => (0.85, 0.60),
            Sli::SecondRetrySuccess => (0.60, 0.40),
            Sli::BackoffStretch => (1.5, 3.0),
            Sli::TtlExpiredPurges => (0.05, 0.15),
            Sli::BreakerTrips => (1.0, 5.0),
        }
    }

    /// Whether more is better.
    pub(crate) fn more_is_better(self) -> bool {
        matches!(self, Sli::FirstRetrySuccess | Sli::SecondRetrySuccess)
    }

    /// What the sums of an hour, over `lanes` lanes, come to: value and samples. No value without any sample.
    fn weigh(self, sums: &Sums, lanes: usize) -> (Option<f64>, u64) {
        let of = |count| sums.of(count);
        let share = |part: u64, whole: u64| ((whole > 0).then(|| part as f64 / whole as f64), whole);
        match self {
            Sli::FirstRetrySuccess => share(of(Count::FirstAccepted), of(Count::FirstRetries)),
            Sli::SecondRetrySuccess => share(of(Count::SecondAccepted), of(Count::SecondRetries)),
            Sli::BackoffStretch => (share(of(Count::StretchMs), of(Count::PlannedMs)).0, of(Count::Stretched)),
            Sli::TtlExpiredPurges => share(of(Count::RetriesExpired), of(Count::Retries) + of(Count::RetriesExpired)),
            Sli::BreakerTrips => (Some(of(Count::BreakerTrips) as f64 / lanes.max(1) as f64), of(Count::BreakerTrips)),
        }
    }
}

/// A reliability metric with its verdict.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, utoipa::ToSchema)]
pub(crate) struct Reading {
    /// Which.
    pub sli: Sli,
    /// What it is; null without any sample.
    pub value: Option<f64>,
    /// What it is made of: deliveries, retries, or openings.
    pub samples: u64,
    /// Beyond this it is as it should be.
    pub target: f64,
    /// Beyond this, on the other side, somebody should look.
    pub alert: f64,
    /// Where it stands. Shares need 100 samples to say anything.
    pub state: State,
}

/// Reads every reliability metric off the sums of an hour, over so many lanes.
pub(crate) fn read(sums: &Sums, lanes: usize) -> [Reading; 5] {
    Sli::ALL.map(|sli| {
        let (value, samples) = sli.weigh(sums, lanes);
        let (target, alert) = sli.lines();
        let enough = samples >= SAMPLES_MIN || sli == Sli::BreakerTrips;
        let state = match value.filter(|_| enough) {
            None => State::Unknown,
            Some(value) => judge(sli, value),
        };
        Reading { sli, value, samples, target, alert, state }
    })
}

fn judge(sli: Sli, value: f64) -> State {
    let (target, alert) = sli.lines();
    let past = |line: f64| if sli.more_is_better() { value < line } else { value > line };
    let meets = if sli.more_is_better() { value > target } else { value < target };
    match (meets, past(alert)) {
        (true, _) => State::Ok,
        (_, true) => State::Alert,
        _ => State::Warn,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: LaneId = LaneId(7);

    fn sums(counts: &[(Count, u64)]) -> Sums {
        let mut sums = Sums::default();
        counts.iter().for_each(|(count, n)| sums.add(*count as i16, *n));
        sums
    }

    fn reading(sli: Sli, counts: &[(Count, u64)]) -> Reading {
        read(&sums(counts), 1).into_iter().find(|reading| reading.sli == sli).unwrap()
    }

    #[test]
    fn each_sli_is_judged_by_its_own_lines() {
        use Count::*;
        type Case = (Sli, fn(u64) -> Vec<(Count, u64)>, [(u64, State); 4]);
        let cases: [Case; 5] = [
            (
                Sli::FirstRetrySuccess,
                |n| vec![(FirstAccepted, n), (FirstRetries, 1000)],
                [(851, State::Ok), (850, State::Warn), (600, State::Warn), (599, State::Alert)],
            ),
            (
                Sli::SecondRetrySuccess,
                |n| vec![(SecondAccepted, n), (SecondRetries, 1000)],
                [(601, State::Ok), (600, State::Warn), (400, State::Warn), (399, State::Alert)],
            ),
            (
                Sli::BackoffStretch,
                |n| vec![(StretchMs, n), (PlannedMs, 1000), (Stretched, 100)],
                [(1499, State::Ok), (1500, State::Warn), (3000, State::Warn), (3001, State::Alert)],
            ),
            (
                Sli::TtlExpiredPurges,
                |n| vec![(RetriesExpired, n), (Retries, 1000 - n)],
                [(49, State::Ok), (50, State::Warn), (150, State::Warn), (151, State::Alert)],
            ),
            (
                Sli::BreakerTrips,
                |n| vec![(BreakerTrips, n)],
                [(0, State::Ok), (1, State::Warn), (5, State::Warn), (6, State::Alert)],
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
        use Count::*;
        let few = reading(Sli::FirstRetrySuccess, &[(FirstAccepted, 0), (FirstRetries, 99)]);
        assert_eq!((few.state, few.value), (State::Unknown, Some(0.0)));
        let enough = reading(Sli::FirstRetrySuccess, &[(FirstAccepted, 0), (FirstRetries, 100)]);
        assert_eq!(enough.state, State::Alert);
        assert_eq!(reading(Sli::BackoffStretch, &[]).value, None);
    }

    #[test]
    fn what_is_counted_lands_in_its_own_place_and_survives_the_table() {
        let tally = Tally::default();
        let second = Duration::from_secs(1);
        tally.retried(LANE, Tier::Promotional, 1);
        tally.retried(LANE, Tier::Promotional, 3);
        let stretch = Some((second * 3, second * 2));
        tally.accepted(LANE, Tier::Promotional, &Accepted { retries: 1, delay: second * 3, stretch });
        let at_once = Accepted { retries: 2, delay: second / 20, stretch: Some((second, Duration::ZERO)) };
        tally.accepted(LANE, Tier::Promotional, &at_once);
        tally.accepted(LANE, Tier::Promotional, &Accepted { retries: 400, delay: second * 90_000, stretch: None });
        tally.lagged(LANE, Tier::Promotional, [second / 100, second * 2].into_iter());
        tally.count(LANE, None, Count::BreakerTrips, 1);
        let mut told = tally.take();
        assert!(tally.take().is_empty());
        let before = told.remove(&(LANE, Some(Tier::Promotional))).unwrap();
        let mut sums = Sums::default();
        before.rows().for_each(|(sli, n)| sums.add(sli, n));
        assert_eq!(sums, before);
        let of = |count| sums.of(count);
        assert_eq!(
            [of(Count::Retries), of(Count::FirstRetries), of(Count::FirstAccepted), of(Count::SecondAccepted)],
            [2, 1, 1, 1]
        );
        assert_eq!([of(Count::StretchMs), of(Count::PlannedMs), of(Count::Stretched)], [3000, 2000, 1]);
        assert_eq!(sums.attempts_to_success(), [0, 1, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(sums.delay(), [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1]);
        assert_eq!(sums.lag(), [1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(told[&(LANE, None)].of(Count::BreakerTrips), 1);
    }

    #[test]
    fn what_could_not_be_told_is_told_later() {
        let tally = Tally::default();
        tally.count(LANE, None, Count::TokensLate, 2);
        let taken = tally.take();
        tally.count(LANE, None, Count::TokensLate, 3);
        tally.put_back(taken);
        assert_eq!(tally.take()[&(LANE, None)].of(Count::TokensLate), 5);
    }
}
