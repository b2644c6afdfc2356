//! A lane: the deliveries to one (gateway, VAPID key). This module holds its nouns; the engine is in
//! the dispatcher.

use super::named;

named! {
    /// Push service of a browser.
    pub enum Gateway {
        /// Google's Firebase Cloud Messaging: Chrome and most of its relatives.
        Fcm = "fcm",
        /// Mozilla's autopush, for Firefox.
        Mozilla = "mozilla",
        /// Windows Notification Service: Edge on Windows.
        Wns = "wns",
        /// Apple's service, for Safari.
        Apple = "apple",
        /// Any other host that an app lets in: UnifiedPush, a private autopush.
        Other = "other",
    }
}

impl Gateway {
    /// The browser that most of its subscriptions are of, by which expressions name it.
    pub fn browser(self) -> &'static str {
        match self {
            Gateway::Fcm => "chrome",
            Gateway::Mozilla => "firefox",
            Gateway::Wns => "edge",
            Gateway::Apple => "safari",
            Gateway::Other => "other",
        }
    }
}
