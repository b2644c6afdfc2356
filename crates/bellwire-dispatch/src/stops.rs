//! The set of stops in this worker's memory, asked before each POST.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::Instant;
use uuid::Uuid;

use bellwire_core::id::{MessageId, SubscriptionId};
use bellwire_store::queue::stops::{Stop, StopKind};

/// No POST starts when the stops were last read so long ago: something may have been stopped since.
const STALE_AFTER: Duration = Duration::from_secs(1);
/// Longer than any delivery stays in a worker's memory; what is claimed later is claimed with its standing.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// Values of a delivery that decide whether a stop applies to it.
#[derive(Debug, Clone, Copy)]
pub(super) struct StopTarget {
    pub message: MessageId,
    pub subscription: SubscriptionId,
    pub life: i32,
    /// Whether it is meant for the subscription's user, and for no other.
    pub personal: bool,
}

/// Consequence of a stop for one delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    Cancelled,
    Gone,
    /// Another subscription has taken the place of its own: it goes there.
    Replaced,
    Paused,
}

#[derive(Default)]
pub(super) struct StopSet {
    known: RwLock<StopTable>,
    /// Number of stops, so that the usual case, none at all, takes no lock.
    len: AtomicUsize,
    read_at: RwLock<Option<Instant>>,
}

#[derive(Default)]
struct StopTable {
    all: HashMap<Uuid, StopEntry>,
    users: HashMap<Uuid, StopEntry>,
}

#[derive(Clone, Copy)]
struct StopEntry {
    stop: Stop,
    learned_at: Instant,
}

impl StopTable {
    fn obey(&mut self, stop: Stop, now: Instant) {
        let entries = if stop.kind == StopKind::User { &mut self.users } else { &mut self.all };
        // A stop is read many times, and may come later than the one that followed it.
        let entry = entries.entry(stop.target).or_insert(StopEntry { stop, learned_at: now });
        if entry.stop.seq < stop.seq {
            *entry = StopEntry { stop, learned_at: now };
        }
    }

    fn forget_before(&mut self, now: Instant) {
        let recent = |_: &Uuid, entry: &mut StopEntry| now.saturating_duration_since(entry.learned_at) < KEPT_FOR;
        self.all.retain(recent);
        self.users.retain(recent);
    }

    fn len(&self) -> usize {
        self.all.len() + self.users.len()
    }

    fn check(&self, target: &StopTarget) -> Option<Stopped> {
        let of = |entries: &HashMap<Uuid, StopEntry>, id: Uuid| entries.get(&id).map(|entry| entry.stop);
        let lived = |stop: &Stop| target.life <= stop.life;
        let message = of(&self.all, target.message.0).map(|stop| stop.kind);
        let subscription = of(&self.all, target.subscription.0).filter(lived).map(|stop| stop.kind);
        let user = of(&self.users, target.subscription.0).filter(|stop| target.personal && lived(stop));
        match (message, subscription) {
            (Some(StopKind::Cancel), _) | (_, Some(StopKind::Unsubscribe)) => Some(Stopped::Cancelled),
            (_, Some(StopKind::Gone)) => Some(Stopped::Gone),
            _ if user.is_some() => Some(Stopped::Cancelled),
            (_, Some(StopKind::Replace)) => Some(Stopped::Replaced),
            (Some(StopKind::Pause), _) => Some(Stopped::Paused),
            _ => None,
        }
    }
}

impl StopSet {
    pub(super) fn obey(&self, stop: Stop, now: Instant) {
        let mut known = self.known.write();
        known.obey(stop, now);
        self.len.store(known.len(), Ordering::Release);
    }

    /// Takes over a successful reading that began at `began`, and forgets what is old.
    pub(super) fn refresh(&self, stops: Vec<Stop>, began: Instant) {
        let mut known = self.known.write();
        stops.into_iter().for_each(|stop| known.obey(stop, began));
        known.forget_before(began);
        self.len.store(known.len(), Ordering::Release);
        drop(known);
        *self.read_at.write() = Some(began);
    }

    /// Whether the last reading is recent enough to start a POST by.
    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        is_fresh(*self.read_at.read(), now)
    }

    pub(super) fn check(&self, target: &StopTarget) -> Option<Stopped> {
        if self.len.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.known.read().check(target)
    }

    /// Whether the POST of this delivery may start at the time `now` returns: no known stop applies, and the last reading of
    /// stops is recent enough at that time. So a process that is frozen in between starts no POST.
    pub(super) fn permit(&self, target: &StopTarget, now: impl FnOnce() -> Instant) -> bool {
        let read_at = *self.read_at.read();
        self.check(target).is_none() && is_fresh(read_at, now())
    }
}

fn is_fresh(read_at: Option<Instant>, now: Instant) -> bool {
    read_at.is_some_and(|at| now.saturating_duration_since(at) < STALE_AFTER)
}

#[cfg(test)]
#[path = "../../../tests/crates/dispatch/unit/stops.rs"]
mod tests;
