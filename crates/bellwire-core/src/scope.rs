//! Permissions of the API: keys get them one by one, teammates by [`role`](super::role).

use super::named;

named! {
    /// Permission of a key. No scope includes another. An operator's key may do everything in all apps.
    #[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
    pub enum Scope {
        /// Send messages, and try templates out.
        Send = "send",
        /// Read everything of the app except private keys and what dead letters hold.
        Read = "read",
        /// Register, change and unsubscribe subscriptions, make topics and fill them, erase users.
        Subscribers = "subscribers",
        /// Pause, resume and cancel messages, retry and cancel deliveries, replay and discard dead letters, store and remove
        /// templates.
        Messages = "messages",
        /// Set delivery policies, the calendar, frequency caps, SLAs and flow control.
        Policies = "policies",
        /// Change the app itself: its name, its origins.
        Settings = "settings",
        /// Make and revoke API keys, identity keys and VAPID keys.
        Keys = "keys",
        /// Take out the app with all its subscriptions and secrets, private keys, dead letters and their content.
        Export = "export",
        /// Run the server: make apps, see all of them, steer gateways.
        Operator = "operator",
        /// Read the server's metrics, and nothing else.
        Metrics = "metrics",
    }
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
}
