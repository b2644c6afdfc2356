//! One lane and origin: its permits, its hold and its breaker. Pure state; the fair queue owns it.

use super::limit::{Limit, STRANGER_MAX};
use crate::classify::{Health, Kind, Outcome};
use crate::clock::Timestamp;
use crate::lane::Gateway;
use crate::policy::Settings;
use crate::policy::breaker::{Breaker, Permission, Snapshot, State};
use crate::policy::hold::Hold;

/// Whether a POST may start in a lane.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Passage {
    Free,
    /// Its answer decides over a half-open breaker.
    Probe,
    /// Not before this.
    Shut(Timestamp),
}

/// An answer to a POST, as a lane sees it.
pub struct Answered<'a> {
    pub outcome: &'a Outcome,
    pub posted_at: Timestamp,
    pub now: Timestamp,
    pub probe: bool,
    pub transactional: bool,
    pub settings: &'a Settings,
}

/// What one replica learned of a lane and the others have to obey.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Change {
    pub held_until: Option<Timestamp>,
    pub breaker: Option<Snapshot>,
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

/// A lane's state in this process.
pub struct Lane {
    gateway: Gateway,
    pub limit: Limit,
    in_flight: u32,
    /// Those of `in_flight` that are transactional.
    urgent: u32,
    hold: Hold,
    breaker: Breaker,
}

impl Lane {
    pub fn new(gateway: Gateway, share: Share, now: Timestamp) -> Self {
        let limit = Limit::new(share.of(gateway));
        Self { gateway, limit, in_flight: 0, urgent: 0, hold: Hold::default(), breaker: Breaker::closed(now) }
    }

    /// Takes another share of the lane's permits.
    pub fn set_share(&mut self, share: Share) {
        self.limit.set_max(share.of(self.gateway));
    }

    /// Whether it leads to an origin that nobody vouches for, and that shares a stored lane with others.
    pub fn is_stranger(&self) -> bool {
        self.gateway == Gateway::Other
    }

    pub fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Whether one more POST fits under the limit. The last permit of a lane is kept for transactional deliveries, of
    /// which one may go even while others still use up more than a limit that has just shrunk.
    pub fn has_permit(&self, transactional: bool) -> bool {
        let limit = self.limit.get();
        match transactional {
            true => self.in_flight < limit || self.urgent == 0,
            false => self.in_flight < limit - u32::from(limit > 1),
        }
    }

    /// Takes a permit, if hold and breaker let a POST start.
    pub fn enter(&mut self, now: Timestamp, transactional: bool) -> Passage {
        if let Some(until) = self.hold.until(now) {
            return Passage::Shut(until);
        }
        let passage = match self.breaker.permit(now, true) {
            Permission::Go => Passage::Free,
            Permission::Probe => Passage::Probe,
            Permission::Wait(until) => return Passage::Shut(until),
        };
        self.in_flight += 1;
        self.urgent += u32::from(transactional);
        passage
    }

    /// Until when nothing may start, as far as it can be told without asking for a probe.
    pub fn shut_until(&self, now: Timestamp) -> Option<Timestamp> {
        let open_until = match self.breaker.snapshot().state {
            State::Open { until } => Some(until).filter(|until| now < *until),
            State::Closed | State::HalfOpen => None,
        };
        self.hold.until(now).max(open_until)
    }

    /// Whether throttling holds it.
    pub fn is_held(&self, now: Timestamp) -> bool {
        self.hold.until(now).is_some()
    }

    /// Whether its breaker is open or half open.
    pub fn is_broken(&self) -> bool {
        self.breaker.snapshot().state != State::Closed
    }

    /// Gives a permit back: no POST was made.
    pub fn leave(&mut self, probe: bool, transactional: bool, now: Timestamp) {
        self.in_flight -= 1;
        self.urgent -= u32::from(transactional);
        if probe {
            // Nothing was learned; the probe may be given to another.
            self.breaker.record_probe(now, Health::Unknown, &Settings::DEFAULT);
        }
    }

    /// Gives a permit back with an answer. Answers a change that others have to know.
    pub fn answered(&mut self, answer: &Answered<'_>) -> Option<Change> {
        self.in_flight -= 1;
        self.urgent -= u32::from(answer.transactional);
        let health = answer.outcome.health();
        let breaker = if answer.probe {
            self.breaker.record_probe(answer.now, health, answer.settings)
        } else {
            self.breaker.record(answer.now, health, answer.settings)
        }
        .map(|_| self.breaker.snapshot());
        let held_until = match answer.outcome.kind {
            Kind::Throttled => {
                self.limit.congested();
                Some(self.hold.throttled(answer.now, answer.posted_at, answer.outcome.retry_after))
            }
            // A `Retry-After` here is this delivery's alone: Mozilla sends one with every 503, for a single failed write.
            Kind::Unavailable { .. } => {
                self.limit.failed();
                None
            }
            Kind::Unprocessed => None,
            _ => {
                self.limit.succeeded();
                self.hold.succeeded(answer.posted_at);
                None
            }
        };
        (breaker.is_some() || held_until.is_some()).then_some(Change { held_until, breaker })
    }

    /// Takes over what another replica learned.
    pub fn adopt(&mut self, change: &Change) {
        if let Some(until) = change.held_until {
            self.hold.extend(until);
        }
        if let Some(snapshot) = change.breaker {
            self.breaker.adopt(snapshot);
        }
    }
}
