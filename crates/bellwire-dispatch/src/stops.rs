//! Stops in this worker's memory, checked before each POST.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::RwLock;
use tokio::time::Instant;
use uuid::Uuid;

use bellwire_core::id::{MessageId, SubscriptionId};
use bellwire_store::queue::stops::{Stop, StopKind};

/// Age of the last read of stops from which no POST starts: something may have been stopped since.
const STALE_AFTER: Duration = Duration::from_secs(1);
/// Time for which a stop is kept: longer than any delivery stays in memory. Later claims read the states from the database.
const KEPT_FOR: Duration = Duration::from_secs(60);

/// Values of a delivery that stops are matched with.
#[derive(Debug, Clone, Copy)]
pub(super) struct StopTarget {
    pub message: MessageId,
    pub subscription: SubscriptionId,
    pub life: i32,
    /// Whether it is for the subscription's user only.
    pub personal: bool,
}

/// Effect of stops on one delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    Cancelled,
    Gone,
    /// Another subscription has replaced its own: the delivery moves there.
    Replaced,
    Paused,
}

#[derive(Default)]
pub(super) struct StopSet {
    known: RwLock<StopTable>,
    /// Number of stops, so that the usual case (none) takes no lock.
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

    /// Adds the result of a successful read that began at `began`, and drops old stops.
    pub(super) fn refresh(&self, stops: Vec<Stop>, began: Instant) {
        let mut known = self.known.write();
        stops.into_iter().for_each(|stop| known.obey(stop, began));
        known.forget_before(began);
        self.len.store(known.len(), Ordering::Release);
        drop(known);
        *self.read_at.write() = Some(began);
    }

    /// Whether the last read is recent enough to start a POST.
    pub(super) fn is_fresh(&self, now: Instant) -> bool {
        is_fresh(*self.read_at.read(), now)
    }

    pub(super) fn check(&self, target: &StopTarget) -> Option<Stopped> {
        if self.len.load(Ordering::Acquire) == 0 {
            return None;
        }
        self.known.read().check(target)
    }

    /// Whether the POST of this delivery may start at the time that `now` returns: no stop applies, and the last read is recent
    /// enough. If the process is frozen in between, no POST starts.
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
