//! Agenda of the claim stage: lanes with due deliveries, and the number of concurrent draws (claims of one lane and tier). Pure
//! state.
//!
//! Each tier has its own budget, so that a one-time code never waits behind a campaign. Within a tier, apps alternate. Lanes of
//! an app with flow control share its limits, so they are drawn one after the other.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::fair::shares::{TIERS, index};
use super::fair::weighted_queue::Turns;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{AppId, LaneId};
use bellwire_store::queue::claims::DueLane;

type Refill = (LaneId, Tier);

/// Number of pool connections for each concurrent draw of a tier. The remaining connections are for settling, stops and leases.
const CONNECTIONS_PER_DRAW: usize = 6;

/// Pause after a failed poll, and of a lane after a failed claim.
pub(super) const REST_FAILED: Duration = Duration::from_millis(250);

pub(super) struct Agenda {
    found: HashMap<Refill, DueLane>,
    known: HashMap<Refill, AgendaEntry>,
    waiting: [Turns<Refill>; TIERS],
    under_way: [usize; TIERS],
    /// Maximum concurrent draws of each tier.
    budget: usize,
    /// Apps with flow control that are being drawn.
    limited: HashSet<AppId>,
    parked: HashMap<AppId, VecDeque<Refill>>,
    /// Number of rounds over all lanes. Each round begins with another lane, so that the first one does not get all tokens.
    rounds: usize,
    /// Lanes whose last draw failed, with the end of their pause.
    failed: HashMap<Refill, Instant>,
}

struct AgendaEntry {
    due: DueLane,
    is_under_way: bool,
    again: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Drawn {
    Done,
    Failed,
}

impl Agenda {
    /// Creates an empty agenda, for a pool of this many connections.
    pub(super) fn new(connections: usize) -> Self {
        Self {
            found: HashMap::new(),
            known: HashMap::new(),
            waiting: Default::default(),
            under_way: [0; TIERS],
            budget: connections.div_ceil(CONNECTIONS_PER_DRAW).max(1),
            limited: HashSet::new(),
            parked: HashMap::new(),
            rounds: 0,
            failed: HashMap::new(),
        }
    }

    /// Adds the result of a poll: all of it is to be drawn.
    pub(super) fn found(&mut self, due: Vec<DueLane>, now: Instant) {
        self.failed.retain(|_, until| now < *until);
        self.waiting.iter_mut().for_each(Turns::forget_idle);
        self.found = due.into_iter().map(|due| ((due.lane, due.tier), due)).collect();
        self.refill_apps(|_| true);
    }

    /// Requests another draw of a lane and tier that ran low. If the last poll found no work there, the next one decides.
    pub(super) fn refill(&mut self, refill: Refill) {
        if let Some(due) = self.found.get(&refill) {
            self.want(*due);
        }
    }

    /// Requests another draw of the lanes found for these apps.
    pub(super) fn refill_apps(&mut self, is_one: impl Fn(AppId) -> bool) {
        let mut due: Vec<_> = self.found.values().copied().filter(|due| is_one(due.app)).collect();
        due.sort_unstable_by_key(|due| due.lane);
        self.rounds = self.rounds.wrapping_add(1);
        let first = self.rounds.checked_rem(due.len()).unwrap_or(0);
        due.rotate_left(first);
        due.into_iter().for_each(|due| self.want(due));
    }

    fn want(&mut self, due: DueLane) {
        let refill = (due.lane, due.tier);
        if self.failed.contains_key(&refill) {
            return;
        }
        match self.known.get_mut(&refill) {
            Some(known) => {
                known.due.sources = known.due.sources.or(due.sources);
                known.again = known.is_under_way;
            }
            None => {
                self.known.insert(refill, AgendaEntry { due, is_under_way: false, again: false });
                self.waiting[index(due.tier)].push(due.app, 1, refill);
            }
        }
    }

    /// Returns the next lane to draw, if the budgets allow. The caller must then call [`drawn`](Self::drawn).
    pub(super) fn next(&mut self, is_limited: impl Fn(AppId) -> bool) -> Option<DueLane> {
        for tier in 0..TIERS {
            while self.under_way[tier] < self.budget
                && let Some(refill) = self.waiting[tier].pop()
            {
                let known = self.known.get_mut(&refill).expect("what waits is known");
                let due = known.due;
                if is_limited(due.app) && !self.limited.insert(due.app) {
                    let parked = self.parked.entry(due.app).or_default();
                    match due.tier {
                        Tier::Transactional => parked.push_front(refill),
                        _ => parked.push_back(refill),
                    }
                    continue;
                }
                known.is_under_way = true;
                self.under_way[tier] += 1;
                return Some(due);
            }
        }
        None
    }

    pub(super) fn drawn(&mut self, due: DueLane, drawn: Drawn, now: Instant) {
        let refill = (due.lane, due.tier);
        self.under_way[index(due.tier)] -= 1;
        let again = self.known.remove(&refill).filter(|known| known.again);
        match (drawn, again) {
            (Drawn::Failed, _) => drop(self.failed.insert(refill, now + REST_FAILED)),
            (Drawn::Done, Some(known)) => self.want(known.due),
            (Drawn::Done, None) => {}
        }
        // It may have become limited while it was drawn: then another of its draws stands in the set.
        self.limited.remove(&due.app);
        if let Some(parked) = self.parked.get_mut(&due.app) {
            if let Some(refill) = parked.pop_front() {
                self.waiting[index(refill.1)].push(due.app, 1, refill);
            }
            if parked.is_empty() {
                self.parked.remove(&due.app);
            }
        }
    }
}

#[cfg(test)]
#[path = "../../../tests/crates/dispatch/unit/agenda.rs"]
mod tests;
