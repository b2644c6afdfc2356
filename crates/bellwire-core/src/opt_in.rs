//! Steps from a visitor to a subscriber.

use crate::named;

named! {
    /// Step from a visitor to a subscriber.
    pub enum OptInStep {
        /// The prompt was shown.
        Shown = "shown",
        /// A guide was shown, because the browser cannot ask.
        Guided = "guided",
        /// The visitor agreed to the prompt.
        Accepted = "accepted",
        /// The visitor chose "not now".
        Later = "later",
        /// The visitor declined the prompt.
        No = "no",
        /// The browser's own prompt was shown.
        Asked = "asked",
        /// The browser subscribed after the visitor allowed it.
        Granted = "granted",
        /// The visitor refused in the browser's own prompt.
        Denied = "denied",
        /// The visitor closed the browser's own prompt.
        Dismissed = "dismissed",
    }
}

named! {
    /// Family of a browser.
    pub enum BrowserFamily {
        /// Google Chrome and browsers that call themselves so.
        Chrome = "chrome",
        /// Microsoft Edge on any system.
        Edge = "edge",
        /// Mozilla Firefox on any system.
        Firefox = "firefox",
        /// Opera on any system.
        Opera = "opera",
        /// Apple Safari, and other apps on iPhones that call themselves so.
        Safari = "safari",
        /// Samsung Internet on Android devices.
        Samsung = "samsung",
        /// Any other browser or program.
        Other = "other",
    }
}

impl BrowserFamily {
    /// Reads a `User-Agent` header. Chromium's relatives name Chrome and Safari, too, so their own names come first.
    pub fn of(agent: &str) -> Self {
        const NAMES: [(&str, BrowserFamily); 11] = [
            ("Edg/", BrowserFamily::Edge),
            ("EdgA/", BrowserFamily::Edge),
            ("EdgiOS/", BrowserFamily::Edge),
            ("OPR/", BrowserFamily::Opera),
            ("OPT/", BrowserFamily::Opera),
            ("SamsungBrowser/", BrowserFamily::Samsung),
            ("Firefox/", BrowserFamily::Firefox),
            ("FxiOS/", BrowserFamily::Firefox),
            ("Chrome/", BrowserFamily::Chrome),
            ("CriOS/", BrowserFamily::Chrome),
            ("Safari/", BrowserFamily::Safari),
        ];
        NAMES.into_iter().find(|(name, _)| agent.contains(name)).map_or(Self::Other, |(_, family)| family)
    }
}

#[cfg(test)]
#[path = "../../../tests/crates/core/unit/opt_in.rs"]
mod tests;
