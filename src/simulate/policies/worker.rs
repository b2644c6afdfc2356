//! One sending process: the server's own [`Lane`], with its permits, its hold and its breaker.

use super::scenario::Scenario;
use crate::classify::{Kind, Outcome};
use crate::model::clock::Timestamp;
use crate::model::delivery::Tier;
use crate::model::id::LaneId;
use crate::policy::Settings;
use crate::policy::breaker::{PROBE_PATIENCE, State};
use crate::policy::lane::{Answered, Lane, Passage, Share};
use crate::policy::lane_state::{ALL_ORIGINS, LaneState};

/// A POST, as its worker knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Post {
    pub began_at: Timestamp,
    /// By which its answer is told to the breaker.
    pub number: u64,
    /// Whether its answer decides over a half-open breaker.
    pub probe: bool,
}

/// Its state.
pub(super) struct Worker {
    lane: Lane,
    /// What stands in for the lane's limit if it is not to adapt.
    fixed: Option<u32>,
    transactional: bool,
    /// The policy's, but for a breaker that is not to open.
    settings: Settings,
    /// Whether it is the one that gets the right to probe.
    is_prober: bool,
    /// Until when it claims nothing.
    pub rests_until_us: u64,
    pub trips: u64,
    /// Times that throttling shut the lane while it was open.
    pub holds: u64,
}

impl Worker {
    pub(super) fn new(scenario: &Scenario, policy: &Settings, number: u32) -> Self {
        let share = Share { limit_max: scenario.workers.concurrency, workers: scenario.workers.replicas };
        let never =
            Settings { circuit_failure_threshold: f64::INFINITY, circuit_failures_in_a_row: u32::MAX, ..*policy };
        Self {
            lane: Lane::new(scenario.gateway.kind, share),
            fixed: (!scenario.workers.adaptive).then(|| share.of(scenario.gateway.kind)),
            transactional: scenario.tier == Tier::Transactional,
            settings: if scenario.breaker { *policy } else { never },
            is_prober: number == 0,
            rests_until_us: 0,
            trips: 0,
            holds: 0,
        }
    }

    /// POSTs that it may have in flight at present.
    pub(super) fn limit(&self) -> u32 {
        self.fixed.unwrap_or_else(|| self.lane.limit.get())
    }

    /// POSTs without an answer.
    pub(super) fn in_flight(&self) -> u32 {
        self.lane.in_flight()
    }

    /// Whether one more POST fits. The last permit of a lane is kept for transactional deliveries.
    pub(super) fn has_permit(&self) -> bool {
        match self.fixed {
            Some(limit) => self.in_flight() < limit - u32::from(limit > 1 && !self.transactional),
            None => self.lane.has_permit(self.transactional),
        }
    }

    /// Asks hold and breaker whether a POST may start, and takes a permit if it may.
    pub(super) fn enter(&mut self, now: Timestamp) -> Passage {
        if let Some(known) = self.lane.wants_probe(now) {
            self.lane.asked_to_probe(known, self.is_prober.then(|| now + PROBE_PATIENCE), now);
        }
        self.lane.enter(now, self.transactional, true)
    }

    /// Learns from an answer. Returns what the other replicas have to know.
    pub(super) fn answered(&mut self, outcome: &Outcome, post: Post, now: Timestamp) -> Option<LaneState> {
        let was_held = self.lane.is_held(now);
        let mut news = LaneState::of(LaneId(0), ALL_ORIGINS.into());
        let answered = Answered {
            outcome,
            reached: true,
            number: post.number,
            posted_at: post.began_at,
            now,
            probe: post.probe,
            transactional: self.transactional,
            octets: 0, // payloads have no size here
            refused: None,
            settings: &self.settings,
        };
        let told = self.lane.answered(&answered, &mut news);
        self.trips += u64::from(news.breaker.is_some_and(|breaker| matches!(breaker.state, State::Open { .. })));
        self.holds += u64::from(outcome.kind == Kind::Throttled && !was_held);
        told.then_some(news)
    }

    /// Obeys what another replica learned.
    pub(super) fn adopt(&mut self, news: &LaneState) {
        self.lane.adopt(news);
    }
}
