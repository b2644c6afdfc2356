//! The dispatch engine: claims due deliveries and takes each along the line to its outcome.
//!
//! ```text
//!  claim ──► admit ──► fair queue ──► prepare ──► seal ──► post ──► conclude ──► settle ──► settler ──► Postgres
//!    ▲                 │ tiers, apps,  checks once  (pure)   gateways  (pure)      batches
//!    └─ lanes that     │ lanes, limits more, renders            │
//!       ran low ───────┘                                        └── news: what other replicas have to know
//!
//!  stop reader: stops; heartbeat: holds and flows of others, leases; apart from it, what people look at
//!  pulse: that this worker lives, and who else does
//! ```
//!
//! Each stage has its own fields and uses the stages after it. [`Pipeline`] takes a delivery from its turn to its settlement. Queues
//! between stages are bounded: by the room of the fair queue ([`claim`]), by permits (POSTs), and by the settler's limits, beyond
//! which nothing more is claimed.
//!
//! No data exist only here. If this process forgets a delivery, its lease expires in Postgres and another worker claims it. If
//! the process dies, others [notice](life) within seconds and take its deliveries over.

#![allow(missing_docs, reason = "internal to the server: names and types document most items")]
#![expect(clippy::vec_box, reason = "jobs move from queue to queue; a box moves as a pointer")]

mod admit;
mod agenda;
mod batch;
mod catalog;
mod claim;
mod conclude;
mod content;
mod fair;
mod heartbeat;
pub mod idle;
mod job;
mod lane_updates;
mod last_errors;
mod life;
mod message;
mod pending_set;
mod pipeline;
mod policies;
mod poller;
mod post;
mod prepare;
mod prune_guard;
mod rate;
mod seal;
mod sealers;
mod settle;
mod settler;
mod shared;
mod stop_reader;
mod stops;
mod subscription_holds;
#[cfg(test)]
#[path = "../../../tests/crates/dispatch/unit/engine.rs"]
mod tests;

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;
use std::time::Duration;

use futures_util::FutureExt as _;
use parking_lot::Mutex;
use sqlx::PgPool;
use tokio::sync::{Notify, RwLock};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;
use uuid::Uuid;

use bellwire_core::clock::Clock;
use bellwire_gateway::Gateways;
use bellwire_rules::policy;
use bellwire_rules::policy::lane_state::LaneState;
use bellwire_rules::policy::reliability::ReliabilityTally;
use bellwire_store::queue::claims::LEASE;
use bellwire_store::queue::flows::Flow;
use bellwire_store::queue::opening::FreshMessages;
use bellwire_store::queue::sending::Born;
use bellwire_store::queue::stops::Stop;
use bellwire_telemetry::metrics::Metrics;
use bellwire_telemetry::otlp::Tracer;
use bellwire_telemetry::panics;
use bellwire_vault::Vault;
use bellwire_webpush::sealer::Sealer;

use admit::Admission;
use catalog::Catalog;
use claim::ClaimStage;
use fair::FairQueue;
use heartbeat::Pulse;
use idle::Rest;
use lane_updates::News;
use last_errors::LastWords;
use life::Life;
use pending_set::PendingSet;
use pipeline::{Pipeline, SEALED_HERE_MAX};
use poller::Heartbeat;
use post::Posting;
use prepare::Preparation;
use prune_guard::PruneGuard;
use rate::Rates;
use settle::Settling;
use settler::Settler;
use shared::{EngineActivity, EngineContext};
use stop_reader::StopReader;
use stops::StopSet;
use subscription_holds::SubscriptionHolds;

pub use fair::turn::QueueLoad;

/// Sizes of the dispatch engine.
#[derive(Debug, Clone, Copy)]
pub struct DispatchConfig {
    /// Number of encryption threads. With enough work, each uses an otherwise idle core.
    pub sealers: usize,
    /// Implementation of encryption for these threads.
    pub sealer: &'static Sealer,
    /// Maximum POSTs in flight per lane and origin.
    pub lane_limit_max: u32,
    /// Minimum recipients of a batch.
    pub batch_min: usize,
    /// Maximum recipients of a batch.
    pub batch_max: usize,
    /// Number of unsettled queue rows from which no more are claimed or inserted leased. A backlog of settlements would be sent
    /// again after a crash.
    pub rows_waiting_max: usize,
    /// Server settings of delivery policies.
    pub policy: policy::TierSettings,
}

