//! Serves a router by HTTP/1.1 and, with TLS, HTTP/2. Limits bound the cost of each client, and a stop completes the
//! requests that have begun.
//!
//! | while a client … | it has | then |
//! |---|---|---|
//! | does the TLS handshake | [`ListenerLimits::head`]; half of all connections, and a quarter of a client's, may do so at a time | closed |
//! | sends no request | [`ListenerLimits::idle`] | the connection is closed |
//! | sends the head of a request | [`ListenerLimits::head`] from its first octet on, [`ListenerLimits::head_max_bytes`] | closed; 431 |
//! | sends a body | the limits of `api::extract` | 408, 413 |
//! | does not read its response | [`ListenerLimits::stalled`] since the last octet that it read | closed |
//! | exceeds its connections | no slot | 503; with TLS, closed |
//! | connects while all slots are used | the slot of the connection, or handshake, that is idle for longest | 503 if each has a request |
//! | sends an ambiguous head ([`head`]) | no second request | 400, closed |
//! | sends a chunked body | this one request | the connection is closed after it |
//!
//! A connection by HTTP/2 without an open request is idle, even while it sends frames. [`http2`] has further limits.

pub mod address;
pub mod certificate;
mod connection;
mod head;
mod http1;
mod http2;
pub mod inherited;
pub mod probe;
mod progress;
pub mod redirect;
pub mod refusal;
pub mod slots;
mod socket;
pub mod tls;
mod visitor;

use std::io;
use std::time::Duration;

use axum::Router;
use axum::http::StatusCode;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};
use tracing::warn;

use refusal::RefusalBody;
use slots::ConnectionSlots;
use tls::Tls;
use visitor::Host;
pub use visitor::{OverTls, Stopping};

/// Pause of accepting after the system refused a connection for lack of descriptors or memory.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Interval of warnings of one kind. A client could cause thousands per second.
const WARNED_EVERY: Duration = Duration::from_secs(60);

/// Limits of a listener and its clients.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ListenerLimits {
    /// Time for which a connection may be idle.
    pub idle: Duration,
    /// Time for the head of a request, or for a TLS handshake.
    pub head: Duration,
    /// Maximum octets of the head of a request; at least [`HEAD_MIN_BYTES`].
    pub head_max_bytes: usize,
    /// Time for which a client may read nothing of a response.
    pub stalled: Duration,
    /// Maximum connections at a time.
    pub connections: usize,
    /// Maximum connections of one client (an IPv4 address or an IPv6 /64) at a time; an IPv6 /48 has some times as
    /// many. `None`: no limit, because a proxy hides the addresses of the clients.
    pub connections_per_client: Option<usize>,
}

/// Minimum buffer of the HTTP library.
pub const HEAD_MIN_BYTES: usize = 8_192;

impl Default for ListenerLimits {
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

/// Serves until `stop` is true or its sender is dropped. Then it closes the listener, and half a second later every
/// idle connection. Returns when all requests that had begun, half-sent ones included, have responses. Dropping the
/// future aborts them. `refusal` writes the bodies of responses to requests that do not reach the router.
pub async fn serve(
    listener: TcpListener, tls: Option<Tls>, router: Router, limits: ListenerLimits, refusal: RefusalBody,
    stop: watch::Receiver<bool>,
) {
    let slots = ConnectionSlots::new(&limits);
    let mut connections = JoinSet::new();
    let mut warnings = Warnings::default();
    let mut told = stop.clone();
    let host = Host { router, limits, refusal, stop };
    loop {
        let accepted = tokio::select! {
            _ = told.wait_for(|stop| *stop) => break,
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next() => continue,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            // The client disconnected before the accept.
            Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => continue,
            Err(error) => {
                warnings.warn(|| warn!(%error, "connections cannot be accepted"));
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let slot = match slots.take(peer.ip(), tls.is_some()) {
            Ok(slot) => slot,
            Err(full) => {
                warnings.warn(|| warn!(client = %peer.ip(), %full, "connections are refused"));
                if tls.is_none() {
                    refuse(&stream, refusal);
                }
                continue;
            }
        };
        if slot.made_room {
            let what = "connections are closed to make room for others, those without a request for longest first (connections_max)";
            warnings.warn(|| warn!(client = %peer.ip(), "{what}"));
        }
        let host = host.clone();
        match tls.clone() {
            None => drop(connections.spawn(connection::serve_plain(stream, peer, slot, host))),
            Some(tls) => drop(connections.spawn(connection::serve_tls(stream, peer, tls, slot, host))),
        }
    }
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Sends a 503 as far as that is possible without blocking.
fn refuse(stream: &TcpStream, refusal: RefusalBody) {
    let detail = "The server has the maximum number of connections.";
    let _ = stream.try_write(&refusal.response(StatusCode::SERVICE_UNAVAILABLE, detail));
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
