//! Dispatch's periodic work: reads shared lane states, renews leases, closes batches. In [idle mode](super::idle) it is rare.
//! Stops are read [elsewhere](super::stop_reader).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tokio::time::Instant;
use tracing::warn;

use super::DispatchConfig;
use super::catalog::Catalog;
use super::fair::FairQueue;
use super::idle::{AT_REST, Rest};
use super::settle::Settling;
use super::shared::EngineContext;
use super::stop_reader::{READ_EVERY, StopReader};
use super::subscription_holds::HOLDS_MAX;
use bellwire_core::clock::Timestamp;
use bellwire_gateway::{Gateways, Trouble};
use bellwire_rules::policy::hold::KNOWN_FOR;
use bellwire_store as store;
use bellwire_store::operations::takeover::SESSION;
use bellwire_store::operations::workers::Since;
use bellwire_store::operations::{clock_marks, reports};
use bellwire_store::outcomes::alerts::{self, Alert, AlertKind};
use bellwire_store::queue::claims::LEASE;

/// Interval of reading slowly changing state.
const BEAT_EVERY: Duration = Duration::from_secs(3);
/// Interval, in idle mode, of checking whether this process is still alone.
const ALONE_EVERY: Duration = Duration::from_secs(5);
/// Interval of closing batches.
const CLOSE_EVERY: Duration = Duration::from_millis(100);
/// Overlap of two reads of lane states and flows, because writers' clocks differ.
const LOOK_BACK: Duration = Duration::from_secs(5);
/// Difference between the host's and the database's clock that is worth a warning.
const OFFSET_MAX: Duration = Duration::from_secs(2);

/// Exchanges state between this worker and others.
pub(super) struct Heartbeat {
    pub shared: Arc<EngineContext>,
    pub catalog: Arc<Catalog>,
    pub queue: Arc<FairQueue>,
    pub settling: Arc<Settling>,
    pub gateways: Gateways,
    stops: Arc<StopReader>,
    read: tokio::sync::Mutex<ReadPositions>,
    /// Whether the other workers' state was read once. Before that, shared limits might be exceeded.
    informed: AtomicBool,
}

/// Positions up to which lane states and flows were read.
#[derive(Default)]
struct ReadPositions {
    since: Option<Since>,
    has_read: bool,
    at: Timestamp,
}

pub(super) async fn run(heartbeat: Arc<Heartbeat>) {
    let shared = &heartbeat.shared;
    let (mut beat_at, mut read_at) = (Instant::now(), Instant::now());
    loop {
        let began = Instant::now();
        let now = shared.clock.now();
        // While it rests, this process is alone, and receives each order by a request of its own.
        if !shared.rest.is_resting() || began >= read_at {
            read_at = began + AT_REST;
            heartbeat.read(now).await;
        }
        // A worker that stops has left, or is about to: its share of the permits is the others'.
        if began >= beat_at && !shared.progress.is_stopping() {
            beat_at = began + BEAT_EVERY;
            match heartbeat.beat(now).await {
                Ok(()) => {
                    let has_read = heartbeat.read.lock().await.has_read;
                    heartbeat.informed.store(has_read, Ordering::Release);
                }
                Err(error) => warn!(%error, "the heartbeat failed"),
            }
        }
        if !shared.progress.is_idle() {
            shared.rest.wake();
        }
        shared.rest.lie_down();
        shared.rest.pause(READ_EVERY.saturating_sub(began.elapsed()), ALONE_EVERY).await;
    }
}

/// Writes counts and observations in an endless loop. It has a separate task, so that locks on these tables do not delay
/// reading stops and sending.
pub(super) async fn report(heartbeat: Arc<Heartbeat>) {
    loop {
        if let Err(error) = heartbeat.report_all().await {
            warn!(%error, "counts of lanes could not be written, and are written the next time");
        }
        heartbeat.shared.rest.pause(BEAT_EVERY, AT_REST).await;
    }
}

pub(super) async fn close_batches(settling: Arc<Settling>, rest: Arc<Rest>) {
    loop {
        settling.close_due(Instant::now());
        rest.pause(CLOSE_EVERY, AT_REST).await;
    }
}

