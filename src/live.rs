//! What happens, told to listeners as it happens. One reader in each process looks at the database once a second while
//! anybody listens, however many they are, and hands what it finds to all of them; nobody listens: nothing is read. Since
//! facts come from the database, a listener sees what all replicas do.
//!
//! Events that are stored ([`Kind::is_durable`]) have a [`Position`], from which a listener resumes exactly. Progress and
//! outcomes are snapshots: after a gap the newest is enough, and whoever comes gets it.
//!
//! A listener that is slower than the events lags behind until the channel is full, and is then told so and left: memory
//! does not grow, and nobody else waits.

mod reading;

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::PgPool;
use tokio::sync::broadcast::{self, error::RecvError};
use tracing::warn;
use uuid::Uuid;

use crate::model::clock::Clock;
use crate::model::id::{AppId, MessageId};
use crate::model::named;
use crate::store::outcomes::stream::{self, Position};
use reading::{Memory, Reading};

/// Events that a listener may lag behind.
const LAG_MAX: usize = 1_024;
/// Stored events that are read at a time: far fewer than a listener may lag behind.
const ROWS_MAX: i64 = 500;
/// Stored events that a listener who resumes is given before it has to resume once more.
const MISSED_MAX: i64 = 2_000;

named! {
    /// What an event is about.
    #[schema(as = StreamKind)]
    pub(crate) enum Kind {
        /// How far a campaign has come: a snapshot.
        MessageProgress = "message.progress",
        /// All deliveries of a campaign have ended.
        MessageDone = "message.done",
        /// A message was paused.
        MessagePaused = "message.paused",
        /// A message was resumed.
        MessageResumed = "message.resumed",
        /// A message was cancelled.
        MessageCancelled = "message.cancelled",
        /// A lane is held: by a push service, an operator, or since its key is refused.
        LaneHeld = "lane.held",
        /// A lane is held no more.
        LaneReleased = "lane.released",
        /// A breaker opened, lets probes through, or closed.
        LaneBreaker = "lane.breaker",
        /// An alert was raised that was not open.
        AlertRaised = "alert.raised",
        /// Somebody resolved an alert.
        AlertResolved = "alert.resolved",
        /// Deliveries died; the first of their reason and minute.
        DeadLetterCreated = "dead_letter.created",
        /// Subscriptions turned out to be gone; the first of their lane and minute.
        SubscriptionGone = "subscription.gone",
        /// Deliveries missed what their tier promises; the first of their tier and minute.
        SlaMissed = "sla.missed",
        /// What became of attempts within the last second: a snapshot.
        Outcomes = "outcomes",
    }
}

impl Kind {
    /// Whether events of this kind are stored: their ids can be resumed from.
    pub(crate) fn is_durable(self) -> bool {
        !matches!(self, Self::MessageProgress | Self::Outcomes)
    }
}

/// What listeners may cost.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// How often the database is looked at.
    pub every: Duration,
    /// Listeners of this process at a time.
    pub listeners_max: usize,
    /// Listeners of one API key at a time.
    pub listeners_per_key: usize,
    /// How often a listener to whom nothing is told gets a sign of life.
    pub heartbeat: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            every: Duration::from_secs(1),
            listeners_max: 1_000,
            listeners_per_key: 200,
            heartbeat: Duration::from_secs(15),
        }
    }
}

/// Something that happened, as listeners are told.
#[derive(Debug)]
pub(crate) struct Event {
    /// Where it stands; none: it is a snapshot.
    pub position: Option<Position>,
    /// The app it concerns; none: the server as a whole.
    pub app: Option<AppId>,
    /// What it is about.
    pub kind: Kind,
    /// All of it, as JSON.
    pub json: Box<str>,
}

/// What the reader hands to everybody.
#[derive(Debug, Clone)]
enum Told {
    Event(Arc<Event>),
    /// These keys are not valid any more.
    Revoked(Arc<[Uuid]>),
}

/// Why nobody may listen.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The process has as many listeners as it may have.
    Full,
    /// The key has as many listeners as it may have.
    KeyFull,
    /// The database did not answer.
    Database(sqlx::Error),
}

impl From<sqlx::Error> for Refused {
    fn from(error: sqlx::Error) -> Self {
        Self::Database(error)
    }
}

/// Who listens, to what.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// To one app's events; none: to all.
    pub app: Option<AppId>,
    /// Of these kinds; none: of all.
    pub kinds: Option<Vec<Kind>>,
    /// With this key; none: at the command line.
    pub key: Option<Uuid>,
    /// From behind this event; none: from now on.
    pub after: Option<Position>,
}

