//! Sealing one push message for one browser: RFC 8291 over the `aes128gcm` coding of RFC 8188.
//!
//! ```text
//! +-----------+----------------+-----------+-------------+----------------------------------------------+
//! | salt (16) | 4096 (u32, BE) | 65 (u8)   | public (65) | AES-128-GCM(plaintext | 2 | zeros), tag (16) |
//! +-----------+----------------+-----------+-------------+----------------------------------------------+
//! ```
//!
//! One record, never more: RFC 8291 section 4 demands it, though browsers let more pass.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
use aws_lc_rs::agreement::{self, ECDH_P256, PrivateKey, UnparsedPublicKey};
use aws_lc_rs::rand;

use super::{OVERHEAD, RECORD_SIZE, SALT_LEN, keying_material, record_key};
use bellwire_core::message::PLAINTEXT_MAX;
use bellwire_core::subscription::BrowserKeys;

/// Plaintexts are padded to a multiple of this many octets. It hides small differences, such as names and amounts. An ordinary
/// notification stays far below the limits of gateways that accept less than the standard's 4,096. Padding to the full size made
/// Firefox on Android refuse whole sites.
pub(crate) const PADDING_STEP: usize = 128;

/// Reason for which a message was not encrypted. Nothing was appended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The plaintext is too long.
    #[error("a push carries at most {PLAINTEXT_MAX} octets of plaintext, not {octets}")]
    TooLong {
        /// Bytes of the plaintext.
        octets: usize,
    },
    /// The browser's public key is not on the curve. Registration refuses such keys, so the stored row is damaged.
    #[error("the browser's public key is not a point on P-256")]
    BadKey,
    /// The crypto library failed to generate a key or a random number.
    #[error("the crypto library failed")]
    Crypto,
}

/// Returns the length to pad to: the next multiple of [`PADDING_STEP`], at most `limit`, the plaintext bytes that the push
/// service accepts. A longer plaintext is not padded; the caller decides whether to send it.
#[inline]
pub fn padded_len(plaintext: usize, limit: usize) -> usize {
    plaintext.next_multiple_of(PADDING_STEP).min(limit.min(PLAINTEXT_MAX)).max(plaintext)
}

/// Encrypts a push and appends its body to `out`: `max(plaintext, pad_to) + 103` bytes, at most 4,096. Generates a new key pair
/// and salt, as RFC 8291 section 3.1 requires for every message and recipient.
///
/// `pad_to` is the length of plaintext and padding together, at most [`PLAINTEXT_MAX`].
pub fn seal(keys: &BrowserKeys, plaintext: &[u8], pad_to: usize, out: &mut Vec<u8>) -> Result<(), SealError> {
    let ephemeral = PrivateKey::generate(&ECDH_P256).map_err(|_| SealError::Crypto)?;
    let mut salt = [0; SALT_LEN];
    rand::fill(&mut salt).map_err(|_| SealError::Crypto)?;
    seal_with(keys, plaintext, pad_to, &ephemeral, &salt, out)
}

/// Like [`seal`] with a given key pair and salt, which must never encrypt a second message.
fn seal_with(
    keys: &BrowserKeys, plaintext: &[u8], pad_to: usize, ephemeral: &PrivateKey, salt: &[u8; SALT_LEN],
    out: &mut Vec<u8>,
) -> Result<(), SealError> {
    check_len(plaintext)?;
    let public = ephemeral.compute_public_key().map_err(|_| SealError::Crypto)?;
    let public = public.as_ref().try_into().expect("an uncompressed point has 65 octets");
    let browser = UnparsedPublicKey::new(&ECDH_P256, &keys.p256dh);
    agreement::agree(ephemeral, browser, SealError::BadKey, |shared| {
        seal_agreed(keys, plaintext, pad_to, (public, shared), salt, out)
    })
}

/// Like [`seal`] with a public key and a shared secret that were already agreed with the browser's key.
pub(super) fn seal_agreed(
    keys: &BrowserKeys, plaintext: &[u8], pad_to: usize, (public, shared): (&[u8; 65], &[u8]), salt: &[u8; SALT_LEN],
    out: &mut Vec<u8>,
) -> Result<(), SealError> {
    check_len(plaintext)?;
    let material = keying_material(shared, &keys.auth, &keys.p256dh, public);
    seal_record(&material, salt, public, plaintext, pad_to.min(PLAINTEXT_MAX), out)
}

fn check_len(plaintext: &[u8]) -> Result<(), SealError> {
    match plaintext.len() {
        octets if octets > PLAINTEXT_MAX => Err(SealError::TooLong { octets }),
        _ => Ok(()),
    }
}

/// Appends header and record of RFC 8188 section 2. `key_id` has at most 255 octets.
fn seal_record(
    keying_material: &[u8], salt: &[u8; SALT_LEN], key_id: &[u8], plaintext: &[u8], pad_to: usize, out: &mut Vec<u8>,
) -> Result<(), SealError> {
    let start = out.len();
    let padding = pad_to.saturating_sub(plaintext.len());
    out.reserve(plaintext.len() + padding + OVERHEAD);
    out.extend_from_slice(salt);
    out.extend_from_slice(&RECORD_SIZE.to_be_bytes());
    out.push(u8::try_from(key_id.len()).expect("a point has 65 octets"));
    out.extend_from_slice(key_id);
    let record = out.len();
    out.extend_from_slice(plaintext);
    out.push(2);
    out.resize(out.len() + padding, 0);

    let (key, nonce) = record_key(keying_material, salt);
    let sealed = UnboundKey::new(&AES_128_GCM, &key).and_then(|key| {
        let nonce = Nonce::assume_unique_for_key(nonce);
        LessSafeKey::new(key).seal_in_place_separate_tag(nonce, Aad::empty(), &mut out[record..])
    });
    let Ok(tag) = sealed else {
        out.truncate(start); // the plaintext stands there
        return Err(SealError::Crypto);
    };
    out.extend_from_slice(tag.as_ref());
    debug_assert!(key_id.len() != 65 || out.len() - start == plaintext.len() + padding + OVERHEAD);
    debug_assert!(out.len() - start <= RECORD_SIZE as usize);
    Ok(())
}

#[cfg(test)]
#[path = "../../../tests/crates/webpush/unit/seal.rs"]
mod tests;
