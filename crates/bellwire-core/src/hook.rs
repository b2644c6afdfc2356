//! Webhooks: kinds of notes from which their events are built, and states of webhooks and requests.

use crate::delivery::{Ending, ReceiptKind};
use crate::event_type::EventType;
use crate::named;

/// Number of the first receipt kind among the kinds of notes.
const RECEIPTS_FROM: i16 = 20;
/// Bit for events about subscriptions, which a trigger of the table writes.
const SUBSCRIPTIONS: i32 = 1 << 28;

/// Returns the receipt of a kind of note. `None`: an ending.
pub fn receipt_of_note(kind: i16) -> Option<ReceiptKind> {
    ReceiptKind::from_code(kind - RECEIPTS_FROM)
}

impl EventType {
    /// Returns the event of a kind of note: the [code](Ending::code) of an ending, or 20 and the [code](ReceiptKind::code) of a
    /// receipt.
    pub fn of_note(kind: i16) -> Option<Self> {
        if let Some(receipt) = receipt_of_note(kind) {
            return Some(match receipt {
                ReceiptKind::Displayed => Self::DeliveryDisplayed,
                ReceiptKind::Clicked => Self::DeliveryClicked,
                ReceiptKind::Closed => Self::DeliveryClosed,
                ReceiptKind::Removed | ReceiptKind::Prevented | ReceiptKind::Missed => Self::DeliveryWithdrawn,
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

/// Set of events that are stored only for webhooks: one bit for each kind of note and one for subscriptions. Empty: none are
/// stored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct WebhookKinds(pub i32);

impl WebhookKinds {
    /// Returns the endings and receipts that must be recorded for these event types.
    pub fn of(events: &[EventType]) -> Self {
        let kinds =
            (1..=RECEIPTS_FROM + 6).filter(|kind| EventType::of_note(*kind).is_some_and(|told| events.contains(&told)));
        let subscriptions = if events.iter().any(|event| event.is_about_subscription()) { SUBSCRIPTIONS } else { 0 };
        Self(kinds.fold(subscriptions, |bits, kind| bits | 1 << kind))
    }

    /// Whether deliveries with this ending are recorded.
    pub fn has(self, ending: Ending) -> bool {
        self.0 & 1 << ending.code() != 0
    }

    /// Whether any receipts are recorded.
    pub fn has_receipts(self) -> bool {
        (self.0 & !SUBSCRIPTIONS) >> RECEIPTS_FROM != 0
    }
}

named! {
    /// Whether a webhook is sent events.
    pub enum WebhookState {
        /// Events are sent to the webhook.
        Active = "active",
        /// No events are sent. Waiting events stay until the webhook is enabled.
        Disabled = "disabled",
    }
}

named! {
    /// Reason why a webhook is disabled.
    pub enum WebhookDisabledReason {
        /// Requested by a caller.
        Asked = "asked",
        /// The receiver responded with 410: it is gone.
        Gone = "gone",
        /// Disabled, because all requests failed for days.
        Failing = "failing",
    }
}

named! {
    /// State of a request to a webhook's receiver.
    #[cfg_attr(feature = "openapi", schema(as = WebhookDeliveryState))]
    pub enum DeliveryState {
        /// It waits to be sent.
        Pending = "pending",
        /// The receiver accepted it.
        Delivered = "delivered",
        /// It failed after its last retry, and can be replayed.
        Failed = "failed",
    }
}

#[cfg(test)]
#[path = "../../../tests/crates/core/unit/hook.rs"]
mod tests;
