//! Somebody who listens: first what was missed, then how campaigns stand, then whatever is new, until its right ends.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::sync::broadcast::{self, error::RecvError};
use tracing::warn;

use super::event::Event;
use super::{Place, Wanted};
use crate::store::outcomes::stream::{self, Position};

/// Stored events that one listener who resumes is given at a time, so that none holds many.
const MISSED_AT_ONCE: usize = 100;

/// What a listener hears next.
#[derive(Debug)]
pub(crate) enum Heard {
    /// An event.
    Event(Arc<Event>),
    /// What lies between the event that it resumed from and the next one is not kept any more.
    Gap,
    /// It was too slow, or what it missed could not be read: it may resume from its [position](Listener::position).
    Lagged,
    /// Its right has ended.
    Revoked,
}

/// Somebody who listens.
pub(crate) struct Listener {
    pub(super) wanted: Wanted,
    /// What is stored that it missed: behind the first position, up to the second.
    pub(super) missed: Option<(Position, Position)>,
    /// What comes before anything new, apart from what it missed.
    pub(super) backlog: VecDeque<Heard>,
    /// How campaigns stood when it joined: told after what it missed.
    pub(super) snapshots: Vec<Arc<Event>>,
    pub(super) receiver: broadcast::Receiver<Arc<Event>>,
    /// Up to where it has heard everything that is stored.
    pub(super) heard_up_to: Position,
    pub(super) place: Place,
}

impl Listener {
    /// Up to where it has heard everything that is stored and that it asked for: whoever resumes from there misses nothing.
    pub(crate) fn position(&self) -> Position {
        self.heard_up_to
    }

    /// Waits for what comes next. None: there is no reader any more.
    pub(crate) async fn next(&mut self) -> Option<Heard> {
        loop {
            if *self.place.ended.borrow() {
                return Some(Heard::Revoked);
            }
            if let Some(heard) = self.backlog.pop_front() {
                self.heard(&heard);
                return Some(heard);
            }
            let Some((after, until)) = self.missed else { return self.hear().await };
            if let Err(error) = self.catch_up(after, until).await {
                warn!(%error, "what a listener missed could not be read");
                return Some(Heard::Lagged);
            }
        }
    }

    /// Reads some of what it missed; after all of that comes how campaigns stood.
    async fn catch_up(&mut self, after: Position, until: Position) -> sqlx::Result<()> {
        let kinds = self.wanted.kinds.as_ref();
        let kinds = kinds.map(|kinds| kinds.iter().map(|kind| kind.name().to_owned()).collect::<Vec<_>>());
        let limit = i64::try_from(MISSED_AT_ONCE).expect("it is small");
        let pool = &self.place.inner.pool;
        let rows = stream::read(pool, after, until, self.wanted.apps.as_deref(), kinds.as_deref(), limit).await?;
        let is_all = rows.len() < MISSED_AT_ONCE;
        self.missed = rows.last().filter(|_| !is_all).map(|last| (last.position(), until));
        self.backlog.extend(rows.into_iter().filter_map(Event::stored).map(Arc::new).map(Heard::Event));
        if is_all {
            self.backlog.extend(std::mem::take(&mut self.snapshots).into_iter().map(Heard::Event));
        }
        Ok(())
    }

    /// Waits for something new.
    async fn hear(&mut self) -> Option<Heard> {
        self.backlog.extend(std::mem::take(&mut self.snapshots).into_iter().map(Heard::Event));
        if let Some(heard) = self.backlog.pop_front() {
            return Some(heard);
        }
        loop {
            let told = tokio::select! {
                biased;
                // Never an error: its place keeps the sender.
                _ = self.place.ended.wait_for(|ended| *ended) => return Some(Heard::Revoked),
                told = self.receiver.recv() => told,
            };
            match told {
                Ok(event) => {
                    let is_new = event.position.is_none_or(|position| position > self.heard_up_to);
                    let heard = Heard::Event(event.clone());
                    self.heard(&heard);
                    if is_new && self.wanted.takes(&event) {
                        return Some(heard);
                    }
                }
                Err(RecvError::Lagged(_)) => return Some(Heard::Lagged),
                Err(RecvError::Closed) => return None,
            }
        }
    }

    fn heard(&mut self, heard: &Heard) {
        if let Heard::Event(event) = heard
            && let Some(position) = event.position
        {
            self.heard_up_to = self.heard_up_to.max(position);
        }
    }
}
