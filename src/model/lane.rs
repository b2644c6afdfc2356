//! A lane: the deliveries to one (gateway, VAPID key). This module holds its nouns; the engine is in
//! [`crate::dispatch`].

use serde::{Deserialize, Serialize};

/// The push service behind an endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Gateway {
    /// Google's Firebase Cloud Messaging: Chrome and most of its relatives.
    Fcm,
    /// Mozilla's autopush: Firefox.
    Mozilla,
    /// Windows Notification Service: Edge on Windows.
    Wns,
    /// Apple: Safari.
    Apple,
    /// Any other host that an app lets in: UnifiedPush, a private autopush.
    Other,
}

impl Gateway {
    /// Every gateway.
    pub const ALL: [Gateway; 5] = [Gateway::Fcm, Gateway::Mozilla, Gateway::Wns, Gateway::Apple, Gateway::Other];

    /// The name used in the database, JSON, metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Gateway::Fcm => "fcm",
            Gateway::Mozilla => "mozilla",
            Gateway::Wns => "wns",
            Gateway::Apple => "apple",
            Gateway::Other => "other",
        }
    }

    /// The browser that most of its subscriptions are of, by which expressions name it.
    pub(crate) fn browser(self) -> &'static str {
        match self {
            Gateway::Fcm => "chrome",
            Gateway::Mozilla => "firefox",
            Gateway::Wns => "edge",
            Gateway::Apple => "safari",
            Gateway::Other => "other",
        }
    }

    /// The gateway of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|gateway| gateway.name() == name)
    }
}
