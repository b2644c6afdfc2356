//! Unit tests of `crates/bellwire-core/src/hook.rs`, which includes them.

use super::*;

#[test]
fn notes_reach_subscribers_of_their_events() {
    let heard = WebhookKinds::of(&[EventType::DeliveryGone, EventType::DeliveryClicked, EventType::AlertRaised]);
    let endings: Vec<_> = Ending::ALL.into_iter().filter(|ending| heard.has(*ending)).collect();
    assert_eq!((endings, heard.has_receipts()), (vec![Ending::Gone], true));
    assert_eq!(heard.0, 1 << 3 | 1 << 22);
    let ended = WebhookKinds::of(&[EventType::SubscriptionEnded]);
    assert!(ended.0 == SUBSCRIPTIONS && !ended.has_receipts());
    assert_eq!(WebhookKinds::of(&[EventType::AlertRaised, EventType::MessageDone]), WebhookKinds::default());
    assert!(!WebhookKinds::of(&[EventType::DeliveryCapped]).has_receipts());
    assert_eq!(EventType::of_note(Ending::Retry.code()), None);
    assert_eq!(EventType::of_note(27), None);
}
