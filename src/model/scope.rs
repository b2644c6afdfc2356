//! What the API lets people and programs do, in parts: keys are given them singly, teammates by [`role`](super::role).

use serde::{Deserialize, Serialize};

/// What a key may do. None includes another, except that an operator's key may do everything in every app.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// Send messages, and try templates out.
    Send,
    /// Read everything of the app except private keys and what dead letters hold.
    Read,
    /// Register, change and unsubscribe subscriptions, make topics and fill them, erase users.
    Subscribers,
    /// Pause, resume and cancel messages, retry and cancel deliveries, replay and discard dead letters, store and remove
    /// templates.
    Messages,
    /// Set delivery policies, the calendar, frequency caps, SLAs and flow control.
    Policies,
    /// Change the app itself: its name, its origins.
    Settings,
    /// Make and revoke API keys, identity keys and VAPID keys.
    Keys,
    /// Take out the app with all its subscriptions and secrets, private keys, dead letters and their content.
    Export,
    /// Run the server: make apps, see all of them, steer gateways.
    Operator,
    /// Read the server's metrics, and nothing else.
    Metrics,
}

impl Scope {
    /// Those of an app's keys.
    pub const OF_APPS: [Self; 8] = [
        Self::Send,
        Self::Read,
        Self::Subscribers,
        Self::Messages,
        Self::Policies,
        Self::Settings,
        Self::Keys,
        Self::Export,
    ];
    /// Those of the server's own keys, which belong to no app and have exactly one.
    pub const OF_SERVER: [Self; 2] = [Self::Operator, Self::Metrics];

    /// The name used in the database and JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::Read => "read",
            Self::Subscribers => "subscribers",
            Self::Messages => "messages",
            Self::Policies => "policies",
            Self::Settings => "settings",
            Self::Keys => "keys",
            Self::Export => "export",
            Self::Operator => "operator",
            Self::Metrics => "metrics",
        }
    }

    /// The scope of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::OF_APPS.into_iter().chain(Self::OF_SERVER).find(|scope| scope.name() == name)
    }
}
