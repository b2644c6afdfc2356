//! Slots for expensive work of which a few run at a time: charts, simulations, searches. No app uses more than its share, however
//! much it requests: a later app finds a slot, or gets the next one.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::http::{HeaderValue, header};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::problem::{Problem, ProblemCode};
use bellwire_core::id::AppId;

/// Response to callers that waited in vain.
pub(crate) struct Busy {
    pub code: ProblemCode,
    pub detail: &'static str,
}

/// Places of one kind in this process. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Places(Arc<SharesInner>);

#[derive(Debug)]
struct SharesInner {
    all: Arc<Semaphore>,
    /// Places that one app may have or wait for; its further requests wait behind those.
    share: usize,
    /// The shares of those who have or want a place: of apps, and (none) of what concerns no single app.
    shares: Mutex<HashMap<Option<AppId>, Weak<Semaphore>>>,
}

/// A place; dropping it makes room for another one.
#[derive(Debug)]
pub(crate) struct SharePermit {
    _place: OwnedSemaphorePermit,
    _of_share: OwnedSemaphorePermit,
}

impl Places {
    /// A semaphore of this many permits, of which one app may have half, rounded up.
    pub(crate) fn new(n: usize) -> Self {
        let all = Arc::new(Semaphore::new(n));
        Self(Arc::new(SharesInner { all, share: n.div_ceil(2).max(1), shares: Mutex::default() }))
    }

    /// Waits for a slot of that app, or (`None`) of no single app. 503: it took longer than `patience`, and the caller should
    /// retry.
    pub(crate) async fn take(
        &self,
        app: Option<AppId>,
        patience: Duration,
        busy: &Busy,
    ) -> Result<SharePermit, Problem> {
        let share = self.share_of(app);
        // Semaphores are fair: the longest waiter is next. One app has no more waiters in the shared queue than its share.
        let both = async {
            let of_share = share.acquire_owned().await.ok()?;
            let place = self.0.all.clone().acquire_owned().await.ok()?;
            Some(SharePermit { _place: place, _of_share: of_share })
        };
        timeout(patience, both).await.ok().flatten().ok_or_else(|| {
            Problem::new(busy.code, busy.detail).with_header(header::RETRY_AFTER, HeaderValue::from_static("5"))
        })
    }

    fn share_of(&self, app: Option<AppId>) -> Arc<Semaphore> {
        let mut shares = self.0.shares.lock();
        if let Some(share) = shares.get(&app).and_then(Weak::upgrade) {
            return share;
        }
        // Those are left over whose permits and waiters are gone: at most as many as have asked at once.
        shares.retain(|_, share| share.strong_count() > 0);
        let share = Arc::new(Semaphore::new(self.0.share));
        shares.insert(app, Arc::downgrade(&share));
        share
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/api/http/fair_semaphore.rs"]
mod tests;
