//! Unit tests of `crates/bellwire-webpush/src/vapid.rs`, which includes them.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::DateTime;
use serde_json::json;
use uuid::Uuid;

use super::verifier::{VapidError, verify};
use super::*;

const ORIGIN: &str = "https://fcm.googleapis.com";
const SUBJECT: &str = "mailto:push@example.com";

fn at(seconds: i64) -> Timestamp {
    DateTime::from_timestamp(1_800_000_000 + seconds, 0).unwrap()
}

fn key() -> SigningKey {
    SigningKey::from_private([3; 32]).unwrap()
}

fn id() -> VapidKeyId {
    VapidKeyId(Uuid::from_u128(1))
}

#[test]
fn rfc_8292_section_2_4_verifies() {
    let authorization = "vapid t=eyJ0eXAiOiJKV1QiLCJhbGciOiJFUzI1NiJ9.eyJhdWQiOiJodHRwczovL3B1c2guZXhhbXBsZS5uZXQ\
        iLCJleHAiOjE0NTM1MjM3NjgsInN1YiI6Im1haWx0bzpwdXNoQGV4YW1wbGUuY29tIn0.i3CYb7t4xfxCDquptFOepC9GAu_HLGkMlMuCGS\
        K2rpiUfnK9ojFwDXb1JrErtmysazNjjvW2L9OkSSHzvoD1oA, k=BA1Hxzyi1RUM1b5wjxsn7nGxAszw2u61m164i3MrAIxHF6YK5h4SDYi\
        c-dRuU_RCPCfA5aq9ojSwk5Y2EmClBPs";
    let now = DateTime::from_timestamp(1_453_523_768 - 3600, 0).unwrap();
    let claims = verify(authorization, "https://push.example.net", now).unwrap();
    assert_eq!((claims.expires_s, claims.subject.as_str()), (1_453_523_768, "mailto:push@example.com"));
}

#[test]
fn signature_verifies_for_origin_and_time_only() {
    let header = sign(&key(), SUBJECT, ORIGIN, at(0));
    assert!(header.is_sensitive());
    let header = header.to_str().unwrap();
    let claims = verify(header, ORIGIN, at(0)).unwrap();
    assert_eq!(claims.expires_s, at(LIFE_S).timestamp());
    assert_eq!((claims.subject.as_str(), &claims.key), (SUBJECT, key().public()));
    assert_eq!(verify(header, "https://fcm.googleapis.com/", at(0)), Err(VapidError::Audience));
    assert!(verify(header, ORIGIN, at(LIFE_S - 1)).is_ok());
    assert_eq!(verify(header, ORIGIN, at(LIFE_S)), Err(VapidError::Expired));
    assert_eq!(verify(header, ORIGIN, at(-LIFE_S - 1)), Err(VapidError::TooLong));
}

