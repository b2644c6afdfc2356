//! Sockets of a process: the API, redirections to HTTPS, and metrics.

use std::io;
use std::net::SocketAddr;

use tokio::net::TcpListener;
use tokio::sync::watch::Receiver;
use tokio::task::JoinSet;
use tracing::info;

use super::{Served, http_limits};
use crate::api::http::problem::REFUSAL;
use crate::config::Config;
use bellwire_net::http_server::tls::Tls;
use bellwire_net::http_server::{self, redirect};

/// Open sockets of a process.
pub(super) struct Listeners {
    main: TcpListener,
    redirect: Option<TcpListener>,
    metrics: Option<TcpListener>,
}

/// Describes why an address cannot be listened on, with the remedy.
pub(crate) fn cannot_listen(address: SocketAddr, setting: &str, error: io::Error) -> anyhow::Error {
    let remedy = match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!("; end the process that listens there, or choose another address with {setting}")
        }
        io::ErrorKind::PermissionDenied => {
            format!("; choose a port above 1023 with {setting}, or grant CAP_NET_BIND_SERVICE")
        }
        io::ErrorKind::AddrNotAvailable => format!("; choose an address of this machine with {setting}"),
        _ => String::new(),
    };
    anyhow::anyhow!("cannot listen on {address}: {error}{remedy}")
}

impl Listeners {
    /// Binds the remaining listeners. Fails with the address if it is in use or not on this machine.
    pub(super) async fn bind(main: TcpListener, config: &Config) -> anyhow::Result<Self> {
        let bind = async |address: Option<SocketAddr>, setting: &str| match address {
            None => Ok(None),
            Some(address) => {
                let bound = TcpListener::bind(address).await;
                bound.map(Some).map_err(|error| cannot_listen(address, setting, error))
            }
        };
        let redirect = bind(config.redirect_listen, "--redirect-listen").await?;
        Ok(Self { main, redirect, metrics: bind(config.metrics_listen, "--metrics-listen").await? })
    }

    pub(super) fn serve(
        self, tls: Option<Tls>, served: Served, config: &Config, stop: &Receiver<bool>,
    ) -> anyhow::Result<JoinSet<()>> {
        let (mut serving, limits) = (JoinSet::new(), http_limits(config));
        let port = self.main.local_addr()?.port();
        serving.spawn(http_server::serve(self.main, tls, served.main, limits, REFUSAL, stop.clone()));
        if let Some(listener) = self.redirect {
            info!(address = %listener.local_addr()?, "browsers are sent on to HTTPS");
            let router = redirect::router(config.public_url.as_ref(), port);
            serving.spawn(http_server::serve(listener, None, router, limits, REFUSAL, stop.clone()));
        }
        if let Some(listener) = self.metrics {
            info!(address = %listener.local_addr()?, "metrics without authentication");
            serving.spawn(http_server::serve(listener, None, served.metrics, limits, REFUSAL, stop.clone()));
        }
        Ok(serving)
    }
}
