//! The browser's side of RFC 8291: opening a push message. The simulator uses it; it is stricter than browsers are,
//! so that what it lets pass is known to conform.

use aws_lc_rs::aead::{AES_128_GCM, Aad, LessSafeKey, Nonce, UnboundKey};
pub use aws_lc_rs::agreement::PrivateKey;
use aws_lc_rs::agreement::{self, ECDH_P256, UnparsedPublicKey};

use super::{HEADER_LEN, OVERHEAD, RECORD_SIZE, SALT_LEN, keying_material, record_key};
use crate::subscription::BrowserKeys;

/// What is wrong with the body of a push message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum OpenError {
    /// Shorter than header, delimiter and tag, or longer than the 4,096 octets that every gateway takes.
    #[error("the body has {0} octets, not 103 to 4096")]
    Length(usize),
    /// The header names no uncompressed P-256 point, or another record size than 4,096.
    #[error("the header is not salt, record size 4096, 65, P-256 point")]
    Header,
    /// Sealed for another browser, or changed on the way.
    #[error("the record does not authenticate")]
    Record,
    /// The plaintext does not end in a 2 and zeros: not the last record, as the only one must be.
    #[error("the record has no delimiter of a last record")]
    Delimiter,
}

/// What a page would hand to its server after subscribing with this key pair and authentication secret.
pub fn browser_keys(private: &PrivateKey, auth: [u8; 16]) -> BrowserKeys {
    let public = private.compute_public_key().expect("a P-256 private key has a public key");
    BrowserKeys { p256dh: public.as_ref().try_into().expect("an uncompressed P-256 point"), auth }
}

/// Opens the body of a push message: one record, padding removed.
///
/// # Panics
/// If `private` is not a P-256 key.
pub fn open(private: &PrivateKey, auth: &[u8; 16], body: &[u8]) -> Result<Vec<u8>, OpenError> {
    if !(OVERHEAD..=RECORD_SIZE as usize).contains(&body.len()) {
        return Err(OpenError::Length(body.len()));
    }
    let (header, record) = body.split_at(HEADER_LEN);
    let (salt, header) = header.split_first_chunk::<SALT_LEN>().expect("the header has 86 octets");
    let (record_size, key_id) = header.split_first_chunk::<4>().expect("70 octets follow the salt");
    if u32::from_be_bytes(*record_size) != RECORD_SIZE || key_id[..2] != [65, 4] {
        return Err(OpenError::Header);
    }
    let sender = &key_id[1..];
    let own = browser_keys(private, *auth);
    let peer = UnparsedPublicKey::new(&ECDH_P256, sender);
    let material = agreement::agree(private, peer, OpenError::Header, |shared| {
        Ok(keying_material(shared, auth, &own.p256dh, sender))
    })?;
    let (key, nonce) = record_key(&material, salt);
    let key = LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).map_err(|_| OpenError::Record)?);
    let mut plain = record.to_vec();
    let length = key
        .open_in_place(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut plain)
        .map_err(|_| OpenError::Record)?
        .len();
    plain.truncate(length);
    match plain.iter().rposition(|&octet| octet != 0) {
        Some(end) if plain[end] == 2 => plain.truncate(end),
        _ => return Err(OpenError::Delimiter),
    }
    Ok(plain)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::message::PLAINTEXT_MAX;
    use crate::webpush::seal::{padded_len, seal};

    fn browser() -> (PrivateKey, BrowserKeys) {
        let private = PrivateKey::generate(&ECDH_P256).unwrap();
        let keys = browser_keys(&private, [7; 16]);
        (private, keys)
    }

    #[test]
    fn what_an_independent_implementation_sealed_opens() {
        let (private, keys) = browser();
        for plaintext in [&b"x"[..], &[0; 300], &[2; 3000]] {
            let body = ece::encrypt(&keys.p256dh, &keys.auth, plaintext).unwrap();
            assert_eq!(open(&private, &keys.auth, &body).as_deref(), Ok(plaintext));
        }
    }

    #[test]
    fn what_we_sealed_opens_and_any_changed_octet_shows() {
        let (private, keys) = browser();
        for length in [0, 1, 128, PLAINTEXT_MAX] {
            let mut body = Vec::new();
            seal(&keys, &vec![0; length], padded_len(length, PLAINTEXT_MAX), &mut body).unwrap();
            assert_eq!(open(&private, &keys.auth, &body), Ok(vec![0; length]));
        }
        let mut body = Vec::new();
        seal(&keys, b"x", 0, &mut body).unwrap();
        for at in 0..body.len() {
            let mut changed = body.clone();
            changed[at] ^= 1;
            let expected = if (16..HEADER_LEN).contains(&at) { OpenError::Header } else { OpenError::Record };
            assert_eq!(open(&private, &keys.auth, &changed), Err(expected), "octet {at}");
        }
        assert_eq!(open(&private, &keys.auth, &body[..102]), Err(OpenError::Length(102)));
        assert_eq!(open(&private, &keys.auth, &[0; 4097]), Err(OpenError::Length(4097)));
        assert_eq!(open(&private, &[8; 16], &body), Err(OpenError::Record));
    }

    #[test]
    fn a_record_that_is_not_the_last_or_has_no_delimiter_is_refused() {
        let (private, keys) = browser();
        for record in [&b"x\x01"[..], b"x\x02\x01", b"x\x03\0", b"\0\0"] {
            let ephemeral = PrivateKey::generate(&ECDH_P256).unwrap();
            let sender = browser_keys(&ephemeral, [0; 16]).p256dh;
            let peer = UnparsedPublicKey::new(&ECDH_P256, &keys.p256dh);
            let material = agreement::agree(&ephemeral, peer, (), |shared| {
                Ok(keying_material(shared, &keys.auth, &keys.p256dh, &sender))
            });
            let (key, nonce) = record_key(&material.unwrap(), &[5; 16]);
            let mut sealed = record.to_vec();
            LessSafeKey::new(UnboundKey::new(&AES_128_GCM, &key).unwrap())
                .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), Aad::empty(), &mut sealed)
                .unwrap();
            let mut body = [&[5; 16][..], &[0, 0, 16, 0, 65], &sender, &sealed].concat();
            assert_eq!(open(&private, &keys.auth, &body), Err(OpenError::Delimiter), "{record:?}");
            body[18] = 32; // a record size of 8,192
            assert_eq!(open(&private, &keys.auth, &body), Err(OpenError::Header));
        }
    }
}
