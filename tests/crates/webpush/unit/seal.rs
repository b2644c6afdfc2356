//! Unit tests of `crates/bellwire-webpush/src/seal.rs`, which includes them.

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
