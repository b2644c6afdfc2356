//! Inner state of the fair queue: jobs by tier, app and lane, states of lanes, and flows.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use slab::Slab;
use tokio::time::Instant;

use super::flow::{self, Flows, scopes};
use super::lane_queue::{LaneGroup, LaneQueue, TierLine};
use super::peer::OriginStreams;
use super::shares::{COSTS, ROUND, TIERS, WEIGHTS, index};
use super::turn::{NextTurn, QueueLoad, Slot, Turn};
use super::weighted_queue::Turns;
use crate::job::Job;
use crate::message::LaneInfo;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{AppId, LaneId};
use bellwire_gateway::Streams;
use bellwire_rules::policy::hold::HoldReason;
use bellwire_rules::policy::lane::{Lane, Passage, Share, matters};
use bellwire_rules::policy::lane_state::{ALL_ORIGINS, LaneState};
use bellwire_store::operations::workers::Replicas;
use bellwire_store::queue::flows::Flow;

/// Function that returns how many concurrent requests the origin of an authority allows.
pub(super) type ReadStreams = Box<dyn Fn(&str) -> Streams + Send + Sync>;

pub(super) struct Queue {
    pub(super) share: Share,
    pub flows: Flows,
    pub(super) slots: Slab<LaneQueue>,
    index: HashMap<(LaneId, Arc<str>), Slot>,
    pub(super) peers: Slab<OriginStreams>,
    peer_index: HashMap<Arc<str>, usize>,
    streams: ReadStreams,
    pub(super) groups: HashMap<LaneId, LaneGroup>,
    /// States from other replicas of origins that this process has not met.
    pub(super) heard: HashMap<LaneId, HashMap<Arc<str>, LaneState>>,
    /// Slots with a job of the tier and a permit for it.
    pub ready: [Turns<Slot>; TIERS],
    waiting: [usize; TIERS],
    credit: [u32; TIERS],
}

impl Queue {
    pub(super) fn new(limit_max: u32, started_at: Timestamp, streams: ReadStreams) -> Self {
        Self {
            share: Share { limit_max, workers: 1 },
            flows: Flows::new(started_at),
            slots: Slab::new(),
            index: HashMap::new(),
            peers: Slab::new(),
            peer_index: HashMap::new(),
            streams,
            groups: HashMap::new(),
            heard: HashMap::new(),
            ready: Default::default(),
            waiting: [0; TIERS],
            credit: WEIGHTS,
        }
    }

    /// Recomputes this worker's share among the live workers. Returns `false` if nothing changed.
    pub(super) fn share_among(&mut self, replicas: Replicas, now: Timestamp) -> bool {
        if !self.flows.set_replicas(replicas, now) {
            return false;
        }
        self.share.workers = replicas.workers;
        self.slots.iter_mut().for_each(|(_, queue)| queue.lane.set_share(self.share));
        self.refresh();
        true
    }

    pub(super) fn slot(&mut self, lane: &LaneInfo, origin: &str) -> Slot {
        // The look-up wants an owned key; endpoints share few origins, and the allocation is small.
        let key = (lane.id, Arc::from(origin));
        if let Some(slot) = self.index.get(&key) {
            return *slot;
        }
        let mut state = Lane::new(lane.gateway, self.share);
        let group = self.groups.entry(lane.id).or_default();
        let own = self.heard.get_mut(&lane.id).and_then(|heard| heard.remove(origin));
        group.all.iter().chain(&own).for_each(|heard| state.adopt(heard));
        let peer = self.peer(origin);
        state.set_streams(self.peers[peer].most());
        let slot = self.slots.insert(LaneQueue::new(lane, key.1.clone(), peer, state));
        self.peers[peer].slots.push(slot);
        self.groups.entry(lane.id).or_default().slots.push(slot);
        self.index.insert(key, slot);
        slot
    }