impl Heartbeat {
    pub(super) fn new(
        shared: Arc<EngineContext>, catalog: Arc<Catalog>, queue: Arc<FairQueue>, settling: Arc<Settling>,
        gateways: Gateways, stops: Arc<StopReader>,
    ) -> Self {
        let (read, informed) = (Default::default(), AtomicBool::new(false));
        Self { shared, catalog, queue, settling, gateways, stops, read, informed }
    }

    /// Whether the other workers' state was read since the start.
    pub(super) fn is_informed(&self) -> bool {
        self.informed.load(Ordering::Acquire)
    }

    /// Reads lane states and flows that changed since the last time, and renews leases.
    pub(super) async fn read(&self, mut now: Timestamp) {
        let mut read = self.read.lock().await;
        if now + clock_marks::TOLERATED < read.at {
            match self.follow_clock_back(read.at).await {
                Ok(true) => read.since = None,
                Ok(false) => now = self.shared.clock.now(),
                Err(error) => return warn!(%error, "the clock went back, and the database's could not be read"),
            }
        }
        read.at = now;
        // This reading of stops came before, and so saw no more than the reading of lane states.
        let horizon = self.stops.horizon().await;
        match self.read_states(read.since).await {
            Ok(()) => {
                read.since = horizon.as_ref().map(|horizon| Since::new(horizon, now - LOOK_BACK));
                read.has_read = true;
            }
            Err(error) => warn!(%error, "reading lane states and flows failed"),
        }
        if let Err(error) = self.renew_leases(now).await {
            warn!(%error, "the leases of batches that wait to be settled could not be renewed");
        }
    }

    /// Handles a clock that is now before `before`: moves waiting deliveries, and resets holds and breakers. Returns `false` if
    /// only this host's clock was wrong and now equals the database's.
    async fn follow_clock_back(&self, before: Timestamp) -> sqlx::Result<bool> {
        let EngineContext { pool, clock, .. } = &*self.shared;
        clock.follow(store::database_now(pool).await?);
        if clock.now() + clock_marks::TOLERATED >= before {
            return Ok(false);
        }
        clock_marks::look(pool, clock.now()).await?;
        self.queue.forget_states();
        Ok(true)
    }

    /// Applies lane states, flows and holds of subscriptions that changed since a position, or all of them.
    pub(super) async fn read_states(&self, since: Option<Since>) -> sqlx::Result<()> {
        for state in store::operations::workers::lane_states(&self.shared.pool, self.shared.life.me().id, since).await?
        {
            self.queue.adopt(state);
        }
        for flow in store::queue::flows::changed(&self.shared.pool, since).await? {
            self.queue.adopt_flow(flow, self.shared.clock.now());
        }
        let known = self.shared.clock.now() - KNOWN_FOR;
        let holds = store::queue::subscription_holds::changed(&self.shared.pool, since, known, HOLDS_MAX).await?;
        self.shared.holds.adopt(holds);
        Ok(())
    }

    /// Renews the leases of unsettled deliveries: of batches after half of their time. The settler renews those of its rows.
    async fn renew_leases(&self, now: Timestamp) -> sqlx::Result<()> {
        self.settling.settler.renew_rows_if_due();
        let (half, until) = (now + LEASE / 2, now + LEASE);
        let batches: Vec<_> = self.settling.settler.waiting_batches();
        let old: Vec<_> = batches.into_iter().filter(|batch| batch.lease_until() < half).collect();
        if old.is_empty() {
            return Ok(());
        }
        let leases: Vec<_> = old.iter().map(|batch| (batch.id, batch.lease)).collect();
        store::queue::claims::renew_batches(&self.shared.pool, &leases, until).await?;
        old.iter().for_each(|batch| batch.renewed(until));
        Ok(())
    }

