//! Webhooks: what apps are told of, and where a request to a receiver stands.

use crate::model::delivery::{Ending, ReceiptKind};
use crate::model::named;

named! {
    /// What webhooks can be told of. Names never change.
    pub(crate) enum EventType {
        /// A push service took a push.
        DeliveryAccepted = "delivery.accepted",
        /// A delivery's subscription does not exist any more.
        DeliveryGone = "delivery.gone",
        /// A delivery's time to live ran out.
        DeliveryExpired = "delivery.expired",
        /// A delivery was given up.
        DeliveryDead = "delivery.dead",
        /// A delivery was cancelled, or its subscription unsubscribed.
        DeliveryCancelled = "delivery.cancelled",
        /// A delivery was held back by a frequency cap.
        DeliveryCapped = "delivery.capped",
        /// A notification was shown.
        DeliveryDisplayed = "delivery.displayed",
        /// A notification was clicked.
        DeliveryClicked = "delivery.clicked",
        /// A notification was closed.
        DeliveryClosed = "delivery.closed",
        /// A campaign stands somewhere else than before.
        CampaignState = "campaign.state",
        /// All deliveries of a message to many have ended.
        MessageDone = "message.done",
        /// A message was paused.
        MessagePaused = "message.paused",
        /// A message was resumed.
        MessageResumed = "message.resumed",
        /// A message was cancelled.
        MessageCancelled = "message.cancelled",
        /// An alert of the app was raised that was not open.
        AlertRaised = "alert.raised",
        /// Somebody resolved an alert of the app.
        AlertResolved = "alert.resolved",
        /// Somebody tries the webhook out. Every webhook is told of that.
        WebhookTest = "webhook.test",
    }
}

/// Number of the first kind of receipt among the kinds of notes.
const RECEIPTS_FROM: i16 = 20;

impl EventType {
    /// What a note of that kind tells: the [code](Ending::code) of how a delivery ended, or 20 and the
    /// [code](ReceiptKind::code) of a receipt.
    pub(crate) fn of_note(kind: i16) -> Option<Self> {
        if let Some(receipt) = ReceiptKind::from_code(kind - RECEIPTS_FROM) {
            return Some(match receipt {
                ReceiptKind::Displayed => Self::DeliveryDisplayed,
                ReceiptKind::Clicked => Self::DeliveryClicked,
                ReceiptKind::Closed => Self::DeliveryClosed,
            });
        }
        match Ending::from_code(kind)? {
            Ending::Accepted => Some(Self::DeliveryAccepted),
            Ending::Retry => None,
            Ending::Gone => Some(Self::DeliveryGone),
            Ending::Expired => Some(Self::DeliveryExpired),
            Ending::Dead => Some(Self::DeliveryDead),
            Ending::Cancelled => Some(Self::DeliveryCancelled),
            Ending::Capped => Some(Self::DeliveryCapped),
        }
    }
}

/// The kinds of notes that somebody is told of: a bit each. None: nothing has to be noted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Heard(pub i32);

impl Heard {
    /// Those that these events are made of.
    pub(crate) fn of(events: &[EventType]) -> Self {
        let kinds =
            (1..=RECEIPTS_FROM + 3).filter(|kind| EventType::of_note(*kind).is_some_and(|told| events.contains(&told)));
        Self(kinds.fold(0, |bits, kind| bits | 1 << kind))
    }

    /// Whether it has that way to end.
    pub(crate) fn has(self, ending: Ending) -> bool {
        self.0 & 1 << ending.code() != 0
    }

    /// Whether it has any receipt.
    pub(crate) fn has_receipts(self) -> bool {
        self.0 >> RECEIPTS_FROM != 0
    }
}

named! {
    /// Whether a webhook is told of anything.
    pub(crate) enum WebhookState {
        /// It is.
        Active = "active",
        /// It is not, and what waited for it waits until it is enabled again.
        Disabled = "disabled",
    }
}

named! {
    /// Why a webhook is disabled.
    pub(crate) enum DisabledWhy {
        /// Somebody wanted it so.
        Asked = "asked",
        /// Its receiver answered 410: it is gone.
        Gone = "gone",
        /// It has failed for days.
        Failing = "failing",
    }
}

named! {
    /// Where a request to a webhook's receiver stands.
    #[schema(as = WebhookDeliveryState)]
    pub(crate) enum DeliveryState {
        /// It is sent when it is due.
        Pending = "pending",
        /// The receiver took it.
        Delivered = "delivered",
        /// It was given up after its last retry, and waits to be replayed.
        Failed = "failed",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notes_are_heard_by_whoever_asked_for_the_events_that_they_make() {
        let heard = Heard::of(&[EventType::DeliveryGone, EventType::DeliveryClicked, EventType::AlertRaised]);
        let endings: Vec<_> = Ending::ALL.into_iter().filter(|ending| heard.has(*ending)).collect();
        assert_eq!((endings, heard.has_receipts()), (vec![Ending::Gone], true));
        assert_eq!(heard.0, 1 << 3 | 1 << 22);
        assert_eq!(Heard::of(&[EventType::AlertRaised, EventType::MessageDone]), Heard::default());
        assert!(!Heard::of(&[EventType::DeliveryCapped]).has_receipts());
        assert_eq!(EventType::of_note(Ending::Retry.code()), None);
        assert_eq!(EventType::of_note(24), None);
    }
}
