//! Circuit breaker of one lane and origin: stops requests to a gateway that fails.
//!
//! ```text
//!        5 POSTs in a row fail, or 25 % of 400 in a minute
//!   Closed ────────────────────────────────────────────────► Open ◄─┐
//!      ▲                                                       │    │ 3 probes failed:
//!      │ a probe succeeded                        time is over │    │ open twice as long
//!      └─────────────────────────── HalfOpen ◄─────────────────┘    │
//!                                       └───────────────────────────┘
//! ```
//!
//! POSTs count at their start, not at their response, because failures may be much faster than successes. Deliveries that
//! must wait are deferred, which uses no attempt. Replicas share the [`Snapshot`], one row per lane and origin. One replica
//! holds the lane's probe lease.

use std::time::Duration;

use chrono::TimeDelta;

use super::TierSettings;
use super::run::Run;
use super::window::{Window, WindowCounts};
use crate::classify::Health;
use bellwire_core::clock::Timestamp;

/// Minimum quiet time after closing. A trip that follows sooner, or within the last opening's duration, doubles the opening.
const CALM_MIN: Duration = Duration::from_secs(60);
/// Time for which an opened breaker is remembered without responses that show whether the push service recovered.
const BROKEN_FOR: Duration = Duration::from_secs(3_600);
/// Maximum concurrent probes of a half-open breaker.
pub const PROBES: u8 = 3;
/// Timeout of probes, after which new ones are allowed: the deadline of an attempt plus a margin. Also the duration of a probe
/// lease.
pub const PROBE_PATIENCE: Duration = Duration::from_secs(15);
/// Interval at which a delivery without a probe tries again. Short, because most probes get a response quickly.
pub(crate) const BYSTANDER_WAIT: Duration = Duration::from_secs(1);

/// State of a breaker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BreakerState {
    /// All deliveries may pass.
    Closed,
    /// No delivery may pass.
    Open {
        /// Time from which probes pass.
        until: Timestamp,
    },
    /// Only probes may pass.
    HalfOpen,
}

impl BreakerState {
    /// Returns the name used in the database, JSON, metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            BreakerState::Closed => "closed",
            BreakerState::Open { .. } => "open",
            BreakerState::HalfOpen => "half_open",
        }
    }
}

/// Breaker state in a row of `lane_states`. The later `changed_at` wins, in memory and in the row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Snapshot {
    /// State of the breaker.
    pub state: BreakerState,
    /// Duration of its last opening. Zero if it never opened.
    pub open_for: Duration,
    /// Time of the last change of its state.
    pub changed_at: Timestamp,
}

impl Snapshot {
    /// Reads the columns `breaker`, `open_until`, `open_ms` and `changed_at`. `None`: unknown name.
    pub fn from_row(breaker: &str, open_until: Option<Timestamp>, open_ms: i32, changed_at: Timestamp) -> Option<Self> {
        let state = match breaker {
            "closed" => BreakerState::Closed,
            "open" => BreakerState::Open { until: open_until.unwrap_or(changed_at) },
            "half_open" => BreakerState::HalfOpen,
            _ => return None,
        };
        let open_for = Duration::from_millis(u64::try_from(open_ms).unwrap_or(0));
        Some(Self { state, open_for, changed_at })
    }

    /// Returns the time for a change made now. It is always later than the last change, even with a coarse clock.
    pub fn followed_at(&self, now: Timestamp) -> Timestamp {
        now.max(self.changed_at + TimeDelta::microseconds(1))
    }

    /// Whether a new breaker would behave differently, now or when it opens. A breaker that opened and had no responses for an
    /// hour counts as a new one.
    pub fn matters(&self, now: Timestamp) -> bool {
        match self.state {
            BreakerState::Closed => now < self.calm_at(),
            BreakerState::Open { until } => now < until + BROKEN_FOR,
            BreakerState::HalfOpen => now < self.changed_at + BROKEN_FOR,
        }
    }

    /// Returns the time from which another opening is no longer doubled.
    fn calm_at(&self) -> Timestamp {
        if self.open_for.is_zero() { self.changed_at } else { self.changed_at + self.open_for.max(CALM_MIN) }
    }

