//! What happens, told to listeners as it happens. One reader in each process looks at the database once a second while
//! anybody listens, however many they are, and hands what it finds to all of them; nobody listens: nothing is read. Since
//! facts come from the database, a listener sees what all replicas do.
//!
//! Events that are stored ([`Kind::is_durable`]) have a [`Position`], from which a listener resumes exactly. Progress and
//! outcomes are snapshots: after a gap the newest is enough, and whoever comes gets it.
//!
//! A listener that is slower than the events lags behind until the channel is full, and is then told so and left: memory
//! does not grow, and nobody else waits.
//!
//! With each look goes another at the rights of those who listen. Whoever may not any more is told nothing else, whatever there was
//! still to tell.

mod reading;

use std::collections::{BTreeMap, HashMap, HashSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use sqlx::PgPool;
use tokio::sync::broadcast::{self, error::RecvError};
use tokio::sync::watch;
use tracing::warn;
use uuid::Uuid;

use crate::model::clock::Clock;
use crate::model::id::{ApiKeyId, AppId, MessageId, SessionId};
use crate::model::named;
use crate::model::role::Grants;
use crate::store::keys::{api_keys, sessions};
use crate::store::outcomes::stream::{self, Position, StreamRow};
use reading::{Memory, Snapshots};

/// Events that a listener may lag behind.
const LAG_MAX: usize = 1_024;
/// Stored events that are read at a time: far fewer than a listener may lag behind.
const ROWS_MAX: usize = 500;
/// How long the reader rests while there are more stored events than it reads at a time, so that listeners can follow.
const BETWEEN_PAGES: Duration = Duration::from_millis(20);
/// Stored events that one listener who resumes is given at a time, so that none holds many.
const MISSED_AT_ONCE: usize = 100;

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
        /// A campaign stands somewhere else than before.
        CampaignState = "campaign.state",
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
    /// Of these, how many listen to all apps: places that listeners to some cannot take.
    pub places_for_operators: usize,
    /// Listeners to one app at a time, with whatever keys, and never more than there are places left for others: however many
    /// apps take what they can, another one finds some.
    pub listeners_per_app: usize,
    /// Listeners of one API key or teammate at a time.
    pub listeners_per_key: usize,
    /// How often a listener to whom nothing is told gets a sign of life.
    pub heartbeat: Duration,
}

impl Default for Settings {
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

/// Why nobody may listen.
#[derive(Debug)]
pub(crate) enum Refused {
    /// The process has as many listeners as it may have.
    Full,
    /// The app has as many listeners as it may have.
    AppFull,
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

/// By what right somebody listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Right {
    /// Database and master key at hand.
    Local,
    /// That API key.
    Key(ApiKeyId),
    /// That session, as long as its owner may do just this in it.
    Session(SessionId, Grants),
}

/// Who listens, to what.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    /// To these apps' events; none: to all, the server's own included.
    pub apps: Option<Vec<AppId>>,
    /// Of these kinds; none: of all.
    pub kinds: Option<Vec<Kind>>,
    /// By this right.
    pub right: Right,
    /// Whose listener it is: an API key's or a teammate's; none: the command line's.
    pub owner: Option<Uuid>,
    /// From behind this event; none: from now on.
    pub after: Option<Position>,
}

impl Wanted {
    fn takes(&self, event: &Event) -> bool {
        self.apps.as_ref().is_none_or(|apps| event.app.is_some_and(|app| apps.contains(&app)))
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
    /// Who listens, each under a number of its own.
    taken: HashMap<u64, Taken>,
    /// The number of the last one.
    last: u64,
    /// While anybody listens.
    reader: Option<Reader>,
}

/// What is known of a listener.
struct Taken {
    right: Right,
    owner: Option<Uuid>,
    /// The apps that it listens to; none: all.
    apps: Option<Vec<AppId>>,
    /// True from when its right has ended.
    ended: watch::Sender<bool>,
}

impl State {
    fn count(&self, which: impl Fn(&Taken) -> bool) -> usize {
        self.taken.values().filter(|taken| which(taken)).count()
    }
}

struct Reader {
    sender: broadcast::Sender<Arc<Event>>,
    /// Up to where everybody was told.
    position: Position,
    /// The newest snapshot of each campaign in motion, for those who come later.
    progress: BTreeMap<MessageId, Arc<Event>>,
}

/// A listener's place; dropping it makes room for another one.
struct Place {
    inner: Arc<Inner>,
    number: u64,
    /// True from when its listener's right has ended.
    ended: watch::Receiver<bool>,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.inner.state.lock().taken.remove(&self.number);
    }
}

/// What somebody gets who joins those who listen.
struct Joined {
    receiver: broadcast::Receiver<Arc<Event>>,
    /// Up to where the others have been told.
    at: Position,
    /// How campaigns stand.
    snapshots: Vec<Arc<Event>>,
}

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
    wanted: Wanted,
    /// What is stored that it missed: behind the first position, up to the second.
    missed: Option<(Position, Position)>,
    /// What comes before anything new, apart from what it missed.
    backlog: VecDeque<Heard>,
    /// How campaigns stood when it joined: told after what it missed.
    snapshots: Vec<Arc<Event>>,
    receiver: broadcast::Receiver<Arc<Event>>,
    /// Up to where it has heard everything that is stored.
    heard_up_to: Position,
    place: Place,
}

