//! What the fair queue consists of: jobs by tier and lane, the lanes' states, and the flows that they are subject to.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::fair::{Load, Next, Room, Slot, Turn};
use super::flow::{Flows, Scope};
use super::job::{Job, LaneInfo};
use super::lane::{KEY_PROBE_EVERY, Lane, Passage, Share};
use super::limit::Limit;
use crate::clock::Timestamp;
use crate::delivery::Tier;
use crate::id::{AppId, LaneId};
use crate::lane::Gateway;
use crate::policy::breaker::Snapshot;
use crate::policy::hold::Held;
use crate::store::workers::{ALL_ORIGINS, Crew, LaneState};

/// Shares of the tiers while all of them have work.
const WEIGHTS: [u32; 3] = [8, 3, 1];
pub const TIERS: usize = WEIGHTS.len();
/// What a turn costs each tier: tiers that get their shares pay the same.
const COSTS: [u64; TIERS] = [3, 8, 24];
/// So many turns make a round, in which every tier has its share.
const ROUND: u32 = WEIGHTS[0] + WEIGHTS[1] + WEIGHTS[2];
/// For so long at most a delivery that was tried before lets those pass that came in after it: if it were for ever, a
/// campaign would keep its own retries back to its end.
const LETS_PASS: Duration = Duration::from_secs(4);
/// An origin whose permits have all been out for so long without an answer does not take part for a while.
const STALLED_AFTER: Duration = Duration::from_secs(1);
/// For how long: by then its attempts have met their deadline, and the breaker knows.
const STALLED_FOR: Duration = super::ATTEMPT_DEADLINE;
/// How many deliveries of the lane `other` are claimed at a time to find those that are for another origin than the
/// ones that are shut or stalled.
const LOOK_PAST: usize = 64;
/// How many deliveries of a lane whose VAPID key is refused are claimed at a time, to find one that may probe it.
const PROBE_CANDIDATES: usize = 16;

pub struct Queue {
    share: Share,
    pub flows: Flows,
    slots: Vec<LaneQueue>,
    index: HashMap<(LaneId, Arc<str>), Slot>,
    groups: HashMap<LaneId, Group>,
    apps: HashMap<AppId, Vec<Slot>>,
    /// What others told of origins that this process has not met.
    heard: HashMap<LaneId, HashMap<Arc<str>, LaneState>>,
    /// Slots with a job of the tier and a permit for it.
    pub ready: [VecDeque<Slot>; TIERS],
    /// Jobs by tier, with a permit or without.
    waiting: [usize; TIERS],
    credit: [u32; TIERS],
}

/// The origins of one stored lane, taken together: what is claimed is claimed for all of them.
#[derive(Default)]
struct Group {
    slots: Vec<Slot>,
    waiting: [usize; TIERS],
    /// What was said of all its origins, for those that are met later.
    all: Option<LaneState>,
    /// When deliveries are next claimed for a probe, while its VAPID key is refused.
    look_at: Option<Timestamp>,
}

struct LaneQueue {
    id: LaneId,
    app: AppId,
    origin: Arc<str>,
    lane: Lane,
    /// In the order of their [ranks](rank).
    jobs: [VecDeque<Box<Job>>; TIERS],
    in_ready: [bool; TIERS],
    /// What its tiers have paid for their turns. Where permits are scarce, the tier that has paid least is next.
    paid: [u64; TIERS],
    /// For how many turns its permits count as scarce: it ran out of them not longer ago.
    scarce_for: u32,
    /// When a permit was last taken or given back.
    moved_at: Instant,
}

impl LaneQueue {
    /// Until when a delivery, of a proven subscription or not, that is claimed now should rather not wait here. One
    /// strange origin that hangs must not fill the room that all strange origins share.
    fn put_off_until(&self, tier: usize, proven: bool, now: Timestamp) -> Option<Timestamp> {
        let stalled =
            || self.lane.is_stranger() && !self.lane.has_permit(tier == 0) && self.moved_at.elapsed() >= STALLED_AFTER;
        self.lane.shut_until(now, proven).or_else(|| stalled().then(|| now + STALLED_FOR))
    }

