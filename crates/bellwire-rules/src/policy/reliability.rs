//! Reliability of retries: the five metrics of the rule book, and two histograms.
//!
//! Workers count in memory ([`ReliabilityTally`]) and add to the table `reliability_counts` every few seconds. Readers sum the last hour.
//! The exact counts of messages are separate. A worker that dies loses the last seconds of these counts.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;

use bellwire_core::delivery::Tier;
use bellwire_core::id::{AppId, LaneId};
use bellwire_core::lane::Gateway;
use bellwire_core::named;

/// Reliability metrics are of the last hour.
pub const WINDOW: Duration = Duration::from_secs(3600);
/// Minimum samples of a share.
pub(crate) const SAMPLES_MIN: u64 = 100;
/// Hours after which a condition counts as sustained.
pub const SUSTAINED_HOURS: u32 = 3;

/// POSTs until acceptance that have a class of their own; the last class is "more".
const ATTEMPT_CLASSES: usize = 11;
/// Upper ends of the classes of delays, in seconds; the last class has none.
pub const DELAYS_S: [f64; 12] = [0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 900.0, 3_600.0, 21_600.0, 86_400.0];
const DELAY_CLASSES: usize = DELAYS_S.len() + 1;
const COUNTS: usize = 13;
/// Everything that is counted of a lane and tier.
const CODES: usize = COUNTS + ATTEMPT_CLASSES + 2 * DELAY_CLASSES;

/// Counted quantity. The numbers are stored in `reliability_counts.metric` and never change their meaning. The classes of the
/// histograms follow them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i16)]
pub enum ReliabilityCount {
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

    /// Adds the sums of another set.
    pub fn merge(&mut self, others: &Sums) {
        self.0.iter_mut().zip(others.0).for_each(|(sum, n)| *sum += n);
    }

    /// Returns the sum of one quantity.
    pub fn of(&self, count: ReliabilityCount) -> u64 {
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

/// Sums of a lane.
#[derive(Debug)]
pub struct LaneSums {
    /// Number of the lane.
    pub lane: LaneId,
    /// The app it belongs to.
    pub app: AppId,
    /// The push service it leads to.
    pub gateway: Gateway,
    /// By tier; what belongs to none stands under none.
    pub tiers: BTreeMap<Option<Tier>, Sums>,
}

/// Accepted delivery with its wait and retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// Retries that went before it.
    pub retries: u32,
    /// Since it was free to be sent.
    pub delay: Duration,
    /// For a retry: since the failure before it, as it was and as it was planned.
    pub stretch: Option<(Duration, Duration)>,
}

/// Counts of a process since its last write to the database.
#[derive(Debug, Default)]
pub struct ReliabilityTally(Mutex<HashMap<(LaneId, Option<Tier>), Sums>>);

impl ReliabilityTally {
    /// Counts events; those that belong to no tier are the lane's.
    pub fn count(&self, lane: LaneId, tier: Option<Tier>, count: ReliabilityCount, n: u64) {
        self.0.lock().entry((lane, tier)).or_default().0[count as usize] += n;
    }

    /// Counts the POST of a retry, the first of which has number 1.
    pub fn retried(&self, lane: LaneId, tier: Tier, number: u32) {
        let sums = &mut self.0.lock();
        let sums = &mut sums.entry((lane, Some(tier))).or_default().0;
        sums[ReliabilityCount::Retries as usize] += 1;
        match number {
            1 => sums[ReliabilityCount::FirstRetries as usize] += 1,
            2 => sums[ReliabilityCount::SecondRetries as usize] += 1,
            _ => {}
        }
    }

    /// Counts an acceptance. Immediate retries have no stretch: nothing was planned.
    pub fn accepted(&self, lane: LaneId, tier: Tier, accepted: &Accepted) {
        let sums = &mut self.0.lock();
        let sums = &mut sums.entry((lane, Some(tier))).or_default().0;
        match accepted.retries {
            1 => sums[ReliabilityCount::FirstAccepted as usize] += 1,
            2 => sums[ReliabilityCount::SecondAccepted as usize] += 1,
            _ => {}
        }
        if let Some((actual, planned)) = accepted.stretch.filter(|(_, planned)| !planned.is_zero()) {
            sums[ReliabilityCount::StretchMs as usize] += millis(actual);
            sums[ReliabilityCount::PlannedMs as usize] += millis(planned);
            sums[ReliabilityCount::Stretched as usize] += 1;
        }
        sums[COUNTS + (accepted.retries as usize).min(ATTEMPT_CLASSES - 1)] += 1;
        sums[COUNTS + ATTEMPT_CLASSES + class(accepted.delay)] += 1;
    }

    /// Counts queue rows by how much later than scheduled they were claimed.
    pub fn lagged(&self, lane: LaneId, tier: Tier, lags: impl Iterator<Item = Duration>) {
        let sums = &mut self.0.lock();
        let sums = &mut sums.entry((lane, Some(tier))).or_default().0;
        lags.for_each(|lag| sums[COUNTS + ATTEMPT_CLASSES + DELAY_CLASSES + class(lag)] += 1);
    }

