//! Settler: writes the results of batches and rows, in separate tasks that nothing cancels.
//!
//! A settlement that fails temporarily (lost connection, deadlock, restart of Postgres) is repeated until it is written or
//! fenced out. Meanwhile nothing new is claimed. One that fails permanently is dropped with an error in the log: its lease
//! expires, and a maximum of leases limits how often that can happen.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use chrono::TimeDelta;
use parking_lot::Mutex;
use sqlx::PgPool;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tracing::{debug, error, warn};
use uuid::Uuid;

use super::batch::OpenBatch;
use super::prune_guard::PruneGuard;
use bellwire_core::clock::{Clock, Timestamp};
use bellwire_store as store;
use bellwire_store::outcomes::ledger::{Fenced, RowSettlement, Settlement};
use bellwire_store::queue::claims::{LEASE, Unopened};
use bellwire_telemetry::metrics::Metrics;
use bellwire_telemetry::panics::{self, Panicked};
use bellwire_vault::Vault;

/// Maximum rows settled in one transaction.
const ROWS_MAX: usize = 500;
/// Time for which rows are collected before they are settled. No caller waits for a settlement, and each one is a commit that
/// delays the sending of one-time codes.
const GATHER: Duration = Duration::from_millis(20);
/// Maximum batches settled concurrently: enough to keep Postgres busy while one waits for its WAL flush.
const BATCHES_AT_ONCE: usize = 3;
/// Number of unsettled batches from which no more are taken. A backlog of settlements would be sent again after a crash.
const BATCHES_WAITING_MAX: usize = 20;
/// Interval of lease renewals while rows wait to be settled.
const RENEW_EVERY: TimeDelta = TimeDelta::seconds(5);
const RETRY_FIRST: Duration = Duration::from_millis(50);
/// Maximum delay of a retry. Deliveries wait for it when Postgres is back.
const RETRY_LAST: Duration = Duration::from_millis(250);
/// Maximum retries while a machine of Citus may have failed.
const LOST_TRIES: u32 = 8;

/// Accepts settlements without blocking the caller.
pub(super) struct Settler {
    pool: PgPool,
    vault: Vault,
    clock: Clock,
    rows: mpsc::UnboundedSender<RowSettlement>,
    batches: Semaphore,
    waiting_batches: Mutex<HashMap<Uuid, Arc<OpenBatch>>>,
    waiting_rows: AtomicUsize,
    rows_waiting_max: usize,
    /// Notified when the backlog has become small enough to claim more.
    caught_up: Notify,
    /// Notified regularly, so that leases of waiting rows are renewed.
    renewal: Notify,
    failing: AtomicUsize,
    pending: AtomicUsize,
    metrics: Arc<Metrics>,
    guard: PruneGuard,
    settled: Notify,
}

impl Settler {
    /// Starts the settler and its task for rows, which ends when the settler is dropped. With `rows_max` waiting rows it is
    /// behind.
    pub(super) fn start(
        pool: PgPool, vault: Vault, clock: Clock, metrics: Arc<Metrics>, guard: PruneGuard, rows_waiting_max: usize,
    ) -> (Arc<Self>, JoinHandle<()>) {
        let (rows, inbox) = mpsc::unbounded_channel();
        let settler = Arc::new(Self {
            pool,
            vault,
            clock,
            rows,
            batches: Semaphore::new(BATCHES_AT_ONCE),
            waiting_batches: Mutex::default(),
            waiting_rows: AtomicUsize::new(0),
            rows_waiting_max,
            caught_up: Notify::new(),
            renewal: Notify::new(),
            failing: AtomicUsize::new(0),
            pending: AtomicUsize::new(0),
            metrics,
            guard,
            settled: Notify::new(),
        });
        let settling_rows = tokio::spawn(settle_rows(Arc::downgrade(&settler), inbox));
        (settler, settling_rows)
    }

