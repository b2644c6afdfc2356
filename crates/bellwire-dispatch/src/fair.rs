//! Fair queue: chooses the delivery that gets the next encryption slot.
//!
//! Tiers share by weight (8:3:1), apps of a tier alternate by their weights, and lanes of an app alternate. A lane takes part
//! while it has a permit: its adaptive concurrency limit and the parallelism of flow control are not used up, and it is neither
//! held nor broken. If a lane's permits are scarcer than encryption, its tiers share the permits by the same weights. So a slow
//! or throttled push service never delays another, and a campaign of ten million does not delay a one-time code.
//!
//! At most as many deliveries have a permit as the connections to their [origin](peer) allow. All others wait here, where tiers
//! and weights decide about the order.
//!
//! A lane that is held or broken keeps nothing in memory: its deliveries are deferred, and claimed again when they may be sent.
//! Deliveries that wait for a token of flow control are not claimed either.

mod flow;
mod lane_queue;
mod peer;
mod queue;
mod room;
pub(super) mod shares;
pub(super) mod turn;
pub(super) mod weighted_queue;

use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::job::Job;
use crate::message::LaneInfo;
use crate::pending_set::PendingSet;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{AppId, LaneId};
use bellwire_gateway::Streams;
use bellwire_rules::policy::breaker::Snapshot;
use bellwire_rules::policy::hold::HoldReason;
use bellwire_rules::policy::lane::{Answered, Lane};
use bellwire_rules::policy::lane_state::LaneState;
use bellwire_store::operations::workers::Replicas;
use bellwire_store::queue::flows::Flow;
use queue::Queue;
use shares::TIERS;
use turn::{NextTurn, Permit, QueueLoad, Room, Slot, Turn};

/// Stage that asks for the next delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Taker {
    Transactional,
    /// The stage that feeds the encryption threads, which the scheduler may suspend for long. It leaves a few transactional
    /// deliveries to their reserved thread.
    Any,
}

/// Maximum transactional deliveries left to the reserved thread: about a millisecond of its work.
const LEFT_ALONE: usize = 16;

/// Callback for a lane and tier that fell below its limit and may claim more.
type RefillSignal = Box<dyn Fn(LaneId, Tier) + Send + Sync>;

/// Jobs of this process, by tier and lane.
pub(crate) struct FairQueue {
    inner: Mutex<Queue>,
    any: Notify,
    transactional: Notify,
    ran_low: RefillSignal,
}

impl FairQueue {
    /// Creates an empty queue of a worker with this start time. Lanes grow up to `limit_max` concurrent POSTs. `streams`
    /// returns the concurrent requests that an authority allows.
    pub(crate) fn new(
        limit_max: u32, started_at: Timestamp, ran_low: impl Fn(LaneId, Tier) + Send + Sync + 'static,
        streams: impl Fn(&str) -> Streams + Send + Sync + 'static,
    ) -> Self {
        let inner = Mutex::new(Queue::new(limit_max, started_at, Box::new(streams)));
        Self { inner, any: Notify::new(), transactional: Notify::new(), ran_low: Box::new(ran_low) }
    }

    pub(crate) fn share_among(&self, replicas: Replicas, now: Timestamp) {
        let mut inner = self.inner.lock();
        if inner.share_among(replicas, now) {
            self.wake(&inner);
        }
    }

    /// Updates the number of concurrent requests of an origin.
    pub(crate) fn streams_changed(&self, authority: &str) {
        let mut inner = self.inner.lock();
        if inner.streams_changed(authority) {
            self.wake(&inner);
        }
    }

    pub(crate) fn adopt_flow(&self, flow: Flow, now: Timestamp) {
        let mut inner = self.inner.lock();
        if inner.adopt_flow(flow, now) {
            self.wake(&inner);
        }
    }

    /// Whether flow control limits the app, or one of its lanes.
    pub(crate) fn is_limited(&self, app: AppId) -> bool {
        self.inner.lock().flows.concern(app)
    }

    /// Adds deliveries. The caller must then call [`tell`](Self::tell). Deliveries that may not start now are returned with the
    /// time until which they are deferred.
    pub(crate) fn push(&self, jobs: impl IntoIterator<Item = Box<Job>>, now: Timestamp) -> Vec<(Box<Job>, Timestamp)> {
        let inner = &mut *self.inner.lock();
        jobs.into_iter().filter_map(|job| inner.push(job, now).err()).collect()
    }

    /// Wakes the stages that may find new deliveries.
    pub(crate) fn tell(&self) {
        self.wake(&self.inner.lock());
    }

    /// Wakes stages that may find deliveries. A stage that takes one and leaves more wakes the other stage.
    fn wake(&self, inner: &Queue) {
        if !inner.ready[0].is_empty() {
            self.transactional.notify_one();
        }
        if inner.has_ready() {
            self.any.notify_one();
        }
    }

    /// Waits for the next delivery with a permit.
    pub(crate) async fn next(&self, taker: Taker, now: impl Fn() -> Timestamp) -> NextTurn {
        let notify = match taker {
            Taker::Transactional => &self.transactional,
            Taker::Any => &self.any,
        };
        loop {
            if let Some(next) = self.try_next(taker, now()) {
                return next;
            }
            // `notify_one` stores a permit without a waiter, so nothing is missed between look and wait.
            notify.notified().await;
        }
    }