    pub(super) async fn beat(&self, now: Timestamp) -> sqlx::Result<()> {
        let EngineContext { pool, clock, .. } = &*self.shared;
        clock.follow(store::database_now(pool).await?); // this host's clock may just have been set
        clock_marks::look(pool, clock.now()).await?;
        self.settling.settler.read_suspicions(now).await?;
        self.queue.forget_idle(now, Instant::now());
        self.shared.holds.forget_ended(now);
        let load = self.queue.load(now);
        self.shared.metrics.in_flight.set(i64::try_from(load.in_flight).unwrap_or(i64::MAX));
        self.shared.metrics.lanes_held.set(i64::try_from(load.held).unwrap_or(i64::MAX));
        self.shared.metrics.lanes_open.set(i64::try_from(load.broken).unwrap_or(i64::MAX));
        self.shared.metrics.multi_buffer.set(i64::from(self.shared.settings.sealer.is_accelerated()));
        let offset_s = self.shared.metrics.clock_offset_s.get();
        if offset_s.abs() > OFFSET_MAX.as_secs_f64() {
            warn!(offset_s, "this host's clock differs from the database's, which is followed");
        }
        self.catalog.forget_lanes(now);
        if self.shared.rest.is_calm() {
            self.shared.rest.alone(self.is_alone().await?);
        }
        Ok(())
    }

    /// Whether no other process uses this database. `false` if sessions have no names.
    async fn is_alone(&self) -> sqlx::Result<bool> {
        let options = self.shared.pool.connect_options();
        match options.get_application_name().filter(|name| name.starts_with(SESSION)) {
            Some(name) => store::operations::workers::is_alone(&self.shared.pool, name).await,
            None => Ok(false),
        }
    }

    /// Writes data for people, which no delivery waits for.
    pub(super) async fn report_all(&self) -> sqlx::Result<()> {
        self.report_fault().await?;
        self.report_egress().await?;
        self.report_reliability(self.shared.clock.now()).await?;
        for (kind, n) in alerts::open(&self.shared.pool).await? {
            self.shared.metrics.alerts_open(kind.name(), n);
        }
        match self.shared.progress.is_stopping() {
            true => Ok(()), // this worker leaves the list, and its limits with it
            false => self.report_lanes().await,
        }
    }

    /// Raises an alert, once, if the accelerated encryption was found to be wrong.
    async fn report_fault(&self) -> sqlx::Result<()> {
        let EngineContext { pool, clock, settings: DispatchConfig { sealer, .. }, .. } = &*self.shared;
        if !sealer.has_untold_fault() {
            return Ok(());
        }
        let detail = format!(
            "Payloads are sealed {sealer}: what it makes of this processor and AWS-LC differ. Pushes that it sealed before \
             may have been lost in browsers. Look after the machine, or start with BELLWIRE_MULTI_BUFFER=false."
        );
        let alert = Alert { app: None, kind: AlertKind::Sealing, subject: "multi-buffer", detail: &detail };
        alerts::raise(&mut *pool.acquire().await?, &alert, clock.now()).await?;
        sealer.told();
        Ok(())
    }

    /// Raises an alert, once per outage, if the outbound proxy has let no connection to a push service through for a while.
    async fn report_egress(&self) -> sqlx::Result<()> {
        for Trouble { gateway, words } in self.gateways.troubles() {
            let subject = gateway.name();
            let detail = format!(
                "The proxy of this network (BELLWIRE_EGRESS_PROXY) lets no connection through to {subject}: {words}. Deliveries wait, \
                 and no retry of theirs is used up, but their time to live runs."
            );
            let alert = Alert { app: None, kind: AlertKind::Egress, subject, detail: &detail };
            alerts::raise(&mut *self.shared.pool.acquire().await?, &alert, self.shared.clock.now()).await?;
            self.gateways.told_of_trouble(gateway);
        }
        Ok(())
    }

    /// Writes each lane's limit and the last errors of push services. Failed writes are repeated.
    async fn report_lanes(&self) -> sqlx::Result<()> {
        let EngineContext { pool, life, words, .. } = &*self.shared;
        reports::tell_limits(pool, life.me().id, &self.queue.limits()).await?;
        let said = words.take();
        if said.is_empty() {
            return Ok(());
        }
        let told = reports::tell_words(pool, &said).await;
        if told.is_err() {
            words.give_back(said);
        }
        told
    }

    /// Adds reliability counts to the database. Failed writes are repeated the next time.
    pub(super) async fn report_reliability(&self, now: Timestamp) -> sqlx::Result<()> {
        let counted = self.shared.reliability.take();
        let rows = counted.iter().flat_map(|((lane, tier), sums)| sums.rows().map(|(sli, n)| (*lane, *tier, sli, n)));
        let told = store::outcomes::reliability::add(&self.shared.pool, rows, now).await;
        if told.is_err() {
            self.shared.reliability.put_back(counted);
        }
        told
    }
}