    /// Returns the value of the column `open_until`.
    pub fn open_until(&self) -> Option<Timestamp> {
        match self.state {
            BreakerState::Open { until } => Some(until),
            BreakerState::Closed | BreakerState::HalfOpen => None,
        }
    }

    /// Returns the value of the column `open_ms`.
    pub fn open_ms(&self) -> i32 {
        i32::try_from(self.open_for.as_millis()).unwrap_or(i32::MAX)
    }
}

/// Whether a POST may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Start: pass its response and this number to [`Breaker::record`], or the number to [`Breaker::withdraw`].
    Go(u64),
    /// Start as a probe: pass the response to [`Breaker::record_probe`].
    Probe,
    /// Do not start before this time: defer the delivery by [`super::hold::come_back`].
    Wait(Timestamp),
}

/// Circuit breaker of one lane.
#[derive(Debug, Clone)]
pub struct Breaker {
    snapshot: Snapshot,
    window: Window,
    run: Run,
    probes_left: u8,
    probes_failed: u8,
    refill_at: Timestamp,
}

impl Breaker {
    /// Creates a breaker from a stored snapshot, without probes in flight.
    pub fn restore(snapshot: Snapshot) -> Self {
        Self {
            snapshot,
            window: Window::default(),
            run: Run::default(),
            probes_left: PROBES,
            probes_failed: 0,
            refill_at: snapshot.changed_at + PROBE_PATIENCE,
        }
    }

    /// Returns a closed breaker.
    pub fn closed(now: Timestamp) -> Self {
        Self::restore(Snapshot { state: BreakerState::Closed, open_for: Duration::ZERO, changed_at: now })
    }

    /// Returns the state to store, after each change.
    pub fn snapshot(&self) -> Snapshot {
        self.snapshot
    }

    /// Adopts a state stored by another replica or an operator, if it is later.
    pub fn adopt(&mut self, stored: Snapshot) {
        if stored.changed_at <= self.snapshot.changed_at {
            return;
        }
        let same = stored.state.name() == self.snapshot.state.name();
        if same && self.snapshot.state == BreakerState::HalfOpen {
            self.snapshot = stored; // probes that are out stay out
        } else {
            self.begin_anew(stored);
        }
    }

    /// Whether it is half open, or becomes half open now. Then only the replica with the probe lease sends, and only probes.
    pub(crate) fn is_probing(&self, now: Timestamp) -> bool {
        match self.snapshot.state {
            BreakerState::Closed => false,
            BreakerState::Open { until } => until <= now,
            BreakerState::HalfOpen => true,
        }
    }

    /// Returns the number of probes that the replica with the probe lease may start now.
    pub fn probes(&self, now: Timestamp) -> u32 {
        let refilled = matches!(self.snapshot.state, BreakerState::Open { .. }) || now >= self.refill_at;
        u32::from(if self.probes_left == 0 && refilled { PROBES } else { self.probes_left })
    }

    /// Decides whether a POST may start now. Only with `may_probe` (the probe lease) are probes allowed. An expired opening
    /// becomes half open here.
    pub fn permit(&mut self, now: Timestamp, may_probe: bool) -> Permission {
        match self.snapshot.state {
            BreakerState::Closed => {
                self.window.event(now);
                return Permission::Go(self.run.begin());
            }
            BreakerState::Open { until } if now < until => return Permission::Wait(until),
            BreakerState::Open { .. } => self.half_open(now),
            BreakerState::HalfOpen => {}
        }
        if !may_probe {
            return Permission::Wait(now + BYSTANDER_WAIT);
        }
        if self.probes_left == 0 && now >= self.refill_at {
            self.refill(now);
        }
        if self.probes_left == 0 {
            return Permission::Wait(self.refill_at.min(now + BYSTANDER_WAIT));
        }
        self.probes_left -= 1;
        Permission::Probe
    }