    /// Lines a delivery up. A tier that had nothing to do is not owed for it.
    fn line_up(&mut self, job: Box<Job>, tier: usize) {
        if self.jobs[tier].is_empty() {
            let others = (0..TIERS).filter(|tier| !self.jobs[*tier].is_empty()).map(|tier| self.paid[tier]).min();
            match others {
                Some(least) => self.paid[tier] = self.paid[tier].max(least),
                None => self.paid = [0; TIERS],
            }
        }
        let jobs = &mut self.jobs[tier];
        let rank_of_it = rank(&job);
        match jobs.back() {
            Some(last) if rank(last) > rank_of_it => {
                jobs.insert(jobs.partition_point(|waiting| rank(waiting) <= rank_of_it), job);
            }
            _ => jobs.push_back(job),
        }
    }
}

/// The place of a delivery among those of its lane and tier: fewer retries first, then as they came in.
fn rank(job: &Job) -> Instant {
    job.start_before + LETS_PASS * job.retries / job.retries.saturating_add(1)
}

/// Whether lanes of this gateway lead to several origins.
fn spans_origins(gateway: Gateway) -> bool {
    matches!(gateway, Gateway::Wns | Gateway::Other)
}

impl Queue {
    /// An empty one, in a worker that started at a time.
    pub fn new(limit_max: u32, started_at: Timestamp) -> Self {
        Self {
            share: Share { limit_max, workers: 1 },
            flows: Flows::new(started_at),
            slots: Vec::new(),
            index: HashMap::new(),
            groups: HashMap::new(),
            apps: HashMap::new(),
            heard: HashMap::new(),
            ready: Default::default(),
            waiting: [0; TIERS],
            credit: WEIGHTS,
        }
    }

    /// Takes this worker's share, now that these live. False if that changes nothing.
    pub fn share_among(&mut self, crew: Crew, now: Timestamp) -> bool {
        if !self.flows.set_crew(crew, now) {
            return false;
        }
        self.share.workers = crew.workers;
        for slot in 0..self.slots.len() {
            self.slots[slot].lane.set_share(self.share);
            self.make_ready(slot);
        }
        true
    }

    fn slot(&mut self, lane: &LaneInfo, origin: &str) -> Slot {
        // The look-up wants an owned key; endpoints share few origins, and the allocation is small.
        let key = (lane.id, Arc::from(origin));
        if let Some(slot) = self.index.get(&key) {
            return *slot;
        }
        let slot = self.slots.len();
        let mut state = Lane::new(lane.gateway, self.share);
        let group = self.groups.entry(lane.id).or_default();
        let own = self.heard.get_mut(&lane.id).and_then(|heard| heard.remove(origin));
        group.all.iter().chain(&own).for_each(|heard| state.adopt(heard));
        group.slots.push(slot);
        self.apps.entry(lane.app).or_default().push(slot);
        self.slots.push(LaneQueue {
            id: lane.id,
            app: lane.app,
            origin: key.1.clone(),
            lane: state,
            jobs: Default::default(),
            in_ready: [false; TIERS],
            paid: [0; TIERS],
            scarce_for: 0,
            moved_at: Instant::now(),
        });
        self.index.insert(key, slot);
        slot
    }

    /// Lets a delivery in. One that may not go now comes back, with the time until which it is put off.
    pub fn push(&mut self, job: Box<Job>, now: Timestamp) -> Result<(), (Box<Job>, Timestamp)> {
        let slot = self.slot(&job.lane, job.endpoint.origin());
        let tier = index(job.message.tier);
        let queue = &mut self.slots[slot];
        if let Some(until) = queue.put_off_until(tier, job.proven, now) {
            return Err((job, until));
        }
        if self.flows.is_shut(queue.app, queue.id) || !self.flows.take(queue.app, queue.id, now) {
            return Err((job, now)); // due at once, though nobody claims it before it may go
        }
        if let Some(group) = self.groups.get_mut(&queue.id) {
            group.waiting[tier] += 1;
        }
        queue.line_up(job, tier);
        self.waiting[tier] += 1;
        self.make_ready(slot);
        Ok(())
    }

    fn make_ready(&mut self, slot: Slot) {
        for tier in 0..TIERS {
            let queue = &self.slots[slot];
            // Where nothing may go, the next turn sends away what waits.
            let has_turn = || self.may_take_permit(slot, tier) || self.flows.is_shut(queue.app, queue.id);
            if !queue.in_ready[tier] && !queue.jobs[tier].is_empty() && has_turn() {
                self.slots[slot].in_ready[tier] = true;
                self.ready[tier].push_back(slot);
            }
        }
    }

