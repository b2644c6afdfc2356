//! An origin: its connections, and who gets the next free stream.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::uri::Authority;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout, timeout_at};

use super::Reply;
use super::connect::Connector;
use super::connection::Connection;
use super::driver::{Driver, NoReply};
use super::request::Outgoing;
use crate::classify::Failure;

/// Connections that one request is offered to. Each that does not take it was about to close, so a second offer
/// nearly always succeeds.
const OFFERS: usize = 4;

/// The bounds that every origin has; see [`Settings`](super::Settings).
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) connections: usize,
    pub(super) streams_per_connection: usize,
    pub(super) connect_timeout: Duration,
    pub(super) connect_pause: Duration,
}

/// One `https://host[:port]` and its connections, opened one after another as the load asks for them.
pub(super) struct Origin {
    authority: Authority,
    connector: Arc<Connector>,
    bounds: Bounds,
    state: Mutex<State>,
    /// Told when a stream or connection may be free, or when waiting for one is vain.
    freed: Arc<Notify>,
    /// Whether a request came since the last sweep.
    used: AtomicBool,
}

#[derive(Default)]
struct State {
    connections: Vec<Arc<Connection>>,
    /// A connect is under way; nobody starts another.
    connecting: bool,
    pause: Option<Pause>,
}

struct Pause {
    until: Instant,
    length: Duration,
    why: Failure,
}

impl Origin {
    pub(super) fn new(authority: Authority, connector: Arc<Connector>, bounds: Bounds) -> Self {
        let (state, freed, used) = (Mutex::default(), Arc::default(), AtomicBool::new(true));
        Self { authority, connector, bounds, state, freed, used }
    }

    /// Sends a request on the least busy connection, if it still may when there is room for it.
    pub(super) async fn exchange(
        self: &Arc<Self>,
        post: &impl Outgoing,
        may_start: &impl Fn() -> bool,
    ) -> Result<Reply, Failure> {
        for _ in 0..OFFERS {
            let place = match self.take()? {
                Some(place) => place,
                None => timeout_at(post.deadline(), self.wait()).await.map_err(|_| Failure::Deadline)??,
            };
            if !may_start() {
                return Err(Failure::Withdrawn);
            }
            match place.connection.exchange(post, &self.authority).await {
                Ok(reply) => return Ok(reply),
                Err(NoReply::Failed(why)) => return Err(why),
                Err(NoReply::NotSent) => continue,
            }
        }
        Err(Failure::Unprocessed)
    }

    async fn wait(self: &Arc<Self>) -> Result<StreamPermit, Failure> {
        loop {
            let mut freed = std::pin::pin!(self.freed.notified());
            freed.as_mut().enable(); // before looking, or what is freed in between would be missed
            if let Some(place) = self.take()? {
                return Ok(place);
            }
            freed.await;
        }
    }

    /// A place on the connection with the fewest requests, if one is free. Begins a further connection when all are
    /// half full. Fails when there is none and the last connect has just failed.
    fn take(self: &Arc<Self>) -> Result<Option<StreamPermit>, Failure> {
        self.used.store(true, Ordering::Relaxed);
        let mut state = self.state.lock();
        let serving = || state.connections.iter().filter(|connection| connection.is_serving());
        let count = serving().count();
        let all_busy = serving().all(|connection| connection.is_busy());
        let free = serving().filter_map(|connection| Some((connection.load_if_free()?, connection)));
        let place = free.min_by_key(|(load, _)| *load).map(|(_, connection)| StreamPermit::new(self, connection));
        if all_busy && count < self.bounds.connections && !state.connecting {
            match &state.pause {
                Some(pause) if Instant::now() < pause.until => {
                    if count == 0 {
                        return Err(pause.why);
                    }
                }
                _ => {
                    state.connecting = true;
                    tokio::spawn(self.clone().connect(Connecting(self.clone())));
                }
            }
        }
        Ok(place)
    }

    /// A task of its own, so that the request that began it may give up while others wait for the same connection.
    async fn connect(self: Arc<Self>, connecting: Connecting) {
        let opened = timeout(self.bounds.connect_timeout, self.open()).await.unwrap_or(Err(Failure::Connect));
        let mut state = self.state.lock();
        match opened {
            Ok((connection, driver)) => {
                let connection = Arc::new(connection);
                state.pause = None;
                state.connections.push(connection.clone());
                connection.run(Self::run(driver, Arc::downgrade(&self), Arc::downgrade(&connection)));
            }
            Err(why) => state.pause(self.bounds.connect_pause, why),
        }
        drop(state);
        drop(connecting);
    }

    async fn open(&self) -> Result<(Connection, Driver), Failure> {
        let tls = self.connector.connect(self.authority.as_str()).await?;
        Connection::open(tls, self.bounds.streams_per_connection, self.freed.clone()).await
    }

    /// Holds neither of its owners, so that dropping them closes the connection.
    async fn run(driver: Driver, origin: Weak<Self>, connection: Weak<Connection>) {
        driver.await;
        let Some(origin) = origin.upgrade() else { return };
        let mut state = origin.state.lock();
        if connection.upgrade().is_some_and(|connection| !connection.carried_any()) {
            state.pause(origin.bounds.connect_pause, Failure::Connect); // it let us in only to throw us out
        }
        state.connections.retain(|other| !std::ptr::eq(Arc::as_ptr(other), connection.as_ptr()));
        drop(state);
        origin.freed.notify_waiters();
    }

    /// Lets go of connections that had no request since the last sweep. Returns whether the whole origin can be
    /// forgotten.
    pub(super) fn sweep(&self) -> bool {
        let mut state = self.state.lock();
        state.connections.retain(|connection| {
            let (idle, serving) = (connection.fell_idle(), connection.is_serving());
            match (idle, serving) {
                (true, true) => connection.retire(),
                (true, false) => connection.cut(), // retired at the last sweep or before, and still not gone
                (false, _) => {}
            }
            serving || !idle
        });
        let paused = state.pause.as_ref().is_some_and(|pause| Instant::now() < pause.until);
        !self.used.swap(false, Ordering::Relaxed) && state.connections.is_empty() && !state.connecting && !paused
    }
}

impl State {
    fn pause(&mut self, first: Duration, why: Failure) {
        let length = self.pause.as_ref().map_or(first, |last| (last.length * 2).min(first * 32));
        self.pause = Some(Pause { until: Instant::now() + length, length, why });
    }
}

/// Held while a connect is under way; ends it however it ends, and tells those who wait.
struct Connecting(Arc<Origin>);

impl Drop for Connecting {
    fn drop(&mut self) {
        self.0.state.lock().connecting = false;
        self.0.freed.notify_waiters();
    }
}

/// The right to one request on a connection.
struct StreamPermit {
    connection: Arc<Connection>,
    freed: Arc<Notify>,
}

impl StreamPermit {
    fn new(origin: &Origin, connection: &Arc<Connection>) -> Self {
        connection.begin();
        Self { connection: connection.clone(), freed: origin.freed.clone() }
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.connection.end();
        self.freed.notify_one();
    }
}
