//! Decrypts payloads of minted subscriptions (RFC 8188, RFC 8291). Deliberately independent of [`bellwire_webpush`]: both
//! must agree because they follow the RFCs, not because they share code.

use aws_lc_rs::{aead, agreement, hmac};

use super::subscriptions::{Subscriber, head};

/// Result of the decryption: the plaintext, and the public key and salt of the sender.
pub(super) struct DecryptedPush {
    /// Payload for the service worker.
    pub plaintext: Vec<u8>,
    pub sender: [u8; 65],
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Unreadable {
    /// Header, record size or key id violate RFC 8291 section 4.
    Header(&'static str),
    /// The form is valid, but the keys of this subscription do not decrypt the body.
    Sealed,
    /// The body decrypts, but its delimiter is not that of a last record.
    Delimiter,
}

/// salt (16) | record size (4) | length of key id (1) | key id (65)
const HEADER: usize = 86;
const AEAD_TAG: usize = 16;

pub(super) fn open(subscriber: &Subscriber, body: &[u8]) -> Result<DecryptedPush, Unreadable> {
    let (salt, sender, record) = split(body)?;
    let (key, nonce) = derive(subscriber, salt, sender)?;
    let key = aead::UnboundKey::new(&aead::AES_128_GCM, &key).map_err(|_| Unreadable::Sealed)?;
    let mut buffer = record.to_vec();
    let opened = aead::LessSafeKey::new(key)
        .open_in_place(aead::Nonce::assume_unique_for_key(nonce), aead::Aad::empty(), &mut buffer)
        .map_err(|_| Unreadable::Sealed)?;
    let end = opened.iter().rposition(|octet| *octet != 0).ok_or(Unreadable::Delimiter)?;
    if opened[end] != 2 {
        return Err(Unreadable::Delimiter);
    }
    Ok(DecryptedPush { plaintext: opened[..end].to_vec(), sender: head(sender) })
}

/// Salt, public key of the sender, and the only record.
type Parts<'a> = (&'a [u8], &'a [u8], &'a [u8]);

fn split(body: &[u8]) -> Result<Parts<'_>, Unreadable> {
    let Some((header, record)) = body.split_at_checked(HEADER) else {
        return Err(Unreadable::Header("shorter than an RFC 8291 header"));
    };
    let record_size = u32::from_be_bytes(head(&header[16..20])) as usize;
    if record_size < 18 {
        return Err(Unreadable::Header("record size below 18"));
    }
    if header[20] != 65 || header[21] != 4 {
        return Err(Unreadable::Header("key id is not an uncompressed point"));
    }
    if record.len() > record_size {
        return Err(Unreadable::Header("more than one record"));
    }
    if record.len() <= AEAD_TAG {
        return Err(Unreadable::Header("record too short to hold a delimiter"));
    }
    Ok((&header[..16], &header[21..], record))
}

/// Derives content-encryption key and nonce (RFC 8291 section 3.4).
fn derive(subscriber: &Subscriber, salt: &[u8], sender: &[u8]) -> Result<([u8; 16], [u8; 12]), Unreadable> {
    let peer = agreement::UnparsedPublicKey::new(&agreement::ECDH_P256, sender);
    let info = [b"WebPush: info\0", &subscriber.public[..], sender, &[1]].concat();
    let material =
        agreement::agree(&subscriber.private, peer, Unreadable::Header("key id is off the curve"), |ecdh| {
            Ok(hmac256(hmac256(&subscriber.auth, ecdh).as_ref(), &info))
        })?;
    let secret = hmac256(salt, material.as_ref());
    let key = hmac256(secret.as_ref(), b"Content-Encoding: aes128gcm\0\x01");
    let nonce = hmac256(secret.as_ref(), b"Content-Encoding: nonce\0\x01");
    Ok((head(key.as_ref()), head(nonce.as_ref())))
}

fn hmac256(key: &[u8], data: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), data)
}

#[cfg(test)]
#[path = "../../../../tests/crates/simulator/unit/gateways/decrypt.rs"]
mod tests;
