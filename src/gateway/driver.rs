//! What both protocols tell the connection that they serve.

use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::classify::Failure;

/// What runs a connection until it ends.
pub(super) type Driver = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Why a connection gave no reply.
pub(super) enum NoReply {
    /// Nothing of the request left: another connection may take it.
    NotSent,
    /// It left, or could have.
    Failed(Failure),
}

/// What the requests of a connection have come to.
#[derive(Default)]
pub(super) struct Progress {
    pub(super) sent: AtomicBool,
    /// Response heads received.
    pub(super) heard: AtomicUsize,
}

impl Progress {
    /// A request has gone to the connection's driver.
    pub(super) fn sent(&self) {
        self.sent.store(true, Ordering::Relaxed);
    }

    /// A response's head has come.
    pub(super) fn heard(&self) {
        self.heard.fetch_add(1, Ordering::Relaxed);
    }
}
