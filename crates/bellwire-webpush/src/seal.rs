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

/// Why a message was not sealed. Nothing was appended.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SealError {
    /// The plaintext is too long.
    #[error("a push carries at most {PLAINTEXT_MAX} octets of plaintext, not {octets}")]
    TooLong {
        /// Octets of the plaintext.
        octets: usize,
    },
    /// The browser's public key is not on the curve. Registration refuses such keys, so storage is damaged.
    #[error("the browser's public key is not a point on P-256")]
    BadKey,
    /// The crypto library failed to make a key or a random number: out of memory, or no system randomness.
    #[error("the crypto library failed")]
    Crypto,
}

/// The length to pad to: the next multiple of [`PADDING_STEP`], but no more than `limit`, the plaintext octets that
/// the gateway is known to take. A plaintext over the limit is left as it is; whether it is sent is not decided here.
#[inline]
pub fn padded_len(plaintext: usize, limit: usize) -> usize {
    plaintext.next_multiple_of(PADDING_STEP).min(limit.min(PLAINTEXT_MAX)).max(plaintext)
}

/// Appends the body of a push message to `out`: at most 4,096 octets, `max(plaintext, pad_to) + 103` of them.
/// Makes a fresh key pair and salt, as RFC 8291 section 3.1 asks for every message and recipient.
///
/// `pad_to` is the length of plaintext and padding together; [`PLAINTEXT_MAX`] bounds it.
pub fn seal(keys: &BrowserKeys, plaintext: &[u8], pad_to: usize, out: &mut Vec<u8>) -> Result<(), SealError> {
    let ephemeral = PrivateKey::generate(&ECDH_P256).map_err(|_| SealError::Crypto)?;
    let mut salt = [0; SALT_LEN];
    rand::fill(&mut salt).map_err(|_| SealError::Crypto)?;
    seal_with(keys, plaintext, pad_to, &ephemeral, &salt, out)
}

