//! Reads stops in a separate task and connection, so that work on dispatch's connections does not delay them.

use std::sync::Arc;
use std::time::Duration;

use sqlx::PgPool;
use tokio::sync::{Mutex, Notify};
use tokio::time::Instant;
use tracing::warn;

use super::idle::AT_REST;
use super::shared::EngineContext;
use bellwire_store as store;
use bellwire_store::queue::stops::{self, Horizon};

/// Interval of reading stops, lane states and flows.
pub(super) const READ_EVERY: Duration = Duration::from_millis(200);

pub(super) struct StopReader {
    shared: Arc<EngineContext>,
    pool: PgPool,
    kicked: Arc<Notify>,
    horizon: Mutex<Option<Horizon>>,
}

pub(super) async fn run(reader: Arc<StopReader>) {
    let rest = reader.shared.rest.clone();
    let (mut read_at, mut has_rested) = (Instant::now(), false);
    loop {
        let began = Instant::now();
        // While it rests, this process is alone, and receives each stop by a request of its own.
        if !rest.is_resting() || began >= read_at {
            read_at = began + AT_REST;
            reader.read(began).await;
            if std::mem::take(&mut has_rested) {
                reader.kicked.notify_one(); // what ended the rest could not be claimed before this reading
            }
        }
        has_rested |= rest.is_resting();
        rest.pause(READ_EVERY.saturating_sub(began.elapsed()), AT_REST).await;
    }
}

impl StopReader {
    pub(super) fn new(shared: Arc<EngineContext>, kicked: Arc<Notify>) -> Self {
        let pool = store::alone_beside(&shared.pool);
        Self { shared, pool, kicked, horizon: Mutex::default() }
    }

    /// Reads the stops that the last read could not see. While this fails, nothing is claimed and no POST starts: the set of
    /// stops is not [fresh](super::stops::StopSet::is_fresh).
    pub(super) async fn read(&self, began: Instant) {
        let mut horizon = self.horizon.lock().await;
        match stops::read(&self.pool, horizon.as_ref()).await {
            Ok(reading) => {
                self.shared.stops.refresh(reading.stops, began);
                *horizon = Some(reading.horizon);
            }
            Err(error) => {
                warn!(%error, "reading stops failed");
                // The pool beside it may lead to another host by now.
                self.pool.set_connect_options((*self.shared.pool.connect_options()).clone());
            }
        }
    }

    /// Returns the horizon of the last successful read.
    pub(super) async fn horizon(&self) -> Option<Horizon> {
        self.horizon.lock().await.clone()
    }
}
