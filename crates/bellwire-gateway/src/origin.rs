//! An origin: its connections and the queue for free streams.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use http::uri::Authority;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until, timeout, timeout_at};

use super::Reply;
use super::connect::Connector;
use super::connection::Connection;
use super::driver::{Driver, NoReply};
use super::request::Outgoing;
use super::streams::{Listeners, Signal, Streams};
use bellwire_rules::classify::Failure;

/// Maximum connections on which a request is attempted. A connection that refuses it was about to close, so a second attempt
/// nearly always succeeds.
const OFFERS: usize = 4;

/// Limits of every origin; see [`Settings`](super::Settings).
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) connections: usize,
    pub(super) http1_connections: usize,
    pub(super) streams_per_connection: usize,
    pub(super) connect_timeout: Duration,
    pub(super) connect_pause: Duration,
}

/// One `https://host[:port]` and its connections, which are opened one after the other on demand.
pub(super) struct Origin {
    authority: Authority,
    connector: Arc<Connector>,
    bounds: Bounds,
    state: Mutex<ConnectionPool>,
    signal: Arc<Signal>,
    used: AtomicBool,
}

#[derive(Default)]
struct ConnectionPool {
    connections: Vec<Arc<Connection>>,
    connecting: bool,
    pause: Option<Pause>,
}

struct Pause {
    until: Instant,
    length: Duration,
    why: Failure,
}

impl Origin {
    pub(super) fn new(
        authority: Authority, connector: Arc<Connector>, bounds: Bounds, listeners: Arc<Listeners>,
    ) -> Self {
        let signal = Arc::new(Signal::new(authority.as_str().into(), listeners));
        Self { authority, connector, bounds, state: Mutex::default(), signal, used: AtomicBool::new(true) }
    }

    /// Sends a request on the least busy connection, if `may_start` returns `true` once there is a stream. The timeout
    /// of the response starts then. A request without a stream fails with `Unprocessed`.
    pub(super) async fn exchange(
        self: &Arc<Self>, post: &impl Outgoing, may_start: &impl Fn() -> bool,
    ) -> Result<Reply, Failure> {
        let start_by = Instant::now() + post.patience();
        for _ in 0..OFFERS {
            let place = match self.take()? {
                Some(place) => place,
                None => timeout_at(start_by, self.wait()).await.map_err(|_| Failure::Unprocessed)??,
            };
            if !may_start() {
                return Err(Failure::Withdrawn);
            }
            let deadline = Instant::now() + post.patience();
            match place.connection.exchange(post, &self.authority, deadline).await {
                Ok(reply) => return Ok(reply),
                Err(NoReply::Failed(why)) => return Err(why),
                Err(NoReply::NotSent | NoReply::NoStream) => continue,
            }
        }
        Err(Failure::Unprocessed)
    }

    async fn wait(self: &Arc<Self>) -> Result<StreamPermit, Failure> {
        loop {
            let mut freed = std::pin::pin!(self.signal.freed.notified());
            freed.as_mut().enable(); // before looking, or what is freed in between would be missed
            if let Some(place) = self.take()? {
                return Ok(place);
            }
            freed.await;
        }
    }