impl Wanted {
    fn takes(&self, event: &Event) -> bool {
        self.app.is_none_or(|app| event.app == Some(app))
            && self.kinds.as_ref().is_none_or(|kinds| kinds.contains(&event.kind))
    }
}

/// This process's listeners and their reader.
#[derive(Clone)]
pub(crate) struct Live(Arc<Inner>);

struct Inner {
    pool: PgPool,
    clock: Clock,
    settings: Settings,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Listeners by their keys.
    listeners: HashMap<Option<Uuid>, usize>,
    /// While anybody listens.
    reader: Option<Reader>,
}

struct Reader {
    sender: broadcast::Sender<Told>,
    /// Up to where everybody was told.
    position: Position,
    /// The newest snapshot of each campaign in motion, for those who come later.
    progress: BTreeMap<MessageId, Arc<Event>>,
}

/// A listener's place; dropping it makes room for another one.
struct Place {
    inner: Arc<Inner>,
    key: Option<Uuid>,
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.inner.state.lock();
        if let Some(n) = state.listeners.get_mut(&self.key) {
            *n -= 1;
            if *n == 0 {
                state.listeners.remove(&self.key);
            }
        }
    }
}

/// What a listener hears next.
#[derive(Debug)]
pub(crate) enum Heard {
    /// An event.
    Event(Arc<Event>),
    /// What lies between the event that it resumed from and the next one is not kept any more.
    Gap,
    /// It was too slow, or there was more to catch up with than is given at a time: it may resume.
    Lagged,
    /// Its key is not valid any more.
    Revoked,
}

/// Somebody who listens.
pub(crate) struct Listener {
    wanted: Wanted,
    /// What comes before anything new.
    backlog: VecDeque<Heard>,
    receiver: broadcast::Receiver<Told>,
    /// What is at or before this it has heard, or will from its backlog.
    heard_up_to: Position,
    _place: Place,
}

impl Live {
    /// Nobody listens yet.
    pub(crate) fn new(pool: PgPool, clock: Clock, settings: Settings) -> Self {
        Self(Arc::new(Inner { pool, clock, settings, state: Mutex::default() }))
    }

    /// Lets somebody listen.
    pub(crate) async fn listen(&self, wanted: Wanted) -> Result<Listener, Refused> {
        let place = self.take_place(wanted.key)?;
        let (receiver, joined_at, snapshots) = match self.join(None) {
            Some(joined) => joined,
            None => {
                let end = stream::end(&self.0.pool).await?;
                self.join(Some(end)).expect("there is a reader now")
            }
        };
        let (mut backlog, heard_up_to) = match wanted.after {
            None => (VecDeque::new(), joined_at),
            Some(after) => self.missed(&wanted, after, joined_at).await?,
        };
        backlog.extend(snapshots.into_iter().filter(|event| wanted.takes(event)).map(Heard::Event));
        Ok(Listener { wanted, backlog, receiver, heard_up_to, _place: place })
    }

    fn take_place(&self, key: Option<Uuid>) -> Result<Place, Refused> {
        let mut state = self.0.state.lock();
        if state.listeners.values().sum::<usize>() >= self.0.settings.listeners_max {
            return Err(Refused::Full);
        }
        let n = state.listeners.entry(key).or_default();
        if *n >= self.0.settings.listeners_per_key && key.is_some() {
            return Err(Refused::KeyFull);
        }
        *n += 1;
        Ok(Place { inner: self.0.clone(), key })
    }

    /// Joins those who listen: everything behind the position comes through the receiver. None: nobody reads yet, and there
    /// is no position to start a reader from.
    fn join(&self, start_from: Option<Position>) -> Option<(broadcast::Receiver<Told>, Position, Vec<Arc<Event>>)> {
        let mut state = self.0.state.lock();
        if let (None, Some(position)) = (&state.reader, start_from) {
            let (sender, _) = broadcast::channel(LAG_MAX);
            state.reader = Some(Reader { sender, position, progress: BTreeMap::new() });
            tokio::spawn(read_on(self.0.clone(), position)); // it looks for receivers after this lock
        }
        let reader = state.reader.as_ref()?;
        Some((reader.sender.subscribe(), reader.position, reader.progress.values().cloned().collect()))
    }

