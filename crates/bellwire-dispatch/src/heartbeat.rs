//! Heartbeat in a separate task and connection, so that neither much work nor a slow statement makes this worker look dead.

use std::sync::Arc;

use sqlx::PgPool;
use tokio::sync::{Mutex, Notify};
use tokio::time::{Instant, MissedTickBehavior, interval};
use tracing::{debug, info, warn};

use super::fair::FairQueue;
use super::life::{BEAT_EVERY, Me, Watch};
use super::settle::Settling;
use super::shared::EngineContext;
use bellwire_store as store;
use bellwire_store::operations::takeover::{self, SESSION};
use bellwire_store::operations::workers::{self, Beat, Replicas, WorkerRow};

/// Writes heartbeats of this worker, and ends workers that miss theirs.
pub(super) struct Pulse {
    shared: Arc<EngineContext>,
    queue: Arc<FairQueue>,
    settling: Arc<Settling>,
    kicked: Arc<Notify>,
    pool: PgPool,
    /// State of the other workers. The lock also prevents concurrent heartbeats.
    watch: Mutex<Watch>,
}

pub(super) async fn run(pulse: Arc<Pulse>) {
    let mut ticks = interval(BEAT_EVERY);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        if let Err(error) = pulse.beat().await {
            warn!(%error, "the heartbeat failed");
            // Those beside it may have been told of another host meanwhile.
            pulse.pool.set_connect_options((*pulse.shared.pool.connect_options()).clone());
        }
    }
}

impl Pulse {
    pub(super) fn new(
        shared: Arc<EngineContext>, queue: Arc<FairQueue>, settling: Arc<Settling>, kicked: Arc<Notify>,
    ) -> Self {
        let pool = store::alone_beside(&shared.pool);
        Self { shared, queue, settling, kicked, pool, watch: Mutex::default() }
    }

    /// Writes a heartbeat, recomputes shares among live workers, and ends dead ones. Adds this worker to the list if it is
    /// absent.
    pub(super) async fn beat(self: &Arc<Self>) -> sqlx::Result<()> {
        let mut watch = self.watch.lock().await;
        if !self.shared.life.me().is_listed && !self.enter().await? {
            return Ok(());
        }
        let (mut me, mut began) = (self.shared.life.me(), Instant::now());
        let mut beat = workers::beat(&self.pool, me.id, self.shared.clock.now()).await?;
        if beat.is_none() {
            self.begin_anew();
            if !self.enter().await? {
                return Ok(());
            }
            (me, began) = (self.shared.life.me(), Instant::now());
            beat = workers::beat(&self.pool, me.id, self.shared.clock.now()).await?;
        }
        // Taken for dead within a moment: the next heartbeat begins anew once more.
        let Some(beat) = beat else { return Ok(()) };
        let ended = Instant::now();
        self.take_in(me, &beat, began, ended);
        for peer in watch.look(began, ended, &beat.peers) {
            tokio::spawn(self.clone().end(peer));
        }
        Ok(())
    }

    /// Adds this worker to the list, unless it is stopping. Returns whether it did.
    async fn enter(&self) -> sqlx::Result<bool> {
        if self.shared.progress.is_stopping() {
            return Ok(false);
        }
        let Me { id, started_at, .. } = self.shared.life.me();
        let options = self.shared.pool.connect_options();
        let session = options.get_application_name().filter(|name| name.starts_with(SESSION));
        workers::enter(&self.pool, id, session, started_at).await?;
        self.shared.life.listed();
        Ok(true)
    }

    /// Starts again with a new id after others took over this worker's deliveries. Waiting deliveries are requeued, which
    /// affects only rows that no other worker has claimed since.
    fn begin_anew(&self) {
        warn!("this worker was silent for so long that others took over what it held; it begins anew");
        let clock = &self.shared.clock;
        self.shared.life.begin_anew(clock);
        self.settling.put_back(self.queue.drain(), clock.now());
    }

    /// Processes the result of a heartbeat.
    fn take_in(&self, me: Me, beat: &Beat, began: Instant, ended: Instant) {
        let clock = &self.shared.clock;
        let offset = clock.follow(beat.database + ended.saturating_duration_since(began) / 2);
        self.shared.metrics.clock_offset_s.set(offset as f64 / 1e6);
        let now = clock.now();
        self.queue.share_among(Replicas::of(me.id, me.started_at, &beat.peers, now), now);
        // Last: what is claimed by it goes by all that it found.
        self.shared.life.beaten(began);
    }

    /// Ends a worker that missed its heartbeats, and makes its deliveries claimable at once.
    async fn end(self: Arc<Self>, peer: WorkerRow) {
        let (pool, now) = (&self.shared.pool, self.shared.clock.now());
        match takeover::end_silent(pool, peer.id, peer.beats, now).await {
            Ok(Some(taken)) => {
                warn!(
                    worker = %peer.id,
                    batches = taken.batches,
                    rows = taken.rows,
                    requests = taken.requests,
                    probes = taken.probes,
                    "worker missed its heartbeat: its leases are taken over"
                );
                self.shared.metrics.workers_ended.inc();
                self.kicked.notify_one();
            }
            Ok(None) => debug!(worker = %peer.id, "a worker that was silent lives, or another one ends it"),
            Err(error) => warn!(%error, worker = %peer.id, "a silent worker could not be ended; it is tried again"),
        }
    }

    /// Removes this worker from the list, and makes its remaining deliveries due.
    pub(super) async fn leave(&self) {
        let _watch = self.watch.lock().await; // no heartbeat is under way, and none enters it again while it stops
        let (me, now) = (self.shared.life.me(), self.shared.clock.now());
        self.shared.life.left();
        match takeover::leave(&self.shared.pool, me.id, now).await {
            Ok(left) if left == takeover::TakenOver::default() => {}
            Ok(left) => {
                info!(batches = left.batches, rows = left.rows, "left to other workers what had not come to its end")
            }
            Err(error) => debug!(%error, "could not take this worker off the list; it will be taken for dead"),
        }
    }
}
