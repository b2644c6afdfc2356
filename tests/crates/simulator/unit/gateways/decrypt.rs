//! Unit tests of `crates/bellwire-simulator/src/gateways/decrypt.rs`, which includes them.

use aws_lc_rs::agreement::{ECDH_P256, PrivateKey};

use super::*;
use bellwire_core::base64url;

fn bytes(text: &str) -> Vec<u8> {
    base64url::decode_any(text).unwrap()
}

/// The user agent of RFC 8291, Appendix A.
fn example() -> (Subscriber, Vec<u8>) {
    let private = bytes("q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94");
    let private = PrivateKey::from_private_key(&ECDH_P256, &private).unwrap();
    let public = head(private.compute_public_key().unwrap().as_ref());
    let body = "DGv6ra1nlYgDCS1FRnbzlwAAEABBBP4z9KsN6nGRTbVYI_c7VJSPQTBtkgcy27mlmlMoZIIgDll6e3vCYLocInmYWAmS6TlzAC8w\
                EqKK6PBru3jl7A_yl95bQpu6cVPTpK4Mqgkf1CXztLVBSt2Ks3oZwbuwXPXLWyouBWLVWGNWQexSgSxsj_Qulcy4a-fN";
    (Subscriber { private, public, auth: head(&bytes("BTBZMqHH6r4Tts7J_aSIgg")) }, bytes(body))
}

#[test]
fn the_example_of_rfc_8291_opens() {
    let (subscriber, body) = example();
    let opened = open(&subscriber, &body).ok().unwrap();
    assert_eq!(opened.plaintext, b"When I grow up, I want to be a watermelon");
    assert_eq!(opened.sender[..], body[21..86]);
}

#[test]
fn each_broken_rule_is_named() {
    let (subscriber, body) = example();
    let bent = |at: usize, octet: u8| {
        let mut body = body.clone();
        body[at] = octet;
        open(&subscriber, &body).err().unwrap()
    };
    assert_eq!(open(&subscriber, &body[..85]).err(), Some(Unreadable::Header("shorter than an RFC 8291 header")));
    assert_eq!(bent(18, 0), Unreadable::Header("record size below 18"));
    assert_eq!(bent(20, 64), Unreadable::Header("key id is not an uncompressed point"));
    assert_eq!(bent(22, body[22] ^ 1), Unreadable::Header("key id is off the curve"));
    assert_eq!(bent(143, body[143] ^ 1), Unreadable::Sealed);
    assert_eq!(bent(0, body[0] ^ 1), Unreadable::Sealed);
    let mut small = body.clone();
    small[16..20].copy_from_slice(&57u32.to_be_bytes());
    assert_eq!(open(&subscriber, &small).err(), Some(Unreadable::Header("more than one record")));
    assert_eq!(open(&subscriber, &body[..102]).err(), Some(Unreadable::Header("record too short to hold a delimiter")));
}
