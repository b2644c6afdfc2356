//! Names of events.

use bellwire_core::user_event::is_event_name;

#[test]
fn names_of_events_are_bounded() {
    assert!(is_event_name(&"a".repeat(64)) && is_event_name("shop.cart-added_2"));
    assert!(!is_event_name(&"a".repeat(65)) && !is_event_name("") && !is_event_name("a:b") && !is_event_name("ä"));
}
