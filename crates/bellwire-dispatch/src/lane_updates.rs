//! Lane states and key states observed by this worker, written to the database for other replicas.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::{info, warn};

use super::fair::FairQueue;
use super::job::Job;
use super::shared::EngineContext;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::LaneId;
use bellwire_core::lane::Gateway;
use bellwire_rules::policy::breaker::BreakerState;
use bellwire_rules::policy::hold::{Alarm, KeyWatch, of_refused_key};
use bellwire_rules::policy::lane_state::LaneState;
use bellwire_store::operations::workers;
use bellwire_store::queue::lanes;

/// Writes observations in separate tasks, so that no delivery waits for them.
pub(super) struct News {
    shared: Arc<EngineContext>,
    queue: Arc<FairQueue>,
    keys: Mutex<HashMap<LaneId, KeyWatch>>,
}

impl News {
    pub(super) fn new(shared: Arc<EngineContext>, queue: Arc<FairQueue>) -> Self {
        Self { shared, queue, keys: Mutex::default() }
    }

    /// Writes an observation about a lane.
    pub(super) fn share(&self, news: LaneState) {
        let mut tripped = false;
        if let Some(breaker) = news.breaker {
            tripped = matches!(breaker.state, BreakerState::Open { .. });
            self.shared.metrics.breaker_trips.inc_by(tripped.into());
            info!(lane = news.lane.0, origin = &*news.origin, state = breaker.state.name(), "a breaker changed");
        }
        let shared = self.shared.clone();
        tokio::spawn(async move {
            let (pool, now) = (&shared.pool, shared.clock.now());
            let told = match news.key_released_at {
                Some(posted_at) => lanes::release_key(pool, news.lane, posted_at, now).await,
                None => Ok(()),
            };
            if let Err(error) = told.and(workers::share(pool, &news, shared.life.me().id, tripped, now).await) {
                warn!(%error, "telling other workers of a lane failed");
            }
        });
    }

    /// Counts a response about a VAPID key. A key that is refused in general is held, here at once and elsewhere soon, so that
    /// a wrong configuration does not cost all its deliveries.
    pub(super) fn watch_key(&self, job: &Job, refused: bool, now: Timestamp) {
        let lane = job.lane.id;
        let alarm = self.keys.lock().entry(lane).or_default().record(now, refused, job.proven);
        // Anyone can run a push service of the lane `other`: its refusals hold no subscription of another service.
        let alarm = alarm.map(|alarm| if job.lane.gateway == Gateway::Other { Alarm::Doubtful } else { alarm });
        let Some(alarm) = alarm else { return };
        if alarm == Alarm::Refused {
            self.queue.hold_key(lane, of_refused_key(None, now));
        }
        let (shared, queue) = (self.shared.clone(), self.queue.clone());
        tokio::spawn(async move {
            let (pool, now) = (&shared.pool, shared.clock.now());
            let told = match alarm {
                Alarm::Refused => lanes::hold_key(pool, lane, now).await,
                Alarm::Doubtful => lanes::doubt_key(pool, lane, now).await.map(|()| Vec::new()),
            };
            match told {
                Ok(states) => states.into_iter().for_each(|state| queue.adopt(state)),
                Err(error) => warn!(%error, "telling others of a refused key failed"),
            }
        });
    }
}
