//! Number of claimable deliveries of a lane, and the right to probe: the fair queue's interface to the claim stage.

use std::sync::Arc;

use super::queue::Queue;
use super::shares::index;
use super::turn::{Room, Slot};
use crate::message::LaneInfo;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::id::LaneId;
use bellwire_core::lane::Gateway;
use bellwire_rules::policy::breaker::Snapshot;
use bellwire_rules::policy::lane::{KEY_PROBE_EVERY, Lane};
use bellwire_rules::policy::limit::Limit;

/// Number of deliveries of the lane `other` (unknown push services) claimed at a time, to find some for origins that are
/// neither closed nor stalled.
const LOOK_PAST: usize = 64;
/// Number of deliveries of a lane with a refused VAPID key claimed at a time, to find one that may probe it.
const PROBE_CANDIDATES: usize = 16;

/// Whether lanes of this push service have several origins.
fn spans_origins(gateway: Gateway) -> bool {
    matches!(gateway, Gateway::Wns | Gateway::Other)
}

impl Queue {
    /// Returns how many more deliveries of a lane and tier may be claimed; see [`super::FairQueue::room`].
    pub(super) fn room(&mut self, lane: &LaneInfo, tier: Tier, now: Timestamp) -> Room {
        if self.flows.is_shut(lane.app, lane.id, index(tier)) {
            return Room::NONE;
        }
        let mut room = self.room_to_probe(lane.id, now).unwrap_or_else(|| self.room_of_lane(lane, tier, now));
        let (tokens, next_at) = self.flows.tokens(lane.app, lane.id, now);
        if tokens < usize::MAX {
            room = Room { n: room.n.min(tokens), exact: true, next_at: next_at.filter(|_| room.n > 0) };
        }
        if let Some(n) = self.flows.room(lane.app, lane.id, tier) {
            room = Room { n: room.n.min(n), exact: true, ..room };
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
            if queue.defer_until(index(tier), false, &self.peers[queue.peer], now).is_none() {
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

    /// Returns the claimable deliveries of a lane with a refused VAPID key: a few at an interval, which may include one to a
    /// proven subscription. `None`: its key is not refused.
    fn room_to_probe(&mut self, lane: LaneId, now: Timestamp) -> Option<Room> {
        let group = self.groups.get_mut(&lane)?;
        group.all.as_ref()?.key_held.filter(|held| now < held.until)?;
        if group.look_at.is_some_and(|at| now < at) {
            return Some(Room::NONE);
        }
        group.look_at = Some(now + KEY_PROBE_EVERY);
        Some(Room { n: PROBE_CANDIDATES, exact: true, next_at: None })
    }

    /// Returns the origins of a lane for whose breakers this worker should request the right to probe now.
    pub(super) fn wants_probe(&mut self, lane: &LaneInfo, now: Timestamp) -> Vec<(Slot, Arc<str>, Snapshot)> {
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

    /// Processes the result of a request for the right to probe.
    pub(super) fn asked_to_probe(&mut self, slot: Slot, known: Snapshot, until: Option<Timestamp>, now: Timestamp) {
        // It may have been forgotten meanwhile, which broken ones are after an hour.
        if let Some(queue) = self.slots.get_mut(slot) {
            queue.lane.asked_to_probe(known, until, now);
        }
    }
}
