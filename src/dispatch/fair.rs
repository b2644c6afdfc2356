//! The fair queue: which delivery gets the next sealing slot.
//!
//! Tiers share by weight (8:3:1), lanes of a tier take turns, and a lane takes part only while it has a permit: its
//! adaptive concurrency limit is not used up, and it is neither held nor broken. So a slow or throttled gateway never
//! holds up another, and a campaign of ten million does not delay a one-time code.
//!
//! A lane that is held or broken keeps nothing in memory: its deliveries come back to be put off, and are claimed
//! again when they may be sent.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::job::Job;
use super::lane::{Answered, Change, Lane, Passage, Share};
use super::limit::Limit;
use crate::clock::Timestamp;
use crate::delivery::Tier;
use crate::id::LaneId;
use crate::lane::Gateway;

/// Shares of the tiers while all of them have work.
const WEIGHTS: [u32; 3] = [8, 3, 1];
const TIERS: usize = WEIGHTS.len();
/// An origin whose permits have all been out for so long without an answer does not take part for a while.
const STALLED_AFTER: Duration = Duration::from_secs(1);
/// For how long: by then its attempts have met their deadline, and the breaker knows.
const STALLED_FOR: Duration = super::ATTEMPT_DEADLINE;
/// How many deliveries of the lane `other` are claimed at a time to find those that are for another origin than the
/// ones that are shut or stalled.
const LOOK_PAST: usize = 64;

/// Index of a (lane, origin) in the queue; never reused, so it stays valid.
pub type Slot = usize;

/// A delivery with a permit. The permit is given back by [`FairQueue::release`].
pub struct Turn {
    pub slot: Slot,
    pub job: Box<Job>,
    /// Whether its answer decides over a half-open breaker.
    pub probe: bool,
}

/// What asking for the next delivery came to.
pub enum Next {
    Turn(Turn),
    /// A lane turned out to be shut: its deliveries are put off until the given time.
    PutOff(Vec<Box<Job>>, Timestamp),
}

/// A change of a lane, with the lane's name.
pub struct LaneChange {
    pub lane: LaneId,
    pub origin: Arc<str>,
    pub change: Change,
}

/// Figures of a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Deliveries that wait for a turn.
    pub waiting: usize,
    /// POSTs without an answer.
    pub in_flight: usize,
    /// Lanes that a gateway's throttling holds.
    pub held: usize,
    /// Lanes whose breaker is open or half open.
    pub broken: usize,
}

/// Told when a (lane, tier) has fallen below its limit and may claim more.
type Hungry = Box<dyn Fn(LaneId, Tier) + Send + Sync>;

/// The jobs of this process, by tier and lane.
pub struct FairQueue {
    inner: Mutex<Inner>,
    /// Wakes the sealers.
    any: Notify,
    /// Wakes the sealer kept for transactional deliveries.
    transactional: Notify,
    hungry: Hungry,
}

struct Inner {
    share: Share,
    slots: Vec<LaneQueue>,
    index: HashMap<(LaneId, Arc<str>), Slot>,
    groups: HashMap<LaneId, Group>,
    /// What other replicas told of lanes that this process has not met.
    heard: HashMap<(LaneId, Arc<str>), Change>,
    /// Slots with a job of the tier and a permit for it.
    ready: [VecDeque<Slot>; TIERS],
    credit: [u32; TIERS],
}

/// The origins of one stored lane, taken together: what is claimed is claimed for all of them.
#[derive(Default)]
struct Group {
    slots: Vec<Slot>,
    waiting: [usize; TIERS],
}

struct LaneQueue {
    id: LaneId,
    origin: Arc<str>,
    lane: Lane,
    jobs: [VecDeque<Box<Job>>; TIERS],
    in_ready: [bool; TIERS],
    /// When a permit was last taken or given back.
    moved_at: Instant,
}

impl LaneQueue {
    /// Until when a delivery that is claimed now should rather not wait here. One strange origin that hangs must not
    /// fill the room that all strange origins share.
    fn put_off_until(&self, tier: usize, now: Timestamp) -> Option<Timestamp> {
        let stalled =
            || self.lane.is_stranger() && !self.lane.has_permit(tier == 0) && self.moved_at.elapsed() >= STALLED_AFTER;
        self.lane.shut_until(now).or_else(|| stalled().then(|| now + STALLED_FOR))
    }
}

impl Inner {
    fn slot(&mut self, job: &Job, now: Timestamp) -> Slot {
        // The look-up wants an owned key; endpoints share few origins, and the allocation is small.
        let key = (job.lane.id, Arc::from(job.endpoint.origin()));
        if let Some(slot) = self.index.get(&key) {
            return *slot;
        }
        let slot = self.slots.len();
        let mut lane = Lane::new(job.lane.gateway, self.share, now);
        if let Some(change) = self.heard.remove(&key) {
            lane.adopt(&change);
        }
        self.slots.push(LaneQueue {
            id: job.lane.id,
            origin: key.1.clone(),
            lane,
            jobs: Default::default(),
            in_ready: [false; TIERS],
            moved_at: Instant::now(),
        });
        self.groups.entry(job.lane.id).or_default().slots.push(slot);
        self.index.insert(key, slot);
        slot
    }

