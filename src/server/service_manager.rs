//! What a service manager such as systemd is told (sd_notify(3)). Without one nobody is.

use std::net::SocketAddr;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::config::reachable;
use crate::http_server;

/// What a stop takes beyond its deadline at most: a last report to a collector, and the embedded Postgres, which writes a checkpoint.
const STOP_EXTRA: Duration = Duration::from_secs(120);

/// Requests are answered.
pub(super) fn tell_ready() {
    tell(&[NotifyState::Ready]);
}

/// The server stops, which takes that long and [`STOP_EXTRA`] at most: however long the unit allows a stop to take, it is to have
/// that time.
pub(super) fn tell_stopping(deadline: Duration) {
    let usec = u32::try_from((deadline + STOP_EXTRA).as_micros()).unwrap_or(u32::MAX);
    tell(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(usec)]);
}

/// Says three times as often as it is asked to (`WatchdogSec=`) that the server lives, for ever; but only while the server answers at
/// this address: one that hangs is restarted. That the engines live need not be asked: a server ends with any of them, and this
/// with it. The database is not asked: to restart would not bring it back.
pub(super) async fn feed_watchdog(address: SocketAddr) {
    match sd_notify::watchdog_enabled() {
        Some(patience) => feed(reachable(address), patience, || tell(&[NotifyState::Watchdog])).await,
        None => std::future::pending().await,
    }
}

/// Calls `fed` three times within `patience`, for as long as the server at this address answers within that.
async fn feed(address: SocketAddr, patience: Duration, mut fed: impl FnMut()) {
    loop {
        // Any end will do: a server that is full refuses this one, too.
        match timeout(patience, http_server::probe::status(address, "/healthz")).await {
            Ok(_) => fed(),
            Err(_) => warn!(%address, "this server does not answer itself: the service manager is about to restart it"),
        }
        sleep(patience / 3).await;
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!(%error, "the service manager cannot be told of {states:?}");
    }
}

#[cfg(test)]
mod tests {
    use axum::Router;
    use tokio::net::TcpListener;
    use tokio::sync::watch;

    use super::*;

    const PATIENCE: Duration = Duration::from_millis(60);

    /// How often it was fed in the time of ten patiences.
    async fn fed(address: SocketAddr) -> usize {
        let mut fed = 0;
        let _ = timeout(PATIENCE * 10, feed(address, PATIENCE, || fed += 1)).await;
        fed
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn the_watchdog_is_fed_while_the_server_answers_itself_even_if_it_is_full_and_not_when_it_hangs() {
        let hanging = TcpListener::bind("127.0.0.1:0").await.unwrap(); // the system lets in, nobody answers
        assert_eq!(fed(hanging.local_addr().unwrap()).await, 0);
        for connections in [10, 0] {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let limits = http_server::Limits { connections, ..http_server::Limits::default() };
            let (_running, stop) = watch::channel(false);
            tokio::spawn(http_server::serve(listener, None, Router::new(), limits, stop));
            assert!(fed(address).await > 1, "with room for {connections}");
        }
    }
}
