//! Reliability of retries: five metrics and two histograms.
//!
//! Workers count in memory ([`ReliabilityTally`]) and add to the table `reliability_counts` every few seconds. Readers sum the
//! last hour. Counts of messages are separate and exact; a worker that crashes loses the last seconds of these counts.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;

use bellwire_core::delivery::Tier;
use bellwire_core::id::{AppId, LaneId};
use bellwire_core::lane::Gateway;
use bellwire_core::named;

/// Period of the reliability metrics.
pub const WINDOW: Duration = Duration::from_secs(3600);
/// Minimum samples of a share.
pub(crate) const SAMPLES_MIN: u64 = 100;
/// Number of hours after which a condition counts as sustained.
pub const SUSTAINED_HOURS: u32 = 3;

/// Number of buckets for POSTs until acceptance. The last bucket is "more".
const ATTEMPT_CLASSES: usize = 11;
/// Upper bounds of the delay buckets in seconds. The last bucket has none.
pub const DELAYS_S: [f64; 12] = [0.05, 0.1, 0.5, 1.0, 5.0, 10.0, 60.0, 300.0, 900.0, 3_600.0, 21_600.0, 86_400.0];
const DELAY_CLASSES: usize = DELAYS_S.len() + 1;
const COUNTS: usize = 13;
/// Number of counted quantities of a lane and tier.
const CODES: usize = COUNTS + ATTEMPT_CLASSES + 2 * DELAY_CLASSES;

/// Counted quantity. The numbers are stored in `reliability_counts.metric` and never change their meaning. The buckets of the
/// histograms follow them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(i16)]
pub enum ReliabilityCount {
    /// Deliveries that made their first retry.
    FirstRetries = 0,
    /// Deliveries accepted by their first retry.
    FirstAccepted = 1,
    /// Deliveries that made their second retry.
    SecondRetries = 2,
    /// Deliveries accepted by their second retry.
    SecondAccepted = 3,
    /// POSTs that were retries.
    Retries = 4,
    /// Deliveries whose time to live ended while they waited for a retry.
    RetriesExpired = 5,
    /// Sum of milliseconds from a failure to the acceptance of the next retry.
    StretchMs = 6,
    /// Sum of milliseconds that the policy had planned in between.
    PlannedMs = 7,
    /// Number of retries in these two sums.
    Stretched = 8,
    /// Openings of the lane's breaker. Stored in a table of their own, `breaker_trips`.
    BreakerTrips = 9,
    /// Queue rows changed or inserted again outside Bellwire.
    TokenFailures = 10,
    /// Queue rows whose token was valid but expired.
    TokensLate = 11,
    /// Deliveries accepted later than the tier's `sla_seconds`, and dead or expired ones.
    SlaMissed = 12,
}

/// Sums of all quantities over some lanes, tiers and minutes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sums([u64; CODES]);

impl Default for Sums {
    fn default() -> Self {
        Self([0; CODES])
    }
}

impl Sums {
    /// Adds a stored value. Numbers of a newer version are ignored.
    pub fn add(&mut self, sli: i16, n: u64) {
        if let Some(sum) = usize::try_from(sli).ok().and_then(|code| self.0.get_mut(code)) {
            *sum += n;
        }
    }

    /// Adds other sums.
    pub fn merge(&mut self, others: &Sums) {
        self.0.iter_mut().zip(others.0).for_each(|(sum, n)| *sum += n);
    }

    /// Returns the sum of one quantity.
    pub fn of(&self, count: ReliabilityCount) -> u64 {
        self.0[count as usize]
    }

    /// Returns accepted deliveries by the number of POSTs: 1, 2, … 10, more.
    pub fn attempts_to_success(&self) -> &[u64] {
        &self.0[COUNTS..COUNTS + ATTEMPT_CLASSES]
    }

    /// Returns accepted deliveries by the time since their message's acceptance, in buckets with the bounds [`DELAYS_S`].
    pub fn delay(&self) -> &[u64] {
        &self.0[COUNTS + ATTEMPT_CLASSES..][..DELAY_CLASSES]
    }

    /// Returns queue rows by the delay between due time and claim, in buckets with the bounds [`DELAYS_S`].
    pub fn lag(&self) -> &[u64] {
        &self.0[COUNTS + ATTEMPT_CLASSES + DELAY_CLASSES..]
    }

    /// Returns all non-zero values, for storing.
    pub fn rows(&self) -> impl Iterator<Item = (i16, u64)> + '_ {
        (0..).zip(self.0).filter(|(_, n)| *n > 0)
    }
}

/// Sums of one lane.
#[derive(Debug)]
pub struct LaneSums {
    /// Number of the lane.
    pub lane: LaneId,
    /// App that the lane belongs to.
    pub app: AppId,
    /// Push service of the lane.
    pub gateway: Gateway,
    /// Sums by tier. `None`: quantities without a tier.
    pub tiers: BTreeMap<Option<Tier>, Sums>,
}

/// An accepted delivery, with its delay and retries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accepted {
    /// Number of retries before the acceptance.
    pub retries: u32,
    /// Time since it could first be sent.
    pub delay: Duration,
    /// For a retry: actual and planned time since the previous failure. `None`: an immediate retry, or no retry.
    pub stretch: Option<(Duration, Duration)>,
}

/// Counts of a process since they were last stored.
#[derive(Debug, Default)]
pub struct ReliabilityTally(Mutex<HashMap<(LaneId, Option<Tier>), Sums>>);

impl ReliabilityTally {
    /// Adds to a quantity of a lane. `None`: without a tier.
    pub fn count(&self, lane: LaneId, tier: Option<Tier>, count: ReliabilityCount, n: u64) {
        self.0.lock().entry((lane, tier)).or_default().0[count as usize] += n;
    }

    /// Counts the POST of retry `number`, from 1.
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

    /// Counts an acceptance. Immediate retries are not part of the stretch, because no delay was planned.
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

    /// Counts queue rows by the delay between due time and claim.
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
    /// Too few samples.
    Unknown,
    /// Meets its target.
    Ok,
    /// Between target and alert line.
    Warn,
    /// Beyond the alert line.
    Alert,
}

named! {
    /// Reliability metrics.
    pub enum Sli {
        /// Share of deliveries with a first retry that were accepted by it.
        FirstRetrySuccess = "first_retry_success",
        /// Share of deliveries with a second retry that were accepted by it.
        SecondRetrySuccess = "second_retry_success",
        /// Time from a failure to the acceptance of the next retry, divided by the planned delay.
        BackoffStretch = "backoff_stretch",
        /// Deliveries that expired while they waited for a retry, divided by retries that were sent. Above 1 if more expired.
        TtlExpiredPurges = "ttl_expired_purges",
        /// Openings of a lane's breaker in an hour.
        BreakerTrips = "breaker_trips",
    }
}

impl Sli {
    /// Returns target and alert line. For success rates, higher values are better; otherwise lower ones.
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

    /// Returns value and number of samples of an hour over `lanes` lanes. `None`: no samples.
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

/// A reliability metric with its state.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct MetricReading {
    /// Name of the metric.
    pub sli: Sli,
    /// Value of the metric. Null without samples.
    pub value: Option<f64>,
    /// Number of deliveries, retries or openings that the value is based on.
    pub samples: u64,
    /// Target of the metric: the state is `ok` on its good side.
    pub target: f64,
    /// Alert line, beyond which an operator should act.
    pub alert: f64,
    /// State of the metric. A share needs 100 samples.
    pub state: ReliabilityState,
}

/// Computes all reliability metrics from the sums of an hour over `lanes` lanes.
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