    /// Returns the index of the peer for an origin, `https://` and an authority.
    fn peer(&mut self, origin: &str) -> usize {
        let authority = origin.strip_prefix("https://").unwrap_or(origin);
        if let Some(peer) = self.peer_index.get(authority) {
            return *peer;
        }
        let authority = Arc::<str>::from(authority);
        let peer = self.peers.insert(OriginStreams::new(authority.clone(), (self.streams)(&authority)));
        self.peer_index.insert(authority, peer);
        peer
    }

    /// Updates how many concurrent requests an origin allows. Returns `false` if no lane uses it.
    pub(super) fn streams_changed(&mut self, authority: &str) -> bool {
        let Some(&peer) = self.peer_index.get(authority) else { return false };
        self.peers[peer].set_streams((self.streams)(authority));
        let most = self.peers[peer].most();
        self.peers[peer].slots.iter().for_each(|slot| self.slots[*slot].lane.set_streams(most));
        self.hand_out_streams(peer);
        true
    }

    /// Assigns free streams of a peer to lanes that wait for one.
    fn hand_out_streams(&mut self, peer: usize) {
        while let Some((slot, tier)) = self.peers[peer].next() {
            let queue = &mut self.slots[slot];
            queue.lines[tier] = TierLine::Ready { has_stream: true };
            self.ready[tier].push(queue.app, queue.weight, slot);
        }
    }

    /// Adds a delivery. If it may not start now, it is returned with the time until which it is deferred.
    pub(super) fn push(&mut self, job: Box<Job>, now: Timestamp) -> Result<(), (Box<Job>, Timestamp)> {
        let slot = self.slot(&job.lane, job.endpoint.origin());
        let tier = index(job.message.tier);
        let queue = &mut self.slots[slot];
        queue.weight = job.lane.weight;
        if let Some(until) = queue.defer_until(tier, job.proven, &self.peers[queue.peer], now) {
            return Err((job, until));
        }
        if self.flows.is_shut(queue.app, queue.id, tier) || !self.flows.take(queue.app, queue.id, now) {
            return Err((job, now)); // due at once, but not claimable before its limit allows it
        }
        if let Some(group) = self.groups.get_mut(&queue.id) {
            group.waiting[tier] += 1;
        }
        self.flows.lined_up(queue.app, queue.id, tier, 1);
        queue.line_up(job, tier, now);
        self.waiting[tier] += 1;
        self.make_ready(slot);
        Ok(())
    }

    /// Queues a slot for encryption, or for a stream that it needs. Returns `false` if it can use neither now.
    fn make_ready(&mut self, slot: Slot) -> bool {
        for tier in 0..TIERS {
            let queue = &self.slots[slot];
            if queue.lines[tier] != TierLine::Out || queue.jobs[tier].is_empty() {
                continue;
            }
            let (app, weight, peer) = (queue.app, queue.weight, queue.peer);
            // Where nothing may go, the next turn sends away what waits.
            let is_shut = self.flows.is_shut(app, queue.id, tier);
            if !is_shut && !self.may_take_permit(slot, tier) {
                continue;
            }
            let has_stream = !is_shut && self.peers[peer].promise(tier);
            self.slots[slot].lines[tier] = if is_shut || has_stream {
                self.ready[tier].push(app, weight, slot);
                TierLine::Ready { has_stream }
            } else {
                self.peers[peer].park(app, weight, tier, slot);
                TierLine::Parked
            };
        }
        let queue = &mut self.slots[slot];
        if !queue.is_held_back && queue.jobs.iter().any(|jobs| !jobs.is_empty()) {
            queue.is_held_back = self.flows.hold_back(queue.app, queue.id, slot);
        }
        queue.lines.iter().any(|line| matches!(line, TierLine::Ready { .. }))
    }