    /// Records the response to a POST by the number of its [permission](Permission::Go) and its start. Returns the new state if
    /// it changed. Responses to POSTs that began before the last change have no effect.
    pub fn record(
        &mut self, number: u64, posted_at: Timestamp, now: Timestamp, health: Health, settings: &TierSettings,
    ) -> Option<BreakerState> {
        if self.snapshot.state != BreakerState::Closed || !self.run.counts(number) {
            return None;
        }
        match health {
            Health::Alive => return None,
            Health::Unknown => {
                self.withdraw(number, posted_at);
                return None;
            }
            Health::Failing => self.window.hit(posted_at),
        }
        let WindowCounts { events, hits } = self.window.totals(now);
        let often = events >= settings.circuit_attempts_min
            && f64::from(hits) >= settings.circuit_failure_threshold * f64::from(events);
        let in_a_row = self.run.fail(number) >= settings.circuit_failures_in_a_row;
        (often || in_a_row).then(|| self.trip(now, settings))
    }

    /// Withdraws a POST with a [permission](Permission::Go) that was not made or has a neutral response.
    pub fn withdraw(&mut self, number: u64, at: Timestamp) {
        if self.run.counts(number) {
            self.run.void(number);
            self.window.withdraw(at);
        }
    }

    /// Records the response to a [probe](Permission::Probe). The first success closes the breaker, the third failure opens it
    /// again. A neutral response allows another probe.
    pub fn record_probe(&mut self, now: Timestamp, health: Health, settings: &TierSettings) -> Option<BreakerState> {
        if self.snapshot.state != BreakerState::HalfOpen {
            return None;
        }
        match health {
            Health::Unknown => {
                self.probes_left = (self.probes_left + 1).min(PROBES);
                None
            }
            Health::Alive => Some(self.become_state(now, BreakerState::Closed)),
            Health::Failing => {
                self.probes_failed += 1;
                (self.probes_failed >= PROBES).then(|| self.trip(now, settings))
            }
        }
    }

    /// Opens the breaker until a time, for an operator.
    pub fn force_open(&mut self, now: Timestamp, until: Timestamp) {
        self.become_state(now, BreakerState::Open { until });
    }

    /// Sets an open breaker to half open, for an operator: a successful probe closes it. A closed breaker stays closed.
    pub fn force_close(&mut self, now: Timestamp) {
        if self.snapshot.state != BreakerState::Closed {
            self.half_open(now);
        }
    }

    /// Sets the breaker to half open in any state, for an operator: only probes are sent until one succeeds.
    pub fn force_probe(&mut self, now: Timestamp) {
        self.half_open(now);
    }

    fn trip(&mut self, now: Timestamp, settings: &TierSettings) -> BreakerState {
        let Snapshot { state, open_for: last, .. } = self.snapshot;
        let repeated = !last.is_zero() && (state == BreakerState::HalfOpen || now < self.snapshot.calm_at());
        let open_for = if repeated { last * 2 } else { settings.circuit_open };
        self.snapshot.open_for = open_for.min(settings.circuit_open_max.max(settings.circuit_open));
        self.become_state(now, BreakerState::Open { until: now + self.snapshot.open_for })
    }

    fn half_open(&mut self, now: Timestamp) {
        self.become_state(now, BreakerState::HalfOpen);
        self.refill(now);
    }

    fn refill(&mut self, now: Timestamp) {
        self.probes_left = PROBES;
        self.probes_failed = 0;
        self.refill_at = now + PROBE_PATIENCE;
    }

    /// Changes the state, and resets all counts.
    fn become_state(&mut self, now: Timestamp, state: BreakerState) -> BreakerState {
        let changed_at = self.snapshot.followed_at(now);
        self.begin_anew(Snapshot { state, changed_at, ..self.snapshot });
        state
    }

    /// Closes the breaker and drops all records. POSTs in flight no longer count.
    pub fn forget(&mut self) {
        self.begin_anew(Self::closed(Timestamp::UNIX_EPOCH).snapshot);
    }

    fn begin_anew(&mut self, snapshot: Snapshot) {
        self.run.forget();
        *self = Self { run: std::mem::take(&mut self.run), ..Self::restore(snapshot) };
    }
}
