//! Notifications for a service manager such as systemd, see sd_notify(3). Without one they have no effect.

use std::net::SocketAddr;
use std::time::Duration;

use sd_notify::NotifyState;
use tokio::time::{sleep, timeout};
use tracing::warn;

use crate::config::reachable;
use bellwire_net::http_server;

/// Maximum time of a stop after its deadline: a last report to a collector, and the checkpoint of the embedded
/// Postgres.
const STOP_EXTRA: Duration = Duration::from_secs(120);

pub(super) fn tell_ready() {
    tell(&[NotifyState::Ready]);
}

/// Announces a stop within `deadline` and [`STOP_EXTRA`]. The service manager extends its own timeout to that time.
pub(super) fn tell_stopping(deadline: Duration) {
    let usec = u32::try_from((deadline + STOP_EXTRA).as_micros()).unwrap_or(u32::MAX);
    tell(&[NotifyState::Stopping, NotifyState::ExtendTimeoutUsec(usec)]);
}

/// Feeds the watchdog at three times the required rate (`WatchdogSec=`), in an endless loop. It does so only while the
/// server responds at this address, so that a hanging server is restarted. Engines need no check, because a server ends
/// with each of them. The database has no check, because a restart would not repair it.
pub(super) async fn feed_watchdog(address: SocketAddr) {
    match sd_notify::watchdog_enabled() {
        Some(patience) => feed(reachable(address), patience, || tell(&[NotifyState::Watchdog])).await,
        None => std::future::pending().await,
    }
}

/// Calls `fed` three times within `patience`, as long as the server at this address responds within that time.
async fn feed(address: SocketAddr, patience: Duration, mut fed: impl FnMut()) {
    loop {
        // Any response counts, also a refusal by a full server.
        match timeout(patience, http_server::probe::status(address, "/healthz")).await {
            Ok(_) => fed(),
            Err(_) => warn!(%address, "this server does not answer itself: the service manager is about to restart it"),
        }
        sleep(patience / 3).await;
    }
}

fn tell(states: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(states) {
        warn!(%error, "cannot notify the service manager of {states:?}");
    }
}

#[cfg(test)]
#[path = "../../tests/unit/server/service_manager.rs"]
mod tests;