    /// Whether one more POST fits under the lane's limit and the parallelism that it is subject to.
    fn has_permit(&self, slot: Slot, tier: usize) -> bool {
        let LaneQueue { app, id, lane, .. } = &self.slots[slot];
        lane.has_permit(tier == 0) && self.flows.parts(*app, *id).all(|(scope, part)| self.in_flight(scope) < part)
    }

    /// Whether a tier may take a permit that it has. Where they are scarce, of the tiers that wait for one that may which
    /// has had least for its weight.
    fn may_take_permit(&self, slot: Slot, tier: usize) -> bool {
        let queue = &self.slots[slot];
        let waits = |other: &usize| !queue.jobs[*other].is_empty() && self.has_permit(slot, *other);
        match queue.scarce_for {
            0 => self.has_permit(slot, tier),
            _ => (0..TIERS).filter(waits).min_by_key(|other| queue.paid[*other]) == Some(tier),
        }
    }

    fn in_flight(&self, scope: Scope) -> u32 {
        self.slots_of(scope).map(|queue| queue.lane.in_flight()).sum()
    }

    fn slots_of(&self, (app, lane): Scope) -> impl Iterator<Item = &LaneQueue> {
        let slots = match lane {
            Some(lane) => self.groups.get(&lane).map(|group| &group.slots),
            None => self.apps.get(&app),
        };
        slots.into_iter().flatten().map(|slot| &self.slots[*slot])
    }

    pub fn has_ready(&self) -> bool {
        self.ready.iter().any(|ready| !ready.is_empty())
    }

    /// How many deliveries of a tier wait, in all lanes.
    pub fn waiting(&self, tier: Tier) -> usize {
        self.waiting[index(tier)]
    }

    pub fn evict(&mut self, slot: Slot) -> Vec<Box<Job>> {
        let queue = &mut self.slots[slot];
        (0..TIERS).for_each(|tier| self.waiting[tier] -= queue.jobs[tier].len());
        if let Some(group) = self.groups.get_mut(&queue.id) {
            (0..TIERS).for_each(|tier| group.waiting[tier] -= queue.jobs[tier].len());
        }
        let jobs: Vec<_> = queue.jobs.iter_mut().flat_map(std::mem::take).collect();
        jobs.iter().for_each(|_| self.flows.give_back(queue.app, queue.id));
        jobs
    }

    pub fn evict_all(&mut self) -> Vec<Box<Job>> {
        (0..self.slots.len()).flat_map(|slot| self.evict(slot)).collect()
    }

    /// The next delivery of these tiers, if it is one's turn. A round is over when no tier that has work has credit left:
    /// whoever asks for some tiers only waits for the others to use up theirs.
    pub fn pop(&mut self, tiers: Range<usize>, now: Timestamp) -> Option<Next> {
        loop {
            let is_ready = |tier: &usize| !self.ready[*tier].is_empty();
            let has_turn = |tier: &usize| is_ready(tier) && self.credit[*tier] > 0;
            let Some(tier) = tiers.clone().find(has_turn) else {
                if (0..TIERS).any(|tier| has_turn(&tier)) || !tiers.clone().any(|tier| is_ready(&tier)) {
                    return None;
                }
                self.credit = WEIGHTS;
                continue;
            };
            // One that is not ready after all leaves the line, and lets another tier of its lane in at most.
            if let Some(next) = self.ready[tier].pop_front().and_then(|slot| self.take(slot, tier, now)) {
                return Some(next);
            }
        }
    }

    fn take(&mut self, slot: Slot, tier: usize, now: Timestamp) -> Option<Next> {
        self.slots[slot].in_ready[tier] = false;
        let (app, id) = (self.slots[slot].app, self.slots[slot].id);
        if self.flows.is_shut(app, id) {
            let jobs = self.evict(slot);
            return (!jobs.is_empty()).then_some(Next::PutOff(jobs, now));
        }
        if !self.may_take_permit(slot, tier) {
            self.make_ready(slot); // it is another tier's turn, or nobody's before the next permit
            return None;
        }
        let queue = &mut self.slots[slot];
        let mut job = queue.jobs[tier].pop_front()?;
        let probe = match queue.lane.enter(now, tier == 0, job.proven) {
            Passage::Free(number) => {
                job.number = number;
                false
            }
            Passage::Probe => true,
            Passage::Shut(until) => {
                queue.jobs[tier].push_front(job);
                return Some(Next::PutOff(self.evict(slot), until));
            }
        };
        queue.moved_at = Instant::now();
        queue.paid[tier] += COSTS[tier];
        queue.scarce_for = queue.scarce_for.saturating_sub(1);
        let payload_max = queue.lane.payload_max(now);
        self.credit[tier] -= 1;
        self.waiting[tier] -= 1;
        if let Some(group) = self.groups.get_mut(&id) {
            group.waiting[tier] -= 1;
        }
        if !self.has_permit(slot, index(Tier::Promotional)) {
            let queue = &mut self.slots[slot];
            queue.scarce_for = ROUND.max(queue.lane.limit.get()); // all that are out may come back at once
        }
        self.make_ready(slot);
        Some(Next::Turn(Turn { slot, job, probe, payload_max }))
    }