    /// Whether settlements currently fail, so that nothing more should be claimed.
    pub(super) fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Acquire) > 0
    }

    /// Returns the number of rows and batches that are not written yet.
    pub(super) fn pending(&self) -> usize {
        self.pending.load(Ordering::Acquire)
    }

    /// Waits for the next settlement. Create the future before checking.
    pub(super) fn settled(&self) -> tokio::sync::futures::Notified<'_> {
        self.settled.notified()
    }

    /// Whether too many batches wait, so that no more should be taken.
    pub(super) fn is_behind_with_batches(&self) -> bool {
        self.waiting_batches.lock().len() >= BATCHES_WAITING_MAX
    }

    /// Whether too many rows wait, so that no more should be claimed.
    pub(super) fn is_behind_with_rows(&self) -> bool {
        self.waiting_rows.load(Ordering::Acquire) >= self.rows_waiting_max
    }

    /// Waits until the backlog is small enough to claim more.
    pub(super) async fn caught_up(&self) {
        self.caught_up.notified().await;
    }

    /// Renews the leases of waiting rows, if that is due. Call it several times within [`RENEW_EVERY`].
    pub(super) fn renew_rows_if_due(&self) {
        if self.waiting_rows.load(Ordering::Acquire) > 0 {
            self.renewal.notify_one();
        }
    }

    /// Returns the batches that are not written yet.
    pub(super) fn waiting_batches(&self) -> Vec<Arc<OpenBatch>> {
        self.waiting_batches.lock().values().cloned().collect()
    }

    pub(super) fn row(&self, row: RowSettlement) {
        self.pending.fetch_add(1, Ordering::AcqRel);
        self.waiting_rows.fetch_add(1, Ordering::AcqRel);
        // The receiver lives as long as this settler does.
        let _ = self.rows.send(row);
    }

    pub(super) fn batch(self: &Arc<Self>, batch: Arc<OpenBatch>) {
        self.pending.fetch_add(1, Ordering::AcqRel);
        self.waiting_batches.lock().insert(batch.id, batch.clone());
        let waiting = WaitingBatch { settler: self.clone(), id: batch.id };
        tokio::spawn(async move {
            let permit = waiting.settler.batches.acquire().await;
            waiting.settler.write_batch(&batch).await;
            drop(permit);
            drop(waiting);
        });
    }

    /// Writes a batch, and settles results that arrived meanwhile.
    async fn write_batch(&self, batch: &OpenBatch) {
        let mut settlements = batch.take_settlements(self.clock.now());
        panics::point("settle a batch", batch.message.id.0);
        if !self.guard.passes(settlements.iter()) {
            self.review(settlements.iter_mut().collect()).await;
        }
        let mut patience = Patience::new(self);
        let fenced = loop {
            let (pool, vault, now) = (&self.pool, &self.vault, self.clock.now());
            match store::outcomes::ledger::settle_batch(pool, vault, batch.id, batch.lease, &settlements, now).await {
                Ok(fenced) => break Some(fenced),
                Err(error) if patience.lasts(&error).await => {}
                Err(_) => break None,
            }
        };
        if fenced == Some(Fenced::Out) {
            self.metrics.settle_fenced.inc_by(settlements.len() as u64);
            warn!(batch = %batch.id, "another worker took this batch over; our account of it is dropped");
        }
        for late in batch.settled() {
            self.row(RowSettlement { lease: batch.lease, settlement: late });
        }
    }

    /// Reads the lanes suspected by other replicas.
    pub(super) async fn read_suspicions(&self, now: Timestamp) -> sqlx::Result<()> {
        self.guard.read(now).await
    }

    /// Lets the prune guard review settlements, once, because it must not count them twice.
    async fn review(&self, mut settlements: Vec<&mut Settlement>) {
        let mut patience = Patience::new(self);
        while let Err(error) = self.guard.review(&mut settlements).await {
            if !patience.lasts(&error).await {
                return error!(%error, "prunes are not checked for an error of the push service");
            }
        }
    }

    /// Notifies when the backlog falls below half of its limit. It does not notify at each step, because each notification
    /// causes a poll.
    fn tell_if_caught_up(&self, before: usize, after: usize, bound: usize) {
        if (after..before).contains(&(bound / 2)) {
            self.caught_up.notify_one();
        }
    }

    /// Requeues rows claimed under `lease` that were not processed.
    pub(super) fn give_back(self: &Arc<Self>, lease: Uuid, unopened: Unopened) {
        self.pending.fetch_add(1, Ordering::AcqRel);
        let settler = self.clone();
        tokio::spawn(async move {
            let given_back = panics::caught(async {
                let mut patience = Patience::new(&settler);
                while let Err(error) =
                    store::queue::claims::give_back(&settler.pool, lease, &unopened, settler.clock.now()).await
                    && patience.lasts(&error).await
                {}
            });
            // Should it panic, the lease runs out.
            let _ = given_back.await;
            settler.done(1);
        });
    }

    fn done(&self, n: usize) {
        self.pending.fetch_sub(n, Ordering::AcqRel);
        self.settled.notify_waiters();
    }
}