    /// Returns all sums and starts again from zero.
    pub fn take(&self) -> HashMap<(LaneId, Option<Tier>), Sums> {
        std::mem::take(&mut self.0.lock())
    }

    /// Adds sums that could not be stored.
    pub fn put_back(&self, sums: HashMap<(LaneId, Option<Tier>), Sums>) {
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

/// State of a reliability metric against its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = SliState))]
#[serde(rename_all = "snake_case")]
pub enum ReliabilityState {
    /// Too few samples to tell.
    Unknown,
    /// It meets its target.
    Ok,
    /// Between target and alert.
    Warn,
    /// Beyond the alert line.
    Alert,
}

named! {
    /// The rule book's reliability metrics (heading "Figures to expose").
    pub enum Sli {
        /// Accepted at retry 1 ÷ deliveries that made retry 1.
        FirstRetrySuccess = "first_retry_success",
        /// Accepted at retry 2 ÷ deliveries that made retry 2.
        SecondRetrySuccess = "second_retry_success",
        /// Time from a failure to the acceptance of the retry after it ÷ planned delay.
        BackoffStretch = "backoff_stretch",
        /// Deliveries that expired while they waited for a retry ÷ retries that were sent. Above 1 where more expired than were sent.
        TtlExpiredPurges = "ttl_expired_purges",
        /// Openings of a lane's breaker in an hour.
        BreakerTrips = "breaker_trips",
    }
}

impl Sli {
    /// Beyond the first it meets its target, beyond the second it is an alert. For success rates, more is better.
    pub fn lines(self) -> (f64, f64) {
        match self {
            Sli::FirstRetrySuccess => (0.85, 0.60),
            Sli::SecondRetrySuccess => (0.60, 0.40),
            Sli::BackoffStretch => (1.5, 3.0),
            Sli::TtlExpiredPurges => (0.05, 0.15),
            Sli::BreakerTrips => (1.0, 5.0),
        }
    }

    pub(crate) fn more_is_better(self) -> bool {
        matches!(self, Sli::FirstRetrySuccess | Sli::SecondRetrySuccess)
    }

    /// Returns value and samples of an hour over `lanes` lanes. No value without samples.
    fn weigh(self, sums: &Sums, lanes: usize) -> (Option<f64>, u64) {
        let of = |count| sums.of(count);
        let share = |part: u64, whole: u64| ((whole > 0).then(|| part as f64 / whole as f64), whole);
        match self {
            Sli::FirstRetrySuccess => share(of(ReliabilityCount::FirstAccepted), of(ReliabilityCount::FirstRetries)),
            Sli::SecondRetrySuccess => share(of(ReliabilityCount::SecondAccepted), of(ReliabilityCount::SecondRetries)),
            Sli::BackoffStretch => (
                share(of(ReliabilityCount::StretchMs), of(ReliabilityCount::PlannedMs)).0,
                of(ReliabilityCount::Stretched),
            ),
            Sli::TtlExpiredPurges => {
                let (expired, sent) = (of(ReliabilityCount::RetriesExpired), of(ReliabilityCount::Retries));
                // Where every delivery expires before its first retry, each expiry counts as one retry in full.
                (share(expired, sent.max(u64::from(expired > 0))).0, sent + expired)
            }
            Sli::BreakerTrips => (
                Some(of(ReliabilityCount::BreakerTrips) as f64 / lanes.max(1) as f64),
                of(ReliabilityCount::BreakerTrips),
            ),
        }
    }
}

/// A reliability metric with its verdict.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MetricReading {
    /// Name of the metric.
    pub sli: Sli,
    /// Value of the metric. Null without samples.
    pub value: Option<f64>,
    /// Number of deliveries, retries or openings behind the value.
    pub samples: u64,
    /// Beyond this it is as it should be.
    pub target: f64,
    /// Alert line, beyond which an operator should look.
    pub alert: f64,
    /// State of the metric. A share needs 100 samples.
    pub state: ReliabilityState,
}

/// Computes every reliability metric from the sums of an hour, over this many lanes.
pub fn read(sums: &Sums, lanes: usize) -> [MetricReading; 5] {
    Sli::ALL.map(|sli| {
        let (value, samples) = sli.weigh(sums, lanes);
        let (target, alert) = sli.lines();
        let enough = samples >= SAMPLES_MIN || sli == Sli::BreakerTrips;
        let state = match value.filter(|_| enough) {
            None => ReliabilityState::Unknown,
            Some(value) => judge(sli, value),
        };
        MetricReading { sli, value, samples, target, alert, state }
    })
}

fn judge(sli: Sli, value: f64) -> ReliabilityState {
    let (target, alert) = sli.lines();
    let past = |line: f64| if sli.more_is_better() { value < line } else { value > line };
    let meets = if sli.more_is_better() { value > target } else { value < target };
    match (meets, past(alert)) {
        (true, _) => ReliabilityState::Ok,
        (_, true) => ReliabilityState::Alert,
        _ => ReliabilityState::Warn,
    }
}
