//! Subscriptions to which this worker sends nothing for a while, because their push service refused pushes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::RwLock;

use bellwire_core::clock::Timestamp;
use bellwire_core::id::SubscriptionId;
use bellwire_rules::classify::{Outcome, ResponseKind};
use bellwire_rules::policy::hold::{HoldReason, KNOWN_FOR, of_throttled_subscription};

/// Maximum holds in memory, some 10 MB. Beyond them, a subscription is refused once more, and its deliveries wait for their own
/// retries.
pub(super) const HOLDS_MAX: usize = 100_000;

/// Holds of single subscriptions, found by this worker or by others.
#[derive(Default)]
pub(super) struct SubscriptionHolds {
    known: RwLock<HashMap<SubscriptionId, HoldReason>>,
    /// Number of holds. Without any, a lookup takes no lock.
    len: AtomicUsize,
}

impl SubscriptionHolds {
    /// Returns the end of the subscription's hold. `None`: not held.
    pub(super) fn until(&self, subscription: SubscriptionId, now: Timestamp) -> Option<Timestamp> {
        self.find(subscription).map(|held| held.until).filter(|until| now < *until)
    }

    /// Processes the response to a POST that began at `posted_at`. Returns the hold to store: that of a refusal, or a
    /// zero-length one when a push is accepted after a hold.
    pub(super) fn answered(
        &self, subscription: SubscriptionId, outcome: &Outcome, posted_at: Timestamp, now: Timestamp,
    ) -> Option<HoldReason> {
        let before = self.find(subscription);
        let held = match outcome.kind {
            ResponseKind::Throttled => of_throttled_subscription(before, posted_at, now, outcome.retry_after),
            ResponseKind::Accepted { .. } => {
                before.filter(|held| held.at < held.until && held.until <= posted_at)?;
                HoldReason { at: now, until: now }
            }
            _ => return None,
        };
        self.adopt([(subscription, held)]);
        Some(held)
    }

    /// Adds holds from other workers. Of two holds of one subscription the one that ends later counts.
    pub(super) fn adopt(&self, holds: impl IntoIterator<Item = (SubscriptionId, HoldReason)>) {
        let mut holds = holds.into_iter().peekable();
        if holds.peek().is_none() {
            return;
        }
        let mut known = self.known.write();
        for (subscription, held) in holds {
            let is_full = known.len() >= HOLDS_MAX;
            match known.get_mut(&subscription) {
                Some(old) if (old.until, old.at) < (held.until, held.at) => *old = held,
                None if !is_full => drop(known.insert(subscription, held)),
                _ => {}
            }
        }
        self.len.store(known.len(), Ordering::Release);
    }

    /// Restores the previous hold, because the response concerned the sender.
    pub(super) fn take_back(&self, subscription: SubscriptionId, before: Option<HoldReason>) {
        let mut known = self.known.write();
        match before {
            Some(held) => known.insert(subscription, held),
            None => known.remove(&subscription),
        };
        self.len.store(known.len(), Ordering::Release);
    }

    pub(super) fn forget_ended(&self, now: Timestamp) {
        if self.len.load(Ordering::Acquire) > 0 {
            let mut known = self.known.write();
            known.retain(|_, held| now < held.until + KNOWN_FOR);
            self.len.store(known.len(), Ordering::Release);
        }
    }

    /// Returns the last hold of a subscription, if it is still stored.
    pub(super) fn find(&self, subscription: SubscriptionId) -> Option<HoldReason> {
        if self.len.load(Ordering::Acquire) == 0 { None } else { self.known.read().get(&subscription).copied() }
    }
}
