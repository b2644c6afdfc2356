//! One connection with its counters, for either protocol.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use http::uri::Authority;
use tokio::net::TcpStream;
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

use super::Reply;
use super::driver::{ConnectionEvents, Driver, NoReply};
use super::http1::Http1;
use super::http2::Http2;
use super::request::Outgoing;
use super::streams::Signal;
use bellwire_rules::classify::Failure;

/// A connection with its counters. After the last handle is dropped it closes once its requests are done.
pub(super) struct Connection {
    wire: HttpConnection,
    /// Maximum requests in flight: the smaller of the peer's SETTINGS_MAX_CONCURRENT_STREAMS (RFC 9113 section 5.1.2)
    /// and the configured limit; 1 for HTTP/1.1. Written by the driver when SETTINGS arrive.
    limit: Arc<AtomicUsize>,
    in_flight: AtomicUsize,
    progress: ConnectionEvents,
    used: AtomicBool,
    retired: AtomicBool,
    driver: OnceLock<AbortHandle>,
}

enum HttpConnection {
    Http2(Http2),
    Http1(Http1),
}

impl Connection {
    /// Starts the protocol that ALPN selected. `signal` reports changes of the peer's limit.
    pub(super) async fn open(
        tls: TlsStream<TcpStream>, streams_max: usize, signal: Arc<Signal>,
    ) -> Result<(Self, Driver), Failure> {
        let limit = Arc::new(AtomicUsize::new(1));
        let (wire, driver) = if tls.get_ref().1.alpn_protocol() == Some(b"h2") {
            let (wire, driver) = Http2::open(tls, streams_max, limit.clone(), signal).await?;
            (HttpConnection::Http2(wire), driver)
        } else {
            let (wire, driver) = Http1::open(tls).await?;
            (HttpConnection::Http1(wire), driver)
        };
        let connection = Self {
            wire,
            limit,
            in_flight: AtomicUsize::new(0),
            progress: ConnectionEvents::default(),
            used: AtomicBool::new(true),
            retired: AtomicBool::new(false),
            driver: OnceLock::new(),
        };
        Ok((connection, driver))
    }

    /// Sends a request and waits for its response. Retires the connection at the deadline if no request received a
    /// response in the meantime.
    pub(super) async fn exchange(
        &self, post: &impl Outgoing, authority: &Authority, deadline: Instant,
    ) -> Result<Reply, NoReply> {
        let heard = || self.progress.heard.load(Ordering::Relaxed);
        let heard_before = heard();
        let reply = match &self.wire {
            HttpConnection::Http2(wire) => wire.exchange(post, authority, &self.progress, deadline).await,
            HttpConnection::Http1(wire) => wire.exchange(post, &self.progress, deadline).await,
        };
        match reply {
            Err(NoReply::Failed(Failure::Deadline)) if heard() == heard_before => self.retire(),
            Err(NoReply::NotSent) => self.retire(),
            _ => {}
        }
        reply
    }

    /// Returns the requests in flight, or `None` if the connection is full.
    pub(super) fn load_if_free(&self) -> Option<usize> {
        let in_flight = self.in_flight();
        (in_flight < self.limit()).then_some(in_flight)
    }

    /// Whether at least half of the limit is in use, so that another connection is worth its cost.
    pub(super) fn is_busy(&self) -> bool {
        2 * self.in_flight() >= self.limit()
    }

    pub(super) fn in_flight(&self) -> usize {
        self.in_flight.load(Ordering::Relaxed)
    }
    pub(super) fn limit(&self) -> usize {
        self.limit.load(Ordering::Relaxed)
    }

    pub(super) fn is_http1(&self) -> bool {
        matches!(self.wire, HttpConnection::Http1(_))
    }

    /// Counts a request. Called under the lock of the origin, so that a limit is never exceeded.
    pub(super) fn begin(&self) {
        self.in_flight.fetch_add(1, Ordering::Relaxed);
        self.used.store(true, Ordering::Relaxed);
    }

    pub(super) fn end(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }
    pub(super) fn is_serving(&self) -> bool {
        !self.retired.load(Ordering::Relaxed)
    }
    pub(super) fn carried_any(&self) -> bool {
        self.progress.sent.load(Ordering::Relaxed)
    }

    /// Whether the connection has no request and had none since the previous call.
    pub(super) fn fell_idle(&self) -> bool {
        !self.used.swap(false, Ordering::Relaxed) && self.in_flight() == 0
    }

    /// Stops accepting requests. The connection closes after those in flight.
    pub(super) fn retire(&self) {
        self.retired.store(true, Ordering::Relaxed);
        match &self.wire {
            HttpConnection::Http2(wire) => wire.close(),
            HttpConnection::Http1(wire) => wire.close(),
        }
    }
    pub(super) fn run(&self, driver: impl Future<Output = ()> + Send + 'static) {
        let task = tokio::spawn(driver).abort_handle();
        self.driver.set(task).expect("a connection is run once, by the origin that opened it");
    }

    /// Aborts the connection without a GOAWAY, for a peer that does not read.
    pub(super) fn cut(&self) {
        if let Some(driver) = self.driver.get() {
            driver.abort();
        }
    }
}