/// A batch that waits to be written. When it is dropped, also by a panic, its lease is no longer renewed and expires.
struct WaitingBatch {
    settler: Arc<Settler>,
    id: Uuid,
}

impl Drop for WaitingBatch {
    fn drop(&mut self) {
        let left = {
            let mut waiting = self.settler.waiting_batches.lock();
            waiting.remove(&self.id);
            waiting.len()
        };
        self.settler.tell_if_caught_up(left + 1, left, BATCHES_WAITING_MAX);
        self.settler.done(1);
    }
}

/// Settles incoming rows repeatedly: while one group is written, the next one is collected.
async fn settle_rows(settler: std::sync::Weak<Settler>, mut inbox: mpsc::UnboundedReceiver<RowSettlement>) {
    let mut waiting = Vec::with_capacity(ROWS_MAX);
    // Counted on from group to group: each may be written soon, and those behind many of them wait for long all the same.
    let mut renew_at = Timestamp::MIN_UTC;
    loop {
        if waiting.is_empty() {
            let was_empty = inbox.is_empty();
            if inbox.recv_many(&mut waiting, ROWS_MAX).await == 0 {
                return;
            }
            if was_empty && let Some(settler) = settler.upgrade() {
                renew_at = settler.clock.now() + RENEW_EVERY;
            }
        }
        if waiting.len() < ROWS_MAX {
            tokio::time::sleep(GATHER).await;
            while waiting.len() < ROWS_MAX
                && let Ok(row) = inbox.try_recv()
            {
                waiting.push(row);
            }
        }
        let Some(settler) = settler.upgrade() else { return };
        let later = waiting.split_off(waiting.len().min(ROWS_MAX));
        let group = std::mem::replace(&mut waiting, later);
        settler.write_and_renew(&group, &mut waiting, &mut inbox, &mut renew_at).await;
        let n = group.len();
        drop(group); // and with it the spans of those that are traced
        let before = settler.waiting_rows.fetch_sub(n, Ordering::AcqRel);
        settler.tell_if_caught_up(before, before.saturating_sub(n), settler.rows_waiting_max);
        settler.done(n);
    }
}

impl Settler {
    /// Writes a group. Meanwhile renews the leases of its rows and of all later ones when due. The write continues during a
    /// renewal, because it may hold the connection that the renewal waits for.
    async fn write_and_renew(
        &self, group: &[RowSettlement], waiting: &mut Vec<RowSettlement>,
        inbox: &mut mpsc::UnboundedReceiver<RowSettlement>, renew_at: &mut Timestamp,
    ) {
        let mut writing = pin!(self.write_rows(group));
        loop {
            tokio::select! {
                () = &mut writing => return,
                () = self.renewal.notified() => {}
            }
            if self.clock.now() < *renew_at {
                continue;
            }
            while let Ok(row) = inbox.try_recv() {
                waiting.push(row);
            }
            *renew_at = self.clock.now() + RENEW_EVERY;
            let mut renewing = pin!(self.renew_rows(waiting.iter().chain(group)));
            tokio::select! {
                () = &mut writing => return renewing.await,
                () = &mut renewing => {}
            }
        }
    }

