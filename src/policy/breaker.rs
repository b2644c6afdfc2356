//! The circuit breaker of one lane and origin: whether a gateway that fails is asked at all.
//!
//! ```text
//!            5 failures in a row, or 5 % of 400 in a minute
//!   Closed ────────────────────────────────────────────────► Open ◄─┐
//!      ▲                                                       │    │ 3 probes failed:
//!      │ a probe succeeded                        time is over │    │ open twice as long
//!      └─────────────────────────── HalfOpen ◄─────────────────┘    │
//!                                       └───────────────────────────┘
//! ```
//!
//! Deliveries that must wait are deferred, which uses up none of their attempts. Replicas share the [`Snapshot`], one
//! row per lane and origin, and one of them holds the lane's probe lease.

use std::time::Duration;

use super::Settings;
use super::window::{Counts, Window};
use crate::classify::Health;
use crate::clock::Timestamp;

/// So many failures without a success between them trip.
const CONSECUTIVE: u32 = 5;
/// The share of failures counts from so many attempts in a minute on.
const ATTEMPTS_MIN: u32 = 400;
/// The longest opening.
const OPEN_MAX: Duration = Duration::from_secs(600);
/// A trip that follows a closing within the last opening's length, and at least within this, is a repeated one.
const CALM_MIN: Duration = Duration::from_secs(60);
/// How many probes are let through.
const PROBES: u8 = 3;
/// How long answers to probes are waited for before new ones are let through: an attempt's deadline and some.
const PROBE_PATIENCE: Duration = Duration::from_secs(15);
/// How often one who does not hold the probe lease asks again.
const BYSTANDER_WAIT: Duration = Duration::from_secs(1);
/// Deferred work comes back over at most this long.
const SPREAD_MAX: Duration = Duration::from_secs(30);

/// Where a breaker stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Everything passes.
    Closed,
    /// Nothing passes.
    Open {
        /// When probes may.
        until: Timestamp,
    },
    /// Probes pass.
    HalfOpen,
}

impl State {
    /// The name used in the database, JSON, metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            State::Closed => "closed",
            State::Open { .. } => "open",
            State::HalfOpen => "half_open",
        }
    }
}

/// What a row of `lane_states` holds of a breaker. The later `changed_at` wins, in memory and in the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    /// Where it stands.
    pub state: State,
    /// How long its last opening was; zero if it never opened.
    pub open_for: Duration,
    /// When it came to stand there.
    pub changed_at: Timestamp,
}

/// Whether a POST may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Yes.
    Go,
    /// Yes, and its answer decides: pass it to [`Breaker::record_probe`].
    Probe,
    /// Not before this time: defer it by [`Breaker::defer`].
    Wait(Timestamp),
}

/// One lane's and origin's breaker in one process.
#[derive(Debug, Clone)]
pub struct Breaker {
    snapshot: Snapshot,
    window: Window,
    consecutive: u32,
    probes_left: u8,
    probes_failed: u8,
    refill_at: Timestamp,
}

impl Breaker {
    /// A breaker as it was left.
    pub fn restore(snapshot: Snapshot) -> Self {
        Self {
            snapshot,
            window: Window::default(),
            consecutive: 0,
            probes_left: PROBES,
            probes_failed: 0,
            refill_at: snapshot.changed_at + PROBE_PATIENCE,
        }
    }

    /// A breaker that never tripped.
    pub fn closed(now: Timestamp) -> Self {
        Self::restore(Snapshot { state: State::Closed, open_for: Duration::ZERO, changed_at: now })
    }

