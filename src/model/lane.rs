//! A lane: the deliveries to one (gateway, VAPID key). This module holds its nouns; the engine is in
//! [`crate::dispatch`].

use super::named::named;

named! {
    /// A push service.
    pub enum Gateway {
        /// Google's Firebase Cloud Messaging: Chrome and most of its relatives.
        Fcm = "fcm",
        /// Mozilla's autopush: Firefox.
        Mozilla = "mozilla",
        /// Windows Notification Service: Edge on Windows.
        Wns = "wns",
        /// Apple: Safari.
        Apple = "apple",
        /// Any other host that an app lets in: UnifiedPush, a private autopush.
        Other = "other",
    }
}
