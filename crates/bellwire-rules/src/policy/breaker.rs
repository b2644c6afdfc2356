//! The circuit breaker of one lane and origin: whether a gateway that fails is asked at all.
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
//! POSTs count by when they began, not by when they were answered, since failures may be faster than successes by far.
//! Deliveries that must wait are deferred, which uses up none of their attempts. Replicas share the [`Snapshot`], one
//! row per lane and origin, and one of them holds the lane's probe lease.

use std::time::Duration;

use chrono::TimeDelta;

use super::Settings;
use super::run::Run;
use super::window::{Counts, Window};
use crate::classify::Health;
use bellwire_core::clock::Timestamp;

/// A trip that follows a closing within the last opening's length, and at least within this, is a repeated one.
const CALM_MIN: Duration = Duration::from_secs(60);
/// For so long it is remembered that a breaker was open, if nobody sees whether its gateway has recovered.
const BROKEN_FOR: Duration = Duration::from_secs(3_600);
/// Probes that a half-open breaker lets through at a time.
pub const PROBES: u8 = 3;
/// How long answers to probes are waited for before new ones are let through: an attempt's deadline and some. The right
/// to probe lasts as long.
pub const PROBE_PATIENCE: Duration = Duration::from_secs(15);
/// How often one without a probe asks again: most probes are answered within a moment.
pub(crate) const BYSTANDER_WAIT: Duration = Duration::from_secs(1);

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

impl Snapshot {
    /// Reads the columns `breaker`, `open_until`, `open_ms` and `changed_at`. None for a name that is not a state's.
    pub fn from_row(breaker: &str, open_until: Option<Timestamp>, open_ms: i32, changed_at: Timestamp) -> Option<Self> {
        let state = match breaker {
            "closed" => State::Closed,
            "open" => State::Open { until: open_until.unwrap_or(changed_at) },
            "half_open" => State::HalfOpen,
            _ => return None,
        };
        let open_for = Duration::from_millis(u64::try_from(open_ms).unwrap_or(0));
        Some(Self { state, open_for, changed_at })
    }

    /// When a change that is made now takes effect: later than this one, however coarse the clock is.
    pub fn followed_at(&self, now: Timestamp) -> Timestamp {
        now.max(self.changed_at + TimeDelta::microseconds(1))
    }

    /// Whether a breaker of which nothing is known would do otherwise, for now or when it trips: one that was broken, and
    /// whose recovery was not seen within an hour, counts as one of which nothing is known.
    pub fn matters(&self, now: Timestamp) -> bool {
        match self.state {
            State::Closed => now < self.calm_at(),
            State::Open { until } => now < until + BROKEN_FOR,
            State::HalfOpen => now < self.changed_at + BROKEN_FOR,
        }
    }

    /// When a trip after a closing is not a repeated one any more.
    fn calm_at(&self) -> Timestamp {
        if self.open_for.is_zero() { self.changed_at } else { self.changed_at + self.open_for.max(CALM_MIN) }
    }

    /// The column `open_until`.
    pub fn open_until(&self) -> Option<Timestamp> {
        match self.state {
            State::Open { until } => Some(until),
            State::Closed | State::HalfOpen => None,
        }
    }

    /// The column `open_ms`.
    pub fn open_ms(&self) -> i32 {
        i32::try_from(self.open_for.as_millis()).unwrap_or(i32::MAX)
    }
}

/// Whether a POST may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Yes: pass its answer and this number to [`Breaker::record`], or the number to [`Breaker::withdraw`].
    Go(u64),
    /// Yes, and its answer decides: pass it to [`Breaker::record_probe`].
    Probe,
    /// Not before this time: defer it by [`super::hold::come_back`].
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
    /// Continues from a stored snapshot, with all probes left.
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
            self.begin_anew(stored);
        }
    }

    /// Whether it is, or would be by now, half-open: what passes is a probe, and only the replica that may probe sends it.
    pub(crate) fn is_probing(&self, now: Timestamp) -> bool {
        match self.snapshot.state {
            State::Closed => false,
            State::Open { until } => until <= now,
            State::HalfOpen => true,
        }
    }

    /// How many probes may start now, for the replica that may probe.
    pub fn probes(&self, now: Timestamp) -> u32 {
        let refilled = matches!(self.snapshot.state, State::Open { .. }) || now >= self.refill_at;
        u32::from(if self.probes_left == 0 && refilled { PROBES } else { self.probes_left })
    }

    /// Whether a POST may start now. Only the replica that `may_probe` gets probes. An opening whose time is over
    /// becomes half-open here.
    pub fn permit(&mut self, now: Timestamp, may_probe: bool) -> Permission {
        match self.snapshot.state {
            State::Closed => {
                self.window.event(now);
                return Permission::Go(self.run.begin());
            }
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
            return Permission::Wait(self.refill_at.min(now + BYSTANDER_WAIT));
        }
        self.probes_left -= 1;
        Permission::Probe
    }

    /// Counts the answer to a POST that was let [go](Permission::Go) under that number and began at that time. Returns
    /// the new state if it changed. What comes back from POSTs that began before the last change changes nothing.
    pub fn record(
        &mut self,
        number: u64,
        posted_at: Timestamp,
        now: Timestamp,
        health: Health,
        settings: &Settings,
    ) -> Option<State> {
        if self.snapshot.state != State::Closed || !self.run.counts(number) {
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
        let Counts { events, hits } = self.window.totals(now);
        let often = events >= settings.circuit_attempts_min
            && f64::from(hits) >= settings.circuit_failure_threshold * f64::from(events);
        let in_a_row = self.run.fail(number) >= settings.circuit_failures_in_a_row;
        (often || in_a_row).then(|| self.trip(now, settings))
    }

    /// A POST that was let [go](Permission::Go) was not made, or its answer says nothing.
    pub fn withdraw(&mut self, number: u64, at: Timestamp) {
        if self.run.counts(number) {
            self.run.void(number);
            self.window.withdraw(at);
        }
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

    /// Opens the breaker until a time, as an operator asks.
    pub fn force_open(&mut self, now: Timestamp, until: Timestamp) {
        self.become_state(now, State::Open { until });
    }

    /// The operator closes it, which probes first. A closed breaker stays closed.
    pub fn force_close(&mut self, now: Timestamp) {
        if self.snapshot.state != State::Closed {
            self.half_open(now);
        }
    }

    /// The operator lets nothing but probes through until one succeeds, wherever it stands.
    pub fn force_probe(&mut self, now: Timestamp) {
        self.half_open(now);
    }

    fn trip(&mut self, now: Timestamp, settings: &Settings) -> State {
        let Snapshot { state, open_for: last, .. } = self.snapshot;
        let repeated = !last.is_zero() && (state == State::HalfOpen || now < self.snapshot.calm_at());
        let open_for = if repeated { last * 2 } else { settings.circuit_open };
        self.snapshot.open_for = open_for.min(settings.circuit_open_max.max(settings.circuit_open));
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
        let changed_at = self.snapshot.followed_at(now);
        self.begin_anew(Snapshot { state, changed_at, ..self.snapshot });
        state
    }

    /// Closes it as if nothing had been recorded. POSTs keep being numbered; those under way no longer count.
    pub fn forget(&mut self) {
        self.begin_anew(Self::closed(Timestamp::UNIX_EPOCH).snapshot);
    }

    fn begin_anew(&mut self, snapshot: Snapshot) {
        self.run.forget();
        *self = Self { run: std::mem::take(&mut self.run), ..Self::restore(snapshot) };
    }
}
