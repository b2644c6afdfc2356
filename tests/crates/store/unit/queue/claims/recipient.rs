//! Unit tests of `crates/bellwire-store/src/queue/claims/recipient.rs`, which includes them.

use super::*;

#[test]
fn first_ending_decides_waiting_moves_to_successor() {
    for (message, subscription, has_successor, is_past, expected) in [
        ("sending", Some("active"), false, false, Sendability::Sendable),
        ("paused", Some("active"), false, false, Sendability::Paused),
        ("cancelled", Some("gone"), false, false, Sendability::Cancelled),
        ("sending", None, false, false, Sendability::Cancelled),
        ("sending", Some("unsubscribed"), false, false, Sendability::Cancelled),
        ("paused", Some("suspended"), false, false, Sendability::Cancelled),
        ("paused", Some("gone"), false, false, Sendability::Gone),
        ("sending", Some("expired"), false, false, Sendability::Gone),
        ("paused", Some("replaced"), true, false, Sendability::Replaced),
        ("sending", Some("replaced"), false, false, Sendability::Cancelled), // before successors were remembered
        ("cancelled", Some("replaced"), true, false, Sendability::Cancelled),
        ("sending", Some("replaced"), true, true, Sendability::Cancelled),
        ("sending", Some("active"), false, true, Sendability::Cancelled),
    ] {
        let circumstances = Circumstances::read(message, subscription, has_successor, is_past);
        assert_eq!(standing(&circumstances), expected, "{message} {subscription:?} {has_successor} {is_past}");
    }
}
