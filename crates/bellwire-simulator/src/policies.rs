//! The policy simulator: the server's own rules — [`bellwire_rules::policy`] with its lanes, and [`classify`](bellwire_rules::classify) — on
//! a simulated clock, against a described gateway.
//!
//! ```text
//! arrivals ─► backlog (by due time) ─► worker: permit → hold → breaker ─► gateway ─► classify → decide
//!                ▲                          │ shut: deferred                               │
//!                └───────── due again ◄─────┴──────────────── retry ◄─────────────────────┘
//! ```
//!
//! One lane is simulated. Sealing, connections and the database take no time: due deliveries are claimed at once, in
//! the order of their due times. A closed lane defers the deliveries in memory; the other ones stay due and are claimed
//! when the lane opens, as fast as permits allow.
//!
//! The simulation is one thread with its own queue of events. It is deterministic: the same scenario, policy and seed
//! give the same report.

mod gateway;
mod report;
mod scenario;
mod worker;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::time::Duration;

use rand::rngs::StdRng;
use rand::{RngExt as _, SeedableRng as _};

use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_rules::classify::{Outcome, ResponseKind};
use bellwire_rules::policy::breaker::BreakerState;
use bellwire_rules::policy::hold::{self, HoldReason};
use bellwire_rules::policy::lane::Passage;
use bellwire_rules::policy::{NextStep, Policy, RetryDelay, Situation, decide, remaining_ttl_s};
use gateway::{ResponseIndex, Stub};
use report::SimulationTally;
use worker::{Post, Worker};

pub use report::LoadSeries;
pub use report::{SimulationReport, compare};
pub use scenario::Scenario;
pub use scenario::{BuiltInScenario, FaultPeriod, ScenarioError};

/// Maximum steps at the command line. A policy with very many retries against a gateway that never answers would run
/// for ever. A million steps take one to two seconds.
pub const STEPS_MAX: u64 = 200_000_000;

/// Error of a simulation that exceeds its maximum steps.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("takes more than {steps_max} steps: fewer deliveries, fewer retries or a shorter time to live make it shorter")]
pub struct TooLong {
    steps_max: u64,
}

/// Simulates `scenario` under `policy` until every delivery has ended, in at most `steps_max` steps.
pub fn run(scenario: &Scenario, policy: &Policy, seed: u64, steps_max: u64) -> Result<SimulationReport, TooLong> {
    Simulation::new(scenario, policy, seed, steps_max).run()
}

#[derive(Debug, PartialEq, Eq)]
enum SimulationEvent {
    Arrival,
    Due(u32),
    Wake,
    Answer { worker: u8, delivery: u32, told: ResponseIndex, post: Post },
}

/// An event and its time. Events of the same time happen in the order in which they were added.
#[derive(Debug, PartialEq, Eq)]
struct Planned {
    at_us: u64,
    order: u64,
    event: SimulationEvent,
}

impl Ord for Planned {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_us, self.order).cmp(&(other.at_us, other.order))
    }
}

impl PartialOrd for Planned {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

struct Simulation<'a> {
    scenario: &'a Scenario,
    policy: &'a Policy,
    ttl_s: u32,
    rng: StdRng,
    gateway: Stub<'a>,
    workers: Vec<Worker>,
    now_us: u64,
    events: BinaryHeap<Reverse<Planned>>,
    planned: u64,
    steps_max: u64,
    arrived: u32,
    backlog: VecDeque<u32>,
    retries: Vec<u32>,
    holds: HashMap<u32, HoldReason>,
    tally: SimulationTally,
}

/// Time on the simulated clock, which starts at 1970.
fn at(us: u64) -> Timestamp {
    Timestamp::UNIX_EPOCH + Duration::from_micros(us)
}

fn micros(time: Timestamp) -> u64 {
    u64::try_from(time.timestamp_micros()).unwrap_or(0)
}