    /// Takes a stream of the connection with the fewest requests. Opens another connection if all are half full. Fails
    /// if there is no connection and the last connect has just failed.
    fn take(self: &Arc<Self>) -> Result<Option<StreamPermit>, Failure> {
        self.used.store(true, Ordering::Relaxed);
        let mut state = self.state.lock();
        let serving = || state.connections.iter().filter(|connection| connection.is_serving());
        let count = serving().count();
        let all_busy = serving().all(|connection| connection.is_busy());
        let free = serving().filter_map(|connection| Some((connection.load_if_free()?, connection)));
        let place = free.min_by_key(|(load, _)| *load).map(|(_, connection)| StreamPermit::new(self, connection));
        if all_busy && count < state.most(&self.bounds) && !state.connecting {
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

    /// Returns the number of requests that the origin accepts now.
    pub(super) fn streams(&self) -> Streams {
        let state = self.state.lock();
        let (mut open, mut serving) = (0, 0);
        for connection in &state.connections {
            let is_serving = connection.is_serving();
            open += if is_serving { connection.limit() } else { connection.in_flight() };
            serving += usize::from(is_serving);
        }
        let further = if state.is_paused() { 0 } else { state.most(&self.bounds).saturating_sub(serving) };
        let whole = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Streams { open: whole(open), further: whole(further) }
    }

    /// Opens a connection. It runs in a separate task, because other requests may wait for the connection after the first one
    /// timed out.
    async fn connect(self: Arc<Self>, connecting: Connecting) {
        let opened = timeout(self.bounds.connect_timeout, self.open()).await.unwrap_or(Err(Failure::Connect));
        let pause_ends = {
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
            state.pause_ends()
        };
        drop(connecting);
        let origin = Arc::downgrade(&self);
        drop(self);
        Self::report_at(origin, pause_ends).await;
    }

    /// Signals after a pause that another connection may be opened.
    async fn report_at(origin: Weak<Self>, pause_ends: Option<Instant>) {
        let Some(at) = pause_ends else { return };
        sleep_until(at).await;
        if let Some(origin) = origin.upgrade() {
            origin.signal.changed();
        }
    }

    async fn open(&self) -> Result<(Connection, Driver), Failure> {
        let tls = self.connector.connect(self.authority.as_str()).await?;
        Connection::open(tls, self.bounds.streams_per_connection, self.signal.clone()).await
    }

    /// Runs the driver of a connection. It holds no strong reference, so that dropping origin or connection ends the driver.
    async fn run(driver: Driver, origin: Weak<Self>, connection: Weak<Connection>) {
        driver.await;
        let pause_ends = origin.upgrade().and_then(|origin| origin.ended(&connection));
        Self::report_at(origin, pause_ends).await;
    }

    /// Removes a connection that ended. Returns the end of the pause before the next connect, if any.
    fn ended(&self, connection: &Weak<Connection>) -> Option<Instant> {
        let mut state = self.state.lock();
        if connection.upgrade().is_some_and(|connection| !connection.carried_any()) {
            state.pause(self.bounds.connect_pause, Failure::Connect); // it let us in only to throw us out
        }
        state.connections.retain(|other| !std::ptr::eq(Arc::as_ptr(other), connection.as_ptr()));
        let pause_ends = state.pause_ends();
        drop(state);
        self.signal.changed();
        pause_ends
    }

    /// Retires connections without a request since the last sweep. Returns whether the origin itself can be removed.
    pub(super) fn sweep(&self) -> bool {
        let mut state = self.state.lock();
        let mut is_changed = false;
        state.connections.retain(|connection| {
            let (idle, serving) = (connection.fell_idle(), connection.is_serving());
            match (idle, serving) {
                (true, true) => connection.retire(),
                (true, false) => connection.cut(), // retired at the last sweep or before, and still not gone
                (false, _) => {}
            }
            is_changed |= idle;
            serving || !idle
        });
        let is_empty = state.connections.is_empty() && !state.connecting && !state.is_paused();
        drop(state);
        if is_changed {
            self.signal.changed();
        }
        !self.used.swap(false, Ordering::Relaxed) && is_empty
    }
}

impl ConnectionPool {
    fn is_paused(&self) -> bool {
        self.pause_ends().is_some_and(|until| Instant::now() < until)
    }

    fn pause_ends(&self) -> Option<Instant> {
        self.pause.as_ref().map(|pause| pause.until)
    }

    /// Returns the maximum connections. HTTP/1.1 has more, because each carries one request at a time.
    fn most(&self, bounds: &Bounds) -> usize {
        let is_http1 = self.connections.iter().any(|connection| connection.is_http1());
        if is_http1 { bounds.http1_connections } else { bounds.connections }
    }

    fn pause(&mut self, first: Duration, why: Failure) {
        let length = self.pause.as_ref().map_or(first, |last| (last.length * 2).min(first * 32));
        self.pause = Some(Pause { until: Instant::now() + length, length, why });
    }
}

/// Marks a connect in progress. Dropping it ends the mark in any case and wakes the waiting requests.
struct Connecting(Arc<Origin>);

impl Drop for Connecting {
    fn drop(&mut self) {
        self.0.state.lock().connecting = false;
        self.0.signal.changed();
    }
}
struct StreamPermit {
    connection: Arc<Connection>,
    signal: Arc<Signal>,
}

impl StreamPermit {
    fn new(origin: &Origin, connection: &Arc<Connection>) -> Self {
        connection.begin();
        Self { connection: connection.clone(), signal: origin.signal.clone() }
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.connection.end();
        self.signal.freed.notify_one();
        if !self.connection.is_serving() {
            self.signal.changed();
        }
    }
}
