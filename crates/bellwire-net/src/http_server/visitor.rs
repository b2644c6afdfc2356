//! The context of a connection and of its requests, for both versions of HTTP.

use std::net::SocketAddr;

use axum::Router;
use axum::http::Extensions;
use tokio::sync::watch;
use tracing::debug;

use super::ListenerLimits;
use super::refusal::RefusalBody;

/// Server side of a connection.
#[derive(Clone)]
pub(super) struct Host {
    pub(super) router: Router,
    pub(super) limits: ListenerLimits,
    pub(super) refusal: RefusalBody,
    pub(super) stop: watch::Receiver<bool>,
}

/// Extension of requests that arrived over TLS at this process.
#[derive(Debug, Clone, Copy)]
pub struct OverTls;

/// Client side of a connection, added to the extensions of each request.
#[derive(Clone)]
pub(super) struct Visitor {
    pub(super) peer: SocketAddr,
    pub(super) over_tls: bool,
    pub(super) stop: watch::Receiver<bool>,
}

impl Visitor {
    /// Adds the client's address as [`axum::extract::ConnectInfo`], [`Stopping`], and with TLS [`OverTls`].
    pub(super) fn introduce(&self, extensions: &mut Extensions) {
        extensions.insert(axum::extract::ConnectInfo(self.peer));
        extensions.insert(Stopping(self.stop.clone()));
        if self.over_tls {
            extensions.insert(OverTls);
        }
    }
}

/// Logs the error of a connection that did not end cleanly.
pub(super) fn log(ended: hyper::Result<()>, peer: SocketAddr) {
    if let Err(error) = ended {
        debug!(%error, client = %peer.ip(), "a connection broke off");
    }
}

/// Extension of each request that ends endless responses when the server stops.
#[derive(Debug, Clone)]
pub struct Stopping(watch::Receiver<bool>);

impl Stopping {
    /// Waits until the server stops.
    pub async fn told(&mut self) {
        let _ = self.0.wait_for(|stop| *stop).await;
    }
}
