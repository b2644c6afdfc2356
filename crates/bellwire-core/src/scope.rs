//! Permissions of the API: keys have a set of scopes, and teammates have the scopes of their [`role`](super::role).

use super::named;

named! {
    /// Permission of a key. No scope includes another. An operator's key may do everything in all apps.
    #[cfg_attr(feature = "clap", derive(clap::ValueEnum))]
    pub enum Scope {
        /// Send messages and test templates; with `read` also preview for users and read content of broadcast messages.
        Send = "send",
        /// Read everything of the app except private keys and content of dead letters.
        Read = "read",
        /// Register, change and unsubscribe subscriptions; create and fill topics; erase users.
        Subscribers = "subscribers",
        /// Pause, resume and cancel messages; retry deliveries; replay and discard dead letters; store templates and segments.
        Messages = "messages",
        /// Set delivery policies, calendar, frequency caps, SLAs and flow control; release a held app.
        Policies = "policies",
        /// Change the app: its name, origins and prompt.
        Settings = "settings",
        /// Create and revoke API keys, identity keys and VAPID keys; manage webhooks.
        Keys = "keys",
        /// Export the app with subscriptions, private keys and content of dead letters: the most sensitive scope.
        Export = "export",
        /// Everything in all apps, and the server itself. Belongs to no app.
        Operator = "operator",
        /// Read the server's metrics only. Belongs to no app.
        Metrics = "metrics",
    }
}

impl Scope {
    /// Scopes of an app's keys.
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
    /// Scopes of the server's own keys, each of which has exactly one.
    pub const OF_SERVER: [Self; 2] = [Self::Operator, Self::Metrics];
}
