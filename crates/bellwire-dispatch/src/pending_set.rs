//! Set of reported items between two tasks: each item is stored once until it is read, so the size is limited by the number of
//! different items.

use std::collections::HashSet;
use std::hash::Hash;

use parking_lot::Mutex;
use tokio::sync::Notify;

/// Items that were reported and not read yet.
pub(super) struct PendingSet<T> {
    items: Mutex<HashSet<T>>,
    any: Notify,
}

impl<T> Default for PendingSet<T> {
    fn default() -> Self {
        Self { items: Mutex::default(), any: Notify::new() }
    }
}

impl<T: Eq + Hash> PendingSet<T> {
    pub(super) fn report(&self, item: T) {
        if self.items.lock().insert(item) {
            self.any.notify_one();
        }
    }

    /// Waits for items, and returns all since the last call.
    pub(super) async fn next(&self) -> HashSet<T> {
        loop {
            let items = std::mem::take(&mut *self.items.lock());
            if !items.is_empty() {
                return items;
            }
            // `notify_one` leaves a permit behind when no task waits, so nothing is missed between look and wait.
            self.any.notified().await;
        }
    }
}
