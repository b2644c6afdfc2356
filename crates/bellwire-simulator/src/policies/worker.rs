//! One sending process: the server's own [`Lane`], with its permits, its hold and its breaker.

use super::scenario::Scenario;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::id::LaneId;
use bellwire_rules::classify::Outcome;
use bellwire_rules::policy::TierSettings;
use bellwire_rules::policy::breaker::{BreakerState, PROBE_PATIENCE};
use bellwire_rules::policy::lane::{Answered, Lane, Passage, Share};
use bellwire_rules::policy::lane_state::{ALL_ORIGINS, LaneState};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Post {
    pub began_at: Timestamp,
    /// Number by which the breaker identifies the response.
    pub number: u64,
    /// Whether the response decides about a half-open breaker.
    pub probe: bool,
}

pub(super) struct Worker {
    lane: Lane,
    /// Fixed limit, if the lane does not adapt.
    fixed: Option<u32>,
    transactional: bool,
    /// Settings of the policy. Without breakers their threshold is never reached.
    settings: TierSettings,
    /// Whether this worker gets the right to probe.
    is_prober: bool,
    /// Time before which the worker claims nothing, because its lane is shut.
    pub rests_until_us: u64,
    pub trips: u64,
    /// Number of times that throttling closed the open lane.
    pub holds: u64,
}

impl Worker {
    pub(super) fn new(scenario: &Scenario, policy: &TierSettings, number: u32) -> Self {
        let share = Share { limit_max: scenario.workers.concurrency, workers: scenario.workers.replicas };
        let never =
            TierSettings { circuit_failure_threshold: f64::INFINITY, circuit_failures_in_a_row: u32::MAX, ..*policy };
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

    /// Returns the maximum POSTs in flight at present.
    pub(super) fn limit(&self) -> u32 {
        self.fixed.unwrap_or_else(|| self.lane.limit.get())
    }

    /// Returns the POSTs without a response.
    pub(super) fn in_flight(&self) -> u32 {
        self.lane.in_flight()
    }

    /// Whether one more POST is allowed. The last permit of a lane is reserved for transactional deliveries.
    pub(super) fn has_permit(&self) -> bool {
        match self.fixed {
            Some(limit) => self.in_flight() < limit - u32::from(limit > 1 && !self.transactional),
            None => self.lane.has_permit(self.transactional),
        }
    }

    /// Checks hold and breaker, and takes a permit if a POST may start.
    pub(super) fn enter(&mut self, now: Timestamp) -> Passage {
        if let Some(known) = self.lane.wants_probe(now) {
            self.lane.asked_to_probe(known, self.is_prober.then(|| now + PROBE_PATIENCE), now);
        }
        self.lane.enter(now, self.transactional, true)
    }

    /// Applies a response to the lane. Returns the changes for the other replicas.
    pub(super) fn answered(
        &mut self, outcome: &Outcome, known_throttled: bool, post: Post, now: Timestamp,
    ) -> Option<LaneState> {
        let was_held = self.lane.is_held(now);
        let mut news = LaneState::of(LaneId(0), ALL_ORIGINS.into());
        let answered = Answered {
            outcome,
            known_throttled,
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
        self.trips += u64::from(news.breaker.is_some_and(|breaker| matches!(breaker.state, BreakerState::Open { .. })));
        self.holds += u64::from(news.held.is_some() && !was_held);
        told.then_some(news)
    }

    /// Applies a change of another replica.
    pub(super) fn adopt(&mut self, news: &LaneState) {
        self.lane.adopt(news);
    }
}
