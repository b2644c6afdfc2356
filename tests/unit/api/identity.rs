use jsonwebtoken::{EncodingKey, Header};
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use bellwire_webpush::keys::SigningKey;

const APP: [&str; 2] = ["app_1", "shop"];
const NOW_S: i64 = 1_800_000_000;

fn now() -> Timestamp {
    Timestamp::from_timestamp(NOW_S, 0).unwrap()
}

fn id(n: u128) -> IdentityKeyId {
    IdentityKeyId(Uuid::from_u128(n))
}

fn secret(text: &str) -> Key {
    Key::Hs256(Zeroizing::new(text.as_bytes().to_vec()))
}

fn for_hmacs(text: &str) -> Key {
    Key::Hmac(Zeroizing::new(text.as_bytes().to_vec()))
}

/// Computes a backend's proof of a user id in the HMAC form.
fn plain_hmac(user: &str, secret: &[u8]) -> hmac::Tag {
    hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, secret), user.as_bytes())
}

fn claims() -> Value {
    json!({"sub": "ann", "exp": NOW_S + 3600})
}

fn with(more: Value) -> Value {
    let mut all = claims();
    all.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    all
}

fn hs256(claims: &Value, secret: &[u8]) -> String {
    jsonwebtoken::encode(&Header::new(Algorithm::HS256), claims, &EncodingKey::from_secret(secret)).unwrap()
}

fn es256(claims: &Value, pair: &SigningKey) -> String {
    let signer = EncodingKey::from_ec_der(&pair.expose_pkcs8());
    jsonwebtoken::encode(&Header::new(Algorithm::ES256), claims, &signer).unwrap()
}

fn proven(token: &str, keys: &[(IdentityKeyId, Key)]) -> Result<(), Unproven> {
    prove(token, "ann", APP, keys, now())
}

#[test]
fn jwt_of_either_algorithm_proves_a_user() {
    let pair = SigningKey::generate();
    let keys = [(id(1), secret("old")), (id(2), secret("new")), (id(3), Key::Es256(*pair.public()))];
    for token in [hs256(&claims(), b"old"), hs256(&claims(), b"new"), es256(&claims(), &pair)] {
        assert_eq!(proven(&token, &keys), Ok(()));
    }
}

#[test]
fn hmac_of_user_id_proves_a_user() {
    let keys = [(id(1), for_hmacs("old")), (id(2), secret("new")), (id(3), for_hmacs("new"))];
    let simple = plain_hmac("ann", b"new");
    let hex: String = simple.as_ref().iter().map(|octet| format!("{octet:02x}")).collect();
    for form in [hex.to_uppercase(), hex, base64url::encode(simple)] {
        assert_eq!(proven(&form, &keys), Ok(()), "{form}");
        assert_eq!(prove(&form, "bob", APP, &keys, now()), Err(Unproven::Signature));
        assert_eq!(proven(&form, &keys[..1]), Err(Unproven::Signature));
        assert_eq!(proven(&form, &[]), Err(Unproven::UnknownKey));
    }
}

#[test]
fn key_of_one_form_proves_no_other() {
    let simple = base64url::encode(plain_hmac("ann", b"s"));
    let pair = SigningKey::generate();
    for key in [secret("s"), Key::Es256(*pair.public())] {
        assert_eq!(proven(&simple, &[(id(1), key)]), Err(Unproven::HmacOfJwtKey));
    }
    let token = hs256(&claims(), b"s");
    let keys = [(id(1), for_hmacs("s")), (id(2), secret("t"))];
    assert_eq!(proven(&token, &keys[..1]), Err(Unproven::JwtOfHmacKey));
    assert_eq!(proven(&token, &keys), Err(Unproven::Signature), "there is a key that could have signed it");
    let header = Header { kid: Some(id(1).to_string()), ..Header::new(Algorithm::HS256) };
    let named = jsonwebtoken::encode(&header, &claims(), &EncodingKey::from_secret(b"s")).unwrap();
    assert_eq!(proven(&named, &keys), Err(Unproven::JwtOfHmacKey));
    assert_eq!(proven(&es256(&claims(), &pair), &keys), Err(Unproven::UnknownKey));
    for told in [Unproven::HmacOfJwtKey, Unproven::JwtOfHmacKey] {
        assert!(
            told.code() == ProblemCode::UserTokenForm && told.to_string().contains("identity-key create"),
            "{told}"
        );
    }
}

