//! Liveness of this worker as others observe it, and of the other workers.
//!
//! Each worker counts its heartbeats in the database, and compares the counts of the others at each heartbeat. A worker whose
//! count did not change for [`LOOKS`] comparisons in a row is dead or frozen, and its deliveries are [taken
//! over](bellwire_store). Times of two machines are never compared, so a wrong clock neither ends a worker nor keeps a dead one
//! alive. A comparison that was itself late is ignored, so that a stalled Postgres ends no worker.
//!
//! A worker whose own heartbeat is [overdue](OVERDUE) starts no POST, because others may be taking its deliveries over. If that
//! has happened, it requeues its waiting deliveries and starts again with another id. Deliveries claimed before are not sent.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::Instant;
use uuid::Uuid;

use bellwire_core::clock::{Clock, Timestamp};
use bellwire_store::operations::takeover::{is_lease_of, lease_of};
use bellwire_store::operations::workers::WorkerRow;

/// Interval at which a worker writes its heartbeat, and compares the heartbeats of other workers with the previous ones.
pub(super) const BEAT_EVERY: Duration = Duration::from_secs(1);
/// Number of comparisons in a row without a change after which a worker counts as dead: after three to four seconds.
const LOOKS: u32 = 3;
/// Duration of a heartbeat from which its comparison is ignored, because Postgres or this process was stalled.
const LATE_AFTER: Duration = Duration::from_millis(500);
/// Interval between two heartbeats from which the comparison is ignored.
const GAP_MAX: Duration = Duration::from_secs(2);
/// Age of the last successful heartbeat from which no POST starts.
const OVERDUE: Duration = Duration::from_secs(2);

/// Minimum time between a worker's last visible heartbeat and its end by others.
const NOTICED_AFTER: u128 = BEAT_EVERY.as_millis() * LOOKS as u128;
const _: () = assert!(OVERDUE.as_millis() + 1_000 <= NOTICED_AFTER, "who was taken for dead has long ceased to send");

/// This worker: its current id, and its last heartbeat.
pub(super) struct Life {
    me: RwLock<Me>,
    beaten_at: RwLock<Option<Instant>>,
}

/// This worker under one id, from its entry in the list to its end.
#[derive(Debug, Clone, Copy)]
pub(super) struct Me {
    pub id: Uuid,
    pub started_at: Timestamp,
    pub is_listed: bool,
}

impl Life {
    pub(super) fn new(clock: &Clock) -> Self {
        Self { me: RwLock::new(Me::new(clock)), beaten_at: RwLock::default() }
    }

    pub(super) fn me(&self) -> Me {
        *self.me.read()
    }

    pub(super) fn lease(&self, clock: &Clock) -> Uuid {
        lease_of(self.me().id, clock.uuid())
    }

    pub(super) fn listed(&self) {
        self.me.write().is_listed = true;
    }

    pub(super) fn left(&self) {
        self.me.write().is_listed = false;
    }

    /// Records a successful heartbeat that began at `began`.
    pub(super) fn beaten(&self, began: Instant) {
        *self.beaten_at.write() = Some(began);
    }

    /// Sets a new id: deliveries claimed so far no longer belong to this worker.
    pub(super) fn begin_anew(&self, clock: &Clock) {
        *self.beaten_at.write() = None;
        *self.me.write() = Me::new(clock);
    }

    /// Whether no other worker can have declared it dead.
    pub(super) fn is_current(&self, now: Instant) -> bool {
        is_current(*self.beaten_at.read(), now)
    }

    /// Whether deliveries under this lease belong to this worker at the time that `now` returns, by its own records. If the
    /// process is frozen during the call, the result is `false`.
    pub(super) fn holds(&self, lease: Uuid, now: impl FnOnce() -> Instant) -> bool {
        let beaten_at = *self.beaten_at.read();
        is_lease_of(self.me().id, lease) && is_current(beaten_at, now())
    }
}

impl Me {
    fn new(clock: &Clock) -> Self {
        Self { id: clock.uuid(), started_at: clock.now(), is_listed: false }
    }
}

fn is_current(beaten_at: Option<Instant>, now: Instant) -> bool {
    beaten_at.is_some_and(|at| now.saturating_duration_since(at) < OVERDUE)
}

#[derive(Debug, Default)]
pub(super) struct Watch {
    seen: HashMap<Uuid, QueueObservation>,
    looked_at: Option<Instant>,
}

#[derive(Debug)]
struct QueueObservation {
    count: (i64, Timestamp),
    unchanged: u32,
}

impl Watch {
    /// Processes a comparison that began and ended at these times. Returns the workers that missed too many heartbeats.
    pub(super) fn look(&mut self, began: Instant, ended: Instant, peers: &[WorkerRow]) -> Vec<WorkerRow> {
        let gap = self.looked_at.map(|before| began.saturating_duration_since(before));
        let is_late = ended.saturating_duration_since(began) > LATE_AFTER || gap.is_some_and(|gap| gap > GAP_MAX);
        self.looked_at = Some(began);
        self.seen.retain(|id, _| peers.iter().any(|peer| peer.id == *id));
        peers.iter().copied().filter(|peer| self.is_silent(peer, is_late)).collect()
    }

    fn is_silent(&mut self, peer: &WorkerRow, is_late: bool) -> bool {
        let count = (peer.beats, peer.beat_at);
        let before = self.seen.get(&peer.id).filter(|seen| seen.count == count && !is_late);
        let unchanged = before.map_or(0, |seen| seen.unchanged + 1);
        let is_silent = unchanged >= LOOKS;
        // The worker that ends it may fail: it is detected again after the same number of checks.
        self.seen.insert(peer.id, QueueObservation { count, unchanged: if is_silent { 0 } else { unchanged } });
        is_silent
    }
}

#[cfg(test)]
#[path = "../../../tests/crates/dispatch/unit/life.rs"]
mod tests;
