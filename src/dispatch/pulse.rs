//! What the engine does by the clock: read stops and shared lane states, show that it lives, close pages.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{info, warn};

use super::Dispatcher;
use super::fair::LaneChange;
use super::lane::Change;
use crate::clock::Timestamp;
use crate::store;

/// How often stops and lane states are read.
const READ_EVERY: Duration = Duration::from_millis(200);
/// How often this worker shows that it lives, and takes the database's time.
const BEAT_EVERY: Duration = Duration::from_secs(3);
/// How often pages are looked at.
const CLOSE_EVERY: Duration = Duration::from_millis(100);
/// A host whose clock is so far from the database's is worth a warning.
const OFFSET_MAX: Duration = Duration::from_secs(2);

/// Reads and beats for ever.
pub async fn pulse(dispatcher: Arc<Dispatcher>) {
    let mut ticks = interval(READ_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut beat_at, mut read_up_to) = (Instant::now(), None);
    loop {
        ticks.tick().await;
        let began = Instant::now();
        let now = dispatcher.clock.now();
        match store::stops::recent(&dispatcher.pool, now).await {
            Ok(stops) => dispatcher.stops.refresh(stops, began),
            // Nothing is sent while this fails: `StopSet::is_fresh` sees to it.
            Err(error) => warn!(%error, "reading stops failed"),
        }
        match store::workers::lane_states(&dispatcher.pool, read_up_to).await {
            Ok(states) => {
                for state in &states {
                    dispatcher.adopt(state);
                }
                read_up_to = Some(now - store::stops::LOOK_BACK);
            }
            Err(error) => warn!(%error, "reading lane states failed"),
        }
        // A worker that stops has left, or is about to: its share of the permits is the others'.
        if began >= beat_at && !dispatcher.is_stopping() {
            beat_at = began + BEAT_EVERY;
            if let Err(error) = dispatcher.beat(now).await {
                warn!(%error, "the heartbeat failed");
            }
        }
    }
}

/// Closes pages whose time has come, for ever.
pub async fn close_pages(dispatcher: Arc<Dispatcher>) {
    let mut ticks = interval(CLOSE_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        let now = ticks.tick().await;
        let due: Vec<_> = dispatcher.pages.lock().values().filter(|page| page.close_if_due(now)).cloned().collect();
        for page in due {
            dispatcher.close_page(&page);
        }
    }
}

impl Dispatcher {
    async fn beat(&self, now: Timestamp) -> sqlx::Result<()> {
        let workers = store::workers::beat(&self.pool, self.id, self.started_at, now).await?;
        self.fair.share_among(u32::try_from(workers).unwrap_or(u32::MAX));
        let asked = Instant::now();
        let database = store::database_now(&self.pool).await?;
        let offset = self.clock.follow(database + asked.elapsed() / 2);
        self.metrics.clock_offset_us.set(offset);
        let load = self.fair.load(now);
        self.metrics.in_flight.set(i64::try_from(load.in_flight).unwrap_or(i64::MAX));
        self.metrics.lanes_held.set(i64::try_from(load.held).unwrap_or(i64::MAX));
        self.metrics.lanes_open.set(i64::try_from(load.broken).unwrap_or(i64::MAX));
        if Duration::from_micros(offset.unsigned_abs()) > OFFSET_MAX {
            warn!(offset_ms = offset / 1000, "this host's clock differs from the database's, which is followed");
        }
        self.catalog.forget_lanes();
        self.tell_figures(now).await
    }

    /// Adds what was counted to the database; what could not be told is told the next time.
    pub(super) async fn tell_figures(&self, now: Timestamp) -> sqlx::Result<()> {
        let counted = self.figures.take();
        let rows =
            counted.iter().flat_map(|((lane, tier), sums)| sums.rows().map(|(figure, n)| (*lane, *tier, figure, n)));
        let told = store::figures::add(&self.pool, rows, now).await;
        if told.is_err() {
            self.figures.put_back(counted);
        }
        told
    }

    fn adopt(&self, state: &store::workers::LaneState) {
        let change = Change { held_until: state.held_until, breaker: state.breaker };
        self.fair.adopt(LaneChange { lane: state.lane, origin: state.origin.as_str().into(), change });
    }

    /// Tells other replicas what was learned of a lane.
    pub(super) fn share(self: &Arc<Self>, change: LaneChange) {
        if let Some(breaker) = change.change.breaker {
            if matches!(breaker.state, crate::policy::breaker::State::Open { .. }) {
                self.metrics.breaker_trips.inc();
            }
            info!(lane = change.lane.0, origin = &*change.origin, state = breaker.state.name(), "a breaker changed");
        }
        let dispatcher = self.clone();
        tokio::spawn(async move {
            let LaneChange { lane, origin, change } = change;
            let state = store::workers::LaneState {
                lane,
                origin: origin.as_ref().into(),
                held_until: change.held_until,
                breaker: change.breaker,
            };
            if let Err(error) = store::workers::share(&dispatcher.pool, &state, dispatcher.clock.now()).await {
                warn!(%error, "telling other workers of a lane failed");
            }
        });
    }
}