    /// Lets a lane learn something that frees a permit, and others take it.
    pub fn give_back<T>(&mut self, slot: Slot, sent: bool, learn: impl FnOnce(&mut Lane) -> T) -> T {
        let queue = &mut self.slots[slot];
        let learnt = learn(&mut queue.lane);
        queue.moved_at = Instant::now();
        let (app, id) = (queue.app, queue.id);
        if !sent {
            self.flows.give_back(app, id);
        }
        self.make_ready(slot);
        if self.flows.parts(app, id).next().is_some() {
            // What waits for the parallelism of the app may be in any of its lanes.
            for other in self.apps.get(&app).cloned().unwrap_or_default() {
                self.make_ready(other);
            }
        }
        learnt
    }

    /// Takes over what others know of a lane. An origin that this process has not met learns it then.
    pub fn adopt(&mut self, state: LaneState) {
        if &*state.origin == ALL_ORIGINS {
            let group = self.groups.entry(state.lane).or_default();
            for slot in &group.slots {
                self.slots[*slot].lane.adopt(&state);
            }
            group.all = Some(state);
            return;
        }
        match self.index.get(&(state.lane, state.origin.clone())) {
            Some(slot) => self.slots[*slot].lane.adopt(&state),
            None => drop(self.heard.entry(state.lane).or_default().insert(state.origin.clone(), state)),
        }
    }

    /// Holds a lane whose VAPID key is refused, but for probes.
    pub fn hold_key(&mut self, lane: LaneId, held: Held) {
        let group = self.groups.entry(lane).or_default();
        group.slots.iter().for_each(|slot| self.slots[*slot].lane.hold_key(held));
        group.all.get_or_insert_with(|| LaneState::of(lane, ALL_ORIGINS.into())).key_held = Some(held);
    }

    /// Ends such a hold, as far as it was set by a time.
    pub fn release_key(&mut self, lane: LaneId, at: Timestamp) {
        let Some(group) = self.groups.get_mut(&lane) else { return };
        group.slots.iter().for_each(|slot| self.slots[*slot].lane.release_key(at));
        if let Some(all) = &mut group.all {
            (all.key_held, all.key_released_at) = (None, Some(at));
        }
    }

    pub fn key_held_until(&self, slot: Slot, now: Timestamp) -> Option<Timestamp> {
        self.slots[slot].lane.key_held_until(now)
    }

    /// What may be claimed of a lane whose VAPID key is refused: now and then a few deliveries, among which there may be one
    /// to a proven subscription. None: its key is not refused.
    fn room_to_probe(&mut self, lane: LaneId, now: Timestamp) -> Option<Room> {
        let group = self.groups.get_mut(&lane)?;
        group.all.as_ref()?.key_held.filter(|held| now < held.until)?;
        if group.look_at.is_some_and(|at| now < at) {
            return Some(Room::NONE);
        }
        group.look_at = Some(now + KEY_PROBE_EVERY);
        Some(Room { n: PROBE_CANDIDATES, exact: true, next_at: None })
    }

    /// The origins of a lane whose breakers wait for the right to probe, which this worker should ask for now.
    pub fn wants_probe(&mut self, lane: &LaneInfo, now: Timestamp) -> Vec<(Slot, Arc<str>, Snapshot)> {
        if !spans_origins(lane.gateway)
            && let Some(heard) = self.heard.remove(&lane.id)
        {
            // Its only origin, which stands as it was heard of.
            for (origin, state) in heard {
                let slot = self.slot(lane, &origin);
                self.slots[slot].lane.adopt(&state);
            }
        }
        let Some(group) = self.groups.get(&lane.id) else { return Vec::new() };
        let wish = |slot: &Slot| {
            let queue = &self.slots[*slot];
            Some((*slot, queue.origin.clone(), queue.lane.wants_probe(now)?))
        };
        group.slots.iter().filter_map(wish).collect()
    }