    fn make_ready(&mut self, slot: Slot) {
        let queue = &mut self.slots[slot];
        for tier in 0..TIERS {
            if !queue.in_ready[tier] && !queue.jobs[tier].is_empty() && queue.lane.has_permit(tier == 0) {
                queue.in_ready[tier] = true;
                self.ready[tier].push_back(slot);
            }
        }
    }

    fn has_ready(&self) -> bool {
        self.ready.iter().any(|ready| !ready.is_empty())
    }

    fn evict(&mut self, slot: Slot) -> Vec<Box<Job>> {
        let queue = &mut self.slots[slot];
        let group = self.groups.get_mut(&queue.id);
        if let Some(group) = group {
            (0..TIERS).for_each(|tier| group.waiting[tier] -= queue.jobs[tier].len());
        }
        queue.jobs.iter_mut().flat_map(std::mem::take).collect()
    }

    fn pop(&mut self, tiers: Range<usize>, now: Timestamp) -> Option<Next> {
        // Twice: once with what is left of the round's credit, once with a fresh round's.
        for _ in 0..2 {
            for tier in tiers.clone() {
                while self.credit[tier] > 0
                    && let Some(slot) = self.ready[tier].pop_front()
                {
                    if let Some(next) = self.take(slot, tier, now) {
                        return Some(next);
                    }
                }
            }
            self.credit = WEIGHTS;
        }
        None
    }

    fn take(&mut self, slot: Slot, tier: usize, now: Timestamp) -> Option<Next> {
        let queue = &mut self.slots[slot];
        queue.in_ready[tier] = false;
        if !queue.lane.has_permit(tier == 0) {
            return None; // back in line with its next permit
        }
        let job = queue.jobs[tier].pop_front()?;
        let probe = match queue.lane.enter(now, tier == 0) {
            Passage::Free => false,
            Passage::Probe => true,
            Passage::Shut(until) => {
                queue.jobs[tier].push_front(job);
                return Some(Next::PutOff(self.evict(slot), until));
            }
        };
        queue.moved_at = Instant::now();
        self.credit[tier] -= 1;
        if let Some(group) = self.groups.get_mut(&queue.id) {
            group.waiting[tier] -= 1;
        }
        self.make_ready(slot);
        Some(Next::Turn(Turn { slot, job, probe }))
    }
}

impl FairQueue {
    /// An empty queue whose lanes grow to at most `limit_max` POSTs at a time.
    pub fn new(limit_max: u32, hungry: impl Fn(LaneId, Tier) + Send + Sync + 'static) -> Self {
        let inner = Inner {
            share: Share { limit_max, workers: 1 },
            slots: Vec::new(),
            index: HashMap::new(),
            groups: HashMap::new(),
            heard: HashMap::new(),
            ready: Default::default(),
            credit: WEIGHTS,
        };
        let (any, transactional) = (Notify::new(), Notify::new());
        Self { inner: Mutex::new(inner), any, transactional, hungry: Box::new(hungry) }
    }

    /// Takes this worker's share, now that so many live.
    pub fn share_among(&self, workers: u32) {
        let mut inner = self.inner.lock();
        if inner.share.workers == workers {
            return;
        }
        inner.share.workers = workers;
        let share = inner.share;
        for slot in 0..inner.slots.len() {
            inner.slots[slot].lane.set_share(share);
            inner.make_ready(slot);
        }
        self.wake(&inner);
    }

    /// Lets deliveries in. Those of a lane that is shut come back, with the time until which they are put off.
    pub fn push(&self, jobs: impl IntoIterator<Item = Box<Job>>, now: Timestamp) -> Vec<(Box<Job>, Timestamp)> {
        let mut shut = Vec::new();
        let inner = &mut *self.inner.lock();
        for job in jobs {
            let slot = inner.slot(&job, now);
            let queue = &mut inner.slots[slot];
            let tier = index(job.message.tier);
            if let Some(until) = queue.put_off_until(tier, now) {
                shut.push((job, until));
                continue;
            }
            inner.groups.entry(queue.id).or_default().waiting[tier] += 1;
            queue.jobs[tier].push_back(job);
            inner.make_ready(slot);
        }
        self.wake(inner);
        shut
    }

    /// Wakes one sealer; a sealer that finds more than it takes wakes the next.
    fn wake(&self, inner: &Inner) {
        if !inner.ready[0].is_empty() {
            self.transactional.notify_one();
        }
        if inner.has_ready() {
            self.any.notify_one();
        }
    }

