//! Signatures by Standard Webhooks (standard-webhooks.com): HMAC-SHA-256 over `id.timestamp.body`, with a secret shared with
//! the receiver.

use std::fmt;

use aws_lc_rs::{hmac, rand};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use zeroize::Zeroizing;

/// Prefix of an encoded secret (Standard Webhooks).
const PREFIX: &str = "whsec_";
/// Bytes of a new secret. The specification requires 24 to 64.
const LEN: usize = 32;

/// Generates a secret.
pub(crate) fn generate() -> Secret {
    let mut octets = Zeroizing::new(vec![0; LEN]);
    rand::fill(&mut octets).expect("the system's randomness");
    Secret(octets)
}

pub(crate) struct Secret(Zeroizing<Vec<u8>>);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

impl Secret {
    /// Parses a secret of another server: 24 to 64 bytes. `None`: invalid.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let octets = STANDARD.decode(text.strip_prefix(PREFIX)?).ok()?;
        (24..=64).contains(&octets.len()).then(|| Self(octets.into()))
    }

    /// Creates a secret from stored bytes.
    pub(crate) fn from_octets(octets: Vec<u8>) -> Self {
        Self(octets.into())
    }

    /// Returns the raw bytes, for encryption.
    pub(crate) fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Returns the secret in the form for its receiver.
    pub(crate) fn write(&self) -> Zeroizing<String> {
        Zeroizing::new(format!("{PREFIX}{}", STANDARD.encode(&*self.0)))
    }

    /// Returns the signature of a request: `v1,` and base64.
    pub(super) fn sign(&self, id: &str, timestamp_s: i64, body: &[u8]) -> String {
        let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, &self.0));
        context.update(format!("{id}.{timestamp_s}.").as_bytes());
        context.update(body);
        format!("v1,{}", STANDARD.encode(context.sign()))
    }
}

#[cfg(test)]
#[path = "../../tests/unit/hooks/signature.rs"]
mod tests;
