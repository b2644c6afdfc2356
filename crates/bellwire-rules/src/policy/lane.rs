//! State of one lane and origin: permits, holds and breaker. Pure: dispatch has one for each origin, and the policy simulator
//! one for each replica.

use std::time::Duration;

use super::TierSettings;
use super::breaker::{BYSTANDER_WAIT, Breaker, BreakerState, Permission, Snapshot};
use super::hold::{Hold, HoldReason, INFERRED_LONGEST, LANE_LONGEST};
use super::lane_state::LaneState;
use super::limit::{Limit, STRANGER_MAX};
use super::payload_limit::{BELIEVED_FOR, PayloadLimit, PayloadRefusal};
use super::run::Run;
use crate::classify::{Health, Outcome, ResponseKind};
use bellwire_core::clock::Timestamp;
use bellwire_core::lane::Gateway;

/// Interval of deliveries that test whether a VAPID key is still refused. It is longer than a response takes.
pub const KEY_PROBE_EVERY: Duration = Duration::from_secs(15);

/// Number of consecutive POSTs that reach no push service after which a breaker opens, or stays open, for this worker only. It
/// equals the probes of one opening.
const UNREACHED_ALONE: u32 = 3;

/// Minimum deliveries per tier that are claimed in advance for an origin with few streams.
const CLAIMED_AHEAD_MIN: u32 = 16;

/// Number of different subscriptions refused in a row that count as a refusal of the sender. If 2 % of subscriptions are
/// throttled, this happens by chance once in 300 million POSTs, with 5 % once in three million.
const SEVERAL: u32 = 5;

/// Decision whether a POST may start in a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// Start. The number identifies its response for the breaker.
    Free(u64),
    Probe,
    Shut(Timestamp),
}

/// Response to a POST, with the values that a lane needs.
pub struct Answered<'a> {
    pub outcome: &'a Outcome,
    /// Whether its subscription was throttled before and has not accepted a push since.
    pub known_throttled: bool,
    /// Whether the POST reached a push service.
    pub reached: bool,
    pub number: u64,
    pub posted_at: Timestamp,
    pub now: Timestamp,
    pub probe: bool,
    pub transactional: bool,
    /// Plaintext bytes of the POST, including padding.
    pub octets: u32,
    /// Earlier refusal of the same delivery as too large. `None`: none.
    pub refused: Option<PayloadRefusal>,
    pub settings: &'a TierSettings,
}

/// Maximum POSTs in flight of this worker in each lane: the limit divided by the number of live workers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    pub limit_max: u32,
    pub workers: u32,
}

impl Share {
    /// Returns the maximum POSTs in flight to one origin, at least one.
    pub fn of(self, gateway: Gateway) -> u32 {
        let all = match gateway {
            Gateway::Other => STRANGER_MAX,
            _ => self.limit_max,
        };
        (all / self.workers.max(1)).max(1)
    }
}

/// Whether a stored state of an origin, or of all origins of a lane, still has an effect.
pub fn matters(state: &LaneState, now: Timestamp) -> bool {
    let is_held = |held: Option<HoldReason>| held.is_some_and(|held| now < held.until);
    is_held(state.held)
        || is_held(state.key_held)
        || state.breaker.is_some_and(|breaker| breaker.matters(now))
        || state.payload.is_some_and(|learned| learned.max.is_some() && now < learned.at + BELIEVED_FOR)
}

pub struct Lane {
    gateway: Gateway,
    pub limit: Limit,
    /// Concurrent requests that the connections to its origin allow.
    streams: u32,
    in_flight: u32,
    urgent: u32,
    hold: Hold,
    /// Refusals of single subscriptions, by the number of the POST.
    refusals: Run,
    key_hold: Hold,
    key_probe_at: Timestamp,
    breaker: Breaker,
    unreached: u32,
    payload: PayloadLimit,
    probe_until: Option<Timestamp>,
    /// Time at which to request the probe lease again, after another worker had it.
    ask_at: Option<Timestamp>,
}

