//! Unit tests of `crates/bellwire-store/src/audience/registration/consent.rs`, which includes them.

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