    /// The next delivery with a permit, as soon as there is one.
    pub async fn next(&self, only_transactional: bool, now: impl Fn() -> Timestamp) -> Next {
        let (tiers, notify) = if only_transactional { (0..1, &self.transactional) } else { (0..TIERS, &self.any) };
        loop {
            if let Some(next) = self.try_next(tiers.clone(), now()) {
                return next;
            }
            // `notify_one` leaves a permit behind when nobody waits, so nothing is missed between look and wait.
            notify.notified().await;
        }
    }

    pub(super) fn try_next(&self, tiers: Range<usize>, now: Timestamp) -> Option<Next> {
        let mut inner = self.inner.lock();
        let next = inner.pop(tiers, now)?;
        self.wake(&inner);
        let hungry = match &next {
            Next::Turn(Turn { slot, job, .. }) => {
                let queue = &inner.slots[*slot];
                let waiting = inner.groups[&queue.id].waiting[index(job.message.tier)];
                let limit = queue.lane.limit.get() as usize;
                (waiting + 1 == limit || waiting == limit / 2 || waiting == 0).then_some((queue.id, job.message.tier))
            }
            Next::PutOff(..) => None,
        };
        drop(inner);
        if let Some((lane, tier)) = hungry {
            (self.hungry)(lane, tier);
        }
        Some(next)
    }

    /// Gives a permit back without an answer: no POST was made.
    pub fn release(&self, slot: Slot, job: &Job, probe: bool, now: Timestamp) {
        self.give_back(slot, |lane| lane.leave(probe, job.message.tier == Tier::Transactional, now));
    }

    /// Gives a permit back with the answer that the POST got. Answers what other replicas have to know.
    pub fn answered(&self, slot: Slot, answer: &Answered<'_>) -> Option<LaneChange> {
        let change = self.give_back(slot, |lane| lane.answered(answer))?;
        let inner = self.inner.lock();
        let queue = &inner.slots[slot];
        Some(LaneChange { lane: queue.id, origin: queue.origin.clone(), change })
    }

    fn give_back<T>(&self, slot: Slot, learn: impl FnOnce(&mut Lane) -> T) -> T {
        let mut inner = self.inner.lock();
        let queue = &mut inner.slots[slot];
        let learnt = learn(&mut queue.lane);
        queue.moved_at = Instant::now();
        inner.make_ready(slot);
        self.wake(&inner);
        learnt
    }

    /// Takes over what another replica learned of a lane. A lane that this process has not met learns it then.
    pub fn adopt(&self, change: LaneChange) {
        let mut inner = self.inner.lock();
        let key = (change.lane, change.origin);
        match inner.index.get(&key).copied() {
            Some(slot) => {
                inner.slots[slot].lane.adopt(&change.change);
                inner.make_ready(slot);
            }
            None => {
                inner.heard.insert(key, change.change);
            }
        }
    }

    /// How many more deliveries of a lane and tier may be claimed: up to the limits of its origins on top of what is on
    /// its way to them. Origins that are shut or stalled have no part in it. What waits for them in the database hides
    /// what is for others, so the lane `other` is looked through while it has such an origin.
    pub fn room(&self, lane: LaneId, tier: Tier, now: Timestamp) -> usize {
        let inner = self.inner.lock();
        let start = Limit::new(inner.share.of(Gateway::Fcm)).get() as usize;
        let Some(group) = inner.groups.get(&lane) else { return start };
        let (mut limit, mut waiting, mut look_past) = (0, 0, 0);
        for queue in group.slots.iter().map(|slot| &inner.slots[*slot]) {
            if queue.put_off_until(index(tier), now).is_none() {
                limit += queue.lane.limit.get() as usize;
                waiting += queue.jobs[index(tier)].len();
            } else if queue.lane.is_stranger() {
                look_past = LOOK_PAST;
            }
        }
        (limit + look_past).saturating_sub(waiting)
    }

    /// Takes out everything that waits, for a stop of the server.
    pub fn drain(&self) -> Vec<Box<Job>> {
        let mut inner = self.inner.lock();
        (0..inner.slots.len()).flat_map(|slot| inner.evict(slot)).collect()
    }

    /// What is going on.
    pub fn load(&self, now: Timestamp) -> Load {
        let inner = self.inner.lock();
        let lanes = || inner.slots.iter().map(|queue| &queue.lane);
        Load {
            waiting: inner.groups.values().flat_map(|group| group.waiting).sum(),
            in_flight: lanes().map(|lane| lane.in_flight() as usize).sum(),
            held: lanes().filter(|lane| lane.is_held(now)).count(),
            broken: lanes().filter(|lane| lane.is_broken()).count(),
        }
    }
}

fn index(tier: Tier) -> usize {
    match tier {
        Tier::Transactional => 0,
        Tier::Promotional => 1,
        Tier::Engagement => 2,
    }
}