    async fn write_rows(&self, group: &[RowSettlement]) {
        let mut reviewed = Cow::Borrowed(group);
        if !self.guard.passes(group.iter().map(|row| &row.settlement)) {
            self.review(reviewed.to_mut().iter_mut().map(|row| &mut row.settlement).collect()).await;
        }
        let mut parts = VecDeque::from([&*reviewed]);
        while let Some(rows) = parts.pop_front() {
            let mut patience = Patience::new(self);
            loop {
                match panics::caught(self.try_rows(rows)).await {
                    Ok(Ok(fenced)) => {
                        self.metrics.settle_fenced.inc_by(fenced as u64);
                        break;
                    }
                    // One of them may be locked for a long time; it must not delay the others.
                    Ok(Err(error)) if store::is_statement_timeout(&error) && rows.len() + parts.len() > 1 => {
                        warn!(%error, rows = rows.len(), "settling took too long; what can be settled meanwhile is");
                        let (some, others) = rows.split_at(rows.len() / 2);
                        parts.extend([some, others].into_iter().filter(|part| !part.is_empty()));
                        break;
                    }
                    Ok(Err(error)) if patience.may_pass(&error) => patience.wait(&error).await,
                    Ok(Err(error)) if rows.len() == 1 => {
                        error!(%error, "this cannot be settled; its lease will run out");
                        break;
                    }
                    Err(Panicked) if rows.len() == 1 => {
                        error!("this cannot be settled, since it panics; its lease will run out");
                        break;
                    }
                    // One of them cannot be settled; it must not take the others with it.
                    Ok(Err(_)) | Err(Panicked) => {
                        let (some, others) = rows.split_at(rows.len() / 2);
                        parts.extend([some, others]);
                        break;
                    }
                }
            }
        }
    }

    async fn try_rows(&self, rows: &[RowSettlement]) -> sqlx::Result<usize> {
        rows.iter().for_each(|row| panics::point("settle a row", row.settlement.delivery().message.0));
        store::outcomes::ledger::settle_rows(&self.pool, &self.vault, rows, self.clock.now()).await
    }

    /// Renews the leases of rows that wait longer than usual.
    async fn renew_rows(&self, rows: impl Iterator<Item = &RowSettlement>) {
        let held = |row: &RowSettlement| {
            let of = row.settlement.delivery();
            (of.subscription, of.message, row.lease)
        };
        let held: Vec<_> = rows.map(held).collect();
        if let Err(error) = store::queue::claims::renew_rows(&self.pool, &held, self.clock.now() + LEASE).await {
            warn!(%error, "the leases of rows that wait to be settled could not be renewed");
        }
    }
}

/// Retry state of one settlement. While any exists, the settler counts as failing.
struct Patience<'a> {
    settler: &'a Settler,
    began: Instant,
    wait: Duration,
    failed: bool,
    /// Number of failures that may come from a failed machine of Citus.
    lost: u32,
}

impl<'a> Patience<'a> {
    fn new(settler: &'a Settler) -> Self {
        Self { settler, began: Instant::now(), wait: RETRY_FIRST, failed: false, lost: 0 }
    }

    /// Whether a failure may be temporary. Call it once per failure. If a machine is down, the next attempt fails to connect.
    /// Repeated failures of another kind have other causes, such as a refused row.
    fn may_pass(&mut self, error: &sqlx::Error) -> bool {
        self.lost += u32::from(store::may_be_lost_machine(error));
        store::is_transient(error) || store::may_be_lost_machine(error) && self.lost <= LOST_TRIES
    }

    async fn wait(&mut self, error: &sqlx::Error) {
        debug!(%error, "settling failed; trying again");
        self.settler.metrics.settle_retries.inc();
        if !self.failed {
            self.failed = true;
            self.settler.failing.fetch_add(1, Ordering::AcqRel);
        }
        tokio::time::sleep(self.wait).await;
        self.wait = (self.wait * 2).min(RETRY_LAST);
    }

    /// Waits before the next attempt if the error is temporary. Returns whether to retry.
    async fn lasts(&mut self, error: &sqlx::Error) -> bool {
        if !self.may_pass(error) {
            error!(%error, "this cannot be settled; its lease will run out");
            return false;
        }
        self.wait(error).await;
        true
    }
}

impl Drop for Patience<'_> {
    fn drop(&mut self) {
        self.settler.metrics.settle_seconds.observe(self.began.elapsed().as_secs_f64());
        if self.failed {
            self.settler.failing.fetch_sub(1, Ordering::AcqRel);
        }
    }
}
