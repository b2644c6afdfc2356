//! Look-up values of subscriptions that have lost their endpoint.

use crate::vault::{Purpose, Vault};
use bellwire_core::id::SubscriptionId;

/// Reason for which a subscription has lost its endpoint.
#[derive(Debug, Clone, Copy)]
pub(in crate::store) enum Lost {
    /// A new subscription has it.
    Taken,
    /// It was erased before.
    Erased,
}

/// Look-up value of a subscription that has lost its endpoint: the HMAC of its own id, which no endpoint has.
pub(in crate::store) fn lost_endpoint_mac(vault: &Vault, id: SubscriptionId, lost: Lost) -> [u8; 32] {
    let reason: &[u8] = match lost {
        Lost::Taken => b"taken",
        Lost::Erased => b"erased",
    };
    vault.mac(Purpose::Endpoint, &[reason, id.0.as_bytes()])
}