impl<'a> Simulation<'a> {
    fn new(scenario: &'a Scenario, policy: &'a Policy, seed: u64, steps_max: u64) -> Self {
        Self {
            scenario,
            policy,
            ttl_s: scenario.ttl_s(),
            rng: StdRng::seed_from_u64(seed),
            gateway: Stub::new(&scenario.gateway),
            workers: (0..scenario.workers.replicas)
                .map(|number| Worker::new(scenario, &policy.settings, number))
                .collect(),
            now_us: 0,
            events: BinaryHeap::new(),
            planned: 0,
            steps_max,
            arrived: 0,
            backlog: VecDeque::new(),
            retries: vec![0; scenario.arrival.deliveries as usize],
            holds: HashMap::new(),
            tally: SimulationTally::new(scenario),
        }
    }

    fn run(mut self) -> Result<SimulationReport, TooLong> {
        self.plan(0, SimulationEvent::Arrival);
        while let Some(Reverse(Planned { at_us, event, .. })) = self.events.pop() {
            if self.planned > self.steps_max {
                return Err(TooLong { steps_max: self.steps_max });
            }
            self.now_us = at_us;
            match event {
                SimulationEvent::Arrival => self.arrive(),
                SimulationEvent::Due(delivery) => self.backlog.push_back(delivery),
                SimulationEvent::Wake => {}
                SimulationEvent::Answer { worker, delivery, told, post } => {
                    self.answer(usize::from(worker), delivery, told, post);
                }
            }
            for worker in 0..self.workers.len() {
                self.fill(worker);
            }
        }
        self.tally.trips = self.workers.iter().map(|worker| worker.trips).sum();
        self.tally.holds = self.workers.iter().map(|worker| worker.holds).sum();
        Ok(self.tally.report())
    }

    fn plan(&mut self, at_us: u64, event: SimulationEvent) {
        self.planned += 1;
        self.events.push(Reverse(Planned { at_us: at_us.max(self.now_us), order: self.planned, event }));
    }

    fn arrive(&mut self) {
        self.backlog.push_back(self.arrived);
        self.arrived += 1;
        if self.arrived < self.scenario.arrival.deliveries {
            self.plan(self.arrival_us(self.arrived), SimulationEvent::Arrival);
        }
    }

    fn arrival_us(&self, delivery: u32) -> u64 {
        let share = f64::from(delivery) / f64::from(self.scenario.arrival.deliveries);
        (share * self.scenario.arrival.over_s * 1e6) as u64
    }

    fn expires_at(&self, delivery: u32) -> Timestamp {
        at(self.arrival_us(delivery)) + Duration::from_secs(self.ttl_s.into())
    }

    /// Lets a worker claim due deliveries while it has permits and its lane is open.
    fn fill(&mut self, worker: usize) {
        let now = at(self.now_us);
        while self.workers[worker].rests_until_us <= self.now_us && self.workers[worker].has_permit() {
            let Some(delivery) = self.backlog.pop_front() else { return };
            if remaining_ttl_s(now, self.expires_at(delivery), self.ttl_s).is_none() {
                self.tally.expired();
                continue;
            }
            match self.workers[worker].enter(now) {
                Passage::Free(number) => self.post(worker, delivery, number, false),
                Passage::Probe => self.post(worker, delivery, 0, true),
                Passage::Shut(until) => {
                    self.backlog.push_front(delivery);
                    self.defer(worker, until);
                }
            }
        }
    }

    fn post(&mut self, worker: usize, delivery: u32, number: u64, probe: bool) {
        let (told, took) = self.gateway.take(self.now_us, delivery, &mut self.rng);
        self.tally.posted(self.now_us);
        let at_us = self.now_us + took.as_micros() as u64;
        let worker = worker as u8; // at most 16 of them
        let post = Post { began_at: at(self.now_us), number, probe };
        self.plan(at_us, SimulationEvent::Answer { worker, delivery, told, post });
    }

