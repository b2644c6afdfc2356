//! A listener receives missed events first, then a snapshot of each campaign, then new events, until its right ends.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::broadcast::{self, error::RecvError};
use tracing::warn;

use super::reading::LiveEvent;
use super::{ListenerFilter, ListenerGuard};
use bellwire_store::outcomes::stream::{self, Position};

/// Maximum stored events that a resuming listener holds in memory.
const MISSED_AT_ONCE: usize = 100;

#[derive(Debug)]
pub(crate) enum ListenerInput {
    Event(Arc<LiveEvent>),
    /// Events between the resume position and the next event are deleted already.
    Gap,
    /// The listener was too slow, or a read of missed events failed. It may resume from its
    /// [position](Listener::position).
    Lagged,
    Revoked,
}

pub(crate) struct Listener {
    pub(super) wanted: ListenerFilter,
    /// Range of stored events still to read: after the first position, up to and including the second.
    pub(super) missed: Option<(Position, Position)>,
    /// Events to deliver before new ones.
    pub(super) backlog: VecDeque<ListenerInput>,
    /// Snapshots of the campaigns at the time of joining, delivered after the missed events.
    pub(super) snapshots: Vec<Arc<LiveEvent>>,
    pub(super) receiver: broadcast::Receiver<Arc<LiveEvent>>,
    /// Position of the last stored event that was delivered or skipped.
    pub(super) heard_up_to: Position,
    pub(super) place: ListenerGuard,
}

impl Listener {
    /// Position from which the listener can resume without a gap.
    pub(crate) fn position(&self) -> Position {
        self.heard_up_to
    }

    /// Waits for the next event. Returns `None` after the reader has stopped.
    pub(crate) async fn next(&mut self) -> Option<ListenerInput> {
        loop {
            if *self.place.ended.borrow() {
                return Some(ListenerInput::Revoked);
            }
            if let Some(heard) = self.backlog.pop_front() {
                self.heard(&heard);
                return Some(heard);
            }
            let Some((after, until)) = self.missed else { return self.hear().await };
            if let Err(error) = self.catch_up(after, until).await {
                warn!(%error, "what a listener missed could not be read");
                return Some(ListenerInput::Lagged);
            }
        }
    }

    /// Reads one page of missed events. The snapshots follow the last page.
    async fn catch_up(&mut self, after: Position, until: Position) -> sqlx::Result<()> {
        let kinds = self.wanted.kinds.as_ref();
        let kinds = kinds.map(|kinds| kinds.iter().map(|kind| kind.name().to_owned()).collect::<Vec<_>>());
        let limit = i64::try_from(MISSED_AT_ONCE).expect("it is small");
        let pool = &self.place.inner.pool;
        let rows = stream::read(pool, after, until, self.wanted.apps.as_deref(), kinds.as_deref(), limit).await?;
        let is_all = rows.len() < MISSED_AT_ONCE;
        self.missed = rows.last().filter(|_| !is_all).map(|last| (last.position(), until));
        self.backlog.extend(rows.into_iter().filter_map(LiveEvent::stored).map(Arc::new).map(ListenerInput::Event));
        if is_all {
            self.backlog.extend(std::mem::take(&mut self.snapshots).into_iter().map(ListenerInput::Event));
        }
        Ok(())
    }

    async fn hear(&mut self) -> Option<ListenerInput> {
        self.backlog.extend(std::mem::take(&mut self.snapshots).into_iter().map(ListenerInput::Event));
        if let Some(heard) = self.backlog.pop_front() {
            return Some(heard);
        }
        loop {
            let told = tokio::select! {
                biased;
                // Never an error: `self.place.inner` keeps the sender.
                _ = self.place.ended.wait_for(|ended| *ended) => return Some(ListenerInput::Revoked),
                told = self.receiver.recv() => told,
            };
            match told {
                Ok(event) => {
                    let is_new = event.position.is_none_or(|position| position > self.heard_up_to);
                    let heard = ListenerInput::Event(event.clone());
                    self.heard(&heard);
                    if is_new && self.wanted.takes(&event) {
                        return Some(heard);
                    }
                }
                Err(RecvError::Lagged(_)) => return Some(ListenerInput::Lagged),
                Err(RecvError::Closed) => return None,
            }
        }
    }

    fn heard(&mut self, heard: &ListenerInput) {
        if let ListenerInput::Event(event) = heard
            && let Some(position) = event.position
        {
            self.heard_up_to = self.heard_up_to.max(position);
        }
    }
}
