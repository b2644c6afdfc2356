//! Consent after a registration. A stored consent stays until a new one is given: a browser that returns, or is in a file
//! again, has not consented again.

use bellwire_core::clock::Timestamp;
use bellwire_core::subscription::Consent;

#[derive(Debug, Clone)]
pub(super) struct ConsentCase<'a> {
    /// Stored consent of the same person, to this subscription or the replaced one.
    pub kept: Consent,
    /// Consent of the request. A browser's consent has the current time.
    pub given: Option<&'a Consent>,
    /// Whether a server registers the subscription. It then gives time and source of the consent.
    pub by_server: bool,
    /// Whether the person starts to get messages: there was no subscription, or they had ended it.
    pub begins: bool,
}

/// Decides about the consent. A server's statement replaces any stored consent. A browser's statement replaces only an unknown
/// one, so that repeated requests of the SDK do not change the time. A browser that starts without a statement has consented by
/// the browser's permission. Without a server's statement, the consent of its subscriptions is unknown.
pub(super) fn decide(case: ConsentCase<'_>, now: Timestamp) -> Consent {
    let ConsentCase { kept, given, by_server, begins } = case;
    match given {
        Some(given) if !kept.is_known() || by_server && given.at > kept.at => given.clone(),
        None if begins && !by_server && !kept.is_known() => {
            Consent { at: Some(now), source: Some(Consent::BY_BROWSER.to_owned()) }
        }
        _ => kept,
    }
}

#[cfg(test)]
#[path = "../../../../../tests/crates/store/unit/audience/registration/consent.rs"]
mod tests;
