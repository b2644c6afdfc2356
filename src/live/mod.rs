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

mod event;
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

use crate::model::clock::Clock;
use crate::model::id::{ApiKeyId, AppId, MessageId, SessionId};
use crate::model::role::Grants;
use crate::store::outcomes::stream::{self, Position};
pub(crate) use event::{Event, Kind};
pub(crate) use listener::{Heard, Listener};
use reader::read_on;

/// Events that a listener may lag behind.
const LAG_MAX: usize = 1_024;

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
