//! One lane and origin: its permits, its holds and its breaker. Pure state: the dispatch engine's queue owns one for each,
//! and the policy simulator one for each replica.

use std::time::Duration;

use super::Settings;
use super::breaker::{BYSTANDER_WAIT, Breaker, Permission, Snapshot, State};
use super::hold::{Held, Hold, INFERRED_LONGEST, LANE_LONGEST};
use super::lane_state::LaneState;
use super::limit::{Limit, STRANGER_MAX};
use super::payload_limit::{BELIEVED_FOR, PayloadLimit, Refusal};
use super::run::Run;
use crate::classify::{Health, Kind, Outcome};
use bellwire_core::clock::Timestamp;
use bellwire_core::lane::Gateway;

/// How often a delivery tries whether a VAPID key is still refused. Its answer is there before the next.
pub const KEY_PROBE_EVERY: Duration = Duration::from_secs(15);

/// A breaker that opens, or stays open, after so many POSTs in a row that reached no gateway does so for this worker alone:
/// as many as the probes of one opening.
const UNREACHED_ALONE: u32 = 3;

/// Deliveries that may be claimed ahead of an origin with few streams, per tier.
const CLAIMED_AHEAD_MIN: u32 = 16;

/// So many different subscriptions that are refused in a row are taken for a refusal of the sender. With 2 % of subscriptions
/// throttled that happens by chance once in 300 million POSTs, with 5 % once in three million.
const SEVERAL: u32 = 5;

/// Whether a POST may start in a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    /// Under this number, by which its answer is told to the breaker.
    Free(u64),
    Probe,
    Shut(Timestamp),
}

/// An answer to a POST, as a lane sees it.
pub struct Answered<'a> {
    pub outcome: &'a Outcome,
    /// Whether its subscription was throttled before, and has accepted nothing since.
    pub known_throttled: bool,
    /// Whether a gateway was reached at all.
    pub reached: bool,
    pub number: u64,
    pub posted_at: Timestamp,
    pub now: Timestamp,
    pub probe: bool,
    pub transactional: bool,
    /// Plaintext octets that were sent, padding included.
    pub octets: u32,
    /// What the gateway had refused before, of the same delivery.
    pub refused: Option<Refusal>,
    pub settings: &'a Settings,
}

/// What this worker may have in flight in each lane: the limit divided among the workers that live.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    pub limit_max: u32,
    pub workers: u32,
}

impl Share {
    /// The most POSTs in flight to one origin, at least one.
    pub fn of(self, gateway: Gateway) -> u32 {
        let all = match gateway {
            Gateway::Other => STRANGER_MAX,
            _ => self.limit_max,
        };
        (all / self.workers.max(1)).max(1)
    }
}

/// Whether what others told of an origin, or of all of a lane, matters still.
pub fn matters(state: &LaneState, now: Timestamp) -> bool {
    let is_held = |held: Option<Held>| held.is_some_and(|held| now < held.until);
    is_held(state.held)
        || is_held(state.key_held)
        || state.breaker.is_some_and(|breaker| breaker.matters(now))
        || state.payload.is_some_and(|learned| learned.max.is_some() && now < learned.at + BELIEVED_FOR)
}