impl Default for DispatchConfig {
    fn default() -> Self {
        Self::sealing_by(Sealer::fastest())
    }
}

impl DispatchConfig {
    /// Returns default settings with this sealer. Callers choose [`Sealer::fastest`] themselves, because operators can disable
    /// it.
    pub fn sealing_by(sealer: &'static Sealer) -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self {
            sealers: cores,
            sealer,
            lane_limit_max: 256,
            batch_min: 50,
            batch_max: 500,
            rows_waiting_max: 2_000,
            policy: policy::TierSettings::DEFAULT,
        }
    }
}

/// Dispatch engine of one process, with its public functions.
pub struct Dispatcher {
    shared: Arc<EngineContext>,
    queue: Arc<FairQueue>,
    /// Authorities of origins whose number of streams changed.
    peers: Arc<PendingSet<Arc<str>>>,
    heartbeat: Arc<Heartbeat>,
    stop_reader: Arc<StopReader>,
    pulse: Arc<Pulse>,
    claims: Arc<ClaimStage>,
    line: Arc<Pipeline>,
}

impl Dispatcher {
    /// Starts the engine. Its tasks never end by themselves: if one does, the process must end.
    pub fn start(
        pool: PgPool, vault: Vault, clock: Clock, gateways: Gateways, metrics: Arc<Metrics>, tracer: Tracer,
        settings: DispatchConfig,
    ) -> (Arc<Self>, JoinSet<()>) {
        let shared = Arc::new(EngineContext {
            life: Life::new(&clock),
            pool,
            vault,
            clock,
            metrics,
            tracer,
            settings,
            progress: EngineActivity::default(),
            rest: Arc::default(),
            stops: StopSet::default(),
            holds: SubscriptionHolds::default(),
            reliability: ReliabilityTally::default(),
            words: LastWords::default(),
        });
        let (assembled, settling_rows) = Self::assemble(shared, gateways);
        let (dispatcher, mut tasks) = (Arc::new(assembled), JoinSet::new());
        // It goes on though these tasks are ended. Without it nothing would be settled any more.
        tasks.spawn(async move { drop(settling_rows.await) });
        tasks.spawn(heartbeat::run(dispatcher.pulse.clone()));
        tasks.spawn(stop_reader::run(dispatcher.stop_reader.clone()));
        tasks.spawn(poller::run(dispatcher.heartbeat.clone()));
        tasks.spawn(poller::report(dispatcher.heartbeat.clone()));
        tasks.spawn(poller::close_batches(dispatcher.line.settling.clone(), dispatcher.rest()));
        tasks.spawn(claim::run(dispatcher.claims.clone()));
        tasks.spawn(fair::follow_streams(dispatcher.queue.clone(), dispatcher.peers.clone()));
        sealers::start(&dispatcher.line, settings.sealers.max(1), &mut tasks);
        (dispatcher, tasks)
    }

