//! Identifiers within a push: the id by which a browser drops repeats, and the token with which its service worker reports. Both are
//! computed and neither is stored.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use subtle::ConstantTimeEq as _;
use uuid::Uuid;

use super::{Purpose, Vault};
use bellwire_core::id::{MessageId, SubscriptionId};

/// Returns the delivery id in a plaintext. It is equal for every repeat to the same browser, also after the browser subscribed
/// again, since `origin` outlives the subscription. A page cannot derive message or subscription from it.
pub fn delivery_id(vault: &Vault, message: MessageId, origin: SubscriptionId) -> [u8; 16] {
    truncated_mac(vault, Purpose::DeliveryId, message, origin)
}

/// Returns the token with which a service worker sends receipts of a delivery: base64url of message, subscription and 128 bits
/// of HMAC. It is not stored.
pub fn receipt_token(vault: &Vault, message: MessageId, subscription: SubscriptionId) -> [u8; 64] {
    let mut octets = [0; 48];
    octets[..16].copy_from_slice(message.0.as_bytes());
    octets[16..32].copy_from_slice(subscription.0.as_bytes());
    octets[32..].copy_from_slice(&truncated_mac(vault, Purpose::Receipt, message, subscription));
    let mut token = [0; 64];
    URL_SAFE_NO_PAD.encode_slice(octets, &mut token).expect("48 octets are 64 characters");
    token
}

/// Returns the delivery of a receipt, if this server created its token. Verification takes constant time.
pub fn parse_receipt(vault: &Vault, token: &str) -> Option<(MessageId, SubscriptionId)> {
    if token.len() != 64 {
        return None;
    }
    let octets: [u8; 48] = URL_SAFE_NO_PAD.decode(token).ok()?.try_into().ok()?;
    let id = |at: usize| Uuid::from_slice(&octets[at..at + 16]).expect("16 octets");
    let (message, subscription) = (MessageId(id(0)), SubscriptionId(id(16)));
    let expected = truncated_mac(vault, Purpose::Receipt, message, subscription);
    bool::from(expected[..].ct_eq(&octets[32..])).then_some((message, subscription))
}

fn truncated_mac(vault: &Vault, purpose: Purpose, message: MessageId, other: SubscriptionId) -> [u8; 16] {
    let mac = vault.mac(purpose, &[message.0.as_bytes(), other.0.as_bytes()]);
    *mac.first_chunk().expect("an HMAC has 32 octets")
}

#[cfg(test)]
#[path = "../../../tests/crates/vault/unit/delivery_token.rs"]
mod tests;
