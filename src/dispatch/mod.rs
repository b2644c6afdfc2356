//! The dispatch engine: claims due deliveries and takes each along the line to its outcome.
//!
//! ```text
//! feeder ─ claims ─► fair queue ─► sealers: admit → seal ─► a task: post → classify → decide ─► batch or row settler
//!    ▲                   ▲                                                                            │
//!    └── lanes that ran low ───┘            ticker: closes batches         heartbeat: stops, holds, heartbeat     ▼ Postgres
//! ```
//!
//! Nothing here is the only copy of anything: whatever this process forgets, its lease runs out in Postgres and
//! another worker takes it.

#![expect(clippy::vec_box, reason = "jobs move from queue to queue; a box moves as a pointer")]

mod agenda;
mod batch;
mod catalog;
mod entry;
mod fair;
mod feeder;
mod flow;
mod heartbeat;
mod job;
mod lane;
pub(crate) mod limit;
mod line;
mod message;
mod policies;
mod queue;
mod rate;
mod room;
mod sealers;
mod settler;
mod shares;
mod stops;
#[cfg(test)]
mod tests;
mod turn;
mod turns;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::PgPool;
use tokio::sync::{Notify, mpsc};
use tokio::task::JoinSet;
use tokio::time::Instant;
use uuid::Uuid;

use crate::gateway::Gateways;
use crate::metrics::Metrics;
use crate::model::clock::{Clock, Timestamp};
use crate::model::id::{LaneId, SubscriptionId};
use crate::policy;
use crate::policy::hold::KeyWatch;
use crate::policy::reliability::Tally;
use crate::store::operations::workers::LaneState;
use crate::store::queue::claims::{ClaimedRow, LEASE};
use crate::store::queue::flows::Flow;
use crate::store::queue::stops::Stop;
use crate::vault::{Purpose, Vault};
use crate::webpush::vapid::TokenCache;

use batch::OpenBatch;
use catalog::Catalog;
use fair::FairQueue;
use rate::Rates;
use settler::Settler;
use stops::StopSet;

pub(crate) use line::ATTEMPT_DEADLINE;
pub(crate) use turn::Load;

/// How the engine is sized.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// Threads that seal. Each keeps a core busy while there is work and nobody else wants it.
    pub sealers: usize,
    /// POSTs in flight per lane and origin at most.
    pub lane_limit_max: u32,
    /// Fewest recipients of a batch.
    pub batch_min: usize,
    /// Most recipients of a batch.
    pub batch_max: usize,
    /// The server's figures of delivery policies.
    pub policy: policy::Settings,
}

impl Default for Settings {
    fn default() -> Self {
        let cores = std::thread::available_parallelism().map_or(2, usize::from);
        Self { sealers: cores, lane_limit_max: 256, batch_min: 50, batch_max: 500, policy: policy::Settings::DEFAULT }
    }
}

/// The engine of one process.
pub struct Dispatcher {
    pool: PgPool,
    vault: Vault,
    clock: Clock,
    gateways: Gateways,
    metrics: Arc<Metrics>,
    settings: Settings,
    tokens: TokenCache,
    catalog: Catalog,
    fair: FairQueue,
    stops: StopSet,
    reliability: Tally,
    settler: Arc<Settler>,
    rates: Rates,
    batches: Mutex<HashMap<Uuid, Arc<OpenBatch>>>,
    /// Deliveries between claim and settling.
    alive: AtomicUsize,
    /// Held by each draw: whoever has it alone knows that whatever was claimed is counted in `alive`.
    claiming: tokio::sync::RwLock<()>,
    /// Watches each lane for its VAPID key being refused.
    keys: Mutex<HashMap<LaneId, KeyWatch>>,
    /// When the first rate that is used up lets something through again.
    tokens_at: Mutex<Option<Timestamp>>,
    /// Told when `alive` reaches zero.
    idle: Notify,
    /// Told that something became due.
    kicked: Notify,
    /// Ends the attempts that are still in flight when a stop runs out of patience.
    abandon: Notify,
    /// Whether it has heard once what others know and who they are: until then it might exceed what is let through.
    informed: AtomicBool,
    stopping: AtomicBool,
    id: Uuid,
    started_at: Timestamp,
}

