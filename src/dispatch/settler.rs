//! The settler: writes what became of pages and rows, in tasks of its own that nothing cancels.
//!
//! A settling that fails in passing (connection lost, deadlock, Postgres restarting) runs again until it is written or
//! fenced out; meanwhile nothing new is claimed. One that fails for good is dropped with an error in the log: its lease
//! runs out, and the poison rules bound how often that can happen.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use sqlx::PgPool;
use tokio::sync::{Notify, Semaphore, mpsc};
use tokio::time::Instant;
use tracing::{debug, error, warn};

use super::page::OpenPage;
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::store;
use crate::store::settle::{Fenced, RowSettlement};
use crate::vault::Vault;

/// Rows settled in one transaction at most.
const ROWS_MAX: usize = 500;
/// How long rows gather before they are settled. Nobody waits for a settling, and each one is a commit that whoever sends
/// a code has to wait behind.
const GATHER: Duration = Duration::from_millis(20);
/// Pages settled at a time: enough to keep Postgres busy while one waits for its WAL.
const PAGES_AT_ONCE: usize = 3;
const RETRY_FIRST: Duration = Duration::from_millis(50);
const RETRY_LAST: Duration = Duration::from_secs(1);

/// Takes settlements in; never blocks the caller.
pub struct Settler {
    pool: PgPool,
    vault: Vault,
    clock: Clock,
    rows: mpsc::UnboundedSender<RowSettlement>,
    pages: Semaphore,
    /// Settlings that failed and are being tried again.
    failing: AtomicUsize,
    /// Rows and pages handed in and not written yet.
    pending: AtomicUsize,
    metrics: Arc<Metrics>,
    settled: Notify,
}

impl Settler {
    /// Starts the task that settles rows; it ends when the settler is dropped.
    pub fn start(pool: PgPool, vault: Vault, clock: Clock, metrics: Arc<Metrics>) -> Arc<Self> {
        let (rows, inbox) = mpsc::unbounded_channel();
        let settler = Arc::new(Self {
            pool,
            vault,
            clock,
            rows,
            pages: Semaphore::new(PAGES_AT_ONCE),
            failing: AtomicUsize::new(0),
            pending: AtomicUsize::new(0),
            metrics,
            settled: Notify::new(),
        });
        tokio::spawn(settle_rows(Arc::downgrade(&settler), inbox));
        settler
    }

    /// Whether settlings fail at present, so that nothing more should be claimed.
    pub fn is_failing(&self) -> bool {
        self.failing.load(Ordering::Acquire) > 0
    }

    /// Rows and pages handed in that are not written yet.
    pub fn pending(&self) -> usize {
        self.pending.load(Ordering::Acquire)
    }

    /// Resolves when something has been settled; arm it before looking.
    pub fn settled(&self) -> tokio::sync::futures::Notified<'_> {
        self.settled.notified()
    }

    /// Settles a row.
    pub fn row(&self, row: RowSettlement) {
        self.pending.fetch_add(1, Ordering::AcqRel);
        // The receiver lives as long as this settler does.
        let _ = self.rows.send(row);
    }

    /// Settles a page that was closed.
    pub fn page(self: &Arc<Self>, page: Arc<OpenPage>) {
        self.pending.fetch_add(1, Ordering::AcqRel);
        let settler = self.clone();
        tokio::spawn(async move {
            let _permit = settler.pages.acquire().await;
            let settlements = page.take_settlements(settler.clock.now());
            let mut patience = Patience::new(&settler);
            let fenced = loop {
                let now = settler.clock.now();
                match store::settle::settle_page(&settler.pool, &settler.vault, page.id, page.lease, &settlements, now)
                    .await
                {
                    Ok(fenced) => break Some(fenced),
                    Err(error) if patience.lasts(&error).await => {}
                    Err(_) => break None,
                }
            };
            if fenced == Some(Fenced::Out) {
                settler.metrics.settle_fenced.inc_by(settlements.len() as u64);
                warn!(page = %page.id, "another worker took this page over; our account of it is dropped");
            }
            for late in page.settled() {
                settler.row(RowSettlement { lease: page.lease, settlement: late });
            }
            settler.done(1);
        });
    }

    fn done(&self, n: usize) {
        self.pending.fetch_sub(n, Ordering::AcqRel);
        self.settled.notify_waiters();
    }
}

/// Settles whatever rows have come in, again and again: while one batch is written the next one gathers.
async fn settle_rows(settler: std::sync::Weak<Settler>, mut inbox: mpsc::UnboundedReceiver<RowSettlement>) {
    let mut batch = Vec::with_capacity(ROWS_MAX);
    while inbox.recv_many(&mut batch, ROWS_MAX).await > 0 {
        if batch.len() < ROWS_MAX {
            tokio::time::sleep(GATHER).await;
            while batch.len() < ROWS_MAX
                && let Ok(row) = inbox.try_recv()
            {
                batch.push(row);
            }
        }
        let Some(settler) = settler.upgrade() else { return };
        let mut parts = vec![batch.as_slice()];
        while let Some(rows) = parts.pop() {
            let mut patience = Patience::new(&settler);
            loop {
                match store::settle::settle_rows(&settler.pool, &settler.vault, rows, settler.clock.now()).await {
                    Ok(fenced) => {
                        settler.metrics.settle_fenced.inc_by(fenced as u64);
                        break;
                    }
                    // One of them cannot be settled; it must not take the others with it.
                    Err(error) if rows.len() > 1 && !store::is_transient(&error) => {
                        let (some, others) = rows.split_at(rows.len() / 2);
                        parts.extend([some, others]);
                        break;
                    }
                    Err(error) if patience.lasts(&error).await => {}
                    Err(_) => break,
                }
            }
        }
        settler.done(batch.len());
        batch.clear();
    }
}

/// How long one settling is tried again. While any waits, the settler counts as failing.
struct Patience<'a> {
    settler: &'a Settler,
    began: Instant,
    wait: Duration,
    failed: bool,
}

impl<'a> Patience<'a> {
    fn new(settler: &'a Settler) -> Self {
        Self { settler, began: Instant::now(), wait: RETRY_FIRST, failed: false }
    }

    /// Waits before the next try, if the error is one that passes.
    async fn lasts(&mut self, error: &sqlx::Error) -> bool {
        if !store::is_transient(error) {
            error!(%error, "this cannot be settled; its lease will run out");
            return false;
        }
        debug!(%error, "settling failed; trying again");
        self.settler.metrics.settle_retries.inc();
        if !self.failed {
            self.failed = true;
            self.settler.failing.fetch_add(1, Ordering::AcqRel);
        }
        tokio::time::sleep(self.wait).await;
        self.wait = (self.wait * 2).min(RETRY_LAST);
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
