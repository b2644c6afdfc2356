//! Recipient of a claimed delivery, and whether it may be sent.

use serde_json::Value;
use uuid::Uuid;

use bellwire_core::clock::Timestamp;
use bellwire_core::id::SubscriptionId;
use bellwire_core::message::MessageState;
use bellwire_core::subscription::SubscriptionState;

/// Whether a claimed delivery may be sent, as of its claim. Later changes arrive as a [stop](crate::queue::stops).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sendability {
    /// Send: its subscription is active and its message is sending.
    Sendable,
    /// Park: its message is paused.
    Paused,
    /// Cancel: its message was cancelled, its subscription was unsubscribed, suspended or erased, or the delivery was for an
    /// earlier life.
    Cancelled,
    /// End as gone: its subscription is gone or has expired.
    Gone,
    /// Move to the successor: another subscription has replaced its own.
    Replaced,
}

/// Returns whether a delivery may be sent. `subscription`: `None` if it does not exist. `is_past`: the delivery was for an
/// earlier life of the subscription.
fn standing(
    message: MessageState, subscription: Option<SubscriptionState>, has_successor: bool, is_past: bool,
) -> Sendability {
    use SubscriptionState::{Active, Expired, Gone, Replaced, Suspended, Unsubscribed};
    match (message, subscription) {
        (MessageState::Cancelled, _) => Sendability::Cancelled,
        _ if is_past => Sendability::Cancelled,
        (_, Some(Gone | Expired)) => Sendability::Gone,
        (_, Some(Replaced)) if has_successor => Sendability::Replaced,
        (_, None | Some(Unsubscribed | Replaced | Suspended)) => Sendability::Cancelled,
        (MessageState::Paused, Some(Active)) => Sendability::Paused,
        (MessageState::Scheduled | MessageState::Sending, Some(Active)) => Sendability::Sendable,
    }
}

/// Recipient of a delivery. The address is still encrypted.
#[derive(Debug)]
pub struct Recipient {
    /// Id of the subscription.
    pub subscription: SubscriptionId,
    /// First id of this browser, from which the delivery's id is derived.
    pub origin_id: SubscriptionId,
    /// Encrypted p256dh, auth and endpoint. Empty if nothing is to be sent.
    pub address: Vec<u8>,
    /// Whether the delivery may be sent.
    pub standing: Sendability,
    /// Delivery policy of the subscription.
    pub policy: Option<Value>,
    /// Time until which only transactional messages are sent. `None`: all are sent.
    pub muted_until: Option<Timestamp>,
    /// IANA time zone. `None`: not reported by the browser.
    pub timezone: Option<String>,
    /// User of the browser, for frequency caps. `None`: no user, or the app had no caps at the claim.
    pub user_id: Option<String>,
    /// Whether a push to the subscription was accepted before.
    pub proven: bool,
    /// Life of the subscription that the delivery is for.
    pub life: i32,
}

/// Columns of a recipient. For a deleted subscription, little more than its id.
#[derive(Clone, Default)]
pub(super) struct RecipientRow {
    pub id: Uuid,
    pub origin_id: Option<Uuid>,
    pub address: Option<Vec<u8>>,
    pub state: Option<SubscriptionState>,
    pub has_successor: bool,
    pub is_past: bool,
    pub policy: Option<Value>,
    pub muted_until: Option<Timestamp>,
    pub timezone: Option<String>,
    pub user_id: Option<String>,
    pub proven: Option<bool>,
    pub life: Option<i32>,
}

impl RecipientRow {
    /// Returns the columns of a deleted subscription.
    pub(super) fn deleted(id: SubscriptionId) -> Self {
        Self { id: id.0, ..Self::default() }
    }

    pub(super) fn of(self, message: MessageState) -> Recipient {
        Recipient {
            subscription: SubscriptionId(self.id),
            origin_id: SubscriptionId(self.origin_id.unwrap_or_default()),
            address: self.address.unwrap_or_default(),
            standing: standing(message, self.state, self.has_successor, self.is_past),
            policy: self.policy,
            muted_until: self.muted_until,
            timezone: self.timezone,
            user_id: self.user_id,
            proven: self.proven.unwrap_or(false),
            life: self.life.unwrap_or(0),
        }
    }
}

#[cfg(test)]
#[path = "../../../../../tests/crates/store/unit/queue/claims/recipient.rs"]
mod tests;
