//! What the engine does by the clock: read stops and shared lane states, show that it lives, close batches.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{info, warn};

use super::Dispatcher;
use super::job::Job;
use crate::model::clock::Timestamp;
use crate::model::lane::Gateway;
use crate::policy::breaker::State;
use crate::policy::hold::{Alarm, of_refused_key};
use crate::store;
use crate::store::operations::workers::LaneState;
use crate::store::queue::claims::LEASE;

/// How often stops and lane states are read.
const READ_EVERY: Duration = Duration::from_millis(200);
/// How often this worker shows that it lives, and takes the database's time.
const BEAT_EVERY: Duration = Duration::from_secs(3);
/// How often batches are looked at.
const CLOSE_EVERY: Duration = Duration::from_millis(100);
/// How far back lane states and flows are read beyond the last reading: longer than whoever wrote them took to commit.
const LOOK_BACK: Duration = Duration::from_secs(5);
/// A host whose clock is so far from the database's is worth a warning.
const OFFSET_MAX: Duration = Duration::from_secs(2);

/// Reads and beats for ever.
pub(super) async fn run(dispatcher: Arc<Dispatcher>) {
    let mut ticks = interval(READ_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut beat_at, mut read_up_to, mut horizon) = (Instant::now(), None, None);
    loop {
        ticks.tick().await;
        let began = Instant::now();
        let now = dispatcher.clock.now();
        match store::queue::stops::read(&dispatcher.pool, horizon.as_ref()).await {
            Ok(reading) => {
                dispatcher.stops.refresh(reading.stops, began);
                horizon = Some(reading.horizon);
            }
            // Nothing is sent while this fails: `StopSet::is_fresh` sees to it.
            Err(error) => warn!(%error, "reading stops failed"),
        }
        match dispatcher.read_states(read_up_to).await {
            Ok(()) => read_up_to = Some(now - LOOK_BACK),
            Err(error) => warn!(%error, "reading lane states and flows failed"),
        }
        if let Err(error) = dispatcher.renew_leases(now).await {
            warn!(%error, "the leases of batches that wait to be settled could not be renewed");
        }
        // A worker that stops has left, or is about to: its share of the permits is the others'.
        if began >= beat_at && !dispatcher.is_stopping() {
            beat_at = began + BEAT_EVERY;
            match dispatcher.beat(now).await {
                Ok(()) => dispatcher.informed.store(read_up_to.is_some(), Ordering::Release),
                Err(error) => warn!(%error, "the heartbeat failed"),
            }
        }
    }
}

/// Closes batches whose time has come, for ever.
pub(super) async fn close_batches(dispatcher: Arc<Dispatcher>) {
    let mut ticks = interval(CLOSE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let now = ticks.tick().await;
        let due: Vec<_> = dispatcher.batches.lock().values().filter(|batch| batch.close_if_due(now)).cloned().collect();
        for batch in due {
            dispatcher.close_batch(&batch);
        }
    }
}

impl Dispatcher {
    /// Takes over what others learned of lanes, what operators ordered, and flows, since a time or ever.
    pub(super) async fn read_states(&self, since: Option<Timestamp>) -> sqlx::Result<()> {
        for state in store::operations::workers::lane_states(&self.pool, self.id, since).await? {
            self.fair.adopt(state);
        }
        for flow in store::queue::flows::changed(&self.pool, since).await? {
            self.fair.adopt_flow(flow, self.clock.now());
        }
        Ok(())
    }

    /// Renews the leases of batches that wait to be settled, and have waited for half of what they last.
    async fn renew_leases(&self, now: Timestamp) -> sqlx::Result<()> {
        let (half, until) = (now + LEASE / 2, now + LEASE);
        let batches: Vec<_> = self.settler.waiting_batches();
        let old: Vec<_> = batches.into_iter().filter(|batch| batch.lease_until() < half).collect();
        if old.is_empty() {
            return Ok(());
        }
        let leases: Vec<_> = old.iter().map(|batch| (batch.id, batch.lease)).collect();
        store::queue::claims::renew_batches(&self.pool, &leases, until).await?;
        old.iter().for_each(|batch| batch.renewed(until));
        Ok(())
    }

