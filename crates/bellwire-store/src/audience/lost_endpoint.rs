//! Lookup values of subscriptions that have lost their endpoint.

use bellwire_core::id::SubscriptionId;
use bellwire_vault::{Purpose, Vault};

/// Reason for which a subscription has lost its endpoint.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Lost {
    /// A new subscription has the endpoint.
    Taken,
    /// The endpoint was erased.
    Erased,
}

/// Returns a lookup value that no endpoint has: the HMAC of the subscription's own id.
pub(crate) fn lost_endpoint_mac(vault: &Vault, id: SubscriptionId, lost: Lost) -> [u8; 32] {
    let reason: &[u8] = match lost {
        Lost::Taken => b"taken",
        Lost::Erased => b"erased",
    };
    vault.mac(Purpose::Endpoint, &[reason, id.0.as_bytes()])
}
