//! Group commit of receipts. A writer collects the receipts that arrive within a short time, and writes them in one
//! transaction. A request is answered after the commit, so a crash loses no acknowledged receipt. Service workers
//! repeat the others.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::PgPool;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use bellwire_core::clock::Clock;
use bellwire_core::id::AppId;
use bellwire_store::outcomes::receipts::{self, Receipt};

/// Limits of the batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiptConfig {
    /// Maximum wait of the first receipt for others.
    pub linger: Duration,
    /// Receipts at which a batch is written at once. A single report is never split.
    pub batch: usize,
    /// Maximum receipts in memory; more are refused.
    pub waiting_max: usize,
    /// Age in days of a message after which its receipts are dropped.
    pub retention_days: u32,
}

impl Default for ReceiptConfig {
    fn default() -> Self {
        Self { linger: Duration::from_millis(200), batch: 1_000, waiting_max: 50_000, retention_days: 35 }
    }
}

/// Error of a write. None of the receipts is stored; the caller may repeat them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    #[error("too many receipts are waiting to be written")]
    Busy,
    /// The database refused the receipts or is unreachable.
    #[error("receipts could not be written")]
    Failed,
}

struct ReceiptBatch {
    app: AppId,
    receipts: Vec<Receipt>,
    written: oneshot::Sender<bool>,
    _room: OwnedSemaphorePermit,
}

/// Handle of the writer of this process, which starts with the first report. Cheap to clone.
#[derive(Clone)]
pub struct Receipts(Arc<ReceiptContext>);

struct ReceiptContext {
    pool: PgPool,
    clock: Clock,
    settings: ReceiptConfig,
    room: Arc<Semaphore>,
    writer: Mutex<Option<mpsc::UnboundedSender<ReceiptBatch>>>,
}

impl Receipts {
    /// Creates the handle; the writer starts later.
    pub fn new(pool: PgPool, clock: Clock, settings: ReceiptConfig) -> Self {
        let room = Arc::new(Semaphore::new(settings.waiting_max));
        Self(Arc::new(ReceiptContext { pool, clock, settings, room, writer: Mutex::new(None) }))
    }

    /// Writes receipts of an app, and returns after the commit. Returns `Busy` at once if `waiting_max` is exceeded.
    pub async fn write(&self, app: AppId, receipts: Vec<Receipt>) -> Result<(), NotTaken> {
        let n = u32::try_from(receipts.len()).map_err(|_| NotTaken::Busy)?;
        let room = self.0.room.clone().try_acquire_many_owned(n).map_err(|_| NotTaken::Busy)?;
        let (written, answer) = oneshot::channel();
        self.writer().send(ReceiptBatch { app, receipts, written, _room: room }).map_err(|_| NotTaken::Failed)?;
        if answer.await.unwrap_or(false) { Ok(()) } else { Err(NotTaken::Failed) }
    }

    fn writer(&self) -> mpsc::UnboundedSender<ReceiptBatch> {
        let mut writer = self.0.writer.lock();
        match writer.as_ref().filter(|writer| !writer.is_closed()) {
            Some(writer) => writer.clone(),
            None => {
                let (sender, reports) = mpsc::unbounded_channel();
                let ReceiptContext { pool, clock, settings, .. } = &*self.0;
                tokio::spawn(write_batches(reports, pool.clone(), clock.clone(), *settings));
                writer.insert(sender).clone()
            }
        }
    }
}

/// Ends after the last handle is dropped.
async fn write_batches(
    mut reports: mpsc::UnboundedReceiver<ReceiptBatch>, pool: PgPool, clock: Clock, settings: ReceiptConfig,
) {
    while let Some(first) = reports.recv().await {
        let batch = gather(first, &mut reports, &settings).await;
        let now = clock.now();
        let mut rows = Vec::new();
        let mut waiting = Vec::with_capacity(batch.len());
        for ReceiptBatch { app, receipts, written, _room } in batch {
            rows.extend(receipts.into_iter().map(|receipt| (app, receipt)));
            waiting.push((written, _room));
        }
        let done = receipts::write(&pool, &rows, receipts::kept_since(now, settings.retention_days), now).await;
        if let Err(error) = &done {
            tracing::error!(%error, n = rows.len(), "receipts could not be written; browsers will report them again");
        }
        for (written, _room) in waiting {
            // A caller that has disconnected repeats its receipts, which has no effect.
            let _ = written.send(done.is_ok());
        }
    }
}

/// Collects reports until the linger ends or the batch is full.
async fn gather(
    first: ReceiptBatch, reports: &mut mpsc::UnboundedReceiver<ReceiptBatch>, settings: &ReceiptConfig,
) -> Vec<ReceiptBatch> {
    let until = Instant::now() + settings.linger;
    let mut n = first.receipts.len();
    let mut batch = vec![first];
    while n < settings.batch {
        let Ok(Some(report)) = timeout_at(until, reports.recv()).await else { break };
        n += report.receipts.len();
        batch.push(report);
    }
    batch
}
