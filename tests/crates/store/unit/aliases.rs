//! Unit tests of `crates/bellwire-store/src/audience/aliases.rs`, which includes them.

use super::*;

#[test]
fn alias_leads_to_the_same_person() {
    for (before, after, expected) in [
        (None, None, true),
        (None, Some("ann"), true),
        (Some("ann"), Some("ann"), true),
        (Some("ann"), None, false),
        (Some("ann"), Some("bob"), false),
    ] {
        assert_eq!(is_same_person(before, after), expected, "{before:?} {after:?}");
    }
}