/// [`seal`] with a given key and salt, which must never seal a second message.
fn seal_with(
    keys: &BrowserKeys,
    plaintext: &[u8],
    pad_to: usize,
    ephemeral: &PrivateKey,
    salt: &[u8; SALT_LEN],
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

/// [`seal`] with a public key of ours and the secret that its private half and the browser's key have agreed on.
pub(super) fn seal_agreed(
    keys: &BrowserKeys,
    plaintext: &[u8],
    pad_to: usize,
    (public, shared): (&[u8; 65], &[u8]),
    salt: &[u8; SALT_LEN],
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
    keying_material: &[u8],
    salt: &[u8; SALT_LEN],
    key_id: &[u8],
    plaintext: &[u8],
    pad_to: usize,
    out: &mut Vec<u8>,
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
mod tests {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;
    use p256::elliptic_curve::sec1::ToSec1Point as _;

    use super::*;

    fn octets<const N: usize>(base64: &str) -> [u8; N] {
        URL_SAFE_NO_PAD.decode(base64).unwrap().try_into().unwrap()
    }

    /// RFC 8291 appendix A.
    const BODY: &str = "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6Tlz\
        AC8wEqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN";

    #[test]
    fn rfc_8291_appendix_a_matches() {
        let keys = BrowserKeys {
            p256dh: octets("BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"),
            auth: octets("BTBZMqHH6r4Tts7J_aSIgg"),
        };
        let private: [u8; 32] = octets("yfWPiYE-n46HLnH0KqZOF1fJJU3MYrct3AELtAQ-oRw");
        let ephemeral = PrivateKey::from_private_key(&ECDH_P256, &private).unwrap();
        let mut body = Vec::new();
        let plaintext = b"When I grow up, I want to be a watermelon";
        seal_with(&keys, plaintext, 0, &ephemeral, &octets("DGv6ra1nlYgDCS1FRnbzlw"), &mut body).unwrap();
        assert_eq!(body.len(), 144);
        assert_eq!(URL_SAFE_NO_PAD.encode(body), BODY);
    }

    #[test]
    fn rfc_8188_section_3_1_matches() {
        let material: [u8; 16] = octets("yqdlZ-tYemfogSmv7Ws5PQ");
        let mut body = Vec::new();
        seal_record(&material, &octets("I1BsxtFttlv3u_Oo94xnmw"), &[], b"I am the walrus", 0, &mut body).unwrap();
        let expected = "I1BsxtFttlv3u_Oo94xnmwAAEAAA-NAVub2qFgBEuQKRapoZu-IxkIva3MEB1PD-ly8Thjg";
        assert_eq!(URL_SAFE_NO_PAD.encode(body), expected);
    }

    fn browser() -> (ece::EcKeyComponents, BrowserKeys) {
        let (pair, auth) = ece::generate_keypair_and_auth_secret().unwrap();
        let keys = pair.pub_as_raw().unwrap();
        (pair.raw_components().unwrap(), BrowserKeys { p256dh: keys.try_into().unwrap(), auth })
    }

    #[test]
    fn independent_implementation_opens_all_edge_sizes() {
        let (private, keys) = browser();
        let mut out = b"before".to_vec();
        for length in [0, 1, 127, 128, 129, 300, 3839, 3840, 3841, 3968, 3969, 3992, PLAINTEXT_MAX] {
            for pad_to in [0, padded_len(length, PLAINTEXT_MAX), padded_len(length, 2744), 9999] {
                let plaintext: Vec<u8> = (0..length).map(|i| i as u8).collect();
                out.truncate(6);
                seal(&keys, &plaintext, pad_to, &mut out).unwrap();
                let (before, body) = out.split_at(6);
                assert_eq!(before, b"before");
                assert_eq!(body.len(), length.max(pad_to.min(PLAINTEXT_MAX)) + OVERHEAD);
                assert!(body.len() <= 4096);
                assert_eq!(body[16..21], [0, 0, 16, 0, 65]);
                assert_eq!(ece::decrypt(&private, &keys.auth, body).unwrap(), plaintext);
            }
        }
    }

    #[test]
    fn every_message_has_its_own_salt_and_key() {
        let (_, keys) = browser();
        let [mut one, mut other] = [vec![], vec![]];
        seal(&keys, b"x", 0, &mut one).unwrap();
        seal(&keys, b"x", 0, &mut other).unwrap();
        assert_ne!(one[..16], other[..16]);
        assert_ne!(one[21..86], other[21..86]);
    }

    #[test]
    fn what_cannot_be_sealed_leaves_the_buffer_alone() {
        let (_, keys) = browser();
        let mut out = b"before".to_vec();
        assert_eq!(
            seal(&keys, &[0; PLAINTEXT_MAX + 1], 0, &mut out),
            Err(SealError::TooLong { octets: PLAINTEXT_MAX + 1 })
        );
        let mut off_curve = keys.clone();
        off_curve.p256dh[64] ^= 1;
        assert_eq!(seal(&off_curve, b"x", 0, &mut out), Err(SealError::BadKey));
        let infinity = BrowserKeys { p256dh: [0; 65], ..keys };
        assert_eq!(seal(&infinity, b"x", 0, &mut out), Err(SealError::BadKey));
        assert_eq!(out, b"before");
    }

    #[test]
    fn compressed_point_is_never_read_as_uncompressed() {
        let compressed = p256::SecretKey::from_slice(&[7; 32]).unwrap().public_key().to_sec1_point(true);
        let mut p256dh = [0; 65];
        p256dh[..33].copy_from_slice(compressed.as_bytes());
        let keys = BrowserKeys { p256dh, auth: [0; 16] };
        assert_eq!(seal(&keys, b"x", 0, &mut vec![]), Err(SealError::BadKey));
    }

    #[test]
    fn padding_fills_steps_within_limits() {
        for (plaintext, limit, padded) in [
            (0, 3993, 0),
            (1, 3993, 128),
            (128, 3993, 128),
            (129, 3993, 256),
            (3969, 3993, 3993),
            (3993, 9999, 3993),
            (2700, 2744, 2744),
            (2745, 2744, 2745),
        ] {
            assert_eq!(padded_len(plaintext, limit), padded, "{plaintext} under {limit}");
        }
    }
}
