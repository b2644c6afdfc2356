//! The context of a connection and of its requests, for both versions of HTTP.

use std::net::SocketAddr;

use axum::Router;
use axum::http::Extensions;
use tokio::sync::watch;
use tracing::debug;

use super::ListenerLimits;

/// What a connection is served by.
#[derive(Clone)]
pub(super) struct Host {
    pub(super) router: Router,
    pub(super) limits: ListenerLimits,
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
