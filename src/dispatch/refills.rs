//! Which lanes ran low, told by the queue to whoever claims. A lane that says so twice is remembered once: no more is kept
//! than there are lanes and tiers.

use std::collections::HashSet;

use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::model::delivery::Tier;
use crate::model::id::LaneId;

/// A lane and tier that ran low.
pub(super) type Refill = (LaneId, Tier);

/// The lanes that ran low.
#[derive(Default)]
pub(super) struct Refills {
    waiting: Mutex<HashSet<Refill>>,
    any: Notify,
}

impl Refills {
    /// Says that a lane ran low. Waits for nobody.
    pub(super) fn tell(&self, refill: Refill) {
        if self.waiting.lock().insert(refill) {
            self.any.notify_one();
        }
    }

    /// All that ran low since the last time, as soon as one has.
    pub(super) async fn next(&self) -> HashSet<Refill> {
        loop {
            let waiting = std::mem::take(&mut *self.waiting.lock());
            if !waiting.is_empty() {
                return waiting;
            }
            // `notify_one` leaves a permit behind when nobody waits, so nothing is missed between look and wait.
            self.any.notified().await;
        }
    }
}