    /// Creates the stages, from the last to the first, and the task that settles rows.
    fn assemble(shared: Arc<EngineContext>, gateways: Gateways) -> (Self, JoinHandle<()>) {
        let EngineContext { pool, vault, clock, metrics, tracer, settings, life, .. } = &*shared;
        let (rates, kicked) = (Arc::new(Rates::default()), Arc::new(Notify::new()));
        let (refills, peers) = (Arc::new(PendingSet::default()), Arc::new(PendingSet::default()));
        let ran_low = {
            let refills = refills.clone();
            move |lane, tier| refills.report((lane, tier))
        };
        let streams = {
            let (peers, gateways) = (peers.clone(), gateways.clone());
            gateways.on_streams(move |authority| peers.report(authority.clone()));
            move |authority: &str| gateways.streams(authority)
        };
        let queue = Arc::new(FairQueue::new(settings.lane_limit_max, life.me().started_at, ran_low, streams));
        let guard = PruneGuard::new(pool.clone(), vault.clone(), clock.clone(), metrics.clone(), queue.clone());
        let rows_max = settings.rows_waiting_max;
        let (settler, settling_rows) =
            Settler::start(pool.clone(), vault.clone(), clock.clone(), metrics.clone(), guard, rows_max);
        let settling = Arc::new(Settling::new(shared.clone(), settler));
        let catalog =
            Arc::new(Catalog::new(pool.clone(), vault.clone(), clock.clone(), settings.policy, tracer.clone()));
        let admission = Arc::new(Admission {
            shared: shared.clone(),
            catalog: catalog.clone(),
            queue: queue.clone(),
            settling: settling.clone(),
            kicked: kicked.clone(),
        });
        let preparation = Arc::new(Preparation::new(shared.clone()));
        let posting = Posting {
            shared: shared.clone(),
            gateways: gateways.clone(),
            queue: queue.clone(),
            preparation: preparation.clone(),
            rates: rates.clone(),
            news: Arc::new(News::new(shared.clone(), queue.clone())),
            abandon: Notify::new(),
        };
        let line = Pipeline {
            shared: shared.clone(),
            queue: queue.clone(),
            preparation,
            posting,
            settling: settling.clone(),
            admission: admission.clone(),
        };
        let stop_reader = Arc::new(StopReader::new(shared.clone(), kicked.clone()));
        let (stops, settled) = (stop_reader.clone(), settling.clone());
        let heartbeat = Heartbeat::new(shared.clone(), catalog.clone(), queue.clone(), settled, gateways, stops);
        let heartbeat = Arc::new(heartbeat);
        let pulse = Arc::new(Pulse::new(shared.clone(), queue.clone(), settling.clone(), kicked.clone()));
        let claims = ClaimStage {
            shared: shared.clone(),
            catalog,
            queue: queue.clone(),
            rates,
            settling,
            heartbeat: heartbeat.clone(),
            admission,
            refills,
            claiming: RwLock::default(),
            kicked,
            refused: AtomicUsize::new(0),
            tokens_at: Mutex::default(),
        };
        let (claims, line) = (Arc::new(claims), Arc::new(line));
        let assembled = Self { shared, queue, peers, heartbeat, stop_reader, pulse, claims, line };
        (assembled, settling_rows)
    }

    /// Notifies the engine that deliveries may be due.
    pub fn kick(&self) {
        self.shared.rest.wake();
        self.claims.kicked.notify_one();
    }

    /// Applies a stop before its request gets a response.
    pub fn obey(&self, stop: Stop) {
        self.shared.stops.obey(stop, Instant::now());
    }

    /// Applies lane states from orders before their request gets a response.
    pub fn obey_orders(&self, states: Vec<LaneState>) {
        states.into_iter().for_each(|state| self.queue.adopt(state));
        self.kick();
    }

    /// Applies a flow before its request gets a response.
    pub fn obey_flow(&self, flow: Flow) {
        self.queue.adopt_flow(flow, self.shared.clock.now());
        self.kick();
    }

    /// Accepts queue rows inserted under `lease`, so that one-time codes need not be polled. Rows that this process does not
    /// send are claimed again after the lease, which began at `claimed_at`.
    pub fn hand_over(self: &Arc<Self>, born: Vec<Born>, lease: Uuid, claimed_at: Instant) {
        let (mut rows, mut written) = (Vec::with_capacity(born.len()), FreshMessages::default());
        for Born { lane, row, message, conditions } in born {
            written.conditions.extend(conditions.map(|conditions| ((message.app, message.tier), conditions)));
            // Those of one message come one after the other, and it is opened once.
            if written.messages.last().is_none_or(|last| last.id != message.id) {
                written.messages.push(message);
            }
            rows.push((lane, row));
        }
        let line = self.line.clone();
        let few = rows.len() <= SEALED_HERE_MAX;
        // Counted from now on, so that the engine does not count as idle before the task has begun.
        self.shared.progress.started(1);
        let mut letting_in = Box::pin(async move {
            // After a panic, their leases expire; deliveries admitted before are reported.
            let let_in = async {
                let checked = line.admission.rows(rows, written, lease, claimed_at).await;
                line.line_up_born(checked.free);
                line.admission.throttle_rows(checked.throttled).await;
            };
            if panics::caught(let_in).await.is_err() {
                line.queue.tell();
            }
            line.shared.progress.finished(1);
        });
        // Nothing is waited for where what their apps say came with them: then a few are on their way before a task would begin.
        if few && letting_in.as_mut().now_or_never().is_some() {
            return;
        }
        tokio::spawn(letting_in);
    }

