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
mod tests {
    use chrono::DateTime;

    use super::*;

    #[test]
    fn known_consent_stays_until_replaced() {
        let at = |s: i64| DateTime::from_timestamp(1_800_000_000 + s, 0);
        let now = at(100).expect("a time");
        let consent = |s: i64, source: &str| Consent { at: at(s), source: Some(source.to_owned()) };
        let undated = Consent { at: None, source: Some("paper".to_owned()) };
        let (unknown, form, popup) = (Consent::default(), consent(10, "form"), consent(100, "popup"));
        let browser = consent(100, Consent::BY_BROWSER);
        for (kept, given, by_server, begins, expected) in [
            // A browser that begins.
            (&unknown, None, false, true, &browser),
            (&unknown, Some(&popup), false, true, &popup),
            // One that comes back.
            (&form, None, false, false, &form),
            (&form, Some(&popup), false, false, &form),
            (&unknown, None, false, false, &unknown),
            (&unknown, Some(&popup), false, false, &popup),
            // Servers.
            (&unknown, None, true, true, &unknown),
            (&unknown, Some(&form), true, true, &form),
            (&unknown, Some(&undated), true, true, &undated),
            (&form, None, true, false, &form),
            (&form, Some(&popup), true, false, &popup),
            (&popup, Some(&form), true, false, &popup),
            (&form, Some(&undated), true, false, &form),
            (&undated, Some(&form), true, false, &form),
        ] {
            let case = ConsentCase { kept: kept.clone(), given, by_server, begins };
            assert_eq!(decide(case.clone(), now), *expected, "{case:?}");
        }
    }
}
