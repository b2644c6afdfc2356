//! Work to claim: lanes with due deliveries, and the number of concurrent draws. Pure state.
//!
//! Each tier has a budget of its own, so that a one-time code waits behind no campaign; within it apps take turns. What one
//! app's flow control lets through is shared by its lanes, so they are drawn one after the other.

use std::collections::{HashMap, HashSet, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::fair::shares::{TIERS, index};
use super::fair::weighted_queue::Turns;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{AppId, LaneId};
use bellwire_store::queue::claims::DueLane;

type Refill = (LaneId, Tier);

/// Of a pool's connections, each tier may draw from one in so many at a time. What is left is for settling, stops and
/// leases.
const CONNECTIONS_PER_DRAW: usize = 6;

/// The rest after a failed look, and of a lane after a failed claim.
pub(super) const REST_FAILED: Duration = Duration::from_millis(250);

pub(super) struct Agenda {
    found: HashMap<Refill, DueLane>,
    known: HashMap<Refill, AgendaEntry>,
    waiting: [Turns<Refill>; TIERS],
    under_way: [usize; TIERS],
    /// Draws under way of each tier, at most.
    budget: usize,
    /// Apps that share what flow control lets through, and are being drawn.
    limited: HashSet<AppId>,
    parked: HashMap<AppId, VecDeque<Refill>>,
    /// Number of rounds over all lanes. Each round begins with another lane, so that the first lane does not get all tokens.
    rounds: usize,
    /// Lanes whose last draw failed, and until when they are left alone.
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
    /// Empty agenda, for a pool of this many connections.
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

    /// Takes over what a look found: all of it is to be drawn.
    pub(super) fn found(&mut self, due: Vec<DueLane>, now: Instant) {
        self.failed.retain(|_, until| now < *until);
        self.waiting.iter_mut().for_each(Turns::forget_idle);
        self.found = due.into_iter().map(|due| ((due.lane, due.tier), due)).collect();
        self.refill_apps(|_| true);
    }

    /// Wants a lane and tier that ran low to be drawn again. What the last look did not find there is left to the next.
    pub(super) fn refill(&mut self, refill: Refill) {
        if let Some(due) = self.found.get(&refill) {
            self.want(*due);
        }
    }

    /// Wants what was found of these apps to be drawn again.
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

    /// Returns the next lane to draw, if the budgets allow. A call of [`drawn`](Self::drawn) must follow.
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
