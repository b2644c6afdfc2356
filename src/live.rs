//! Live events for listeners of the event stream. One reader in each process polls the database once a second while the
//! process has listeners, and broadcasts new events to all of them. The events come from the database, so a listener
//! sees those of all replicas.
//!
//! Stored events ([`EventType::is_durable`]) have a [`Position`], from which a listener resumes exactly. Progress and
//! outcomes are snapshots: a new listener receives the last one of each campaign.
//!
//! A listener that is slower than the events is disconnected when its channel is full, so memory stays bounded and
//! other listeners do not wait.
//!
//! Each poll also checks the rights of the listeners, and disconnects a listener without a right before it sends new
//! events.

mod listener;
mod reader;
mod reading;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::PgPool;
use tokio::sync::{broadcast, watch};
use uuid::Uuid;

use bellwire_core::clock::Clock;
use bellwire_core::event_type::EventType;
use bellwire_core::id::{ApiKeyId, AppId, MessageId, SessionId};
use bellwire_core::role::Grants;
use bellwire_store::outcomes::stream::{self, Position};
pub(crate) use listener::{Listener, ListenerInput};
use reader::read_on;
pub(crate) use reading::LiveEvent;

const LAG_MAX: usize = 1_024;

/// Limits and intervals of the event stream.
#[derive(Debug, Clone, Copy)]
pub struct LiveConfig {
    /// Interval of the polls.
    pub every: Duration,
    /// Maximum listeners of this process.
    pub listeners_max: usize,
    /// Part of `listeners_max` that is reserved for listeners to all apps.
    pub places_for_operators: usize,
    /// Maximum listeners to one app. The number of free places also limits it, so that one app cannot take the last
    /// places.
    pub listeners_per_app: usize,
    /// Maximum listeners of one API key or teammate.
    pub listeners_per_key: usize,
    /// Maximum time without a write to a connection.
    pub heartbeat: Duration,
}

impl Default for LiveConfig {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(1),
            listeners_max: 1_000,
            places_for_operators: 100,
            listeners_per_app: 300,
            listeners_per_key: 200,
            heartbeat: Duration::from_secs(15),
        }
    }
}

/// Reason for which a listener is refused.
#[derive(Debug)]
pub(crate) enum ListenError {
    /// The process has `listeners_max` listeners.
    Full,
    /// The app has `listeners_per_app` listeners.
    AppFull,
    /// The key has `listeners_per_key` listeners.
    KeyFull,
    Database(sqlx::Error),
}

impl From<sqlx::Error> for ListenError {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Right {
    Local,
    Key(ApiKeyId),
    /// A session, valid while its owner has exactly these grants.
    Session(SessionId, Grants),
}

#[derive(Debug, Clone)]
pub(crate) struct ListenerFilter {
    /// `None` for all apps and the events of the server.
    pub apps: Option<Vec<AppId>>,
    /// `None` for all kinds.
    pub kinds: Option<Vec<EventType>>,
    pub right: Right,
    /// Id of the API key or teammate; `None` for the command line.
    pub owner: Option<Uuid>,
    /// Position to resume from; `None` for new events only.
    pub after: Option<Position>,
}

impl ListenerFilter {
    fn takes(&self, event: &LiveEvent) -> bool {
        self.apps.as_ref().is_none_or(|apps| event.app.is_some_and(|app| apps.contains(&app)))
            && self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&event.kind))
    }
}

/// Listeners of this process and their reader. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Live(Arc<LiveInner>);

struct LiveInner {
    pool: PgPool,
    clock: Clock,
    settings: LiveConfig,
    state: Mutex<ListenerState>,
}

#[derive(Default)]
struct ListenerState {
    taken: HashMap<u64, ListenerSlot>,
    last: u64,
    reader: Option<StreamReader>,
}

struct ListenerSlot {
    right: Right,
    owner: Option<Uuid>,
    /// `None` for all apps.
    apps: Option<Vec<AppId>>,
    ended: watch::Sender<bool>,
}

impl ListenerState {
    fn count(&self, which: impl Fn(&ListenerSlot) -> bool) -> usize {
        self.taken.values().filter(|taken| which(taken)).count()
    }
}

struct StreamReader {
    sender: broadcast::Sender<Arc<LiveEvent>>,
    position: Position,
    /// Last snapshot of each campaign that is being sent, for listeners that join later.
    progress: BTreeMap<MessageId, Arc<LiveEvent>>,
}