    pub(crate) fn try_next(&self, taker: Taker, now: Timestamp) -> Option<NextTurn> {
        let mut inner = self.inner.lock();
        let tiers = match taker {
            Taker::Transactional => 0..1,
            Taker::Any if inner.waiting(Tier::Transactional) <= LEFT_ALONE => 1..TIERS,
            Taker::Any => 0..TIERS,
        };
        let Some(next) = inner.pop(tiers, now) else {
            // What is left is the other's.
            match taker {
                Taker::Transactional if inner.has_ready() => self.any.notify_one(),
                Taker::Any if !inner.ready[0].is_empty() => self.transactional.notify_one(),
                _ => {}
            }
            return None;
        };
        self.wake(&inner);
        let ran_low = match &next {
            NextTurn::Turn(Turn { slot, job, .. }) => {
                let tier = job.message.tier;
                let (lane, waiting, limit) = inner.depth(*slot, tier);
                (waiting + 1 == limit || waiting == limit / 2 || waiting == 0).then_some((lane, tier))
            }
            NextTurn::Deferred(..) => None,
        };
        drop(inner);
        if let Some((lane, tier)) = ran_low {
            (self.ran_low)(lane, tier);
        }
        Some(next)
    }

    /// Returns a permit without a response, because there was no POST. Returns the number of POSTs of the lane in flight.
    pub(crate) fn release(&self, slot: Slot, job: &Job, probe: bool, now: Timestamp) -> u32 {
        self.take_back(&Permit { slot, tier: job.message.tier, number: job.number, probe }, now)
    }

    /// Like [`release`](Self::release), if only the permit is left.
    pub(crate) fn take_back(&self, permit: &Permit, now: Timestamp) -> u32 {
        let mut inner = self.inner.lock();
        let &Permit { slot, tier, number, probe } = permit;
        let urgent = tier == Tier::Transactional;
        inner.give_back(slot, urgent, Some(tier), |lane| lane.leave(probe, number, urgent, now));
        self.wake(&inner);
        inner.slots[slot].lane.in_flight()
    }

    /// Returns a permit with the response of the POST. Returns updates for other replicas, and the number of POSTs of the lane
    /// in flight.
    pub(crate) fn answered(&self, slot: Slot, answer: &Answered<'_>) -> (Option<LaneState>, u32) {
        let mut inner = self.inner.lock();
        let mut news = inner.name(slot);
        let learn = |lane: &mut Lane| (lane.answered(answer, &mut news), lane.in_flight());
        let (told, in_flight) = inner.give_back(slot, answer.transactional, None, learn);
        if let Some(posted_at) = news.key_released_at {
            inner.release_key(news.lane, posted_at);
        }
        self.wake(&inner);
        (told.then_some(news), in_flight)
    }

    /// Adopts a lane state from another replica. It also applies to origins that this process meets later.
    pub(crate) fn adopt(&self, state: LaneState) {
        self.inner.lock().adopt(state);
    }

    /// Drops all holds and breakers. The caller must read them again.
    pub(crate) fn forget_states(&self) {
        self.inner.lock().forget_states();
        self.tell();
    }

    /// Holds a lane whose VAPID key is refused, except for probes.
    pub(crate) fn hold_key(&self, lane: LaneId, held: HoldReason) {
        self.inner.lock().hold_key(lane, held);
    }

    /// Returns the end of a lane's hold because of its refused VAPID key. `None`: not held.
    pub(crate) fn key_held_until(&self, slot: Slot, now: Timestamp) -> Option<Timestamp> {
        self.inner.lock().key_held_until(slot, now)
    }

    /// Returns the origins of a lane for whose breakers this worker should request the right to probe now.
    /// [`asked_to_probe`](Self::asked_to_probe) must follow.
    pub(crate) fn wants_probe(&self, lane: &LaneInfo, now: Timestamp) -> Vec<(Slot, Arc<str>, Snapshot)> {
        self.inner.lock().wants_probe(lane, now)
    }

    /// Processes the result of a request for the right to probe: its end. `None`: another worker has it.
    pub(crate) fn asked_to_probe(&self, slot: Slot, known: Snapshot, until: Option<Timestamp>, now: Timestamp) {
        self.inner.lock().asked_to_probe(slot, known, until, now);
    }

    /// Returns how many more deliveries of a lane and tier may be claimed, by the limits of its origins and flow control.
    /// Closed or stalled origins do not count. Their waiting deliveries would hide others in the database, so the lane `other`
    /// (unknown push services) claims some beyond them.
    pub(crate) fn room(&self, lane: &LaneInfo, tier: Tier, now: Timestamp) -> Room {
        self.inner.lock().room(lane, tier, now)
    }

    /// Removes and returns everything that waits, when the server stops.
    pub(crate) fn drain(&self) -> Vec<Box<Job>> {
        self.inner.lock().evict_all()
    }

    /// Drops unused origins without relevant state.
    pub(crate) fn forget_idle(&self, now: Timestamp, instant: Instant) {
        self.inner.lock().forget_idle(now, instant);
    }

    /// Returns the current maximum of concurrent POSTs of each lane, summed over its origins, in order of lanes.
    pub(crate) fn limits(&self) -> Vec<(LaneId, i32)> {
        let inner = self.inner.lock();
        let of_group = |slots: &[Slot]| slots.iter().map(|slot| inner.slots[*slot].lane.most()).sum::<u32>();
        let groups = inner.groups.iter().filter(|(_, group)| !group.slots.is_empty());
        let mut limits: Vec<_> =
            groups.map(|(lane, group)| (*lane, i32::try_from(of_group(&group.slots)).unwrap_or(i32::MAX))).collect();
        limits.sort_unstable();
        limits
    }

    pub(crate) fn load(&self, now: Timestamp) -> QueueLoad {
        self.inner.lock().load(now)
    }
}

pub(crate) async fn follow_streams(queue: Arc<FairQueue>, changed: Arc<PendingSet<Arc<str>>>) {
    loop {
        changed.next().await.iter().for_each(|authority| queue.streams_changed(authority));
    }
}
