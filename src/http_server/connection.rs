//! One connection, from its first octet to its last: the handshake, if there is one, and then the protocol that was agreed on.

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::http::Extensions;
use tokio::net::TcpStream;
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;
use tracing::debug;

use super::tls::{Greeting, Tls};
use super::{Limits, http1, http2};

/// What a connection is served by.
#[derive(Clone)]
pub(super) struct Host {
    pub(super) router: Router,
    pub(super) limits: Limits,
    pub(super) stop: watch::Receiver<bool>,
}

/// Told by its presence in a request's extensions: the request came by TLS, to this process.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OverTls;

/// What each request of a connection finds in its extensions.
#[derive(Clone)]
pub(super) struct Visitor {
    pub(super) peer: SocketAddr,
    pub(super) over_tls: bool,
    pub(super) stop: watch::Receiver<bool>,
}

impl Visitor {
    /// The client's address as [`axum::extract::ConnectInfo`], [`Stopping`], and [`OverTls`] where it holds.
    pub(super) fn introduce(&self, extensions: &mut Extensions) {
        extensions.insert(axum::extract::ConnectInfo(self.peer));
        extensions.insert(Stopping(self.stop.clone()));
        if self.over_tls {
            extensions.insert(OverTls);
        }
    }
}

/// Serves a connection without TLS.
pub(super) async fn serve_plain(stream: TcpStream, peer: SocketAddr, host: Host) {
    // Responses are written whole; to wait for more would only delay them.
    let _ = stream.set_nodelay(true);
    let visitor = Visitor { peer, over_tls: false, stop: host.stop.clone() };
    http1::serve(stream, visitor, host).await;
}

/// Shakes hands, which may take as long as a request's head, and serves what was agreed on. `place` is given back as soon as
/// hands were shaken.
pub(super) async fn serve_tls<P>(stream: TcpStream, peer: SocketAddr, tls: Tls, place: P, host: Host) {
    let _ = stream.set_nodelay(true);
    let within: Duration = host.limits.head;
    let mut stop = host.stop.clone();
    let greeted = tokio::select! {
        biased;
        greeted = timeout(within, tls.greet(stream, peer.ip())) => greeted,
        // Nothing was asked yet.
        _ = stop.wait_for(|stop| *stop) => return,
    };
    drop(place);
    let stream: TlsStream<TcpStream> = match greeted {
        Ok(Ok(Greeting::Agreed(stream))) => *stream,
        Ok(Ok(Greeting::Answered)) => return,
        Ok(Err(error)) => return debug!(%error, client = %peer.ip(), "a TLS handshake failed"),
        Err(_) => return debug!(client = %peer.ip(), "a TLS handshake took too long"),
    };
    let visitor = Visitor { peer, over_tls: true, stop: host.stop.clone() };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        http2::serve(stream, visitor, host).await;
    } else {
        http1::serve(stream, visitor, host).await;
    }
}

/// Tells how a connection ended, if not in order.
pub(super) fn log(ended: hyper::Result<()>, peer: SocketAddr) {
    if let Err(error) = ended {
        debug!(%error, client = %peer.ip(), "a connection broke off");
    }
}

/// Tells a response that has no end of its own when to come to one. Each request finds it in its extensions.
#[derive(Debug, Clone)]
pub(crate) struct Stopping(watch::Receiver<bool>);

impl Stopping {
    /// Is ready once the server stops.
    pub(crate) async fn told(&mut self) {
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}
