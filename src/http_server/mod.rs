//! Serves a router by HTTP/1.1 and, where there is TLS, HTTP/2, so that no client costs more than its share and a stop cuts nothing
//! short.
//!
//! | while a client … | it has | then |
//! |---|---|---|
//! | shakes hands | [`Limits::head`]; half of all connections may do so at a time | closed |
//! | asks nothing | [`Limits::idle`] | the connection is closed |
//! | sends a request's head | [`Limits::head`] from its first octet on, [`Limits::head_max_bytes`] | closed; 431 |
//! | sends a body | what `api::extract` gives it | 408, 413 |
//! | does not take its response | [`Limits::stalled`] since the last octet that it took | closed |
//! | has as many connections as it may, or all have | nothing | 503; with TLS, closed |
//!
//! A connection by HTTP/2 that has no request open asks nothing, whatever else it says; [`http2`] has the limits of its own.

pub(crate) mod address;
pub(crate) mod certificate;
mod connection;
mod http1;
mod http2;
pub(crate) mod inherited;
pub(crate) mod probe;
pub(crate) mod redirect;
mod slots;
mod socket;
pub(crate) mod tls;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tracing::warn;

use connection::Host;
pub(crate) use connection::{OverTls, Stopping};
use slots::ConnectionSlots;
use tls::Tls;

/// How long nobody is let in after the system refused a connection for want of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Between two warnings of the same kind: whoever causes them may do so thousands of times a second.
const WARNED_EVERY: Duration = Duration::from_secs(60);

/// What clients of one listener may cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How long a connection may stay open without a request.
    pub idle: Duration,
    /// How long a request's line and headers may take; a TLS handshake, too.
    pub head: Duration,
    /// Octets of a request's line and headers, at most; at least [`HEAD_MIN_BYTES`].
    pub head_max_bytes: usize,
    /// How long a client may take nothing of what is sent to it.
    pub stalled: Duration,
    /// Connections at a time.
    pub connections: usize,
    /// Connections of one client, an IPv4 address or an IPv6 /64, at a time. None: as many as there are, since clients
    /// come through a proxy and all look the same.
    pub connections_per_client: Option<usize>,
}

/// What the HTTP library needs for its buffer.
pub(crate) const HEAD_MIN_BYTES: usize = 8_192;

impl Default for Limits {
    fn default() -> Self {
        Self {
            idle: Duration::from_secs(150),
            head: Duration::from_secs(15),
            head_max_bytes: 16 * 1024,
            stalled: Duration::from_secs(60),
            connections: 10_000,
            connections_per_client: Some(512),
        }
    }
}

/// Serves until `stop` is true or its sender is gone, with TLS if there is any. Then it closes the listener and, half a second later, every
/// connection that asks nothing, and returns when all requests that had begun, half-sent ones included, are answered. Whoever drops it before
/// cuts them.
pub async fn serve(
    listener: TcpListener,
    tls: Option<Tls>,
    router: Router,
    limits: Limits,
    stop: watch::Receiver<bool>,
) {
    let slots = ConnectionSlots::new(&limits);
    // Whoever never ends a handshake leaves room for those who have.
    let handshakes = Arc::new(Semaphore::new((limits.connections / 2).clamp(1, Semaphore::MAX_PERMITS)));
    let mut connections = JoinSet::new();
    let mut warnings = Warnings::default();
    let mut told = stop.clone();
    let host = Host { router, limits, stop };
    loop {
        let accepted = tokio::select! {
            _ = told.wait_for(|stop| *stop) => break,
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            // It hung up before it was let in.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                warnings.warn(|| warn!(%error, "connections cannot be accepted"));
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let slot = match slots.take(peer.ip()) {
            Ok(slot) => slot,
            Err(full) => {
                warnings.warn(|| warn!(client = %peer.ip(), %full, "connections are refused"));
                if tls.is_none() {
                    refuse(stream);
                }
                continue;
            }
        };
        let host = host.clone();
        match tls.clone() {
            None => drop(connections.spawn(async move {
                connection::serve_plain(stream, peer, host).await;
                drop(slot);
            })),
            Some(tls) => match handshakes.clone().try_acquire_owned() {
                Ok(place) => drop(connections.spawn(async move {
                    connection::serve_tls(stream, peer, tls, place, host).await;
                    drop(slot);
                })),
                Err(_) => warnings.warn(|| warn!(client = %peer.ip(), "too many TLS handshakes are open")),
            },
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Tells a client that it may not come in, as far as that is possible without waiting for it.
fn refuse(stream: TcpStream) {
    const RESPONSE: &[u8] =
        b"HTTP/1.1 503 Service Unavailable\r\nConnection: close\r\nRetry-After: 1\r\nContent-Length: 0\r\n\r\n";
    let _ = stream.try_write(RESPONSE);
}

#[derive(Default)]
struct Warnings(Option<Instant>);

impl Warnings {
    fn warn(&mut self, say: impl FnOnce()) {
        if self.0.is_none_or(|at| at.elapsed() >= WARNED_EVERY) {
            self.0 = Some(Instant::now());
            say();
        }
    }
}
