//! The fair queue: which delivery gets the next sealing slot.
//!
//! Tiers share by weight (8:3:1), lanes of a tier take turns, and a lane takes part only while it has a permit: its
//! adaptive concurrency limit is not used up, and it is neither held nor broken. So a slow or throttled gateway never
//! holds up another, and a campaign of ten million does not delay a one-time code.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::job::Job;
use super::limit::Limit;
use crate::delivery::Tier;
use crate::id::LaneId;
use crate::lane::Gateway;

/// Shares of the tiers while all of them have work.
const WEIGHTS: [u32; 3] = [8, 3, 1];

/// Index of a (lane, origin) in the queue; never reused, so it stays valid.
pub type Slot = usize;

/// Whether a lane may start a POST.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gate {
    /// Yes.
    Open,
    /// One of a few probes after an outage: only while less than so many are in flight.
    Probe(u32),
    /// Not before this; its deliveries are put off.
    Shut(Instant),
}

/// The jobs of this process, by tier and lane.
pub struct FairQueue {
    inner: Mutex<Inner>,
    /// Wakes the sealers.
    any: Notify,
    /// Wakes the sealer kept for transactional deliveries.
    transactional: Notify,
    /// Told when a (lane, tier) falls below its limit and may claim more.
    hungry: Box<dyn Fn(LaneId, Tier) + Send + Sync>,
    limit_max: u32,
}

#[derive(Default)]
struct Inner {
    slots: Vec<LaneQueue>,
    index: HashMap<(LaneId, Arc<str>), Slot>,
    /// Slots with a job of the tier and a permit for it.
    ready: [VecDeque<Slot>; 3],
    credit: [u32; 3],
    /// Jobs that wait, by lane and tier.
    unsent: HashMap<LaneId, [usize; 3]>,
}

struct LaneQueue {
    lane: LaneId,
    origin: Arc<str>,
    jobs: [VecDeque<Box<Job>>; 3],
    in_ready: [bool; 3],
    in_flight: u32,
    limit: Limit,
    gate: Gate,
}

impl LaneQueue {
    /// Whether a delivery of this tier may start. The last permit of a lane is kept for transactional ones.
    fn permits(&self, tier: usize) -> bool {
        let limit = match self.gate {
            Gate::Open => self.limit.get(),
            Gate::Probe(n) => n,
            Gate::Shut(_) => 0,
        };
        let reserved = u32::from(tier != 0 && limit > 1);
        self.in_flight < limit.saturating_sub(reserved)
    }
}

impl Inner {
    fn make_ready(&mut self, slot: Slot) {
        for tier in 0..3 {
            let queue = &mut self.slots[slot];
            if !queue.in_ready[tier] && !queue.jobs[tier].is_empty() && queue.permits(tier) {
                queue.in_ready[tier] = true;
                self.ready[tier].push_back(slot);
            }
        }
    }

    fn pop(&mut self, tiers: std::ops::Range<usize>) -> Option<(Slot, Box<Job>)> {
        for _ in 0..2 {
            for tier in tiers.clone() {
                while self.credit[tier] > 0 && let Some(slot) = self.ready[tier].pop_front() {
                    let queue = &mut self.slots[slot];
                    queue.in_ready[tier] = false;
                    if !queue.permits(tier) {
                        continue; // comes back with its next permit
                    }
                    let Some(job) = queue.jobs[tier].pop_front() else { continue };
                    queue.in_flight += 1;
                    self.credit[tier] -= 1;
                    let lane = queue.lane;
                    self.make_ready(slot);
                    if let Some(unsent) = self.unsent.get_mut(&lane) {
                        unsent[tier] -= 1;
                    }
                    return Some((slot, job));
                }
            }
            self.credit = WEIGHTS;
        }
        None
    }
}

impl FairQueue {
    /// An empty queue whose lanes grow to at most `limit_max` POSTs at a time.
    pub fn new(limit_max: u32, hungry: impl Fn(LaneId, Tier) + Send + Sync + 'static) -> Self {
        Self {
            inner: Mutex::default(),
            any: Notify::new(),
            transactional: Notify::new(),
            hungry: Box::new(hungry),
            limit_max,
        }
    }

    /// Lets deliveries in. Those of a lane that is shut come back, with the time from which they may be tried.
    pub fn push(&self, jobs: impl IntoIterator<Item = Box<Job>>) -> Vec<(Box<Job>, Instant)> {
        let mut refused = Vec::new();
        let (mut pushed, mut pushed_transactional) = (0, false);
        {
            let inner = &mut *self.inner.lock();
            for job in jobs {
                let slot = self.slot(inner, &job);
                let queue = &mut inner.slots[slot];
                if let Gate::Shut(until) = queue.gate {
                    refused.push((job, until));
                    continue;
                }
                let (lane, tier) = (queue.lane, tier_index(job.message.tier));
                queue.jobs[tier].push_back(job);
                inner.unsent.entry(lane).or_default()[tier] += 1;
                inner.make_ready(slot);
                pushed += 1;
                pushed_transactional |= tier == 0;
            }
        }
        if pushed_transactional {
            self.transactional.notify_one();
        }
        self.wake(pushed);
        refused
    }

