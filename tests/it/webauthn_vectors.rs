//! The library that checks passkeys, against the test vectors of WebAuthn Level 3 (section 16).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use passki::{AuthenticationCredential, Passki, PasskiError, RegistrationCredential, StoredPasskey};
use serde_json::{Value, json};

/// A mistake in one input of a ceremony.
const DAMAGES: [&str; 4] = ["signature", "authenticatorData", "clientDataJSON", "challenge"];

fn vectors() -> Vec<Value> {
    let file: Value = serde_json::from_str(include_str!("webauthn_vectors.json")).unwrap();
    file["vectors"].as_array().unwrap().clone()
}

fn octets(hex: &Value) -> Vec<u8> {
    let hex = hex.as_str().unwrap().as_bytes();
    hex.chunks(2).map(|pair| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

fn base64(hex: &Value) -> String {
    URL_SAFE_NO_PAD.encode(octets(hex))
}

fn verifier() -> Passki {
    Passki::new("example.org", &["https://example.org"], "Example")
}

fn register(vector: &Value) -> Result<StoredPasskey, PasskiError> {
    let made = &vector["registration"];
    let credential: RegistrationCredential = serde_json::from_value(json!({
        "rawId": base64(&made["credential_id"]),
        "response": {"clientDataJSON": base64(&made["clientDataJSON"]), "attestationObject": base64(&made["attestationObject"])},
    }))
    .unwrap();
    let verifier = verifier();
    let (_, mut state) = verifier.start_passkey_registration(&[1; 16], "", "", Default::default()).unwrap();
    state.challenge = octets(&made["challenge"]);
    verifier.finish_passkey_registration(&credential, &state)
}

fn authenticate(signed: &Value, passkey: &StoredPasskey) -> Result<u32, PasskiError> {
    let credential: AuthenticationCredential = serde_json::from_value(json!({
        "rawId": URL_SAFE_NO_PAD.encode(&passkey.credential_id),
        "response": {"clientDataJSON": base64(&signed["clientDataJSON"]), "signature": base64(&signed["signature"]),
            "authenticatorData": base64(&signed["authenticatorData"])},
    }))
    .unwrap();
    let verifier = verifier();
    let (_, mut state) =
        verifier.start_passkey_authentication(std::slice::from_ref(passkey), Default::default()).unwrap();
    state.challenge = octets(&signed["challenge"]);
    verifier.finish_passkey_authentication(&credential, &state, passkey).map(|signed| signed.counter)
}

#[test]
fn webauthn_vectors_are_accepted() {
    let mut accepted = 0;
    for vector in vectors() {
        let name = vector["name"].as_str().unwrap();
        let passkey = register(&vector);
        match name {
            // Pages in frames of other sites are not allowed to ask.
            "none-es256-crossOrigin" => assert!(matches!(passkey, Err(PasskiError::CrossOriginNotAllowed)), "{name}"),
            "none-es256-topOrigin" => assert!(
                matches!(passkey, Err(PasskiError::CrossOriginNotAllowed | PasskiError::TopOriginMismatch { .. })),
                "{name}"
            ),
            // Algorithms that this server does not ask for.
            "packed-es512" | "packed-ed448" => {
                let signed = passkey.and_then(|passkey| authenticate(&vector["authentication"], &passkey));
                assert!(signed.is_err(), "{name}");
            }
            // Section 8.4 requires an origin and a purpose of the key, and this description of a key has neither.
            "android-key-es256" => assert!(matches!(passkey, Err(PasskiError::InvalidAttestation(_))), "{name}"),
            // A format that passki does not know. This server asks browsers for no attestation.
            "apple-es256" => {
                assert!(matches!(passkey, Err(PasskiError::UnsupportedAttestationFormat(_))), "{name}");
            }
            _ => {
                let passkey = passkey.unwrap_or_else(|error| panic!("{name}: {error}"));
                assert_eq!(passkey.credential_id, octets(&vector["registration"]["credential_id"]), "{name}");
                let counter = authenticate(&vector["authentication"], &passkey);
                assert_eq!(counter.unwrap_or_else(|error| panic!("{name}: {error}")), 0, "{name}");
                accepted += 1;
            }
        }
    }
    assert_eq!(accepted, 9);
}

#[test]
fn damaged_webauthn_vectors_are_rejected() {
    for vector in vectors() {
        let name = vector["name"].as_str().unwrap();
        let Ok(passkey) = register(&vector) else { continue };
        for member in DAMAGES {
            let mut signed = vector["authentication"].clone();
            let mut damaged = octets(&signed[member]);
            for at in [0, damaged.len() / 2, damaged.len() - 1] {
                damaged[at] ^= 1;
                let hex: String = damaged.iter().map(|octet| format!("{octet:02x}")).collect();
                signed[member] = json!(hex);
                assert!(authenticate(&signed, &passkey).is_err(), "{name}: {member} {at}");
                damaged[at] ^= 1;
            }
        }
        for member in ["clientDataJSON", "challenge"] {
            let mut other = vector.clone();
            other["registration"][member] = vector["authentication"][member].clone();
            assert!(register(&other).is_err(), "{name}: {member} of another ceremony");
        }
    }
}
