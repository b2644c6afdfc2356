//! For how long a proxy has let nothing through to a push service, so that somebody is told.

use std::collections::HashMap;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::{info, warn};

use super::Refused;
use crate::model::lane::Gateway;

/// The push services that a proxy lets nothing through to. Hosts of strangers are left out: whom a proxy keeps them from is its affair.
#[derive(Debug)]
pub(in crate::gateway) struct Troubles {
    /// What has lasted for so long is worth an alert.
    told_after: Duration,
    since: Mutex<HashMap<Gateway, Since>>,
}

#[derive(Debug)]
struct Since {
    first: Instant,
    words: String,
    is_told: bool,
}

/// A push service that the proxy has let nothing through to for a while.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Trouble {
    /// Which.
    pub gateway: Gateway,
    /// What the proxy said last. Never a secret.
    pub words: String,
}

impl Troubles {
    /// None yet. What lasts for so long is to be told.
    pub(in crate::gateway) fn new(told_after: Duration) -> Self {
        Self { told_after, since: Mutex::default() }
    }

    /// The proxy gave no tunnel.
    pub(in crate::gateway) fn refused(&self, gateway: Gateway, why: &Refused, now: Instant) {
        let (mut since, words) = (self.since.lock(), why.to_string());
        let known = since.entry(gateway).or_insert_with(|| {
            warn!(gateway = gateway.name(), why = words, "the proxy lets no connection through to a push service");
            Since { first: now, words: String::new(), is_told: false }
        });
        known.words = words;
    }

    /// It gave one.
    pub(in crate::gateway) fn passed(&self, gateway: Gateway) {
        if self.since.lock().remove(&gateway).is_some() {
            info!(gateway = gateway.name(), "the proxy lets connections through to a push service again");
        }
    }

    /// Those that have lasted for long and that nobody was [told](Self::told) of yet.
    pub(in crate::gateway) fn untold(&self, now: Instant) -> Vec<Trouble> {
        let lasts = |since: &&Since| !since.is_told && now.saturating_duration_since(since.first) >= self.told_after;
        let since = self.since.lock();
        let lasting = since.iter().filter(|(_, since)| lasts(since));
        lasting.map(|(gateway, since)| Trouble { gateway: *gateway, words: since.words.clone() }).collect()
    }

    /// Somebody was told.
    pub(in crate::gateway) fn told(&self, gateway: Gateway) {
        if let Some(since) = self.since.lock().get_mut(&gateway) {
            since.is_told = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_lasts_is_told_once_and_again_when_it_comes_back() {
        const TOLD_AFTER: Duration = Duration::from_secs(60);
        let (troubles, now) = (Troubles::new(TOLD_AFTER), Instant::now());
        let words = |troubles: &Troubles, now| troubles.untold(now).into_iter().map(|it| it.words).collect::<Vec<_>>();
        troubles.refused(Gateway::Fcm, &Refused::Status(502), now);
        troubles.refused(Gateway::Fcm, &Refused::Status(403), now + TOLD_AFTER / 2);
        assert!(words(&troubles, now + TOLD_AFTER / 2).is_empty());
        assert_eq!(words(&troubles, now + TOLD_AFTER), ["it answered 403"]);
        assert_eq!(words(&troubles, now + TOLD_AFTER), ["it answered 403"], "it is told until somebody was");
        troubles.told(Gateway::Fcm);
        assert!(words(&troubles, now + TOLD_AFTER * 2).is_empty());
        troubles.passed(Gateway::Fcm);
        troubles.refused(Gateway::Fcm, &Refused::Silent, now + TOLD_AFTER * 3);
        assert!(words(&troubles, now + TOLD_AFTER * 3).is_empty());
        assert_eq!(words(&troubles, now + TOLD_AFTER * 4), ["it did not answer in time"]);
    }
}
