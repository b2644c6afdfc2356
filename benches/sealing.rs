//! Cost of preparing one push message in CPU time of one core: encryption, and the VAPID signature where the contender's interface includes
//! it in a message. With AVX-512 IFMA, also bursts of each length, eight at a time. `scripts/bench sealing`
//!
//! Contenders take turns in rounds, so that a busy neighbour slows all of them; the median round counts. Every
//! contender's output is opened before anything is timed.

use std::hint::black_box;
use std::path::Path;
use std::time::{Duration, Instant};

use aes_gcm::aead::{Aead as _, KeyInit as _};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bellwire_core::clock::Clock;
use bellwire_core::id::{MessageId, SubscriptionId, VapidKeyId};
use bellwire_core::message::{Content, PLAINTEXT_MAX, Payload};
use bellwire_core::subscription::BrowserKeys;
use bellwire_vault::Vault;
use bellwire_vault::delivery_token::{delivery_id, receipt_token};
use bellwire_webpush::keys::SigningKey;
use bellwire_webpush::payload::{PayloadTemplate, Stamp};
use bellwire_webpush::seal::{padded_len, seal};
use bellwire_webpush::sealer::{LANES, Plain, Sealer};
use bellwire_webpush::vapid::TokenCache;
use p256::elliptic_curve::Generate as _;
use p256::elliptic_curve::sec1::ToSec1Point as _;
use uuid::Uuid;
use web_push::{ContentEncoding, SubscriptionInfo, VapidSignatureBuilder, WebPushMessageBuilder};

use crate::support::cpu;

/// Octets of the message that is sealed.
const PAYLOAD_OCTETS: usize = 300;
/// The contact in its VAPID token.
const SUBJECT: &str = "mailto:push@example.com";
/// Origin of the target endpoint.
const ORIGIN: &str = "https://updates.push.services.mozilla.com";
/// Rounds, of which the median counts.
const ROUNDS: usize = 21;
const ROUND: Duration = Duration::from_millis(100);

/// Eight at a time is to cost at most this share of one at a time.
const SHARE_MAX: f64 = 0.25;

/// A way to prepare a message: leaves the body in the buffer it is given.
type Prepare<'a> = Box<dyn FnMut(&mut Vec<u8>) + 'a>;

pub fn run() {
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
    eight_at_a_time(&browser, &keys, payload.as_bytes());
}

/// Bursts of each length by the accelerator, in rounds with AWS-LC alone, and the share of eight.
fn eight_at_a_time(browser: &ece::EcKeyComponents, keys: &BrowserKeys, plaintext: &[u8]) {
    let sealer = Sealer::fastest();
    if !sealer.is_accelerated() {
        return println!("\neight at a time: not measured: this processor has no AVX-512 IFMA");
    }
    let payloads = [Plain { keys, plaintext, pad_to: 0 }; LANES];
    for body in sealer.seal_all(&payloads) {
        let plain = ece::decrypt(browser, &keys.auth, &body.expect("seals")).expect("opens");
        assert_eq!(plain, plaintext);
    }
    let mut ways: Vec<(usize, Prepare)> = (1..=LANES)
        .map(|n| -> (usize, Prepare) { (n, Box::new(move |_| drop(black_box(sealer.seal_all(&payloads[..n]))))) })
        .collect();
    ways.push((1, Box::new(|out| seal(keys, plaintext, 0, out).expect("seals"))));
    let mut rounds = vec![Vec::with_capacity(ROUNDS); ways.len()];
    for _ in 0..ROUNDS {
        for ((n, way), micros) in ways.iter_mut().zip(&mut rounds) {
            micros.push(round(way) / *n as f64);
        }
    }
    let medians: Vec<f64> = rounds.iter_mut().map(|micros| median(micros)).collect();
    println!("\nSealed {sealer}: bursts of each length, CPU-µs for one message; alone {:.1}\n", medians[LANES]);
    for (at, median) in medians[..LANES].iter().enumerate() {
        println!("{:>6} {median:>12.1}", at + 1);
    }
    let share = medians[LANES - 1] / medians[LANES];
    let verdict = if share <= SHARE_MAX { "" } else { "  missed" };
    println!("\neight at a time: {share:.2} of one at a time (bar: ≤ {SHARE_MAX}){verdict}");
}

/// CPU-µs that Bellwire takes for one message, measured now on this machine.
pub fn one_message() -> f64 {
    let (keys, vapid) = fresh_keys();
    alone(bellwire_line(&keys, &vapid, &"x".repeat(PAYLOAD_OCTETS)))
}

/// CPU-µs that the `web-push` crate takes for one message with this payload, measured now on this machine.
pub fn one_message_by_web_push(payload: &str) -> f64 {
    let (keys, vapid) = fresh_keys();
    alone(web_push_crate(&keys, &vapid, payload))
}

fn fresh_keys() -> (BrowserKeys, SigningKey) {
    (BrowserKeys { p256dh: *SigningKey::generate().public(), auth: [7; 16] }, SigningKey::generate())
}

/// CPU-µs per message, with no other contender in between.
fn alone(mut prepare: Prepare) -> f64 {
    let mut micros: Vec<f64> = (0..ROUNDS).map(|_| round(&mut prepare)).collect();
    median(&mut micros)
}

/// CPU-µs per message over one round.
fn round(prepare: &mut Prepare) -> f64 {
    let mut out = Vec::with_capacity(4096);
    let (start, cpu) = (Instant::now(), thread_cpu());
    let mut messages = 0;
    while start.elapsed() < ROUND {
        for _ in 0..50 {
            out.clear();
            prepare(&mut out);
            black_box(&out);
        }
        messages += 50;
    }
    (thread_cpu() - cpu).as_secs_f64() * 1e6 / f64::from(messages)
}

/// Time that this thread spent on a core.
fn thread_cpu() -> Duration {
    std::thread::yield_now();
    cpu::of_thread(Path::new("/proc/thread-self"))
}

/// The middle one; sorts them.
fn median(micros: &mut [f64]) -> f64 {
    micros.sort_by(f64::total_cmp);
    micros[micros.len() / 2]
}

/// Performs the work of one delivery between the claim and the POST.
fn bellwire_line<'a>(keys: &'a BrowserKeys, vapid: &'a SigningKey, payload: &str) -> Prepare<'a> {
    let vault = Vault::new([(1, [1; 32])], &[2; 32]);
    let template =
        PayloadTemplate::new(&Content::Raw { payload: Payload::Text(payload.into()), envelope: true }).expect("fits");
    let (message, subscription) = (MessageId(Uuid::now_v7()), SubscriptionId::new(Uuid::now_v7(), 0));
    let (cache, key_id, clock) = (TokenCache::default(), VapidKeyId(Uuid::now_v7()), Clock::system());
    let mut plaintext = Vec::new();
    Box::new(move |out| {
        plaintext.clear();
        let id = delivery_id(&vault, message, subscription);
        let receipt = receipt_token(&vault, message, subscription);
        template.render(&Stamp { id, receipt, retried: 0, replaces: None, content_type: None }, &mut plaintext);
        seal(keys, &plaintext, padded_len(plaintext.len(), PLAINTEXT_MAX), out).expect("seals");
        black_box(cache.header(key_id, vapid, SUBJECT, ORIGIN, clock.now()));
    })
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