pub struct Lane {
    gateway: Gateway,
    pub limit: Limit,
    /// Requests that the connections to its origin take at a time.
    streams: u32,
    in_flight: u32,
    urgent: u32,
    hold: Hold,
    /// Refusals of single subscriptions, by the numbers of the POSTs.
    refusals: Run,
    key_hold: Hold,
    key_probe_at: Timestamp,
    breaker: Breaker,
    unreached: u32,
    payload: PayloadLimit,
    probe_until: Option<Timestamp>,
    /// When to ask for that right again, after another had it.
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
            breaker: Breaker::closed(Timestamp::UNIX_EPOCH), // whatever others have known is later
            unreached: 0,
            payload: PayloadLimit::default(),
            probe_until: None,
            ask_at: None,
        }
    }

    /// Forgets holds and breaker, so that those of before a change of the clock do not outlive it. Permits stay.
    pub fn forget_state(&mut self) {
        (self.hold, self.key_hold, self.key_probe_at) = (Hold::default(), Hold::default(), Timestamp::UNIX_EPOCH);
        self.breaker.forget();
        self.unreached = 0;
        (self.probe_until, self.ask_at) = (None, None);
    }

    pub fn set_share(&mut self, share: Share) {
        self.limit.set_max(share.of(self.gateway));
    }

    /// Takes over how many requests the connections to its origin take at a time.
    pub fn set_streams(&mut self, streams: u32) {
        self.streams = streams;
        self.limit.set_streams(streams);
    }

    /// POSTs that it can have in flight: its limit, as far as the connections allow.
    pub fn most(&self) -> u32 {
        self.limit.get().min(self.streams)
    }

    /// Deliveries that may be on their way to it.
    pub fn claimed_most(&self) -> u32 {
        self.limit.get().min(self.streams.max(CLAIMED_AHEAD_MIN))
    }

    /// Whether it leads to an origin that nobody vouches for, and that shares a stored lane with others.
    pub fn is_stranger(&self) -> bool {
        self.gateway == Gateway::Other
    }

    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether one more POST fits under the limit. One permit of a lane is kept for transactional deliveries, of which one
    /// may go even while others still use up more than a limit that has just shrunk. After a hold probes go one at a time.
    pub fn has_permit(&self, transactional: bool) -> bool {
        let limit = if self.hold.is_shut_or_probing() { 1 } else { self.limit.get() };
        match transactional {
            true => self.in_flight < limit || self.urgent == 0,
            false => self.in_flight < limit && self.in_flight - self.urgent < limit - u32::from(limit > 1),
        }
    }

    /// Takes a permit, if holds and breaker let a POST start to a subscription that is proven, or not.
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

    /// Until when no POST to a subscription that is proven, or not, may start here: a hold, an opening, another worker that
    /// probes, probes that are out. A refused key can be tried by those only whose subscription it was accepted for before.
    pub fn shut_until(&self, now: Timestamp, proven: bool) -> Option<Timestamp> {
        let key_held_until = match self.key_held_until(now) {
            Some(_) if proven && self.key_probe_at <= now => None,
            Some(until) if proven => Some(until.min(self.key_probe_at)),
            held_until => held_until,
        };
        let broken_until = match self.breaker.snapshot().state {
            State::Closed => None,
            State::Open { until } if now < until => Some(until),
            State::Open { .. } | State::HalfOpen if self.may_probe(now) && self.breaker.probes(now) > 0 => None,
            State::Open { .. } | State::HalfOpen => Some(now + BYSTANDER_WAIT),
        };
        self.hold.until(now).max(key_held_until).max(broken_until)
    }

    /// When its breaker, which is open, lets probes through.
    pub fn opens_at(&self, now: Timestamp) -> Option<Timestamp> {
        self.breaker.snapshot().open_until().filter(|until| now < *until)
    }

    /// How many deliveries may be on their way to it while it is not shut, and whether these are probes, of which there
    /// must not be more.
    pub fn capacity(&self, now: Timestamp) -> (usize, bool) {
        match self.breaker.is_probing(now) {
            true => (self.breaker.probes(now) as usize, true),
            false if self.hold.is_probe(now) => (1, true),
            false => (self.claimed_most() as usize, false),
        }
    }

    /// Its breaker, if it cannot go on without the right to probe, which this worker should ask for now.
    pub fn wants_probe(&self, now: Timestamp) -> Option<Snapshot> {
        let wants = self.breaker.is_probing(now)
            && self.hold.until(now).is_none()
            && !self.may_probe(now)
            && self.ask_at.is_none_or(|at| at <= now);
        wants.then(|| self.breaker.snapshot())
    }

    /// Takes in what asking at `now` for the right to probe a breaker that stood so came to: until when it holds, or none.
    pub fn asked_to_probe(&mut self, known: Snapshot, until: Option<Timestamp>, now: Timestamp) {
        if self.breaker.snapshot() != known {
            return; // something else was heard meanwhile
        }
        self.probe_until = until;
        self.ask_at = Some(now + BYSTANDER_WAIT);
        if until.is_some() {
            self.breaker.adopt(Snapshot { state: State::HalfOpen, changed_at: known.followed_at(now), ..known });
        }
    }

    fn may_probe(&self, now: Timestamp) -> bool {
        self.probe_until.is_some_and(|until| now < until)
    }

    /// Plaintext octets that its gateway is believed to take at most.
    pub fn payload_max(&self, now: Timestamp) -> Option<usize> {
        self.payload.believed(now).map(|octets| octets as usize)
    }

    /// Holds it, but for probes: its VAPID key is refused.
    pub fn hold_key(&mut self, held: Held) {
        self.key_hold.extend(held);
    }

    /// Ends such a hold, as far as it was set by a time.
    pub fn release_key(&mut self, at: Timestamp) {
        self.key_hold.release(at);
    }

    pub fn key_held_until(&self, now: Timestamp) -> Option<Timestamp> {
        self.key_hold.until(now)
    }

    /// Whether throttling, an operator or a refused key holds it.
    pub fn is_held(&self, now: Timestamp) -> bool {
        self.hold.until(now).is_some() || self.key_held_until(now).is_some()
    }

    pub fn is_broken(&self) -> bool {
        self.breaker.snapshot().state != State::Closed
    }

    /// Whether something is known of it that would be missed if it were forgotten. What a strange origin takes is not: there
    /// may be any number of them, and it says so again.
    pub fn matters(&self, now: Timestamp) -> bool {
        let shrinks = !self.is_stranger() && self.payload.believed(now).is_some();
        shrinks || self.is_held(now) || self.breaker.snapshot().matters(now)
    }

    /// Gives a permit back: no POST was made.
    pub fn leave(&mut self, probe: bool, number: u64, transactional: bool, now: Timestamp) {
        self.in_flight -= 1;
        self.urgent -= u32::from(transactional);
        if probe {
            // Nothing was learned; the probe may be given to another.
            self.breaker.record_probe(now, Health::Unknown, &Settings::DEFAULT);
        } else {
            self.breaker.withdraw(number, now);
            self.refusals.void(number);
        }
    }

    /// Gives a permit back with an answer. Notes in `news` what others have to know; false if that is nothing.
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
            // A `Retry-After` here is this delivery's alone: Mozilla sends one with every 503, for a single failed write.
            Kind::Unavailable { .. } | Kind::CutOff | Kind::Throttled => self.limit.failed(),
            Kind::Unprocessed => {}
            // One subscription that is gone does not show that the others are served again.
            Kind::Gone => self.limit.succeeded(),
            _ => {
                self.limit.succeeded();
                self.hold.succeeded(answer.posted_at);
            }
        }
        let accepted = matches!(answer.outcome.kind, Kind::Accepted { .. });
        let key_held = self.key_hold.newest().filter(|_| self.key_held_until(answer.now).is_some());
        news.key_released_at =
            key_held.filter(|held| accepted && held.at <= answer.posted_at).map(|_| answer.posted_at);
        news.payload = match answer.outcome.kind {
            Kind::Accepted { .. } => self.payload.accepted(answer.now, answer.octets, answer.refused),
            Kind::TooLarge => self.payload.refused(answer.now, answer.octets),
            _ => None,
        };
        news.breaker.is_some() || news.held.is_some() || news.payload.is_some() || news.key_released_at.is_some()
    }

    /// Returns the longest hold that an answer sets on the whole lane: one that names the sender, the last of several refusals of
    /// different subscriptions with no acceptance between them, or a refused probe. `None`: it holds its subscription at most.
    fn held_by(&mut self, answer: &Answered<'_>) -> Option<Duration> {
        let &Answered { outcome, number, probe, posted_at, known_throttled, .. } = answer;
        // A 2xx that was no delivery, or a repeated refusal, is a matter of its subscription alone.
        let is_refused = outcome.kind == Kind::Throttled && outcome.status >= Some(400) && !known_throttled;
        let several = match outcome.kind {
            _ if probe => false, // it has no number
            _ if is_refused => self.refusals.fail(number) >= SEVERAL,
            Kind::Accepted { .. } => false,
            _ => {
                self.refusals.void(number);
                false
            }
        };
        match outcome.kind {
            Kind::SenderThrottled => Some(LANE_LONGEST),
            _ if several || is_refused && self.hold.is_probe(posted_at) => Some(INFERRED_LONGEST),
            _ => None,
        }
    }

    /// Takes over what another replica learned or an operator ordered.
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
        // That another one reaches no gateway is its own affair, unless something is wrong here, too.
        let concerns = |snapshot: &Snapshot| !state.alone || self.is_broken() || snapshot.state == State::Closed;
        if let Some(snapshot) = state.breaker.filter(concerns) {
            // The right to probe was for what the breaker was before, unless this is its own news coming back.
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