    /// Queues deliveries that wait for the parallelism of a lane's flow, as far as it is free. They may be in any lane of the
    /// app.
    fn make_held_back_ready(&mut self, app: AppId, lane: LaneId) {
        for scope in scopes(app, lane) {
            let mut granted = 0;
            while let Some(slot) = self.flows.next_held_back(scope, granted) {
                self.slots[slot].is_held_back = false;
                granted += u32::from(self.make_ready(slot));
            }
        }
    }

    /// Whether one more POST fits under the lane's limit and its flows' parallelism.
    fn has_permit(&self, slot: Slot, tier: usize) -> bool {
        let LaneQueue { app, id, lane, .. } = &self.slots[slot];
        lane.has_permit(tier == 0) && self.flows.has_permit(*app, *id)
    }

    /// Whether a tier may use a permit. If permits are scarce, only the waiting tier that has paid least may.
    fn may_take_permit(&self, slot: Slot, tier: usize) -> bool {
        let queue = &self.slots[slot];
        let waits = |other: &usize| !queue.jobs[*other].is_empty() && self.has_permit(slot, *other);
        match queue.scarce_for {
            0 => self.has_permit(slot, tier),
            _ => (0..TIERS).filter(waits).min_by_key(|other| queue.paid[*other]) == Some(tier),
        }
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.iter().all(Turns::is_empty)
    }

    pub(super) fn waiting(&self, tier: Tier) -> usize {
        self.waiting[index(tier)]
    }

    fn evict(&mut self, slot: Slot, tiers: Range<usize>) -> Vec<Box<Job>> {
        let mut evicted = Vec::new();
        for tier in tiers {
            let queue = &mut self.slots[slot];
            let (app, id) = (queue.app, queue.id);
            let jobs = std::mem::take(&mut queue.jobs[tier]);
            self.left_line(app, id, tier, jobs.len());
            jobs.iter().for_each(|_| self.flows.give_back(app, id));
            evicted.extend(jobs);
        }
        evicted
    }

    pub(super) fn evict_all(&mut self) -> Vec<Box<Job>> {
        let slots: Vec<_> = self.slots.iter().map(|(slot, _)| slot).collect();
        slots.into_iter().flat_map(|slot| self.evict(slot, 0..TIERS)).collect()
    }

    fn left_line(&mut self, app: AppId, lane: LaneId, tier: usize, n: usize) {
        self.waiting[tier] -= n;
        self.flows.left_line(app, lane, tier, n);
        if let Some(group) = self.groups.get_mut(&lane) {
            group.waiting[tier] -= n;
        }
    }