    /// What to store whenever it changes.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot
    }

    /// Takes over what another replica or the operator stored, if that is later than what is known here.
    pub fn adopt(&mut self, stored: Snapshot) {
        if stored.changed_at <= self.snapshot.changed_at {
            return;
        }
        let same = stored.state.name() == self.snapshot.state.name();
        if same && self.snapshot.state == State::HalfOpen {
            self.snapshot = stored; // probes that are out stay out
        } else {
            *self = Self::restore(stored);
        }
    }

    /// Whether a POST may start now. Only the replica that `may_probe` gets probes. An opening whose time is over
    /// becomes half-open here.
    pub fn permit(&mut self, now: Timestamp, may_probe: bool) -> Permission {
        match self.snapshot.state {
            State::Closed => return Permission::Go,
            State::Open { until } if now < until => return Permission::Wait(until),
            State::Open { .. } => self.half_open(now),
            State::HalfOpen => {}
        }
        if !may_probe {
            return Permission::Wait(now + BYSTANDER_WAIT);
        }
        if self.probes_left == 0 && now >= self.refill_at {
            self.refill(now);
        }
        if self.probes_left == 0 {
            return Permission::Wait(self.refill_at);
        }
        self.probes_left -= 1;
        Permission::Probe
    }

    /// Counts the answer to a POST that was simply let [go](Permission::Go). Answers the new state if it changed.
    /// What comes back after a trip, from POSTs that were under way, changes nothing.
    pub fn record(&mut self, now: Timestamp, health: Health, settings: &Settings) -> Option<State> {
        if self.snapshot.state != State::Closed || health == Health::Unknown {
            return None;
        }
        let failed = health == Health::Failing;
        let Counts { events, hits } = self.window.count(now, failed);
        self.consecutive = if failed { self.consecutive + 1 } else { 0 };
        let often = events >= ATTEMPTS_MIN && f64::from(hits) >= settings.circuit_failure_threshold * f64::from(events);
        (often || self.consecutive >= CONSECUTIVE).then(|| self.trip(now, settings))
    }

    /// Counts the answer to a [probe](Permission::Probe). The first success closes, the third failure opens again; an
    /// answer that says nothing gives its probe back.
    pub fn record_probe(&mut self, now: Timestamp, health: Health, settings: &Settings) -> Option<State> {
        if self.snapshot.state != State::HalfOpen {
            return None;
        }
        match health {
            Health::Unknown => {
                self.probes_left = (self.probes_left + 1).min(PROBES);
                None
            }
            Health::Alive => Some(self.become_state(now, State::Closed)),
            Health::Failing => {
                self.probes_failed += 1;
                (self.probes_failed >= PROBES).then(|| self.trip(now, settings))
            }
        }
    }

    /// When a delivery that must wait until `until` falls due: spread over as long as the breaker opened for, at most
    /// 30 s (30 s if it never tripped), so that a gateway that recovers is not met by everything at once. `randomness`
    /// lies in [0, 1); what is urgent passes 0.
    pub fn defer(&self, until: Timestamp, randomness: f64) -> Timestamp {
        let opened = Some(self.snapshot.open_for).filter(|opened| !opened.is_zero());
        until + opened.unwrap_or(SPREAD_MAX).min(SPREAD_MAX).mul_f64(randomness.clamp(0.0, 1.0))
    }

    /// The operator opens it until a given time.
    pub fn force_open(&mut self, now: Timestamp, until: Timestamp) {
        self.become_state(now, State::Open { until });
    }

    /// The operator closes it, which probes first. A closed breaker stays closed.
    pub fn force_close(&mut self, now: Timestamp) {
        if self.snapshot.state != State::Closed {
            self.half_open(now);
        }
    }

    fn trip(&mut self, now: Timestamp, settings: &Settings) -> State {
        let Snapshot { state, open_for: last, changed_at } = self.snapshot;
        let calm_after = changed_at + last.max(CALM_MIN);
        let repeated = !last.is_zero() && (state == State::HalfOpen || now < calm_after);
        let open_for = if repeated { last * 2 } else { settings.circuit_open };
        self.snapshot.open_for = open_for.min(OPEN_MAX);
        self.become_state(now, State::Open { until: now + self.snapshot.open_for })
    }

    fn half_open(&mut self, now: Timestamp) {
        self.become_state(now, State::HalfOpen);
        self.refill(now);
    }

    fn refill(&mut self, now: Timestamp) {
        self.probes_left = PROBES;
        self.probes_failed = 0;
        self.refill_at = now + PROBE_PATIENCE;
    }

    /// Every change starts counting afresh.
    fn become_state(&mut self, now: Timestamp, state: State) -> State {
        let changed_at = now.max(self.snapshot.changed_at);
        *self = Self::restore(Snapshot { state, changed_at, ..self.snapshot });
        state
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GUIDE: Settings = Settings::DEFAULT;
    const S: u64 = 1_000;

    fn at(ms: u64) -> Timestamp {
        Timestamp::from_timestamp(1_800_000_000, 0).unwrap() + Duration::from_millis(ms)
    }

    fn tripped_at(ms: u64) -> Breaker {
        let mut breaker = Breaker::closed(at(0));
        fail(&mut breaker, ms);
        breaker
    }

    /// Five failures in a row; answers how long the breaker opened for.
    fn fail(breaker: &mut Breaker, ms: u64) -> Duration {
        for _ in 0..CONSECUTIVE {
            breaker.record(at(ms), Health::Failing, &GUIDE);
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
    fn the_fifth_failure_in_a_row_trips_and_a_success_between_starts_again() {
        let mut breaker = Breaker::closed(at(0));
        for _ in 0..4 {
            assert_eq!(breaker.record(at(1), Health::Failing, &GUIDE), None);
        }
        assert_eq!(breaker.record(at(1), Health::Alive, &GUIDE), None);
        for _ in 0..4 {
            assert_eq!(breaker.record(at(2), Health::Failing, &GUIDE), None);
            assert_eq!(breaker.record(at(2), Health::Unknown, &GUIDE), None);
        }
        assert_eq!(breaker.permit(at(3), true), Permission::Go);
        let until = at(3) + GUIDE.circuit_open;
        assert_eq!(breaker.record(at(3), Health::Failing, &GUIDE), Some(State::Open { until }));
        assert_eq!(breaker.permit(at(4), true), Permission::Wait(until));
    }

    /// `failures` of `attempts` spread evenly over a time; whether that trips, and at which attempt.
    fn tripping_attempt(attempts: u32, failures: u32, over_ms: u64, settings: &Settings) -> Option<u32> {
        let mut breaker = Breaker::closed(at(0));
        (1..=attempts).find(|n| {
            let failed = u64::from(*n) * u64::from(failures) / u64::from(attempts)
                != u64::from(*n - 1) * u64::from(failures) / u64::from(attempts);
            let health = if failed { Health::Failing } else { Health::Alive };
            breaker.record(at(u64::from(*n) * over_ms / u64::from(attempts)), health, settings).is_some()
        })
    }

    #[test]
    fn the_share_of_failures_trips_from_400_attempts_in_a_minute_on() {
        for (attempts, failures, over_ms, expected) in [
            (400, 20, 50 * S, Some(400)),
            (399, 199, 50 * S, None),
            (1_000, 49, 50 * S, None),
            (10_000, 5_000, 50 * S, Some(400)),
            (400, 200, 600 * S, None), // never 400 within a minute
        ] {
            assert_eq!(tripping_attempt(attempts, failures, over_ms, &GUIDE), expected, "{failures} of {attempts}");
        }
        let strict = Settings { circuit_failure_threshold: 0.01, ..GUIDE };
        assert_eq!(tripping_attempt(1_000, 10, 50 * S, &strict), Some(400));
    }

    #[test]
    fn an_open_breaker_half_opens_on_time_and_lets_three_probes_through() {
        let mut breaker = tripped_at(0);
        assert_eq!(breaker.permit(at(30 * S - 1), true), Permission::Wait(at(30 * S)));
        for _ in 0..3 {
            assert_eq!(breaker.permit(at(30 * S), true), Permission::Probe);
        }
        assert_eq!(breaker.snapshot().state, State::HalfOpen);
        assert_eq!(breaker.permit(at(31 * S), true), Permission::Wait(at(45 * S)));
        assert_eq!(breaker.record_probe(at(31 * S), Health::Alive, &GUIDE), Some(State::Closed));
        assert_eq!(breaker.permit(at(31 * S), false), Permission::Go);
    }

    #[test]
    fn only_the_prober_probes() {
        let mut breaker = tripped_at(0);
        assert_eq!(breaker.permit(at(30 * S), false), Permission::Wait(at(31 * S)));
        assert_eq!(breaker.permit(at(30 * S), true), Permission::Probe);
    }

    #[test]
    fn probes_without_an_answer_are_replaced_and_empty_answers_give_theirs_back() {
        let mut breaker = tripped_at(0);
        for _ in 0..3 {
            assert_eq!(breaker.permit(at(30 * S), true), Permission::Probe);
        }
        assert_eq!(breaker.record_probe(at(31 * S), Health::Unknown, &GUIDE), None);
        assert_eq!(breaker.permit(at(31 * S), true), Permission::Probe);
        assert_eq!(breaker.permit(at(31 * S), true), Permission::Wait(at(45 * S)));
        assert_eq!(breaker.permit(at(45 * S), true), Permission::Probe);
    }

    #[test]
    fn answers_from_before_the_trip_neither_close_nor_reopen() {
        let mut breaker = tripped_at(0);
        assert_eq!(breaker.record(at(1), Health::Alive, &GUIDE), None);
        assert_eq!(breaker.record_probe(at(1), Health::Alive, &GUIDE), None);
        breaker.permit(at(30 * S), true);
        assert_eq!(breaker.record(at(30 * S), Health::Alive, &GUIDE), None);
        assert_eq!(breaker.snapshot().state, State::HalfOpen);
    }

    #[test]
    fn repeated_trips_double_up_to_ten_minutes_and_calm_starts_again() {
        let mut breaker = tripped_at(0);
        let mut ms = 0;
        let mut lengths_s = vec![breaker.snapshot().open_for.as_secs()];
        for _ in 0..6 {
            ms += breaker.snapshot().open_for.as_secs() * S;
            lengths_s.push(probes_fail(&mut breaker, ms).as_secs());
        }
        assert_eq!(lengths_s, [30, 60, 120, 240, 480, 600, 600]);

        ms += 600 * S;
        breaker.permit(at(ms), true);
        breaker.record_probe(at(ms), Health::Alive, &GUIDE);
        let mut soon = breaker.clone();
        assert_eq!(fail(&mut soon, ms + 599 * S).as_secs(), 600);
        assert_eq!(fail(&mut breaker, ms + 600 * S).as_secs(), 30);
    }

    #[test]
    fn deferred_work_comes_back_spread_out() {
        let breaker = tripped_at(0);
        let due: Vec<_> = (0..4).map(|n| breaker.defer(at(30 * S), f64::from(n) / 4.0)).collect();
        assert_eq!(due, [at(30_000), at(37_500), at(45_000), at(52_500)]);
    }

    #[test]
    fn the_operator_opens_at_once_and_closes_by_probing() {
        let mut breaker = Breaker::closed(at(0));
        breaker.force_close(at(1));
        assert_eq!(breaker.permit(at(1), true), Permission::Go);
        breaker.force_open(at(2), at(900 * S));
        assert_eq!(breaker.permit(at(3), true), Permission::Wait(at(900 * S)));
        breaker.force_close(at(4));
        assert_eq!(breaker.permit(at(4), true), Permission::Probe);
        assert_eq!(breaker.record_probe(at(5), Health::Alive, &GUIDE), Some(State::Closed));
        let mut failing = tripped_at(0);
        failing.force_close(at(1));
        assert_eq!(probes_fail(&mut failing, 1).as_secs(), 60);
    }

    #[test]
    fn replicas_follow_the_later_word_without_taking_probes_back() {
        let mut ours = Breaker::closed(at(0));
        let theirs = tripped_at(5);
        ours.adopt(theirs.snapshot());
        assert_eq!(ours.permit(at(6), true), Permission::Wait(at(30 * S + 5)));
        ours.adopt(Breaker::closed(at(1)).snapshot());
        assert_eq!(ours.snapshot(), theirs.snapshot());

        for _ in 0..3 {
            assert_eq!(ours.permit(at(31 * S), true), Permission::Probe);
        }
        ours.adopt(Snapshot { state: State::HalfOpen, changed_at: at(32 * S), ..theirs.snapshot() });
        assert_eq!(ours.permit(at(32 * S), true), Permission::Wait(at(46 * S)));
        ours.adopt(Snapshot { state: State::Closed, changed_at: at(33 * S), ..theirs.snapshot() });
        assert_eq!(ours.permit(at(33 * S), false), Permission::Go);
    }

    #[test]
    fn a_restored_breaker_goes_on_where_it_stood() {
        let left = tripped_at(0).snapshot();
        let mut restored = Breaker::restore(left);
        assert_eq!(restored.permit(at(1), true), Permission::Wait(at(30 * S)));
        assert_eq!(probes_fail(&mut restored, 30 * S).as_secs(), 60);
    }
}
