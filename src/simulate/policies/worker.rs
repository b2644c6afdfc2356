//! One sending process: its permits, its hold and its breaker, as the server's lanes have them.

use super::scenario::Scenario;
use crate::classify::{Kind, Outcome};
use crate::dispatch::limit::Limit;
use crate::model::clock::Timestamp;
use crate::model::delivery::Tier;
use crate::policy::Settings;
use crate::policy::breaker::{Breaker, Permission, Snapshot, State};
use crate::policy::hold::Hold;

/// Whether a POST may start.
pub(super) enum Passage {
    /// Under this number.
    Free(u64),
    Probe,
    /// Not before this.
    Shut(Timestamp),
}

/// A POST, as its worker knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Post {
    pub began_at: Timestamp,
    /// By which its answer is told to the breaker; none: it is a probe.
    pub number: Option<u64>,
}

/// What others have to obey.
#[derive(Clone, Copy)]
pub(super) struct Change {
    pub held_until: Option<Timestamp>,
    pub breaker: Option<Snapshot>,
}

/// Its state. [`Limit`], [`Hold`] and [`Breaker`] are those of the server.
pub(super) struct Worker {
    limit: Limit,
    /// What stands in for the limit if it does not adapt.
    fixed: Option<u32>,
    transactional: bool,
    pub in_flight: u32,
    hold: Hold,
    /// None: breakers are not asked.
    breaker: Option<Breaker>,
    may_probe: bool,
    /// Until when it claims nothing.
    pub rests_until_us: u64,
    pub trips: u64,
    /// Times that throttling shut the lane while it was open.
    pub holds: u64,
}

impl Worker {
    pub(super) fn new(scenario: &Scenario, number: u32, now: Timestamp) -> Self {
        let share = (scenario.workers.concurrency / scenario.workers.replicas).max(1);
        Self {
            limit: Limit::new(share),
            fixed: (!scenario.workers.adaptive).then_some(share),
            transactional: scenario.tier == Tier::Transactional,
            in_flight: 0,
            hold: Hold::default(),
            breaker: scenario.breaker.then(|| Breaker::closed(now)),
            may_probe: number == 0,
            rests_until_us: 0,
            trips: 0,
            holds: 0,
        }
    }

    /// POSTs that it may have in flight at present.
    pub(super) fn limit(&self) -> u32 {
        self.fixed.unwrap_or_else(|| self.limit.get())
    }

    /// Whether one more POST fits. The last permit of a lane is kept for transactional deliveries.
    pub(super) fn has_permit(&self) -> bool {
        let limit = self.limit();
        let kept = u32::from(limit > 1 && !self.transactional);
        self.in_flight < limit - kept
    }

    /// Asks hold and breaker whether a POST may start.
    pub(super) fn enter(&mut self, now: Timestamp) -> Passage {
        if let Some(until) = self.hold.until(now) {
            return Passage::Shut(until);
        }
        match self.breaker.as_mut().map_or(Permission::Go(0), |breaker| breaker.permit(now, self.may_probe)) {
            Permission::Go(number) => Passage::Free(number),
            Permission::Probe => Passage::Probe,
            Permission::Wait(until) => Passage::Shut(until),
        }
    }

    /// Learns from an answer. Returns what the other replicas have to know.
    pub(super) fn answered(
        &mut self,
        outcome: &Outcome,
        post: Post,
        now: Timestamp,
        settings: &Settings,
    ) -> Option<Change> {
        let health = outcome.health();
        let changed = self.breaker.as_mut().and_then(|breaker| {
            let state = match post.number {
                None => breaker.record_probe(now, health, settings),
                Some(number) => breaker.record(number, post.began_at, now, health, settings),
            };
            state.map(|_| breaker.snapshot())
        });
        self.trips += u64::from(changed.is_some_and(|snapshot| matches!(snapshot.state, State::Open { .. })));
        let mut held_until = None;
        match outcome.kind {
            Kind::Throttled => {
                self.limit.congested();
                self.holds += u64::from(self.hold.until(now).is_none());
                held_until = Some(self.hold.throttled(now, post.began_at, outcome.retry_after));
            }
            Kind::Unavailable { .. } => self.limit.failed(),
            Kind::Unprocessed => {}
            _ => {
                self.limit.succeeded();
                self.hold.succeeded(post.began_at);
            }
        }
        (changed.is_some() || held_until.is_some()).then_some(Change { held_until, breaker: changed })
    }

    /// Obeys what another replica learned at `now`.
    pub(super) fn adopt(&mut self, change: Change, now: Timestamp) {
        if let Some(until) = change.held_until {
            let wait = (until - now).to_std().unwrap_or_default();
            self.hold.throttled(now, now, Some(wait));
        }
        if let (Some(breaker), Some(snapshot)) = (&mut self.breaker, change.breaker) {
            breaker.adopt(snapshot);
        }
    }
}
