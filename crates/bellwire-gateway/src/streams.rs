//! Number of requests that an origin accepts at a time, and listeners for its changes.

use std::sync::Arc;

use parking_lot::RwLock;
use tokio::sync::Notify;

/// Capacity of the connections to one origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streams {
    /// Capacity of the open connections. A connection that is about to close counts with its requests in flight.
    pub open: u32,
    /// Further connections that may be opened now. If there is one, one more request may wait for it.
    pub further: u32,
}

impl Streams {
    /// Capacity of an origin without a connection.
    pub const NONE: Self = Self { open: 0, further: 1 };

    /// Returns the maximum requests in flight. At least 1, because a request opens the first connection.
    pub fn most(self) -> u32 {
        self.open.saturating_add(self.further.min(1)).max(1)
    }
}

/// Receives the authority of an origin whose streams changed. Runs on connection tasks, so it must not block.
type StreamListener = Box<dyn Fn(&Arc<str>) + Send + Sync>;

/// Listeners of one [`Gateways`](super::Gateways).
#[derive(Default)]
pub(super) struct Listeners(RwLock<Vec<StreamListener>>);

impl Listeners {
    pub(super) fn add(&self, listener: impl Fn(&Arc<str>) + Send + Sync + 'static) {
        self.0.write().push(Box::new(listener));
    }
}

/// Wakes the requests that wait for a stream of one origin, and calls the listeners.
pub(super) struct Signal {
    /// Notified when a stream or connection may be free, or when no connection will come.
    pub(super) freed: Notify,
    authority: Arc<str>,
    listeners: Arc<Listeners>,
}

impl Signal {
    pub(super) fn new(authority: Arc<str>, listeners: Arc<Listeners>) -> Self {
        Self { freed: Notify::new(), authority, listeners }
    }
    pub(super) fn changed(&self) {
        self.freed.notify_waiters();
        self.listeners.0.read().iter().for_each(|listener| listener(&self.authority));
    }
}
