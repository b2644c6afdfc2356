//! The reader of a process: polls the database while the process has listeners, and broadcasts the events.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use tracing::warn;

use super::reading::LiveEvent;
use super::reading::{Memory, Snapshots};
use super::{LiveInner, Right, StreamReader};
use bellwire_store::keys::{api_keys, sessions};
use bellwire_store::outcomes::stream::{self, Position, StreamRow};
use bellwire_telemetry::panics;

/// Stored events in one page. Far fewer than `LAG_MAX`.
const ROWS_MAX: usize = 500;
/// Pause between full pages, so that listeners can keep up.
const BETWEEN_PAGES: Duration = Duration::from_millis(20);
/// Reads while the process has listeners. A panic ends the reader: listeners are disconnected, and the next listener
/// starts a new one.
pub(super) async fn read_on(inner: Arc<LiveInner>, position: Position) {
    if panics::caught(read_while_heard(&inner, position)).await.is_err() {
        inner.state.lock().reader = None;
    }
}

async fn read_while_heard(inner: &LiveInner, mut position: Position) {
    let mut memory = Memory::default();
    let mut ticks = tokio::time::interval(inner.settings.every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut failing = false;
    loop {
        ticks.tick().await;
        if inner.is_deserted() {
            return;
        }
        match inner.look(&mut position, &mut memory).await {
            Ok(()) => failing = false,
            Err(error) if !failing => {
                failing = true;
                warn!(%error, "not all that happens could be read; listeners wait for it");
            }
            Err(_) => {}
        }
    }
}

impl LiveInner {
    /// Removes the reader if it has no receivers, and returns whether there is no reader now.
    fn is_deserted(&self) -> bool {
        let mut state = self.state.lock();
        let is_deserted = state.reader.as_ref().is_none_or(|reader| reader.sender.receiver_count() == 0);
        if is_deserted {
            state.reader = None;
        }
        is_deserted
    }

    /// Checks rights, then sends new events. Stored events are sent before snapshots are read, so that a failed read
    /// does not delay them.
    async fn look(&self, position: &mut Position, memory: &mut Memory) -> sqlx::Result<()> {
        self.end_revoked().await?;
        self.tell_stored(position).await?;
        self.tell_snapshots(memory.read(&self.pool, self.clock.now()).await?);
        Ok(())
    }

    /// Sends the stored events after `position`, and advances it.
    async fn tell_stored(&self, position: &mut Position) -> sqlx::Result<()> {
        loop {
            let limit = i64::try_from(ROWS_MAX).expect("it is small");
            let rows = stream::read(&self.pool, *position, Position::LAST, None, None, limit).await?;
            let is_all = rows.len() < ROWS_MAX;
            *position = rows.last().map_or(*position, StreamRow::position);
            let events: Vec<_> = rows.into_iter().filter_map(LiveEvent::stored).map(Arc::new).collect();
            self.tell(|reader| {
                reader.position = *position;
                events
            });
            if is_all {
                return Ok(());
            }
            tokio::time::sleep(BETWEEN_PAGES).await;
        }
    }

    /// Ends the listeners whose right has ended.
    async fn end_revoked(&self) -> sqlx::Result<()> {
        let (mut keys, mut of_sessions) = (HashSet::new(), HashSet::new());
        for taken in self.state.lock().taken.values() {
            match &taken.right {
                Right::Local => {}
                Right::Key(key) => drop(keys.insert(*key)),
                Right::Session(session, _) => drop(of_sessions.insert(*session)),
            }
        }
        let now = self.clock.now();
        let valid = match keys.is_empty() {
            true => HashSet::new(),
            false => api_keys::valid(&self.pool, &Vec::from_iter(keys.iter().copied()), now).await?,
        };
        let standing = match of_sessions.is_empty() {
            true => HashMap::new(),
            false => sessions::standing(&self.pool, &Vec::from_iter(of_sessions.iter().copied()), now).await?,
        };
        for taken in self.state.lock().taken.values() {
            let goes_on = match &taken.right {
                Right::Local => true,
                // Right of a listener that joined during the query: checked at the next poll.
                Right::Key(key) => valid.contains(key) || !keys.contains(key),
                Right::Session(session, grants) => {
                    standing.get(session) == Some(grants) || !of_sessions.contains(session)
                }
            };
            if !goes_on {
                taken.ended.send_replace(true);
            }
        }
        Ok(())
    }

    fn tell_snapshots(&self, snapshots: Snapshots) {
        self.tell(|reader| {
            reader.progress.retain(|message, _| snapshots.in_motion.contains(message));
            reader.progress.extend(snapshots.progress.iter().map(|(message, event)| (*message, event.clone())));
            let progress = snapshots.progress.into_iter().map(|(_, event)| event);
            snapshots.outcomes.into_iter().chain(progress).collect()
        });
    }

    /// Updates the reader and sends events under one lock, so that a joining listener misses none.
    fn tell(&self, remember: impl FnOnce(&mut StreamReader) -> Vec<Arc<LiveEvent>>) {
        let mut state = self.state.lock();
        let Some(reader) = &mut state.reader else { return };
        for event in remember(reader) {
            let _ = reader.sender.send(event); // an error means that all listeners have left
        }
    }
}