    fn slot(&self, inner: &mut Inner, job: &Job) -> Slot {
        let key = (job.lane.id, Arc::from(job.endpoint.origin()));
        if let Some(slot) = inner.index.get(&key) {
            return *slot;
        }
        let slot = inner.slots.len();
        inner.slots.push(LaneQueue {
            lane: job.lane.id,
            origin: key.1.clone(),
            jobs: Default::default(),
            in_ready: [false; 3],
            in_flight: 0,
            limit: match job.lane.gateway {
                Gateway::Other => Limit::stranger(),
                _ => Limit::new(self.limit_max),
            },
            gate: Gate::Open,
        });
        inner.index.insert(key, slot);
        slot
    }

    fn wake(&self, jobs: usize) {
        // A sealer that takes one wakes the next: see `next`.
        if jobs > 0 {
            self.any.notify_one();
        }
    }

    /// The next delivery with a permit, as soon as there is one. The permit is given back by [`release`](Self::release).
    pub async fn next(&self, only_transactional: bool) -> (Slot, Box<Job>) {
        let (tiers, notify) = if only_transactional { (0..1, &self.transactional) } else { (0..3, &self.any) };
        loop {
            let notified = notify.notified();
            if let Some(found) = self.try_next(tiers.clone()) {
                return found;
            }
            notified.await;
        }
    }

    /// The next delivery with a permit, if there is one now.
    pub fn try_next(&self, tiers: std::ops::Range<usize>) -> Option<(Slot, Box<Job>)> {
        let mut inner = self.inner.lock();
        let (slot, job) = inner.pop(tiers)?;
        let more = inner.ready.iter().any(|ready| !ready.is_empty());
        let queue = &inner.slots[slot];
        let (lane, tier) = (queue.lane, tier_index(job.message.tier));
        let hungry = inner.unsent[&lane][tier] + 1 == queue.limit.get() as usize || inner.unsent[&lane][tier] == 0;
        drop(inner);
        if more {
            self.any.notify_one();
        }
        if hungry {
            (self.hungry)(lane, job.message.tier);
        }
        Some((slot, job))
    }

    /// Gives a permit back, after `learn` has adapted the lane's limit.
    pub fn release(&self, slot: Slot, learn: impl FnOnce(&mut Limit)) {
        let mut inner = self.inner.lock();
        let queue = &mut inner.slots[slot];
        queue.in_flight -= 1;
        learn(&mut queue.limit);
        inner.make_ready(slot);
        let more = inner.ready.iter().any(|ready| !ready.is_empty());
        let transactional = !inner.ready[0].is_empty();
        drop(inner);
        if transactional {
            self.transactional.notify_one();
        }
        self.wake(usize::from(more));
    }

    /// Opens or shuts a lane. Whatever waits in a lane that is shut is handed back, to be put off.
    pub fn set_gate(&self, lane: LaneId, origin: &Arc<str>, gate: Gate) -> Vec<Box<Job>> {
        let mut inner = self.inner.lock();
        let Some(&slot) = inner.index.get(&(lane, origin.clone())) else { return Vec::new() };
        let queue = &mut inner.slots[slot];
        queue.gate = gate;
        let mut evicted = Vec::new();
        if matches!(gate, Gate::Shut(_)) {
            for tier in 0..3 {
                let jobs = std::mem::take(&mut inner.slots[slot].jobs[tier]);
                if let Some(unsent) = inner.unsent.get_mut(&lane) {
                    unsent[tier] -= jobs.len();
                }
                evicted.extend(jobs);
            }
        }
        inner.make_ready(slot);
        drop(inner);
        self.wake(1);
        self.transactional.notify_one();
        evicted
    }

    /// How many more deliveries of a lane and tier may be claimed: up to the lane's limit on top of what is on its
    /// way. Zero while every origin of the lane is shut.
    pub fn room(&self, lane: LaneId, tier: Tier) -> usize {
        let inner = self.inner.lock();
        let of_lane = inner.slots.iter().filter(|queue| queue.lane == lane);
        let (mut known, mut shut, mut limit) = (0, 0, 0);
        for queue in of_lane {
            known += 1;
            shut += usize::from(matches!(queue.gate, Gate::Shut(_)));
            limit += queue.limit.get() as usize;
        }
        if known > 0 && shut == known {
            return 0;
        }
        let limit = limit.max(Limit::new(self.limit_max).get() as usize);
        limit.saturating_sub(inner.unsent.get(&lane).map_or(0, |unsent| unsent[tier_index(tier)]))
    }

    /// Takes out everything that waits, for a stop of the server.
    pub fn drain(&self) -> Vec<Box<Job>> {
        let mut inner = self.inner.lock();
        inner.unsent.clear();
        let slots = inner.slots.iter_mut();
        slots.flat_map(|queue| queue.jobs.iter_mut().flat_map(std::mem::take).collect::<Vec<_>>()).collect()
    }

    /// How many deliveries wait and how many are in flight.
    pub fn load(&self) -> (usize, usize) {
        let inner = self.inner.lock();
        let waiting = inner.unsent.values().flatten().sum();
        (waiting, inner.slots.iter().map(|queue| queue.in_flight as usize).sum())
    }

    /// The (lane, origin) of a slot.
    pub fn origin(&self, slot: Slot) -> (LaneId, Arc<str>) {
        let inner = self.inner.lock();
        (inner.slots[slot].lane, inner.slots[slot].origin.clone())
    }
}

fn tier_index(tier: Tier) -> usize {
    match tier {
        Tier::Transactional => 0,
        Tier::Promotional => 1,
        Tier::Engagement => 2,
    }
}
