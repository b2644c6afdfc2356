//! Unit tests of `src/hooks/pack.rs`, which includes them.

use uuid::Uuid;

use super::*;
use bellwire_core::id::AppId;

fn event(octets: usize) -> OutgoingEvent {
    let (app, at) = (AppId(Uuid::nil()), Timestamp::UNIX_EPOCH);
    OutgoingEvent { app: Some(app), kind: EventType::DeliveryGone, at, names: None, json: "x".repeat(octets) }
}

#[test]
fn request_bounds_events_and_octets() {
    let sizes = |octets: &[usize], max_events| {
        let events: Vec<OutgoingEvent> = octets.iter().map(|octets| event(*octets)).collect();
        let events: Vec<&OutgoingEvent> = events.iter().collect();
        split(&events, max_events).into_iter().map(<[_]>::len).collect::<Vec<_>>()
    };
    assert_eq!(sizes(&[], 10), [0; 0]);
    assert_eq!(sizes(&[1; 25], 10), [10, 10, 5]);
    assert_eq!(sizes(&[1; 3], 1), [1, 1, 1]);
    assert_eq!(sizes(&[BODY_MAX / 2 - 1; 5], 10), [2, 2, 1]);
    assert_eq!(sizes(&[1, 2 * BODY_MAX, 1], 10), [1, 1, 1], "one that is too long goes alone");
}

#[test]
fn a_body_is_a_json_array() {
    assert_eq!(body([].into_iter()), "[]");
    assert_eq!(body(["{}", "{}"].into_iter()), "[{},{}]");
}
