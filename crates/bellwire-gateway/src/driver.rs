//! Interface between a protocol and its connection.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use bellwire_rules::classify::Failure;

/// Future that runs a connection until its end.
pub(super) type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

pub(super) enum NoReply {
    /// Nothing of the request was sent, so another connection may send it.
    NotSent,
    /// The peer lowered its limit before the request had a stream. The connection stays in use.
    NoStream,
    Failed(Failure),
}

/// Events of a connection.
#[derive(Default)]
pub(super) struct ConnectionEvents {
    pub(super) sent: AtomicBool,
    pub(super) heard: AtomicUsize,
}

impl ConnectionEvents {
    pub(super) fn sent(&self) {
        self.sent.store(true, Ordering::Relaxed);
    }
    pub(super) fn heard(&self) {
        self.heard.fetch_add(1, Ordering::Relaxed);
    }
}