impl Live {
    /// Nobody listens yet.
    pub(crate) fn new(pool: PgPool, clock: Clock, settings: Settings) -> Self {
        Self(Arc::new(Inner { pool, clock, settings, state: Mutex::default() }))
    }

    /// Lets somebody listen.
    pub(crate) async fn listen(&self, wanted: Wanted) -> Result<Listener, Refused> {
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

    fn take_place(&self, wanted: &Wanted) -> Result<Place, Refused> {
        let settings = &self.0.settings;
        let Wanted { right, owner, apps, .. } = wanted;
        let mut state = self.0.state.lock();
        let kept_free = if apps.is_some() { settings.places_for_operators } else { 0 };
        let free = settings.listeners_max.saturating_sub(state.taken.len() + kept_free);
        if free == 0 {
            return Err(Refused::Full);
        }
        if owner.is_some() && state.count(|taken| taken.owner == *owner) >= settings.listeners_per_key {
            return Err(Refused::KeyFull);
        }
        let share = settings.listeners_per_app.min(free);
        let listens_to = |taken: &Taken, app| taken.apps.as_ref().is_some_and(|apps| apps.contains(app));
        if apps.iter().flatten().any(|app| state.count(|taken| listens_to(taken, app)) >= share) {
            return Err(Refused::AppFull);
        }
        state.last += 1;
        let (number, (ended, has_ended)) = (state.last, watch::channel(false));
        let taken = Taken { right: right.clone(), owner: *owner, apps: apps.clone(), ended };
        state.taken.insert(number, taken);
        Ok(Place { inner: self.0.clone(), number, ended: has_ended })
    }

    /// Joins those who listen: everything behind the position comes through the receiver. None: nobody reads yet, and there
    /// is no position to start a reader from.
    fn join(&self, start_from: Option<Position>) -> Option<Joined> {
        let mut state = self.0.state.lock();
        if let (None, Some(position)) = (&state.reader, start_from) {
            let (sender, _) = broadcast::channel(LAG_MAX);
            state.reader = Some(Reader { sender, position, progress: BTreeMap::new() });
            tokio::spawn(read_on(self.0.clone(), position)); // it looks for receivers after this lock
        }
        let reader = state.reader.as_ref()?;
        let (receiver, snapshots) = (reader.sender.subscribe(), reader.progress.values().cloned().collect());
        Some(Joined { receiver, at: reader.position, snapshots })
    }

    /// From where a listener goes on that has heard everything up to `after`, and whether there is a gap before that. It may
    /// be further than the reader was when the listener joined, if it comes from a replica whose reader was ahead.
    async fn resume(&self, after: Position, joined_at: Position) -> sqlx::Result<(Position, Option<Heard>)> {
        let kept = stream::kept(&self.0.pool).await?;
        Ok(match after {
            after if after > kept.end => (joined_at, Some(Heard::Gap)),
            after if after < kept.floor => (kept.floor, Some(Heard::Gap)),
            after => (after, None),
        })
    }
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

/// Reads while anybody listens.
async fn read_on(inner: Arc<Inner>, mut position: Position) {
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

impl Inner {
    /// Whether nobody listens any more: then there is no reader from now on.
    fn is_deserted(&self) -> bool {
        let mut state = self.state.lock();
        let is_deserted = state.reader.as_ref().is_none_or(|reader| reader.sender.receiver_count() == 0);
        if is_deserted {
            state.reader = None;
        }
        is_deserted
    }

    /// Tells everything that is new to those who may hear it, which is looked at first. What is stored comes before snapshots: that
    /// those cannot be read does not keep it back.
    async fn look(&self, position: &mut Position, memory: &mut Memory) -> sqlx::Result<()> {
        self.end_revoked().await?;
        self.tell_stored(position).await?;
        self.tell_snapshots(memory.read(&self.pool, self.clock.now()).await?);
        Ok(())
    }

    /// Tells what was stored behind the position, and moves it.
    async fn tell_stored(&self, position: &mut Position) -> sqlx::Result<()> {
        loop {
            let limit = i64::try_from(ROWS_MAX).expect("it is small");
            let rows = stream::read(&self.pool, *position, Position::LAST, None, None, limit).await?;
            let is_all = rows.len() < ROWS_MAX;
            *position = rows.last().map_or(*position, StreamRow::position);
            let events: Vec<_> = rows.into_iter().filter_map(Event::stored).map(Arc::new).collect();
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

    /// Ends the listening of those whose right has ended since they came.
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
                // Who came while this was asked is looked at the next time.
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

    /// Tells everybody, and remembers for those who join later, in one step.
    fn tell(&self, remember: impl FnOnce(&mut Reader) -> Vec<Arc<Event>>) {
        let mut state = self.state.lock();
        let Some(reader) = &mut state.reader else { return };
        for event in remember(reader) {
            let _ = reader.sender.send(event); // nobody receives: all have left meanwhile
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