/// Registration of a listener. Dropping it frees the place.
struct ListenerGuard {
    inner: Arc<LiveInner>,
    number: u64,
    ended: watch::Receiver<bool>,
}

impl Drop for ListenerGuard {
    fn drop(&mut self) {
        self.inner.state.lock().taken.remove(&self.number);
    }
}

struct Joined {
    receiver: broadcast::Receiver<Arc<LiveEvent>>,
    at: Position,
    snapshots: Vec<Arc<LiveEvent>>,
}

impl Live {
    pub(crate) fn new(pool: PgPool, clock: Clock, settings: LiveConfig) -> Self {
        Self(Arc::new(LiveInner { pool, clock, settings, state: Mutex::default() }))
    }

    pub(crate) async fn listen(&self, wanted: ListenerFilter) -> Result<Listener, ListenError> {
        let place = self.take_place(&wanted)?;
        let Joined { receiver, at: joined_at, snapshots } = match self.join(None) {
            Some(joined) => joined,
            None => {
                let end = stream::end(&self.0.pool).await?;
                self.join(Some(end)).expect("there is a reader now")
            }
        };
        let snapshots = snapshots.into_iter().filter(|event| wanted.takes(event)).collect();
        let (from, gap) = match wanted.after {
            None => (joined_at, None),
            Some(after) => self.resume(after, joined_at).await?,
        };
        let missed = (from < joined_at).then_some((from, joined_at));
        let backlog = gap.into_iter().collect();
        Ok(Listener { wanted, missed, backlog, snapshots, receiver, heard_up_to: from, place })
    }

    fn take_place(&self, wanted: &ListenerFilter) -> Result<ListenerGuard, ListenError> {
        let settings = &self.0.settings;
        let ListenerFilter { right, owner, apps, .. } = wanted;
        let mut state = self.0.state.lock();
        let kept_free = if apps.is_some() { settings.places_for_operators } else { 0 };
        let free = settings.listeners_max.saturating_sub(state.taken.len() + kept_free);
        if free == 0 {
            return Err(ListenError::Full);
        }
        if owner.is_some() && state.count(|taken| taken.owner == *owner) >= settings.listeners_per_key {
            return Err(ListenError::KeyFull);
        }
        let share = settings.listeners_per_app.min(free);
        let listens_to = |taken: &ListenerSlot, app| taken.apps.as_ref().is_some_and(|apps| apps.contains(app));
        if apps.iter().flatten().any(|app| state.count(|taken| listens_to(taken, app)) >= share) {
            return Err(ListenError::AppFull);
        }
        state.last += 1;
        let (number, (ended, has_ended)) = (state.last, watch::channel(false));
        let taken = ListenerSlot { right: right.clone(), owner: *owner, apps: apps.clone(), ended };
        state.taken.insert(number, taken);
        Ok(ListenerGuard { inner: self.0.clone(), number, ended: has_ended })
    }

    /// Subscribes to all events after the current position of the reader. Starts a reader at `start_from` if there is
    /// none; returns `None` if there is no position either.
    fn join(&self, start_from: Option<Position>) -> Option<Joined> {
        let mut state = self.0.state.lock();
        if let (None, Some(position)) = (&state.reader, start_from) {
            let (sender, _) = broadcast::channel(LAG_MAX);
            state.reader = Some(StreamReader { sender, position, progress: BTreeMap::new() });
            tokio::spawn(read_on(self.0.clone(), position)); // reads `receiver_count` only after this lock
        }
        let reader = state.reader.as_ref()?;
        let (receiver, snapshots) = (reader.sender.subscribe(), reader.progress.values().cloned().collect());
        Some(Joined { receiver, at: reader.position, snapshots })
    }

    /// Returns the position from which a listener resumes that has received all events up to `after`, and a gap if
    /// events are missing. The position is after `joined_at` if the listener was connected to a replica whose reader
    /// was ahead.
    async fn resume(&self, after: Position, joined_at: Position) -> sqlx::Result<(Position, Option<ListenerInput>)> {
        let kept = stream::kept(&self.0.pool).await?;
        Ok(match after {
            after if after > kept.end => (joined_at, Some(ListenerInput::Gap)),
            after if after < kept.floor => (kept.floor, Some(ListenerInput::Gap)),
            after => (after, None),
        })
    }
}

#[cfg(test)]
#[path = "../tests/unit/live.rs"]
mod tests;