/// A short, stable stand-in for a subscription in logs.
fn label(vault: &Vault, subscription: SubscriptionId) -> String {
    let mac = vault.mac(Purpose::LogLabel, &[subscription.0.as_bytes()]);
    mac[..6].iter().map(|octet| format!("{octet:02x}")).collect()
}

impl Dispatcher {
    /// Starts the engine. Its tasks never end by themselves: if one does, the process has to.
    pub fn start(
        pool: PgPool,
        vault: Vault,
        clock: Clock,
        gateways: Gateways,
        metrics: Arc<Metrics>,
        settings: Settings,
    ) -> (Arc<Self>, JoinSet<()>) {
        let (ran_low, refills) = mpsc::unbounded_channel();
        let started_at = clock.now();
        let dispatcher = Arc::new(Self {
            catalog: Catalog::new(pool.clone(), vault.clone(), clock.clone(), settings.policy),
            fair: FairQueue::new(settings.lane_limit_max, started_at, move |lane, tier| {
                let _ = ran_low.send((lane, tier)); // the feeder is gone only when the engine ends
            }),
            settler: Settler::start(pool.clone(), vault.clone(), clock.clone(), metrics.clone()),
            id: clock.uuid(),
            started_at,
            pool,
            vault,
            clock,
            gateways,
            metrics,
            settings,
            tokens: TokenCache::default(),
            stops: StopSet::default(),
            reliability: Tally::default(),
            rates: Rates::default(),
            batches: Mutex::default(),
            alive: AtomicUsize::new(0),
            claiming: tokio::sync::RwLock::default(),
            keys: Mutex::default(),
            tokens_at: Mutex::default(),
            idle: Notify::new(),
            kicked: Notify::new(),
            abandon: Notify::new(),
            informed: AtomicBool::new(false),
            stopping: AtomicBool::new(false),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(heartbeat::run(dispatcher.clone()));
        tasks.spawn(heartbeat::close_batches(dispatcher.clone()));
        tasks.spawn(feeder::feed(dispatcher.clone(), refills));
        sealers::start(&dispatcher, settings.sealers.max(1), &mut tasks);
        (dispatcher, tasks)
    }

    /// Says that something may have become due.
    pub fn kick(&self) {
        self.kicked.notify_one();
    }

    /// Obeys a stop before its request is answered.
    pub fn obey(&self, stop: Stop) {
        self.stops.obey(stop, Instant::now());
    }

    /// Obeys orders to lanes before their request is answered.
    pub fn obey_orders(&self, states: Vec<LaneState>) {
        states.into_iter().for_each(|state| self.fair.adopt(state));
        self.kick();
    }

    /// Keeps to a flow before its request is answered.
    pub fn obey_flow(&self, flow: Flow) {
        self.fair.adopt_flow(flow, self.clock.now());
        self.kick();
    }

    /// Takes over queue rows that were born under `lease`, so that a single send need not be found first. What this
    /// process does not manage to send comes back when the lease, which began at `claimed_at`, runs out.
    pub fn hand_over(self: &Arc<Self>, rows: Vec<(LaneId, ClaimedRow)>, lease: Uuid, claimed_at: Instant) {
        let dispatcher = self.clone();
        // Counted from now on, so that the engine does not count as idle before the task has begun.
        self.started(1);
        tokio::spawn(async move {
            dispatcher.let_rows_in(rows, lease, claimed_at).await;
            dispatcher.finished(1);
        });
    }

    /// A fresh lease for rows that will be handed over; none while this engine takes nothing, so that they are born due
    /// for another.
    pub fn lease(&self) -> Option<Uuid> {
        self.is_ready().then(|| self.clock.uuid())
    }

    /// Whether this engine takes work at all: nothing is claimed that could not be stopped or not be settled.
    pub fn is_ready(&self) -> bool {
        !self.is_stopping()
            && self.informed.load(Ordering::Acquire)
            && self.stops.is_fresh(Instant::now())
            && !self.settler.is_failing()
    }

    /// What is going on in memory, for benchmarks and tests.
    pub fn load(&self) -> Load {
        self.fair.load(self.clock.now())
    }

    /// Works off everything that is due now, and returns when nothing is left in memory. For tests, which then move
    /// the clock: it hears at once what others told, and tells them that it lives. A failed look is made again, as the
    /// feeder would; the third failure in a row is returned.
    pub async fn run_until_idle(self: &Arc<Self>) -> sqlx::Result<()> {
        if !self.is_stopping() {
            self.read_states(None).await?;
            self.beat(self.clock.now()).await?;
        }
        let mut failures = 0;
        loop {
            self.wait_until_idle().await;
            // Waits for claims under way: whatever they took is in memory or settled by then.
            let alone = self.claiming.write().await;
            let able = self.is_ready();
            let claimed = match self.look().await {
                Ok(claimed) => claimed,
                Err(_) if failures < 2 => {
                    failures += 1;
                    continue;
                }
                Err(failed) => return Err(failed),
            };
            failures = 0;
            // It did not come back with nothing because nothing may be claimed at present.
            let idle = claimed == 0 && able && self.is_ready() && self.is_idle();
            if idle || self.is_stopping() {
                return Ok(());
            }
            drop(alone);
            tokio::task::yield_now().await;
        }
    }

    fn is_idle(&self) -> bool {
        self.alive.load(Ordering::Acquire) == 0 && self.settler.pending() == 0
    }

    async fn wait_until_idle(&self) {
        loop {
            let (idle, settled) = (self.idle.notified(), self.settler.settled());
            tokio::pin!(idle, settled);
            idle.as_mut().enable();
            settled.as_mut().enable();
            if self.is_idle() {
                return;
            }
            tokio::select! { () = idle => {}, () = settled => {} }
        }
    }

    /// Stops in good order: claims nothing more, gives back what was not begun, waits up to `patience` for the attempts
    /// in flight, gives back those that did not end, uncounted, and settles everything.
    pub async fn stop(self: &Arc<Self>, patience: Duration) {
        self.stopping.store(true, Ordering::SeqCst);
        // Claims under way end first, so that they can be given back; a database that hangs must not hold up the stop.
        let _ = tokio::time::timeout(patience, self.claiming.write()).await;
        let now = self.clock.now();
        self.put_back(self.fair.drain(), now);
        if tokio::time::timeout(patience, self.wait_until_idle()).await.is_err() {
            self.abandon.notify_waiters();
        }
        // Whatever is settled from here on waits for Postgres alone; the lease bounds how long that makes sense.
        let _ = tokio::time::timeout(LEASE, self.wait_until_idle()).await;
        if let Err(error) = self.report_reliability(self.clock.now()).await {
            tracing::debug!(%error, "the last figures are lost");
        }
        if let Err(error) = crate::store::operations::workers::leave(&self.pool, self.id).await {
            tracing::debug!(%error, "could not take this worker off the list; it will be taken for dead");
        }
    }

    fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::SeqCst)
    }

    fn started(&self, n: usize) {
        self.alive.fetch_add(n, Ordering::SeqCst);
    }

    fn finished(&self, n: usize) {
        if self.alive.fetch_sub(n, Ordering::SeqCst) == n {
            self.idle.notify_waiters();
        }
    }

    /// Hands a batch that was just closed to the settler.
    fn close_batch(&self, batch: &Arc<OpenBatch>) {
        self.settler.batch(batch.clone());
        self.batches.lock().remove(&batch.id);
        self.metrics.batches_open.dec();
    }
}
