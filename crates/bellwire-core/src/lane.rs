//! Lane: the deliveries to one push service under one VAPID key. This crate only has the types; `bellwire-dispatch` has the
//! behaviour.

use super::named;

named! {
    /// Push service of a browser.
    pub enum Gateway {
        /// Google's Firebase Cloud Messaging, for Chrome and most Chromium browsers.
        Fcm = "fcm",
        /// Mozilla's autopush, for Firefox.
        Mozilla = "mozilla",
        /// Windows Notification Service: Edge on Windows.
        Wns = "wns",
        /// Apple's service, for Safari.
        Apple = "apple",
        /// Any other host that an app allows: UnifiedPush, a private autopush.
        Other = "other",
    }
}

impl Gateway {
    /// Returns the name in expressions of the browser that uses this push service.
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
