//! Receipts come one by one and in bursts, and are written in batches: a writer gathers what arrives within a moment and
//! commits it at once. Whoever reported is answered only when that is durable, so a crash loses nothing that was answered;
//! service workers report again what was not.

use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::PgPool;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc, oneshot};
use tokio::time::{Instant, timeout_at};

use crate::model::clock::Clock;
use crate::model::id::AppId;
use crate::store::outcomes::receipts::{self, Receipt};

/// How receipts are gathered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settings {
    /// How long the first of a batch waits for others.
    pub linger: Duration,
    /// A batch of so many is written at once; a single report never is split.
    pub batch: usize,
    /// Receipts in memory, at most: more are refused.
    pub waiting_max: usize,
    /// Receipts of messages accepted longer ago are dropped.
    pub retention_days: u32,
}

impl Default for Settings {
    fn default() -> Self {
        Self { linger: Duration::from_millis(200), batch: 1_000, waiting_max: 50_000, retention_days: 35 }
    }
}

/// Why receipts were not taken. Nothing of them is stored; they may be reported again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotTaken {
    /// There are too many in memory.
    #[error("too many receipts are waiting to be written")]
    Busy,
    /// The database refused or could not be reached.
    #[error("receipts could not be written")]
    Failed,
}

/// What one request reported.
struct Report {
    app: AppId,
    receipts: Vec<Receipt>,
    written: oneshot::Sender<bool>,
    _room: OwnedSemaphorePermit,
}

/// A handle on this process's writer, which starts with the first report. Cheap to clone.
#[derive(Clone)]
pub struct Receipts(Arc<Shared>);

struct Shared {
    pool: PgPool,
    clock: Clock,
    settings: Settings,
    room: Arc<Semaphore>,
    writer: Mutex<Option<mpsc::UnboundedSender<Report>>>,
}

impl Receipts {
    /// Prepares everything but the writer.
    pub fn new(pool: PgPool, clock: Clock, settings: Settings) -> Self {
        let room = Arc::new(Semaphore::new(settings.waiting_max));
        Self(Arc::new(Shared { pool, clock, settings, room, writer: Mutex::new(None) }))
    }

    /// Has receipts of an app written, and waits until they are durable.
    pub async fn write(&self, app: AppId, receipts: Vec<Receipt>) -> Result<(), NotTaken> {
        let n = u32::try_from(receipts.len()).map_err(|_| NotTaken::Busy)?;
        let room = self.0.room.clone().try_acquire_many_owned(n).map_err(|_| NotTaken::Busy)?;
        let (written, answer) = oneshot::channel();
        self.writer().send(Report { app, receipts, written, _room: room }).map_err(|_| NotTaken::Failed)?;
        if answer.await.unwrap_or(false) { Ok(()) } else { Err(NotTaken::Failed) }
    }

    /// The writer, started anew should it have died.
    fn writer(&self) -> mpsc::UnboundedSender<Report> {
        let mut writer = self.0.writer.lock();
        match writer.as_ref().filter(|writer| !writer.is_closed()) {
            Some(writer) => writer.clone(),
            None => {
                let (sender, reports) = mpsc::unbounded_channel();
                let Shared { pool, clock, settings, .. } = &*self.0;
                tokio::spawn(write_batches(reports, pool.clone(), clock.clone(), *settings));
                writer.insert(sender).clone()
            }
        }
    }
}

/// Ends when every handle is gone.
async fn write_batches(mut reports: mpsc::UnboundedReceiver<Report>, pool: PgPool, clock: Clock, settings: Settings) {
    while let Some(first) = reports.recv().await {
        let batch = gather(first, &mut reports, &settings).await;
        let now = clock.now();
        let mut rows = Vec::new();
        let mut waiting = Vec::with_capacity(batch.len());
        for Report { app, receipts, written, _room } in batch {
            rows.extend(receipts.into_iter().map(|receipt| (app, receipt)));
            waiting.push((written, _room));
        }
        let done = receipts::write(&pool, &rows, receipts::kept_since(now, settings.retention_days), now).await;
        if let Err(error) = &done {
            tracing::error!(%error, n = rows.len(), "receipts could not be written; browsers will report them again");
        }
        for (written, _room) in waiting {
            // Whoever hung up will report again, which changes nothing.
            let _ = written.send(done.is_ok());
        }
    }
}

/// What comes within the linger, up to a full batch.
async fn gather(first: Report, reports: &mut mpsc::UnboundedReceiver<Report>, settings: &Settings) -> Vec<Report> {
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
