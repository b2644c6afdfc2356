//! Requests with the same idempotency key take turns in this process, before any of them has a connection or a place in a group:
//! the first is answered by its work, those behind it by what it left.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Mutex as Lock, OwnedMutexGuard};
use tokio::time::timeout;

use crate::model::id::AppId;

/// App, route and key.
type Name = (AppId, &'static str, String);

/// Keys under which requests are at work, or wait to be. Cheap to clone.
#[derive(Clone, Default)]
pub(crate) struct Turns(Arc<Mutex<HashMap<Name, Arc<Lock<()>>>>>);

/// The turn of one request; the next one's comes when it is dropped.
pub(crate) struct Turn {
    turns: Turns,
    name: Name,
    lock: Option<Arc<Lock<()>>>,
    held: Option<OwnedMutexGuard<()>>,
}

impl Turns {
    /// Waits for a key's turn. None: others had it for longer than `patience`.
    pub(crate) async fn take(&self, app: AppId, route: &'static str, key: &str, patience: Duration) -> Option<Turn> {
        let name = (app, route, key.to_owned());
        let lock = self.0.lock().entry(name.clone()).or_default().clone();
        let mut turn = Turn { turns: self.clone(), name, lock: Some(lock.clone()), held: None };
        turn.held = Some(timeout(patience, lock.lock_owned()).await.ok()?);
        Some(turn)
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.held = None;
        let mut turns = self.turns.0.lock();
        let Some(lock) = self.lock.take() else { return };
        // This one's, and the map's: nobody waits for it, and nobody can begin to while the map is locked.
        if Arc::strong_count(&lock) == 2 {
            turns.remove(&self.name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::ZERO;
    const LATE: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn one_at_a_time_has_a_key_and_nothing_is_kept_of_it() {
        let (turns, app) = (Turns::default(), AppId(uuid::Uuid::nil()));
        let first = turns.take(app, "route", "k", NOW).await.expect("nobody has it");
        assert!(turns.take(app, "route", "k", NOW).await.is_none());
        let _elsewhere = turns.take(app, "other", "k", NOW).await.expect("nobody has it there");
        let ((), second) = tokio::join!(async { drop(first) }, turns.take(app, "route", "k", LATE));
        assert_eq!(turns.0.lock().len(), 2);
        drop(second.expect("its turn has come"));
        assert_eq!(turns.0.lock().len(), 1);
    }
}
