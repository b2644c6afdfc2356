//! Unit tests of `crates/bellwire-store/src/queue/claims/recipient.rs`, which includes them.

use super::*;

#[test]
fn first_ending_decides_waiting_moves_to_successor() {
    use MessageState::{Paused, Sending};
    use SubscriptionState::{Active, Expired, Gone, Replaced, Suspended, Unsubscribed};
    for (message, subscription, has_successor, is_past, expected) in [
        (Sending, Some(Active), false, false, Sendability::Sendable),
        (Paused, Some(Active), false, false, Sendability::Paused),
        (MessageState::Cancelled, Some(Gone), false, false, Sendability::Cancelled),
        (Sending, None, false, false, Sendability::Cancelled),
        (Sending, Some(Unsubscribed), false, false, Sendability::Cancelled),
        (Paused, Some(Suspended), false, false, Sendability::Cancelled),
        (Paused, Some(Gone), false, false, Sendability::Gone),
        (Sending, Some(Expired), false, false, Sendability::Gone),
        (Paused, Some(Replaced), true, false, Sendability::Replaced),
        (Sending, Some(Replaced), false, false, Sendability::Cancelled), // before successors were remembered
        (MessageState::Cancelled, Some(Replaced), true, false, Sendability::Cancelled),
        (Sending, Some(Replaced), true, true, Sendability::Cancelled),
        (Sending, Some(Active), false, true, Sendability::Cancelled),
    ] {
        let found = standing(message, subscription, has_successor, is_past);
        assert_eq!(found, expected, "{message:?} {subscription:?} {has_successor} {is_past}");
    }
}
