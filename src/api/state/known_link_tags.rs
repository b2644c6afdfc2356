//! Link parameters of recent messages: many receipts are about few campaigns.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use parking_lot::Mutex;
use serde::Serialize;
use tokio::time::Instant;
use utoipa::ToSchema;

use bellwire_core::id::{AppId, MessageId};

/// Time for which changed settings may not apply.
const KEPT_FOR: Duration = Duration::from_secs(60);
const MESSAGES_MAX: usize = 10_000;

/// Parameters for links of a message.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub(crate) struct LinkParameters {
    /// Hosts whose links get them: exact names, or `*.` and a domain for its subdomains.
    pub hosts: Vec<String>,
    /// Values by name. A parameter that a link has already stays as it is.
    pub parameters: BTreeMap<String, String>,
}

/// Link parameters of recent messages.
#[derive(Default)]
pub(crate) struct KnownLinkTags(Mutex<HashMap<(AppId, MessageId), Known>>);

/// Parameters with the time at which they were read.
type Known = (Instant, Option<LinkParameters>);

impl KnownLinkTags {
    pub(crate) fn recall(&self, app: AppId, message: MessageId) -> Option<Option<LinkParameters>> {
        let known = self.0.lock();
        known.get(&(app, message)).filter(|(at, _)| at.elapsed() < KEPT_FOR).map(|(_, known)| known.clone())
    }

    pub(crate) fn remember(&self, app: AppId, message: MessageId, parameters: Option<LinkParameters>) {
        let mut known = self.0.lock();
        if known.len() >= MESSAGES_MAX {
            known.clear();
        }
        known.insert((app, message), (Instant::now(), parameters));
    }
}
