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
mod tests {
    use uuid::Uuid;

    use super::*;
    use bellwire_core::clock::Timestamp;
    use bellwire_core::id::LaneId;
    use bellwire_store::queue::claims::due::Sources;

    const SINCE: Timestamp = Timestamp::UNIX_EPOCH;
    const QUEUE: Sources = Sources { queue: Some(SINCE), batches: None, cursors: None };
    const CURSORS: Sources = Sources { queue: None, cursors: Some(SINCE), ..QUEUE };

    fn due(app: u128, lane: i32, tier: Tier) -> DueLane {
        DueLane { app: AppId(Uuid::from_u128(app)), lane: LaneId(lane), tier, sources: QUEUE }
    }

    fn begun(agenda: &mut Agenda, is_limited: impl Fn(AppId) -> bool) -> Vec<DueLane> {
        std::iter::from_fn(|| agenda.next(&is_limited)).collect()
    }

    fn lanes(draws: &[DueLane]) -> Vec<i32> {
        draws.iter().map(|due| due.lane.0).collect()
    }

    #[tokio::test]
    async fn code_waits_for_no_campaign_lane() {
        let (mut agenda, now) = (Agenda::new(12), Instant::now());
        let many = (1..=300).map(|lane| due(1, lane, Tier::Promotional));
        let others = [due(2, 301, Tier::Promotional), due(1, 302, Tier::Transactional)];
        agenda.found(many.chain(others).collect(), now);
        let first = begun(&mut agenda, |_| false);
        assert_eq!(lanes(&first)[0], 302);
        assert_eq!(first.len(), 3, "two of twelve connections for a tier");
        assert!(lanes(&first).contains(&301), "{first:?}");
        let mut left: Vec<_> = first;
        let mut n = 0;
        while let Some(draw) = left.pop() {
            n += 1;
            agenda.drawn(draw, Drawn::Done, now);
            left.extend(begun(&mut agenda, |_| false));
        }
        assert_eq!(n, 302, "each once");
    }

    #[tokio::test]
    async fn lane_with_news_is_drawn_again() {
        let (mut agenda, now) = (Agenda::new(12), Instant::now());
        let lane = due(1, 1, Tier::Promotional);
        agenda.found(vec![lane], now);
        agenda.refill((lane.lane, lane.tier));
        assert_eq!(begun(&mut agenda, |_| false), [lane], "once is enough while it waits");
        agenda.refill((LaneId(7), lane.tier));
        agenda.found(vec![DueLane { sources: CURSORS, ..lane }], now);
        assert_eq!(begun(&mut agenda, |_| false), [], "one draw of a lane and tier at a time");
        agenda.drawn(lane, Drawn::Done, now);
        let [again] = begun(&mut agenda, |_| false)[..] else { panic!("it was found while it was drawn") };
        assert_eq!(again.sources, QUEUE.or(CURSORS));
        agenda.drawn(again, Drawn::Done, now);
        assert_eq!(begun(&mut agenda, |_| false), []);
    }

    #[tokio::test]
    async fn failed_lane_pauses_alone() {
        let (mut agenda, now) = (Agenda::new(12), Instant::now());
        let [bad, good] = [1, 2].map(|lane| due(1, lane, Tier::Promotional));
        let look = |agenda: &mut Agenda, now| {
            agenda.found(vec![bad, good], now);
            let mut draws = begun(agenda, |_| false);
            draws.sort_unstable_by_key(|due| due.lane);
            for draw in &draws {
                agenda.drawn(*draw, if *draw == bad { Drawn::Failed } else { Drawn::Done }, now);
            }
            lanes(&draws)
        };
        assert_eq!(look(&mut agenda, now), [1, 2]);
        assert_eq!(look(&mut agenda, now + REST_FAILED / 2), [2]);
        assert_eq!(look(&mut agenda, now + REST_FAILED), [1, 2]);
    }

    #[tokio::test]
    async fn lanes_under_one_flow_are_drawn_in_turn() {
        let (mut agenda, now) = (Agenda::new(24), Instant::now());
        let limited = AppId(Uuid::from_u128(1));
        let mut firsts = HashSet::new();
        for _ in 0..3 {
            let mut found: Vec<_> = (1..=3).map(|lane| due(1, lane, Tier::Promotional)).collect();
            found.extend([due(1, 2, Tier::Transactional), due(2, 9, Tier::Promotional)]);
            agenda.found(found, now);
            let mut draws = begun(&mut agenda, |app| app == limited);
            assert_eq!(draws.len(), 2, "one of each app: {draws:?}");
            draws.sort_unstable_by_key(|due| due.lane);
            assert_eq!((lanes(&draws), draws[0].tier), (vec![2, 9], Tier::Transactional));
            let mut order = Vec::new();
            while let Some(draw) = draws.pop() {
                assert!(draws.iter().filter(|due| due.app == limited).count() <= 1);
                if draw.app == limited {
                    order.push(draw.lane.0);
                }
                agenda.drawn(draw, Drawn::Done, now);
                draws.extend(begun(&mut agenda, |app| app == limited));
            }
            firsts.insert(order[1]);
            order.sort_unstable();
            assert_eq!(order, [1, 2, 2, 3]);
        }
        assert!(firsts.len() > 1, "{firsts:?}");
    }
}