#[test]
fn hmac_backend_signs_no_jwt() {
    let signing_input = |header: &str, claims: &Value| {
        format!("{}.{}", base64url::encode(header), base64url::encode(claims.to_string()))
    };
    let chosen = signing_input(r#"{"alg":"HS256"}"#, &claims());
    let tag = base64url::encode(plain_hmac(&chosen, b"s"));
    let forged = format!("{chosen}.{tag}");
    assert_eq!(proven(&forged, &[(id(1), for_hmacs("s"))]), Err(Unproven::JwtOfHmacKey));
    assert_eq!(proven(&forged, &[(id(1), secret("s"))]), Ok(()), "under a key for JWTs it would be one");
    let padded =
        format!("{}.x", base64::Engine::encode(&base64::engine::general_purpose::STANDARD, r#"{"alg":"HS256"}"#));
    for user in [chosen, signing_input(" {} ", &claims()), "e30.".into(), "e30.a.b".into(), padded] {
        let tag = base64url::encode(plain_hmac(&user, b"s"));
        let refused = prove(&tag, &user, APP, &[(id(1), for_hmacs("s"))], now());
        assert_eq!(refused, Err(Unproven::Mistakable), "{user}");
    }
    for user in ["ann", "ezra.smith", "ann@example.com", "4711", "a.b.c", ".", "bnVsbA.x", "e30"] {
        let tag = base64url::encode(plain_hmac(user, b"s"));
        assert_eq!(prove(&tag, user, APP, &[(id(1), for_hmacs("s"))], now()), Ok(()), "{user}");
    }
}

#[test]
fn tokens_with_header_extensions_are_rejected() {
    let keys = [(id(1), secret("s"))];
    for (name, value) in [
        ("crit", json!(["b64"])),
        ("crit", json!([])),
        ("crit", json!(null)),
        ("crit", json!(1)),
        ("zip", json!("DEF")),
        ("zip", json!("no")),
    ] {
        let mut header = json!({"typ": "JWT", "alg": "HS256"});
        header[name] = value;
        let input = format!("{}.{}", base64url::encode(header.to_string()), base64url::encode(claims().to_string()));
        let token = format!("{input}.{}", base64url::encode(plain_hmac(&input, b"s")));
        assert_eq!(proven(&token, &keys), Err(Unproven::Extension), "{header}");
    }
}

#[test]
fn every_claim_is_checked_and_told() {
    let keys = [(id(1), secret("s"))];
    let cases = [
        (json!({}), Ok(())),
        (json!({"exp": NOW_S - 59}), Ok(())),
        (json!({"exp": NOW_S - 60}), Err(Unproven::Expired)),
        (json!({"exp": NOW_S + LIFETIME_MAX_S}), Ok(())),
        (json!({"exp": NOW_S + LIFETIME_MAX_S + 61}), Err(Unproven::TooLong)),
        (json!({"exp": null}), Err(Unproven::NoExpiry)),
        (json!({"exp": "soon"}), Err(Unproven::Malformed)),
        (json!({"nbf": NOW_S + 60}), Ok(())),
        (json!({"nbf": NOW_S + 61}), Err(Unproven::NotYet)),
        (json!({"iat": NOW_S + 61}), Err(Unproven::NotYet)),
        (json!({"sub": "bob"}), Err(Unproven::User)),
        (json!({"sub": null}), Err(Unproven::User)),
        (json!({"aud": "shop"}), Ok(())),
        (json!({"aud": ["other", "app_1"]}), Ok(())),
        (json!({"aud": "other"}), Err(Unproven::Audience)),
        (json!({"aud": []}), Err(Unproven::Audience)),
    ];
    for (more, expected) in cases {
        assert_eq!(proven(&hs256(&with(more.clone()), b"s"), &keys), expected, "{more}");
        let forged = proven(&hs256(&with(more.clone()), b"t"), &keys);
        assert_eq!(forged, Err(Unproven::Signature), "unproven claims have no effect: {more}");
    }
}

#[test]
fn no_algorithm_stands_in_for_another() {
    let pair = SigningKey::generate();
    let public = Key::Es256(*pair.public());
    // The classic confusion: an HMAC under the public key that everybody knows.
    for known in [pair.public().as_slice(), pair.public_base64().as_bytes()] {
        assert_eq!(proven(&hs256(&claims(), known), &[(id(1), public.clone())]), Err(Unproven::UnknownKey));
    }
    assert_eq!(proven(&es256(&claims(), &pair), &[(id(1), secret("s"))]), Err(Unproven::UnknownKey));
    let unsigned = |header: Value| {
        let part = |value: &Value| base64url::encode(value.to_string());
        format!("{}.{}.", part(&header), part(&claims()))
    };
    for alg in ["none", "None", "HS384", "RS256", "EdDSA"] {
        let token = unsigned(json!({"typ": "JWT", "alg": alg}));
        assert_eq!(proven(&token, &[(id(1), secret("s"))]), Err(Unproven::Algorithm), "{alg}");
    }
    let empty = unsigned(json!({"typ": "JWT", "alg": "HS256"}));
    assert_eq!(proven(&empty, &[(id(1), secret("s"))]), Err(Unproven::Signature));
}

#[test]
fn own_key_id_is_used_others_ignored() {
    let keys = [(id(1), secret("s")), (id(2), secret("t"))];
    let signed = |kid: String| {
        let header = Header { kid: Some(kid), ..Header::new(Algorithm::HS256) };
        jsonwebtoken::encode(&header, &claims(), &EncodingKey::from_secret(b"s")).unwrap()
    };
    assert_eq!(proven(&signed(id(1).to_string()), &keys), Ok(()));
    assert_eq!(proven(&signed(id(2).to_string()), &keys), Err(Unproven::Signature));
    assert_eq!(proven(&signed(id(3).to_string()), &keys), Err(Unproven::UnknownKey));
    assert_eq!(proven(&signed("my-backend-2026".into()), &keys), Ok(()));
}

#[test]
fn what_is_no_token_is_malformed() {
    let keys = [(id(1), secret("s"))];
    for odd in ["", "x", "a.b.c", "..", &"0".repeat(63), &"g".repeat(64), &"a".repeat(5000)] {
        assert!(matches!(proven(odd, &keys), Err(Unproven::Malformed | Unproven::Algorithm)), "{odd}");
    }
    assert_eq!(proven(&hs256(&claims(), b"s"), &[]), Err(Unproven::UnknownKey));
}

#[test]
fn public_keys_are_pem_or_jwk() {
    let pair = SigningKey::generate();
    let public = PublicKey::from_sec1_bytes(pair.public()).unwrap();
    let pem = p256::pkcs8::EncodePublicKey::to_public_key_pem(&public, p256::pkcs8::LineEnding::LF).unwrap();
    let half = |from: usize| base64url::encode(&pair.public()[from..from + 32]);
    let jwk = json!({"kty": "EC", "crv": "P-256", "x": half(1), "y": half(33), "kid": "mine"});
    for text in [pem.clone(), format!("\n{pem}"), jwk.to_string()] {
        let Some(Key::Es256(point)) = Key::from_public(&text) else { panic!("{text}") };
        assert_eq!(&point, pair.public());
    }
    let mut off_curve = jwk.clone();
    off_curve["y"] = jwk["x"].clone();
    let mut other_curve = jwk;
    other_curve["crv"] = json!("P-384");
    for odd in [off_curve.to_string(), other_curve.to_string(), pair.expose_pem().to_string(), "{}".into(), "".into()] {
        assert!(Key::from_public(&odd).is_none());
    }
}

#[test]
fn secrets_are_long_and_never_shown() {
    let [one, other] = [Key::generate(), Key::generate()];
    assert!(one.starts_with(SECRET_PREFIX) && one.len() == 4 + 43 && one != other);
    assert_eq!(format!("{:?}", secret(&one)), "HS256");
}
