//! What preparing one push message costs, on one core, in CPU time: encryption and, where the contender's interface
//! makes it part of a message, the VAPID signature. `cargo bench --bench sealing`
//!
//! Contenders take turns in rounds, so that a busy neighbour slows all of them; the median round counts. Every
//! contender's output is opened before anything is timed.

#![allow(clippy::print_stdout, reason = "a benchmark's table is its result")]

mod support;

use aes_gcm::aead::{Aead as _, KeyInit as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bellwire::testkit::model::subscription::BrowserKeys;
use bellwire::testkit::webpush::keys::SigningKey;
use bellwire::testkit::webpush::seal::seal;
use p256::elliptic_curve::Generate as _;
use p256::elliptic_curve::sec1::ToSec1Point as _;
use support::sealing::{ORIGIN, PAYLOAD_OCTETS, Prepare, ROUNDS, SUBJECT, bellwire_line, median, round};
use web_push::{ContentEncoding, SubscriptionInfo, VapidSignatureBuilder, WebPushMessageBuilder};

fn main() {
    let (pair, auth) = ece::generate_keypair_and_auth_secret().expect("randomness");
    let p256dh = pair.pub_as_raw().expect("a fresh key").try_into().expect("65 octets");
    let (browser, keys) = (pair.raw_components().expect("a fresh key"), BrowserKeys { p256dh, auth });
    let vapid = SigningKey::generate();
    let payload = "x".repeat(PAYLOAD_OCTETS);
    let mut contenders: Vec<(&str, Prepare)> = vec![
        ("Bellwire: stamp, seal, cached token", bellwire_line(&keys, &vapid, &payload)),
        ("Bellwire: seal alone", Box::new(|out| seal(&keys, payload.as_bytes(), 0, out).expect("seals"))),
        ("web-push crate: sign, seal", web_push_crate(&keys, &vapid, &payload)),
        (
            "ece on OpenSSL: seal",
            Box::new(|out| {
                *out = ece::encrypt(&keys.p256dh, &keys.auth, payload.as_bytes()).expect("seals");
            }),
        ),
        ("RustCrypto p256 + aes-gcm: seal", Box::new(|out| rust_crypto(&keys, payload.as_bytes(), out))),
    ];
    for (name, prepare) in &mut contenders {
        let mut body = Vec::new();
        prepare(&mut body);
        let plain = ece::decrypt(&browser, &keys.auth, &body).expect(name);
        assert!(plain.windows(PAYLOAD_OCTETS).any(|window| window == payload.as_bytes()), "{name}");
    }

    let mut rounds = vec![Vec::with_capacity(ROUNDS); contenders.len()];
    for _ in 0..ROUNDS {
        for ((_, prepare), micros) in contenders.iter_mut().zip(&mut rounds) {
            micros.push(round(prepare));
        }
    }
    let medians: Vec<f64> = rounds.iter_mut().map(|micros| median(micros)).collect();
    println!("\nOne message, payload of {PAYLOAD_OCTETS} octets, one core, median of {ROUNDS} rounds\n");
    println!("{:<38} {:>12} {:>12} {:>8}", "", "CPU-µs", "best round", "ratio");
    for (((name, _), micros), median) in contenders.iter().zip(&rounds).zip(&medians) {
        println!("{name:<38} {median:>12.1} {:>12.1} {:>7.1}x", micros[0], median / medians[0]);
    }
}

/// As its documentation shows it: a signature goes into every message.
fn web_push_crate<'a>(keys: &BrowserKeys, vapid: &SigningKey, payload: &'a str) -> Prepare<'a> {
    let [p256dh, auth] = [&keys.p256dh[..], &keys.auth].map(|octets| URL_SAFE_NO_PAD.encode(octets));
    let subscription = SubscriptionInfo::new(format!("{ORIGIN}/wpush/v2/gAAAA"), p256dh, auth);
    let signer = VapidSignatureBuilder::from_base64_no_sub(&vapid.expose_raw()).expect("reads the key");
    Box::new(move |out| {
        let mut signature = signer.clone().add_sub_info(&subscription);
        signature.add_claim("sub", SUBJECT);
        let mut message = WebPushMessageBuilder::new(&subscription);
        message.set_payload(ContentEncoding::Aes128Gcm, payload.as_bytes());
        message.set_vapid_signature(signature.build().expect("signs"));
        *out = message.build().expect("seals").payload.expect("has a payload").content;
    })
}

/// RFC 8291 by hand on the pure Rust implementations.
fn rust_crypto(keys: &BrowserKeys, plaintext: &[u8], out: &mut Vec<u8>) {
    let ephemeral = p256::SecretKey::generate_from_rng(&mut rand::rng());
    let public = ephemeral.public_key().to_sec1_point(false);
    let browser = p256::PublicKey::from_sec1_bytes(&keys.p256dh).expect("a point");
    let shared = p256::ecdh::diffie_hellman(ephemeral.to_nonzero_scalar(), browser.as_affine());
    let salt: [u8; 16] = rand::random();
    let (mut material, mut key, mut nonce) = ([0; 32], [0; 16], [0; 12]);
    let info = [b"WebPush: info\0", &keys.p256dh[..], public.as_bytes()].concat();
    let expand = |salt: &[u8], input: &[u8], info: &[u8], out: &mut [u8]| {
        hkdf::Hkdf::<sha2::Sha256>::new(Some(salt), input).expand(info, out).expect("one block");
    };
    expand(&keys.auth, shared.raw_secret_bytes(), &info, &mut material);
    expand(&salt, &material, b"Content-Encoding: aes128gcm\0", &mut key);
    expand(&salt, &material, b"Content-Encoding: nonce\0", &mut nonce);
    let cipher = aes_gcm::Aes128Gcm::new(&key.into());
    let sealed = cipher.encrypt(&nonce.into(), [plaintext, &[2]].concat().as_slice()).expect("seals");
    out.extend_from_slice(&salt);
    out.extend_from_slice(&[0, 0, 16, 0, 65]);
    out.extend_from_slice(public.as_bytes());
    out.extend_from_slice(&sealed);
}
