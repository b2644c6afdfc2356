//! Lock by idempotency key: requests with the same key run one after the other in this process, before they take a connection
//! or a slot. The first one does the work, and the others get its stored response.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as Lock, OwnedMutexGuard};
use tokio::time::timeout;
use uuid::Uuid;

/// Locks by the ids of running and waiting requests. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Turns(Arc<Mutex<HashMap<Uuid, Arc<Lock<()>>>>>);

/// Guard of a lock. Dropping it lets the next request run.
pub(crate) struct KeyedLockGuard {
    turns: Turns,
    id: Uuid,
    lock: Option<Arc<Lock<()>>>,
    held: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    /// Waits for the lock. `None`: other requests held it for longer than `patience`.
    pub(crate) async fn take(&self, id: Uuid, patience: Duration) -> Option<KeyedLockGuard> {
        let lock = self.0.lock().entry(id).or_default().clone();
        let mut turn = KeyedLockGuard { turns: self.clone(), id, lock: Some(lock.clone()), held: None };
        turn.held = Some(timeout(patience, lock.lock_owned()).await.ok()?);
        Some(turn)
    }
}

impl Drop for KeyedLockGuard {
    fn drop(&mut self) {
        self.held = None;
        let mut turns = self.turns.0.lock();
        let Some(lock) = self.lock.take() else { return };
        // Two references, of this guard and of the map: no caller waits, and none can start to while the map is locked.
        if Arc::strong_count(&lock) == 2 {
            turns.remove(&self.id);
        }
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/api/http/keyed_lock.rs"]
mod tests;