    /// What was stored behind `after`, up to where the reader was when the listener joined; and up to where the listener
    /// will have heard everything then, which is further if it comes from a replica whose reader was ahead of this one.
    async fn missed(
        &self,
        wanted: &Wanted,
        after: Position,
        joined_at: Position,
    ) -> sqlx::Result<(VecDeque<Heard>, Position)> {
        let (mut missed, mut heard_up_to) = (VecDeque::new(), joined_at);
        if stream::is_kept(&self.0.pool, after).await? {
            heard_up_to = heard_up_to.max(after);
        } else {
            missed.push_back(Heard::Gap); // it is too old, another database's, or made up
        }
        let rows = stream::read(&self.0.pool, after, Some(joined_at), wanted.app, MISSED_MAX).await?;
        let is_all = i64::try_from(rows.len()).is_ok_and(|n| n < MISSED_MAX);
        let events = rows.into_iter().filter_map(Event::stored).filter(|event| wanted.takes(event));
        missed.extend(events.map(|event| Heard::Event(Arc::new(event))));
        if !is_all {
            missed.push_back(Heard::Lagged);
        }
        Ok((missed, heard_up_to))
    }
}

impl Listener {
    /// Waits for what comes next. None: there is no reader any more.
    pub(crate) async fn next(&mut self) -> Option<Heard> {
        if let Some(heard) = self.backlog.pop_front() {
            return Some(heard);
        }
        loop {
            match self.receiver.recv().await {
                Ok(Told::Event(event)) => {
                    let is_new = event.position.is_none_or(|position| position > self.heard_up_to);
                    if is_new && self.wanted.takes(&event) {
                        return Some(Heard::Event(event));
                    }
                }
                Ok(Told::Revoked(keys)) if self.wanted.key.is_some_and(|key| keys.contains(&key)) => {
                    return Some(Heard::Revoked);
                }
                Ok(Told::Revoked(_)) => {}
                Err(RecvError::Lagged(_)) => return Some(Heard::Lagged),
                Err(RecvError::Closed) => return None,
            }
        }
    }
}

/// Reads while anybody listens.
async fn read_on(inner: Arc<Inner>, mut position: Position) {
    let mut memory = Memory::default();
    let mut ticks = tokio::time::interval(inner.settings.every);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    let mut failing = false;
    loop {
        ticks.tick().await;
        let Some(keys) = inner.listening_keys() else { return };
        match memory.read(&inner.pool, inner.clock.now(), position, &keys).await {
            Ok(reading) => {
                failing = false;
                position = reading.position;
                inner.tell(reading);
            }
            Err(error) if !failing => {
                failing = true;
                warn!(%error, "events could not be read; listeners wait");
            }
            Err(_) => {}
        }
    }
}

impl Inner {
    /// The keys of those who listen. None: nobody does, and there is no reader from now on.
    fn listening_keys(&self) -> Option<Vec<Uuid>> {
        let mut state = self.state.lock();
        if state.reader.as_ref().is_none_or(|reader| reader.sender.receiver_count() == 0) {
            state.reader = None;
            return None;
        }
        Some(state.listeners.keys().copied().flatten().collect())
    }

    /// Tells everybody, and remembers for those who join later, in one step.
    fn tell(&self, reading: Reading) {
        let mut state = self.state.lock();
        let Some(reader) = &mut state.reader else { return };
        reader.position = reading.position;
        reader.progress.retain(|message, _| reading.in_motion.contains(message));
        reader.progress.extend(reading.progress.iter().map(|(message, event)| (*message, event.clone())));
        let progress = reading.progress.into_iter().map(|(_, event)| event);
        // Nobody receives: all have left meanwhile.
        for event in reading.events.into_iter().chain(progress) {
            let _ = reader.sender.send(Told::Event(event));
        }
        if !reading.revoked.is_empty() {
            let _ = reader.sender.send(Told::Revoked(reading.revoked.into()));
        }
    }
}

#[cfg(test)]
mod tests {
    use sqlx::postgres::PgConnectOptions;

    use super::*;
    use crate::store;

    #[tokio::test]
    async fn nothing_is_read_once_nobody_listens_any_more() {
        let nowhere = store::connect_lazily(PgConnectOptions::new().socket("/nonexistent"), 1);
        let live =
            Live::new(nowhere, Clock::system(), Settings { every: Duration::from_millis(1), ..Settings::default() });
        assert!(live.join(None).is_none(), "nobody listened yet");
        let joined = live.join(Some(Position { xid: 1, seq: 0 })).expect("a reader");
        assert!(live.join(None).is_some());
        drop(joined);
        let stopped = async {
            while live.0.state.lock().reader.is_some() {
                tokio::task::yield_now().await
            }
        };
        tokio::time::timeout(Duration::from_secs(60), stopped).await.expect("the reader stops");
    }
}