    /// Returns a new lease for rows that will be passed to [`hand_over`](Self::hand_over). `None` while this engine accepts
    /// nothing or cannot settle fast enough. Then the rows are inserted unleased, for any worker.
    pub fn lease(&self) -> Option<Uuid> {
        self.shared.rest.wake();
        let takes_rows = self.is_ready() && !self.line.settling.settler.is_behind_with_rows();
        takes_rows.then(|| self.shared.life.lease(&self.shared.clock))
    }

    /// Returns the idle state of this process.
    pub fn rest(&self) -> Arc<Rest> {
        self.shared.rest.clone()
    }

    /// Returns a lease of this process for work outside dispatch. If the process crashes, others take it over like the leases
    /// of deliveries.
    pub fn lease_beside(&self) -> Uuid {
        self.shared.life.lease(&self.shared.clock)
    }

    /// Whether this engine may claim: it can read stops and settle deliveries.
    pub fn is_ready(&self) -> bool {
        self.claims.is_ready()
    }

    /// Returns the load in memory, for benchmarks and tests.
    pub fn load(&self) -> QueueLoad {
        self.queue.load(self.shared.clock.now())
    }

    /// Processes all due deliveries, and returns when none is left in memory. For tests, which then move the clock: it reads
    /// other workers' state at once, and writes a heartbeat. A failed poll is repeated; the third failure in a row is returned.
    pub async fn run_until_idle(self: &Arc<Self>) -> sqlx::Result<()> {
        if !self.shared.progress.is_stopping() {
            self.stop_reader.read(Instant::now()).await;
            self.heartbeat.read(self.shared.clock.now()).await;
            self.heartbeat.read_states(None).await?;
            self.pulse.beat().await?;
            self.heartbeat.beat(self.shared.clock.now()).await?;
            self.heartbeat.report_all().await?;
        }
        let mut failures = 0;
        loop {
            self.shared.rest.wake();
            self.wait_until_idle().await;
            // Waits for claims under way: their rows are in memory or settled by then.
            let alone = self.claims.claiming.write().await;
            // What such a claim gave back may not be written yet.
            let was_idle = self.is_idle();
            let (able, refused) = (self.is_ready(), self.claims.refused());
            let claimed = match self.claims.look().await {
                Ok(claimed) => claimed,
                Err(_) if failures < 2 => {
                    failures += 1;
                    continue;
                }
                Err(failed) => return Err(failed),
            };
            failures = 0;
            // It did not come back with nothing because nothing may be claimed at present.
            let idle = claimed == 0 && was_idle && able && self.claims.refused() == refused && self.is_idle();
            if idle || self.shared.progress.is_stopping() {
                return Ok(());
            }
            drop(alone);
            tokio::task::yield_now().await;
        }
    }

    fn is_idle(&self) -> bool {
        self.shared.progress.is_idle() && self.line.settling.settler.pending() == 0
    }

    async fn wait_until_idle(&self) {
        loop {
            let (idle, settled) = (self.shared.progress.idle(), self.line.settling.settler.settled());
            tokio::pin!(idle, settled);
            idle.as_mut().enable();
            settled.as_mut().enable();
            if self.is_idle() {
                return;
            }
            tokio::select! { () = idle => {}, () = settled => {} }
        }
    }

    /// Stops cleanly: claims nothing more, requeues deliveries without a started attempt, and waits up to `patience` for
    /// attempts in flight. Then requeues unfinished attempts without counting them, and settles finished ones.
    pub async fn stop(self: &Arc<Self>, patience: Duration) {
        self.shared.progress.stop();
        // Claims under way end first, so that they can be given back; a database that hangs must not hold up the stop.
        let _ = tokio::time::timeout(patience, self.claims.claiming.write()).await;
        let now = self.shared.clock.now();
        self.line.settling.put_back(self.queue.drain(), now);
        if tokio::time::timeout(patience, self.wait_until_idle()).await.is_err() {
            self.line.posting.abandon.notify_waiters();
        }
        // Settlements from here on wait for Postgres only; the lease bounds how long that makes sense.
        let _ = tokio::time::timeout(LEASE, self.wait_until_idle()).await;
        if let Err(error) = self.heartbeat.report_reliability(self.shared.clock.now()).await {
            tracing::debug!(%error, "the last reliability counts are lost");
        }
        self.pulse.leave().await;
    }
}
