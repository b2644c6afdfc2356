//! Retry tokens: rows of `queue` are signed, so that a row changed outside Bellwire is never sent.
//!
//! A token covers the delivery (message and subscription), its number of retries, and the time its policy planned. Endpoint and
//! payload are not covered: both are encrypted for exactly that subscription and message ([`super`]), and a swapped one cannot
//! be decrypted. Lane and tier are compared with those of subscription and message. `due_at` and `lease` are not signed: they
//! change with every claim and do not affect the content.

use std::time::Duration;

use super::{SIGNATURE_LEN, Vault};
use bellwire_core::clock::Timestamp;
use bellwire_core::id::{MessageId, SubscriptionId};

/// Domain separation of these signatures.
const KIND: &[u8] = b"retry";

/// State of a waiting delivery that a token covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Queued {
    pub message: MessageId,
    pub subscription: SubscriptionId,
    /// Number of failed attempts before.
    pub retries: u32,
    /// Time scheduled by the policy, in whole microseconds as in Postgres.
    pub scheduled_at: Timestamp,
}

impl Queued {
    /// Returns the token: see [`Vault::sign`].
    pub fn sign(&self, vault: &Vault) -> [u8; SIGNATURE_LEN] {
        vault.sign(&self.octets())
    }

    pub fn fits(&self, token: &[u8], vault: &Vault) -> bool {
        vault.has_signed(&self.octets(), token)
    }

    /// Whether the token is older than `retryTokenTtlSec`. It is valid, but the server was down or the delivery held for so
    /// long that its state must be read again.
    pub fn is_late(&self, now: Timestamp, ttl: Duration) -> bool {
        self.scheduled_at + ttl < now
    }

    fn octets(&self) -> Vec<u8> {
        [
            KIND,
            self.message.0.as_bytes(),
            self.subscription.0.as_bytes(),
            &self.retries.to_be_bytes(),
            &self.scheduled_at.timestamp_micros().to_be_bytes(),
        ]
        .concat()
    }
}

#[cfg(test)]
#[path = "../../../tests/crates/vault/unit/retry_token.rs"]
mod tests;