    /// Takes in what asking for the right to probe came to.
    pub fn asked_to_probe(&mut self, slot: Slot, known: Snapshot, until: Option<Timestamp>, now: Timestamp) {
        self.slots[slot].lane.asked_to_probe(known, until, now);
    }

    /// How many more deliveries of a lane and tier may be claimed; see [`super::fair::FairQueue::room`].
    pub fn room(&mut self, lane: &LaneInfo, tier: Tier, now: Timestamp) -> Room {
        if self.flows.is_shut(lane.app, lane.id) {
            return Room::NONE;
        }
        let mut room = self.room_to_probe(lane.id, now).unwrap_or_else(|| self.room_of_lane(lane, tier, now));
        let (tokens, next_at) = self.flows.tokens(lane.app, lane.id, now);
        if tokens < usize::MAX {
            room = Room { n: room.n.min(tokens), exact: true, next_at: next_at.filter(|_| room.n > 0) };
        }
        for (scope, part) in self.flows.parts(lane.app, lane.id) {
            let before_it = |queue: &LaneQueue| queue.jobs[..=index(tier)].iter().map(VecDeque::len).sum::<usize>();
            let waiting: usize = self.slots_of(scope).map(before_it).sum();
            room = Room { n: room.n.min((part as usize).saturating_sub(waiting)), exact: true, ..room };
        }
        room
    }

    fn room_of_lane(&self, info: &LaneInfo, tier: Tier, now: Timestamp) -> Room {
        let group = self.groups.get(&info.id);
        let Some(group) = group.filter(|group| !group.slots.is_empty()) else {
            // As its first origin will stand.
            let mut lane = Lane::new(info.gateway, self.share);
            if let Some(all) = group.and_then(|group| group.all.as_ref()) {
                lane.adopt(all);
            }
            if lane.is_held(now) || lane.opens_at(now).is_some() {
                return Room::NONE;
            }
            let (n, exact) = lane.capacity(now);
            let start = Limit::new(self.share.of(Gateway::Fcm)).get() as usize;
            return Room { n: if exact { n } else { start }, exact, next_at: None };
        };
        let (mut limit, mut waiting, mut look_past, mut exact) = (0, 0, 0, false);
        for queue in group.slots.iter().map(|slot| &self.slots[*slot]) {
            if queue.put_off_until(index(tier), false, now).is_none() {
                let (capacity, probes) = queue.lane.capacity(now);
                limit += capacity;
                exact |= probes;
                waiting += queue.jobs[index(tier)].len();
            } else if queue.lane.is_stranger() {
                look_past = LOOK_PAST;
            }
        }
        Room { n: (limit + look_past).saturating_sub(waiting), exact, next_at: None }
    }

    /// Deliveries of a lane and tier that wait, and the lane's limit.
    pub fn depth(&self, slot: Slot, tier: Tier) -> (LaneId, usize, usize) {
        let queue = &self.slots[slot];
        (queue.id, self.groups[&queue.id].waiting[index(tier)], queue.lane.limit.get() as usize)
    }

    /// A lane and origin, by name.
    pub fn name(&self, slot: Slot) -> LaneState {
        LaneState::of(self.slots[slot].id, self.slots[slot].origin.clone())
    }

    pub fn load(&self, now: Timestamp) -> Load {
        let lanes = || self.slots.iter().map(|queue| &queue.lane);
        Load {
            waiting: self.groups.values().flat_map(|group| group.waiting).sum(),
            in_flight: lanes().map(|lane| lane.in_flight() as usize).sum(),
            held: lanes().filter(|lane| lane.is_held(now)).count(),
            broken: lanes().filter(|lane| lane.is_broken()).count(),
        }
    }

    /// Looks at all lanes anew: something changed that may concern any of them.
    pub fn refresh(&mut self) {
        (0..self.slots.len()).for_each(|slot| self.make_ready(slot));
    }
}

pub fn index(tier: Tier) -> usize {
    match tier {
        Tier::Transactional => 0,
        Tier::Promotional => 1,
        Tier::Engagement => 2,
    }
}