    pub(super) async fn beat(&self, now: Timestamp) -> sqlx::Result<()> {
        let replicas = store::operations::workers::beat(&self.pool, self.id, self.started_at, now).await?;
        self.fair.share_among(replicas, now);
        self.fair.forget_idle(now, Instant::now());
        let asked = Instant::now();
        let database = store::database_now(&self.pool).await?;
        let offset = self.clock.follow(database + asked.elapsed() / 2);
        self.metrics.clock_offset_s.set(offset as f64 / 1e6);
        let load = self.fair.load(now);
        self.metrics.in_flight.set(i64::try_from(load.in_flight).unwrap_or(i64::MAX));
        self.metrics.lanes_held.set(i64::try_from(load.held).unwrap_or(i64::MAX));
        self.metrics.lanes_open.set(i64::try_from(load.broken).unwrap_or(i64::MAX));
        for (kind, n) in store::outcomes::alerts::open(&self.pool).await? {
            self.metrics.alerts_open(kind.name(), n);
        }
        if Duration::from_micros(offset.unsigned_abs()) > OFFSET_MAX {
            warn!(offset_ms = offset / 1000, "this host's clock differs from the database's, which is followed");
        }
        self.catalog.forget_lanes(now);
        self.report_reliability(now).await
    }

    /// Adds what was counted to the database; what could not be told is told the next time.
    pub(super) async fn report_reliability(&self, now: Timestamp) -> sqlx::Result<()> {
        let counted = self.reliability.take();
        let rows = counted.iter().flat_map(|((lane, tier), sums)| sums.rows().map(|(sli, n)| (*lane, *tier, sli, n)));
        let told = store::outcomes::reliability::add(&self.pool, rows, now).await;
        if told.is_err() {
            self.reliability.put_back(counted);
        }
        told
    }

    /// Tells other replicas what was learned of a lane.
    pub(super) fn share(self: &Arc<Self>, news: LaneState) {
        let mut tripped = false;
        if let Some(breaker) = news.breaker {
            tripped = matches!(breaker.state, State::Open { .. });
            self.metrics.breaker_trips.inc_by(tripped.into());
            info!(lane = news.lane.0, origin = &*news.origin, state = breaker.state.name(), "a breaker changed");
        }
        let dispatcher = self.clone();
        tokio::spawn(async move {
            let (pool, now) = (&dispatcher.pool, dispatcher.clock.now());
            let told = match news.key_released_at {
                Some(posted_at) => store::queue::lanes::release_key(pool, news.lane, posted_at, now).await,
                None => Ok(()),
            };
            if let Err(error) =
                told.and(store::operations::workers::share(pool, &news, dispatcher.id, tripped, now).await)
            {
                warn!(%error, "telling other workers of a lane failed");
            }
        });
    }

    /// Counts an answer to a VAPID key. Where it is refused as a whole it is held, here at once and everywhere soon, so
    /// that a fault of ours does not cost all its deliveries.
    pub(super) fn watch_key(self: &Arc<Self>, job: &Job, refused: bool, now: Timestamp) {
        let lane = job.lane.id;
        let alarm = self.keys.lock().entry(lane).or_default().record(now, refused, job.proven);
        // Anybody may run a push service of the lane `other`: what it refuses holds nobody who is with another one.
        let alarm = alarm.map(|alarm| if job.lane.gateway == Gateway::Other { Alarm::Doubtful } else { alarm });
        let Some(alarm) = alarm else { return };
        if alarm == Alarm::Refused {
            self.fair.hold_key(lane, of_refused_key(None, now));
        }
        let dispatcher = self.clone();
        tokio::spawn(async move {
            let now = dispatcher.clock.now();
            let told = match alarm {
                Alarm::Refused => store::queue::lanes::hold_key(&dispatcher.pool, lane, now).await,
                Alarm::Doubtful => {
                    store::queue::lanes::doubt_key(&dispatcher.pool, lane, now).await.map(|()| Vec::new())
                }
            };
            match told {
                Ok(states) => states.into_iter().for_each(|state| dispatcher.fair.adopt(state)),
                Err(error) => warn!(%error, "telling others of a refused key failed"),
            }
        });
    }
}