impl Lane {
    pub fn new(gateway: Gateway, share: Share) -> Self {
        Self {
            gateway,
            limit: Limit::new(share.of(gateway)),
            streams: u32::MAX,
            in_flight: 0,
            urgent: 0,
            hold: Hold::default(),
            refusals: Run::default(),
            key_hold: Hold::default(),
            key_probe_at: Timestamp::UNIX_EPOCH,
            breaker: Breaker::closed(Timestamp::UNIX_EPOCH), // any state of another worker is later
            unreached: 0,
            payload: PayloadLimit::default(),
            probe_until: None,
            ask_at: None,
        }
    }

    /// Drops holds and breaker, because a clock change makes them invalid. Permits stay.
    pub fn forget_state(&mut self) {
        (self.hold, self.key_hold, self.key_probe_at) = (Hold::default(), Hold::default(), Timestamp::UNIX_EPOCH);
        self.breaker.forget();
        self.unreached = 0;
        (self.probe_until, self.ask_at) = (None, None);
    }

    pub fn set_share(&mut self, share: Share) {
        self.limit.set_max(share.of(self.gateway));
    }

    /// Sets the concurrent requests that the connections to its origin allow.
    pub fn set_streams(&mut self, streams: u32) {
        self.streams = streams;
        self.limit.set_streams(streams);
    }

    /// Returns the maximum POSTs in flight: its limit, at most the streams of the connections.
    pub fn most(&self) -> u32 {
        self.limit.get().min(self.streams)
    }

    /// Returns the maximum claimed deliveries.
    pub fn claimed_most(&self) -> u32 {
        self.limit.get().min(self.streams.max(CLAIMED_AHEAD_MIN))
    }

    /// Whether the push service is unknown: it shares a lane with other unknown ones.
    pub fn is_stranger(&self) -> bool {
        self.gateway == Gateway::Other
    }

    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether one more POST fits into the limit. One permit of a lane is reserved for transactional deliveries. One of these
    /// may start even if a reduced limit is exceeded. After a hold, probes start one at a time.
    pub fn has_permit(&self, transactional: bool) -> bool {
        let limit = if self.hold.is_shut_or_probing() { 1 } else { self.limit.get() };
        match transactional {
            true => self.in_flight < limit || self.urgent == 0,
            false => self.in_flight < limit && self.in_flight - self.urgent < limit - u32::from(limit > 1),
        }
    }

    /// Takes a permit if holds and breaker allow a POST. `proven`: the subscription accepted a push before.
    pub fn enter(&mut self, now: Timestamp, transactional: bool, proven: bool) -> Passage {
        if let Some(until) = self.shut_until(now, proven) {
            return Passage::Shut(until);
        }
        self.hold.stop_probing_late(now);
        let passage = match self.breaker.permit(now, self.may_probe(now)) {
            Permission::Go(number) => {
                let watched = self.refusals.begin();
                debug_assert_eq!(watched, number, "both number the POSTs that are free to go");
                Passage::Free(number)
            }
            Permission::Probe => Passage::Probe,
            Permission::Wait(until) => return Passage::Shut(until),
        };
        if self.key_held_until(now).is_some() {
            self.key_probe_at = now + KEY_PROBE_EVERY;
        }
        self.in_flight += 1;
        self.urgent += u32::from(transactional);
        passage
    }

    /// Returns the time until which a hold, an open breaker, another worker's probe lease or running probes prevent POSTs. A
    /// refused key is tested only with proven subscriptions.
    pub fn shut_until(&self, now: Timestamp, proven: bool) -> Option<Timestamp> {
        let key_held_until = match self.key_held_until(now) {
            Some(_) if proven && self.key_probe_at <= now => None,
            Some(until) if proven => Some(until.min(self.key_probe_at)),
            held_until => held_until,
        };
        let broken_until = match self.breaker.snapshot().state {
            BreakerState::Closed => None,
            BreakerState::Open { until } if now < until => Some(until),
            BreakerState::Open { .. } | BreakerState::HalfOpen
                if self.may_probe(now) && self.breaker.probes(now) > 0 =>
            {
                None
            }
            BreakerState::Open { .. } | BreakerState::HalfOpen => Some(now + BYSTANDER_WAIT),
        };
        self.hold.until(now).max(key_held_until).max(broken_until)
    }

