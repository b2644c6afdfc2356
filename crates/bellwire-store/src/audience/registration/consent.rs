//! Consent after a registration. A known consent stays until a new one: a browser that merely returns, or is in a file again, has not
//! consented again.

use bellwire_core::clock::Timestamp;
use bellwire_core::subscription::Consent;

#[derive(Debug, Clone)]
pub(super) struct ConsentCase<'a> {
    /// The consent of the same person to this subscription, or to the one that it takes the place of.
    pub kept: Consent,
    /// Consent of the request. A browser's consent has the current time.
    pub given: Option<&'a Consent>,
    /// Whether a server registers it, with time and place of the consent.
    pub by_server: bool,
    /// The person begins to be sent something: there was no subscription, or they had ended it.
    pub begins: bool,
}

/// Decides the consent. A server's statement replaces an earlier consent, and an unknown one. A browser's statement replaces an
/// unknown one, so that repeated requests of an SDK do not change the time. A browser that begins without a statement has
/// consented by the permission. Without a server's statement, a consent is unknown.
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