#[test]
fn an_independent_implementation_accepts_what_we_sign() {
    use p256::ecdsa::signature::Verifier as _;
    let header = sign(&key(), SUBJECT, ORIGIN, at(0));
    let token = header.to_str().unwrap().strip_prefix("vapid t=").unwrap().split(',').next().unwrap();
    let (signed, signature) = token.rsplit_once('.').unwrap();
    let signature = p256::ecdsa::Signature::from_slice(&URL_SAFE_NO_PAD.decode(signature).unwrap()).unwrap();
    let verifier = p256::ecdsa::VerifyingKey::from_sec1_bytes(key().public()).unwrap();
    verifier.verify(signed.as_bytes(), &signature).unwrap();
    let (head, claims) = signed.split_once('.').unwrap();
    let json = |part| serde_json::from_slice::<serde_json::Value>(&URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap();
    assert_eq!(json(head), json!({"typ": "JWT", "alg": "ES256"}));
    assert_eq!(json(claims), json!({"aud": ORIGIN, "exp": 1_800_000_000 + LIFE_S, "sub": SUBJECT}));
}

/// An `Authorization` over any claims, signed by [`key`].
fn signed(claims: serde_json::Value) -> String {
    let signer = EncodingKey::from_ec_der(&key().expose_pkcs8());
    let token = jsonwebtoken::encode(&Header::new(Algorithm::ES256), &claims, &signer).unwrap();
    format!("vapid t={token}, k={}", key().public_base64())
}

#[test]
fn every_fault_of_a_token_has_its_name() {
    let exp = at(3600).timestamp();
    let fault = |authorization: &str| verify(authorization, ORIGIN, at(0)).unwrap_err();
    for (claims, expected) in [
        (json!({"aud": [ORIGIN], "exp": exp, "sub": SUBJECT}), VapidError::Token),
        (json!({"aud": ORIGIN, "exp": exp as f64 + 0.5, "sub": SUBJECT}), VapidError::Token),
        (json!({"aud": ORIGIN, "exp": exp.to_string(), "sub": SUBJECT}), VapidError::Token),
        (json!({"aud": ORIGIN, "sub": SUBJECT}), VapidError::Token),
        (json!({"aud": "https://fcm.googleapis.com:8443", "exp": exp, "sub": SUBJECT}), VapidError::Audience),
        (json!({"aud": ORIGIN, "exp": exp}), VapidError::Subject),
        (json!({"aud": ORIGIN, "exp": exp, "sub": "mailto:x@localhost"}), VapidError::Subject),
        (json!({"aud": ORIGIN, "exp": i64::MIN, "sub": SUBJECT}), VapidError::Expired),
        (json!({"aud": ORIGIN, "exp": i64::MAX, "sub": SUBJECT}), VapidError::TooLong),
    ] {
        assert_eq!(fault(&signed(claims.clone())), expected, "{claims}");
    }
    let good = signed(json!({"aud": ORIGIN, "exp": exp, "sub": SUBJECT}));
    assert!(verify(&good, ORIGIN, at(0)).is_ok());
    assert!(verify(&good.replace("vapid ", "VAPID x=1,"), ORIGIN, at(0)).is_ok());
    let other = SigningKey::from_private([4; 32]).unwrap().public_base64();
    assert_eq!(fault(&good.replace(&key().public_base64(), &other)), VapidError::Signature);
    assert_eq!(fault(&format!("{good}=")), VapidError::Key);
    assert_eq!(fault(&good.replace("k=B", "k=C")), VapidError::Key);
    assert_eq!(fault(&good.replace("vapid", "WebPush")), VapidError::Scheme);
    assert_eq!(fault(""), VapidError::Scheme);
    assert_eq!(fault(&good.replace(", k=", "; k=")), VapidError::Parameters);
    assert_eq!(fault(&good.replace(", k=", ", p=")), VapidError::Parameters);
    assert_eq!(fault(&format!("{good}, k=A")), VapidError::Parameters);
    assert_eq!(fault(&good.replace("t=e", "t=f")), VapidError::Token);
}

#[test]
fn token_is_replaced_after_half_its_life() {
    let cache = TokenCache::default();
    let header = |seconds| cache.header(id(), &key(), SUBJECT, ORIGIN, at(seconds));
    let first = header(0);
    assert!(first.is_sensitive() && header(1).is_sensitive());
    assert_eq!(header(USE_S - 1), first);
    let second = header(USE_S);
    assert_ne!(second, first);
    assert_eq!(header(USE_S + 1), second);
    assert_ne!(header(0), second, "a clock that stepped back by hours must not make tokens of over 24");
}

#[test]
fn keys_origins_and_subjects_do_not_share_tokens() {
    let cache = TokenCache::default();
    let first = cache.header(id(), &key(), SUBJECT, ORIGIN, at(0));
    assert_ne!(cache.header(id(), &key(), SUBJECT, "https://web.push.apple.com", at(0)), first);
    let other = SigningKey::from_private([4; 32]).unwrap();
    assert_ne!(cache.header(VapidKeyId(Uuid::from_u128(2)), &other, SUBJECT, ORIGIN, at(0)), first);
    assert_eq!(cache.header(id(), &key(), SUBJECT, ORIGIN, at(0)), first);
    let corrected = cache.header(id(), &key(), "mailto:right@example.com", ORIGIN, at(0));
    assert_eq!(verify(corrected.to_str().unwrap(), ORIGIN, at(0)).unwrap().subject, "mailto:right@example.com");
    cache.forget(id());
    assert!(!cache.0.read().contains_key(&id()));
}

#[test]
fn hostile_origins_evict_tokens_within_bounds() {
    let cache = TokenCache::default();
    let step = Duration::from_secs(1);
    for n in 0..ORIGINS_MAX as u32 + 10 {
        cache.header(id(), &key(), SUBJECT, &format!("https://{n}.example.com"), at(0) + step * n);
    }
    let keys = cache.0.read();
    let origins = &keys[&id()];
    assert_eq!(origins.len(), ORIGINS_MAX);
    assert!(!origins.contains_key("https://9.example.com") && origins.contains_key("https://10.example.com"));
}
