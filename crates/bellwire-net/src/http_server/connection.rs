//! One connection: the TLS handshake, if any, and then the negotiated protocol.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;
use tracing::debug;

use super::slots::ConnectionSlot;
use super::tls::{Greeting, Tls};
use super::visitor::{Host, Visitor};
use super::{http1, http2};

/// Serves a connection without TLS.
pub(super) async fn serve_plain(stream: TcpStream, peer: SocketAddr, slot: ConnectionSlot, host: Host) {
    // Responses are written in one piece; Nagle's algorithm would only delay them.
    let _ = stream.set_nodelay(true);
    let visitor = Visitor { peer, over_tls: false, stop: host.stop.clone() };
    http1::serve(stream, visitor, host, slot.activity.clone()).await;
}

/// Performs the handshake within [`Limits::head`], and serves the negotiated protocol.
pub(super) async fn serve_tls(stream: TcpStream, peer: SocketAddr, tls: Tls, slot: ConnectionSlot, host: Host) {
    let _ = stream.set_nodelay(true);
    let within: Duration = host.limits.head;
    let mut stop = host.stop.clone();
    let greeted = tokio::select! {
        biased;
        greeted = timeout(within, tls.greet(stream, peer.ip())) => greeted,
        // A stop may end a handshake, because no request has begun.
        _ = stop.wait_for(|stop| *stop) => return,
        () = slot.activity.closed() => return,
    };
    slot.end_handshake();
    let stream: TlsStream<TcpStream> = match greeted {
        Ok(Ok(Greeting::Agreed(stream))) => *stream,
        Ok(Ok(Greeting::Answered)) => return,
        Ok(Err(error)) => return debug!(%error, client = %peer.ip(), "a TLS handshake failed"),
        Err(_) => return debug!(client = %peer.ip(), "a TLS handshake took too long"),
    };
    let visitor = Visitor { peer, over_tls: true, stop: host.stop.clone() };
    if stream.get_ref().1.alpn_protocol() == Some(b"h2") {
        http2::serve(stream, visitor, host, slot.activity.clone()).await;
    } else {
        http1::serve(stream, visitor, host, slot.activity.clone()).await;
    }
}
