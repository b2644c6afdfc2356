//! Slots for expensive work such as charts, simulations and searches, of which a few run at a time. An app that sends many
//! requests cannot take the share of another app.

use std::collections::HashMap;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::http::{HeaderValue, header};
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;

use super::problem::{Problem, ProblemCode};
use bellwire_core::id::AppId;

/// 503 response to callers that waited too long for a slot.
pub(crate) struct Busy {
    pub code: ProblemCode,
    pub detail: &'static str,
}

/// Slots for one kind of work in this process. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Places(Arc<SharesInner>);

#[derive(Debug)]
struct SharesInner {
    all: Arc<Semaphore>,
    /// Maximum slots that one app may use or wait for. Its further requests wait behind these.
    share: usize,
    /// Limit of each app that uses or waits for a slot. The key `None` stands for requests that concern no single app.
    shares: Mutex<HashMap<Option<AppId>, Weak<Semaphore>>>,
}

/// An acquired slot. Dropping it frees the slot.
#[derive(Debug)]
pub(crate) struct SharePermit {
    _place: OwnedSemaphorePermit,
    _of_share: OwnedSemaphorePermit,
}

impl Places {
    /// Creates `n` slots, of which one app may use half, rounded up.
    pub(crate) fn new(n: usize) -> Self {
        let all = Arc::new(Semaphore::new(n));
        Self(Arc::new(SharesInner { all, share: n.div_ceil(2).max(1), shares: Mutex::default() }))
    }

    /// Waits for a slot of an app, or (`None`) of no single app. 503 after `patience`.
    pub(crate) async fn take(
        &self, app: Option<AppId>, patience: Duration, busy: &Busy,
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