    /// Defers as many deliveries as a worker would have in memory, and lets the worker wait until the lane opens.
    fn defer(&mut self, worker: usize, until: Timestamp) {
        for _ in 0..self.workers[worker].limit() {
            let Some(delivery) = self.backlog.pop_front() else { break };
            let randomness = if self.scenario.jitter { self.rng.random() } else { 0.0 };
            let due = hold::reopens_at(until, self.scenario.tier == Tier::Transactional, randomness);
            self.tally.deferred += 1;
            self.plan(micros(due), SimulationEvent::Due(delivery));
        }
        // The breaker may open at this very time; a refused worker asks again a little later.
        let until_us = micros(until).max(self.now_us + 1);
        self.workers[worker].rests_until_us = until_us;
        self.plan(until_us, SimulationEvent::Wake);
    }

    fn answer(&mut self, worker: usize, delivery: u32, told: ResponseIndex, post: Post) {
        let now = at(self.now_us);
        let mut outcome = self.gateway.outcome(told, now);
        let before = self.holds.get(&delivery).copied();
        let news = self.workers[worker].answered(&outcome, before.is_some(), post, now);
        let lane_held = news.as_ref().and_then(|news| news.held);
        if let Some(news) = news {
            for (number, other) in self.workers.iter_mut().enumerate() {
                if number != worker {
                    other.adopt(&news);
                }
                // The cause of the wait is over. The worker notices other changes by itself.
                if news.breaker.is_some_and(|snapshot| snapshot.state == BreakerState::Closed) {
                    other.rests_until_us = 0;
                }
            }
        }
        match lane_held {
            Some(held) => outcome.bound_wait(now, held.until),
            // Each delivery has its own subscription.
            None if outcome.kind == ResponseKind::Throttled => {
                let held = hold::of_throttled_subscription(before, post.began_at, now, outcome.retry_after);
                self.holds.insert(delivery, held);
            }
            None => {}
        }
        let wave = if self.scenario.tier == Tier::Transactional { 0 } else { self.workers[worker].in_flight() };
        self.conclude(delivery, &outcome, now, micros(post.began_at), wave);
    }

    fn conclude(&mut self, delivery: u32, outcome: &Outcome, now: Timestamp, posted_at_us: u64, wave: u32) {
        let retries = self.retries[delivery as usize];
        let attempt = Situation {
            retries,
            now,
            accepted_at: at(self.arrival_us(delivery)),
            expires_at: self.expires_at(delivery),
            can_shrink: false,
            wave: if self.scenario.jitter { wave } else { 0 },
            held_for: self.holds.get(&delivery).map_or(Duration::ZERO, |held| held.rest(now)),
        };
        let randomness = match self.scenario.jitter {
            true => self.rng.random(),
            false => nominal(self.policy, outcome.kind, retries),
        };
        match decide(outcome, self.policy, &attempt, randomness) {
            NextStep::Accepted => {
                let took_us = self.now_us - self.arrival_us(delivery);
                self.tally.accepted(posted_at_us, took_us, retries);
            }
            NextStep::Gone => self.tally.gone(),
            NextStep::Expired => self.tally.expired(),
            NextStep::Dead { reason } => self.tally.dead(reason),
            // Payloads have no size here, so none can be made smaller.
            NextStep::Shrink => self.tally.dead(bellwire_rules::classify::DeadReason::PayloadTooLarge),
            NextStep::Retry { after, counts } => {
                self.retries[delivery as usize] += u32::from(counts);
                self.plan(self.now_us + after.as_micros() as u64, SimulationEvent::Due(delivery));
            }
        }
    }
}

/// Returns the random number in [0, 1) with which a retry has its nominal delay.
fn nominal(policy: &Policy, kind: ResponseKind, retries: u32) -> f64 {
    let step = policy.retry.step_after(kind.is_throttling(), retries);
    let share = |step: RetryDelay| {
        let (above, range) = (step.nominal.saturating_sub(step.shortest), step.longest.saturating_sub(step.shortest));
        above.as_secs_f64() / range.as_secs_f64()
    };
    step.map(share).filter(|share| share.is_finite()).unwrap_or(0.5)
}
