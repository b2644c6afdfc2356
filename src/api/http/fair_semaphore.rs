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
mod tests {
    use futures_util::FutureExt as _;
    use futures_util::future::join_all;
    use uuid::Uuid;

    use super::*;

    const BUSY: Busy = Busy { code: ProblemCode::ChartsBusy, detail: "Too many." };
    const PATIENCE: Duration = Duration::from_secs(3_600);

    fn app(n: u128) -> Option<AppId> {
        Some(AppId(Uuid::from_u128(n)))
    }

    async fn take(places: &Places, app: Option<AppId>) -> SharePermit {
        places.take(app, PATIENCE, &BUSY).await.unwrap()
    }

    #[tokio::test]
    async fn one_app_has_half_the_slots() {
        let places = Places::new(4);
        let mut mine = join_all((0..2).map(|_| take(&places, app(1)))).await;
        assert!(take(&places, app(1)).now_or_never().is_none(), "two of four");
        let others = (take(&places, app(2)).await, take(&places, None).await);
        assert!(take(&places, app(3)).now_or_never().is_none(), "all are taken");
        drop(others);
        assert!(take(&places, app(1)).now_or_never().is_none(), "two of four still");
        drop(mine.pop());
        take(&places, app(1)).await;
    }

    #[tokio::test]
    async fn single_slot_prefers_a_newcomer_to_repeaters() {
        let places = Places::new(1);
        let held = take(&places, app(1)).await;
        let mut crowd: Vec<_> = (0..100).map(|_| Box::pin(take(&places, app(1)))).collect();
        assert!(crowd.iter_mut().all(|one| one.now_or_never().is_none()));
        let mut late = Box::pin(take(&places, app(2)));
        assert!((&mut late).now_or_never().is_none());
        drop(held);
        assert!(crowd.iter_mut().skip(1).all(|one| one.now_or_never().is_none()));
        let late = late.now_or_never().expect("it is the next");
        assert!(crowd[0].as_mut().now_or_never().is_none());
        drop(late);
        crowd.remove(0).now_or_never().expect("then the longest of the others");
    }

    #[tokio::test]
    async fn waiting_is_bounded_and_leaves_no_memory() {
        let places = Places::new(1);
        let held = take(&places, app(1)).await;
        let refused = places.take(app(2), Duration::ZERO, &BUSY).await.unwrap_err();
        assert_eq!(refused.code, ProblemCode::ChartsBusy);
        let crowded = places.take(app(1), Duration::ZERO, &BUSY).await.unwrap_err();
        assert_eq!(crowded.code, ProblemCode::ChartsBusy, "within its own share");
        drop(held);
        for n in 0..100 {
            take(&places, app(n)).await;
        }
        assert_eq!(places.0.shares.lock().len(), 1);
    }
}
