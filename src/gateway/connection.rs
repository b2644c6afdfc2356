//! One connection as its origin counts it, whichever protocol was agreed.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use http::uri::Authority;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio_rustls::client::TlsStream;

use super::Reply;
use super::driver::{Driver, NoReply, Progress};
use super::http1::Http1;
use super::http2::Http2;
use super::request::Outgoing;
use crate::classify::Failure;

/// A connection with its bookkeeping. Whoever drops the last handle lets it close once its requests are done.
pub(super) struct Connection {
    wire: Wire,
    /// Requests that may be in flight at once: the peer's SETTINGS_MAX_CONCURRENT_STREAMS (RFC 9113 section 5.1.2)
    /// within our own bound; 1 for HTTP/1.1. Written by the driver as SETTINGS arrive.
    limit: Arc<AtomicUsize>,
    in_flight: AtomicUsize,
    progress: Progress,
    /// Whether a request began since the last sweep.
    used: AtomicBool,
    /// Takes no more requests, finishes those it has.
    retired: AtomicBool,
    driver: OnceLock<AbortHandle>,
}

enum Wire {
    Http2(Http2),
    Http1(Http1),
}

impl Connection {
    /// Speaks whatever ALPN agreed on. `freed` is told when the peer allows more requests than before.
    pub(super) async fn open(
        tls: TlsStream<TcpStream>,
        streams_max: usize,
        freed: Arc<Notify>,
    ) -> Result<(Self, Driver), Failure> {
        let limit = Arc::new(AtomicUsize::new(1));
        let (wire, driver) = if tls.get_ref().1.alpn_protocol() == Some(b"h2") {
            let (wire, driver) = Http2::open(tls, streams_max, limit.clone(), freed).await?;
            (Wire::Http2(wire), driver)
        } else {
            let (wire, driver) = Http1::open(tls).await?;
            (Wire::Http1(wire), driver)
        };
        let connection = Self {
            wire,
            limit,
            in_flight: AtomicUsize::new(0),
            progress: Progress::default(),
            used: AtomicBool::new(true),
            retired: AtomicBool::new(false),
            driver: OnceLock::new(),
        };
        Ok((connection, driver))
    }

    /// Sends a request and waits for its answer. A peer that has answered nobody since the request began is taken for
    /// dead at its deadline, and the connection retired.
    pub(super) async fn exchange(&self, post: &impl Outgoing, authority: &Authority) -> Result<Reply, NoReply> {
        let heard = || self.progress.heard.load(Ordering::Relaxed);
        let heard_before = heard();
        let reply = match &self.wire {
            Wire::Http2(wire) => wire.exchange(post, authority, &self.progress).await,
            Wire::Http1(wire) => wire.exchange(post, &self.progress).await,
        };
        match reply {
            Err(NoReply::Failed(Failure::Deadline)) if heard() == heard_before => self.retire(),
            Err(NoReply::NotSent) => self.retire(),
            _ => {}
        }
        reply
    }

    /// Requests in flight, `None` when no more fit.
    pub(super) fn load_if_free(&self) -> Option<usize> {
        let in_flight = self.in_flight.load(Ordering::Relaxed);
        (in_flight < self.limit.load(Ordering::Relaxed)).then_some(in_flight)
    }

    /// Whether half of its room is taken, so that a further connection is worth its cost.
    pub(super) fn is_busy(&self) -> bool {
        2 * self.in_flight.load(Ordering::Relaxed) >= self.limit.load(Ordering::Relaxed)
    }

    /// Counts a request in. Called under the origin's lock, so that a limit is never overrun.
    pub(super) fn begin(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.used.store(true, Ordering::Relaxed);
    }

    /// Counts a request out.
    pub(super) fn end(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Whether new requests may go here.
    pub(super) fn is_serving(&self) -> bool {
        !self.retired.load(Ordering::Relaxed)
    }

    /// Whether it ever took a request.
    pub(super) fn carried_any(&self) -> bool {
        self.progress.sent.load(Ordering::Relaxed)
    }

    /// Whether it has no request and has had none since this was last asked.
    pub(super) fn fell_idle(&self) -> bool {
        !self.used.swap(false, Ordering::Relaxed) && self.in_flight.load(Ordering::Relaxed) == 0
    }

    /// Takes no more requests; closes when those in flight are done.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
        match &self.wire {
            Wire::Http2(wire) => wire.close(),
            Wire::Http1(wire) => wire.close(),
        }
    }

    /// Runs the connection in a task of its own.
    pub(super) fn run(&self, driver: impl Future<Output = ()> + Send + 'static) {
        let task = tokio::spawn(driver).abort_handle();
        self.driver.set(task).expect("a connection is run once, by the origin that opened it");
    }

    /// Ends it without farewell: for a peer that does not even take ours.
    pub(super) fn cut(&self) {
        if let Some(driver) = self.driver.get() {
            driver.abort();
        }
    }
}