    /// Returns the time from which its open breaker allows probes.
    pub fn opens_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.breaker.snapshot().open_until().filter(|until| now < *until)
    }

    /// Returns the maximum claimed deliveries while it is open, and whether they are probes, whose number must not be exceeded.
    pub fn capacity(&self, now: Timestamp) -> (usize, bool) {
        match self.breaker.is_probing(now) {
            true => (self.breaker.probes(now) as usize, true),
            false if self.hold.is_probe(now) => (1, true),
            false => (self.claimed_most() as usize, false),
        }
    }

    /// Returns its breaker if this worker should request the probe lease now.
    pub fn wants_probe(&self, now: Timestamp) -> Option<Snapshot> {
        let wants = self.breaker.is_probing(now)
            && self.hold.until(now).is_none()
            && !self.may_probe(now)
            && self.ask_at.is_none_or(|at| at <= now);
        wants.then(|| self.breaker.snapshot())
    }

    /// Processes the result of a request at `now` for the probe lease of a breaker: the end of the lease, or `None`.
    pub fn asked_to_probe(&mut self, known: Snapshot, until: Option<Timestamp>, now: Timestamp) {
        if self.breaker.snapshot() != known {
            return; // something else was heard meanwhile
        }
        self.probe_until = until;
        self.ask_at = Some(now + BYSTANDER_WAIT);
        if until.is_some() {
            self.breaker.adopt(Snapshot { state: BreakerState::HalfOpen, changed_at: known.followed_at(now), ..known });
        }
    }

    fn may_probe(&self, now: Timestamp) -> bool {
        self.probe_until.is_some_and(|until| now < until)
    }

    /// Returns the estimated maximum plaintext bytes that the push service accepts. `None`: no limit was observed.
    pub fn payload_max(&self, now: Timestamp) -> Option<usize> {
        self.payload.believed(now).map(|octets| octets as usize)
    }

    /// Holds the lane except for probes, because its VAPID key is refused.
    pub fn hold_key(&mut self, held: HoldReason) {
        self.key_hold.extend(held);
    }

    /// Ends the hold of a refused key if it was set before a time.
    pub fn release_key(&mut self, at: Timestamp) {
        self.key_hold.release(at);
    }

    pub fn key_held_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.key_hold.until(now)
    }

    /// Whether throttling, an operator or a refused key holds the lane.
    pub fn is_held(&self, now: Timestamp) -> bool {
        self.hold.until(now).is_some() || self.key_held_until(now).is_some()
    }

    pub fn is_broken(&self) -> bool {
        self.breaker.snapshot().state != BreakerState::Closed
    }

    /// Whether it has state worth keeping. The payload limit of an unknown push service is not kept: there may be any number of
    /// them, and they state the limit again.
    pub fn matters(&self, now: Timestamp) -> bool {
        let shrinks = !self.is_stranger() && self.payload.believed(now).is_some();
        shrinks || self.is_held(now) || self.breaker.snapshot().matters(now)
    }

    /// Returns a permit if no POST was made.
    pub fn leave(&mut self, probe: bool, number: u64, transactional: bool, now: Timestamp) {
        self.in_flight -= 1;
        self.urgent -= u32::from(transactional);
        if probe {
            // No result: the probe may be used by another delivery.
            self.breaker.record_probe(now, Health::Unknown, &TierSettings::DEFAULT);
        } else {
            self.breaker.withdraw(number, now);
            self.refusals.void(number);
        }
    }

    /// Returns a permit with a response. Writes state for other replicas to `news`, and returns whether it wrote any.
    pub fn answered(&mut self, answer: &Answered<'_>, news: &mut LaneState) -> bool {
        self.in_flight -= 1;
        self.urgent -= u32::from(answer.transactional);
        let health = answer.outcome.health();
        news.breaker = if answer.probe {
            self.breaker.record_probe(answer.now, health, answer.settings)
        } else {
            self.breaker.record(answer.number, answer.posted_at, answer.now, health, answer.settings)
        }
        .map(|_| self.breaker.snapshot());
        self.unreached = if answer.reached { 0 } else { self.unreached.saturating_add(1) };
        news.alone = news.breaker.is_some() && self.is_broken() && self.unreached >= UNREACHED_ALONE;
        match answer.outcome.kind {
            _ if let Some(longest) = self.held_by(answer) => {
                self.limit.congested();
                let wait = answer.outcome.retry_after.map(|wait| wait.min(longest));
                self.hold.throttled(answer.now, answer.posted_at, wait);
                news.held = self.hold.newest();
            }
            // A `Retry-After` applies to this delivery alone: Mozilla sends one with each 503, for a single failed write.
            ResponseKind::Unavailable { .. } | ResponseKind::CutOff | ResponseKind::Throttled => self.limit.failed(),
            ResponseKind::Unprocessed => {}
            // One gone subscription does not show that the gateway accepts others again.
            ResponseKind::Gone => self.limit.succeeded(),
            _ => {
                self.limit.succeeded();
                self.hold.succeeded(answer.posted_at);
            }
        }
        let accepted = matches!(answer.outcome.kind, ResponseKind::Accepted { .. });
        let key_held = self.key_hold.newest().filter(|_| self.key_held_until(answer.now).is_some());
        news.key_released_at =
            key_held.filter(|held| accepted && held.at <= answer.posted_at).map(|_| answer.posted_at);
        news.payload = match answer.outcome.kind {
            ResponseKind::Accepted { .. } => self.payload.accepted(answer.now, answer.octets, answer.refused),
            ResponseKind::TooLarge => self.payload.refused(answer.now, answer.octets),
            _ => None,
        };
        news.breaker.is_some() || news.held.is_some() || news.payload.is_some() || news.key_released_at.is_some()
    }

    /// Returns the longest hold of the whole lane that a response can cause: one that names the sender, the last of several
    /// refusals of different subscriptions without an acceptance in between, or a refused probe. `None`: only the subscription
    /// is held.
    fn held_by(&mut self, answer: &Answered<'_>) -> Option<Duration> {
        let &Answered { outcome, number, probe, posted_at, known_throttled, .. } = answer;
        // A 2xx without delivery, or a repeated refusal, concerns its subscription alone.
        let is_refused = outcome.kind == ResponseKind::Throttled && outcome.status >= Some(400) && !known_throttled;
        let several = match outcome.kind {
            _ if probe => false, // it has no number
            _ if is_refused => self.refusals.fail(number) >= SEVERAL,
            ResponseKind::Accepted { .. } => false,
            _ => {
                self.refusals.void(number);
                false
            }
        };
        match outcome.kind {
            ResponseKind::SenderThrottled => Some(LANE_LONGEST),
            _ if several || is_refused && self.hold.is_probe(posted_at) => Some(INFERRED_LONGEST),
            _ => None,
        }
    }

    /// Adopts a state that another replica observed or an operator ordered.
    pub fn adopt(&mut self, state: &LaneState) {
        if let Some(at) = state.released_at {
            self.hold.release(at);
            self.key_hold.release(at);
        }
        if let Some(held) = state.held {
            self.hold.extend(held);
        }
        if let Some(at) = state.key_released_at {
            self.key_hold.release(at);
        }
        if let Some(held) = state.key_held {
            self.key_hold.extend(held);
        }
        // Another worker that reaches no gateway does not matter here, unless this worker has trouble, too.
        let concerns = |snapshot: &Snapshot| !state.alone || self.is_broken() || snapshot.state == BreakerState::Closed;
        if let Some(snapshot) = state.breaker.filter(concerns) {
            // The probe lease was for the former state of the breaker, unless this is the worker's own update.
            if snapshot.changed_at > self.breaker.snapshot().changed_at {
                (self.probe_until, self.ask_at) = (None, None);
            }
            self.breaker.adopt(snapshot);
        }
        if let Some(learned) = state.payload {
            self.payload.adopt(learned);
        }
    }
}