    /// Returns the next delivery of these tiers. A round ends when no tier with work has credit: a stage that takes only some
    /// tiers waits until the others have used theirs.
    pub(super) fn pop(&mut self, tiers: Range<usize>, now: Timestamp) -> Option<NextTurn> {
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
            // One that is not ready after all leaves the line, and lets another tier of its lane in at most, or others what
            // it could not use.
            let slot = self.ready[tier].pop()?;
            let next = self.take(slot, tier, now);
            if !matches!(next, Some(NextTurn::Turn(_))) {
                let LaneQueue { app, id, peer, .. } = self.slots[slot];
                self.make_held_back_ready(app, id);
                self.hand_out_streams(peer);
            }
            if next.is_some() {
                return next;
            }
        }
    }

    /// Takes the next delivery of a slot. Releases a stream that it does not use.
    fn take(&mut self, slot: Slot, tier: usize, now: Timestamp) -> Option<NextTurn> {
        let queue = &mut self.slots[slot];
        let line = std::mem::replace(&mut queue.lines[tier], TierLine::Out);
        let peer = &mut self.peers[queue.peer];
        let mut has_stream = line == TierLine::Ready { has_stream: true };
        if has_stream && peer.is_overrun() {
            peer.give_back(tier);
            has_stream = false;
        } else if !has_stream {
            has_stream = peer.promise(tier);
        }
        if !has_stream && !self.flows.is_shut(queue.app, queue.id, tier) {
            self.make_ready(slot);
            return None;
        }
        let next = self.take_turn(slot, tier, now);
        let peer = &mut self.peers[self.slots[slot].peer];
        match next {
            Some(NextTurn::Turn(_)) => peer.took_turn(tier),
            _ if has_stream => peer.give_back(tier),
            _ => {}
        }
        next
    }

    fn take_turn(&mut self, slot: Slot, tier: usize, now: Timestamp) -> Option<NextTurn> {
        let (app, id) = (self.slots[slot].app, self.slots[slot].id);
        if self.flows.is_shut(app, id, tier) {
            let jobs = self.evict(slot, tier..tier + 1);
            return (!jobs.is_empty()).then_some(NextTurn::Deferred(jobs, now));
        }
        if !self.may_take_permit(slot, tier) {
            self.make_ready(slot); // it is another tier's turn, or no tier's before the next permit
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
                return Some(NextTurn::Deferred(self.evict(slot, 0..TIERS), until));
            }
        };
        queue.moved_at = Instant::now();
        self.peers[queue.peer].moved_at = queue.moved_at;
        queue.paid[tier] += COSTS[tier];
        if queue.jobs[tier].is_empty() {
            queue.ran_dry[tier] = queue.least_paid().map(|least| (now, least));
        }
        queue.scarce_for = queue.scarce_for.saturating_sub(1);
        let payload_max = queue.lane.payload_max(now);
        self.credit[tier] -= 1;
        self.left_line(app, id, tier, 1);
        self.flows.began(app, id);
        if !self.has_permit(slot, index(Tier::Promotional)) {
            let queue = &mut self.slots[slot];
            queue.scarce_for = ROUND.max(queue.lane.limit.get()); // all that are out may come back at once
        }
        self.make_ready(slot);
        Some(NextTurn::Turn(Turn { slot, job, probe, payload_max }))
    }

    /// Changes a lane in a way that may free a permit, and passes the permit to others. A tier whose slot led to no POST pays
    /// nothing: otherwise deliveries that were claimed too long ago would cost it a share.
    pub(super) fn give_back<T>(
        &mut self, slot: Slot, urgent: bool, unsent: Option<Tier>, learn: impl FnOnce(&mut Lane) -> T,
    ) -> T {
        let queue = &mut self.slots[slot];
        let learnt = learn(&mut queue.lane);
        queue.moved_at = Instant::now();
        let (app, id, peer) = (queue.app, queue.id, queue.peer);
        self.peers[peer].moved_at = queue.moved_at;
        self.peers[peer].give_back(usize::from(!urgent));
        if let Some(tier) = unsent {
            let paid = &mut queue.paid[index(tier)];
            *paid = paid.saturating_sub(COSTS[index(tier)]);
            self.peers[peer].refund(index(tier));
            self.flows.give_back(app, id);
        }
        self.flows.ended(app, id);
        self.hand_out_streams(peer);
        self.make_ready(slot);
        self.make_held_back_ready(app, id);
        learnt
    }

    /// Adopts a flow in force. Returns `false` if it is known already.
    pub(super) fn adopt_flow(&mut self, flow: Flow, now: Timestamp) -> bool {
        let (app, lane) = (flow.app, flow.lane);
        let concerns = |queue: &&LaneQueue| queue.app == app && lane.is_none_or(|lane| lane == queue.id);
        let load = || {
            let mut load = flow::FlowLoad::default();
            for queue in self.slots.iter().map(|(_, queue)| queue).filter(concerns) {
                load.in_flight += queue.lane.in_flight();
                (0..TIERS).for_each(|tier| load.waiting[tier] += queue.jobs[tier].len());
            }
            load
        };
        let is_new = self.flows.adopt(flow, load, now);
        if is_new {
            self.refresh();
        }
        is_new
    }

    /// Adopts a lane state from another replica. It also applies to origins that this process meets later.
    pub(super) fn adopt(&mut self, state: LaneState) {
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

    pub(super) fn forget_states(&mut self) {
        self.slots.iter_mut().for_each(|(_, queue)| queue.lane.forget_state());
        self.groups.values_mut().for_each(|group| group.all = None);
        self.heard.clear();
    }

    /// Holds a lane whose VAPID key is refused, except for probes.
    pub(super) fn hold_key(&mut self, lane: LaneId, held: HoldReason) {
        let group = self.groups.entry(lane).or_default();
        group.slots.iter().for_each(|slot| self.slots[*slot].lane.hold_key(held));
        group.all.get_or_insert_with(|| LaneState::of(lane, ALL_ORIGINS.into())).key_held = Some(held);
    }

    /// Ends the hold of a refused key if it was set before a time.
    pub(super) fn release_key(&mut self, lane: LaneId, at: Timestamp) {
        let Some(group) = self.groups.get_mut(&lane) else { return };
        group.slots.iter().for_each(|slot| self.slots[*slot].lane.release_key(at));
        if let Some(all) = &mut group.all {
            (all.key_held, all.key_released_at) = (None, Some(at));
        }
    }

    pub(super) fn key_held_until(&self, slot: Slot, now: Timestamp) -> Option<Timestamp> {
        self.slots.get(slot)?.lane.key_held_until(now)
    }

    /// Returns the lane, its waiting deliveries of a tier, and its limit.
    pub(super) fn depth(&self, slot: Slot, tier: Tier) -> (LaneId, usize, usize) {
        let queue = &self.slots[slot];
        (queue.id, self.groups[&queue.id].waiting[index(tier)], queue.lane.claimed_most() as usize)
    }

    pub(super) fn name(&self, slot: Slot) -> LaneState {
        LaneState::of(self.slots[slot].id, self.slots[slot].origin.clone())
    }

    pub(super) fn load(&self, now: Timestamp) -> QueueLoad {
        let lanes = || self.slots.iter().map(|(_, queue)| &queue.lane);
        QueueLoad {
            waiting: self.groups.values().flat_map(|group| group.waiting).sum(),
            in_flight: lanes().map(|lane| lane.in_flight() as usize).sum(),
            held: lanes().filter(|lane| lane.is_held(now)).count(),
            broken: lanes().filter(|lane| lane.is_broken()).count(),
            known: self.slots.len(),
        }
    }

    /// Updates all lanes after a change that may concern any of them.
    fn refresh(&mut self) {
        let slots: Vec<_> = self.slots.iter().map(|(slot, queue)| (slot, queue.app, queue.id)).collect();
        for (slot, app, lane) in slots {
            self.make_ready(slot);
            self.make_held_back_ready(app, lane);
        }
    }

    /// Drops origins, and states of unknown ones, without recent deliveries and relevant state.
    pub(super) fn forget_idle(&mut self, now: Timestamp, instant: Instant) {
        for group in self.groups.values_mut() {
            group.all.take_if(|all| !matters(all, now));
            // What was said of all of them would be obeyed anew by one that is met again, even if it stood otherwise since.
            if group.all.is_some() {
                continue;
            }
            group.slots.retain(|slot| {
                let is_idle = self.slots[*slot].is_idle(now, instant);
                if is_idle {
                    let LaneQueue { id, origin, peer, .. } = self.slots.remove(*slot);
                    self.index.remove(&(id, origin));
                    self.peers[peer].slots.retain(|other| other != slot);
                    if self.peers[peer].slots.is_empty() {
                        self.peer_index.remove(&self.peers.remove(peer).authority);
                    }
                }
                !is_idle
            });
        }
        self.groups.retain(|_, group| group.all.is_some() || !group.slots.is_empty());
        for (lane, heard) in &mut self.heard {
            heard.retain(|_, state| {
                self.groups.get(lane).is_some_and(|group| group.all.is_some()) || matters(state, now)
            });
        }
        self.heard.retain(|_, heard| !heard.is_empty());
        self.ready.iter_mut().for_each(Turns::forget_idle);
    }
}
