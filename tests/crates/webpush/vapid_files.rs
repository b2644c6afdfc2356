//! Files of VAPID keys, as libraries, shells and configuration keep them.

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE, URL_SAFE_NO_PAD};
use bellwire_webpush::keys::{KeyError, SigningKey};
use p256::SecretKey;
use p256::elliptic_curve::sec1::ToSec1Point as _;
use p256::pkcs8::{EncodePublicKey as _, LineEnding};
use serde_json::json;

const PUBLIC: &str = "BFFcPW6545a5BNP-yn9U_c0MwemXvzddylFa0KbDtANfRTa-OlDzGPv5pUdZAqIhUCvvDVfgjFOyzApW8X2fk1Q";
const PRIVATE: &str = "AQIDBAUGBwgJCgsMDQ4PEBESExQVFhcYGRobHB0eHyA";
const PEM: &str = include_str!("../../cases/vapid-keys/ruby-to_pem.pem");

fn read(text: &str) -> Result<String, String> {
    SigningKey::import(text, None).map(|key| key.public_base64()).map_err(|error| error.to_string())
}

#[test]
fn keys_are_found_in_any_surroundings() {
    let pkcs8 = include_str!("../../cases/vapid-keys/pkcs8-and-certificate.pem");
    let one_line = pkcs8.split("-----BEGIN CERT").next().unwrap().replace('\n', " ");
    let escaped = pkcs8.replace('\n', "\\n");
    let indented: String = pkcs8.lines().map(|line| format!("    {line}\n")).collect();
    let jwk = SigningKey::import(PRIVATE, None).unwrap().expose_jwk().to_string();
    let jwk: serde_json::Value = serde_json::from_str(&jwk).unwrap();
    let octets: Vec<u8> = (1..=32).collect();
    let hex: String = octets.iter().map(|octet| format!("{octet:02x}")).collect();
    let lines = |octets: &[u8]| {
        let of = |line: &[u8]| {
            format!("    {}", line.iter().map(|octet| format!("{octet:02x}")).collect::<Vec<_>>().join(":"))
        };
        octets.chunks(15).map(of).collect::<Vec<_>>().join(":\n")
    };
    let point = bellwire_core::base64url::decode_any(PUBLIC).unwrap();
    for (name, text) in [
        ("laravel.env", include_str!("../../cases/vapid-keys/laravel.env").to_owned()),
        ("base64-of-pem.txt", include_str!("../../cases/vapid-keys/base64-of-pem.txt").to_owned()),
        ("trailing-blanks.pem", include_str!("../../cases/vapid-keys/trailing-blanks.pem").to_owned()),
        ("ruby-to_pem.pem", PEM.to_owned()),
        ("json-with-mark.json", include_str!("../../cases/vapid-keys/json-with-mark.json").to_owned()),
        ("pkcs8-and-certificate.pem", pkcs8.to_owned()),
        ("one line", one_line.clone()),
        ("escaped", escaped.clone()),
        ("quoted variable", format!("VAPID_PRIVATE_KEY=\"{escaped}\"\n")),
        ("YAML block", format!("vapid:\n  private_key: |\n{indented}")),
        ("text around", format!("# do not share\n{pkcs8}\n# end\n")),
        ("public first", format!("-----BEGIN PUBLIC KEY-----{}", {
            let (private, public) = PEM.split_once("-----BEGIN PUBLIC KEY-----").unwrap();
            format!("{public}{private}")
        })),
        ("base64 of base64", STANDARD.encode(STANDARD.encode(PEM))),
        ("export", format!("export VAPID_PRIVATE_KEY='{PRIVATE}'\nexport VAPID_PUBLIC_KEY='{PUBLIC}'\n")),
        ("YAML", format!("vapid:\n  publicKey: {PUBLIC}\n  privateKey: {PRIVATE}\n")),
        ("JavaScript", format!("const keys = {{ publicKey: '{PUBLIC}', privateKey: '{PRIVATE}' }};")),
        ("PHP", format!("'publicKey' => '{PUBLIC}',\n'privateKey' => '{PRIVATE}',")),
        ("TOML", format!("[vapid]\nprivate_key = \"{PRIVATE}\"\n")),
        ("quotes", format!("\"{PRIVATE}\"\n")),
        ("mark", format!("\u{feff}{PRIVATE}\r\n")),
        ("two lines", format!("{PUBLIC}\n{PRIVATE}\n")),
        ("hex", hex.clone()),
        ("hex variable", format!("PRIVATE_KEY=0x{hex}")),
        ("openssl -text", format!("Private-Key: (256 bit)\npriv:\n{}\npub:\n{}\nASN1 OID: prime256v1\n", lines(&octets), lines(&point))),
        ("JWK set", json!({"keys": [{"kty": "RSA", "n": "AQAB"}, jwk]}).to_string()),
        ("JWK within", json!({"vapid": {"jwk": jwk}}).to_string()),
        ("PEM in JSON", json!({"private_key": PEM, "public_key": PUBLIC}).to_string()),
        ("nested pair", json!({"subject": "mailto:a@b.example", "vapid": {"VAPID_PUBLIC_KEY": PUBLIC, "VAPID_PRIVATE_KEY": PRIVATE}}).to_string()),
        ("octets", json!({"privateKey": octets}).to_string()),
        ("Kubernetes secret", format!("data:\n  VAPID_PUBLIC_KEY: {}\n  VAPID_PRIVATE_KEY: {}\n", STANDARD.encode(PUBLIC), STANDARD.encode(PRIVATE))),
        ("Laravel base64:", format!("VAPID_PRIVATE_KEY=base64:{}\n", STANDARD.encode(&octets))),
        ("XML", format!("<vapid><publicKey>{PUBLIC}</publicKey><privateKey>{PRIVATE}</privateKey></vapid>")),
        ("table", format!("| Public Key  | {PUBLIC} |\n| Private Key | {PRIVATE} |\n")),
        ("var_dump", format!("array(2) {{\n  [\"publicKey\"]=>\n  string(87) \"{PUBLIC}\"\n  [\"privateKey\"]=>\n  string(43) \"{PRIVATE}\"\n}}")),
        ("comment", format!("# private! Keep it.\nVAPID_PUBLIC_KEY={PUBLIC}\nVAPID_PRIVATE_KEY={PRIVATE}\n# NOT ENCRYPTED\n")),
        ("another program's PEM", format!("JWT_PRIVATE_KEY=\"-----BEGIN PRIVATE KEY-----\\nAAAA\\n-----END PRIVATE KEY-----\"\nVAPID_PRIVATE={PRIVATE}\n")),
        ("other secrets", format!("APP_KEY=base64:{}\nVAPID_PRIVATE_KEY={PRIVATE}\n", STANDARD.encode([7; 32]))),
        ("prose", format!("our push key is {PRIVATE}, thanks")),
        ("concatenated", pkcs8.lines().map(|line| format!("  \"{line}\\n\" +\n")).collect()),
        ("another key before", format!("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n{pkcs8}")),
        ("quoted mail", pkcs8.lines().map(|line| format!("> {line}\n")).collect()),
        ("JSON lines", format!("// keys\n{{\"public\": \"{PUBLIC}\", \"private\": \"{PRIVATE}\"}}\n")),
        ("unnamed in JSON", json!({"vapid": STANDARD.encode(PEM)}).to_string()),
        ("several pairs", {
            let other = SigningKey::generate();
            format!("OLD_PRIVATE_KEY={}\nPRIVATE_KEY={PRIVATE}\nPUBLIC_KEY={PUBLIC}\n", &*other.expose_raw())
        }),
        ("MIME", STANDARD.encode(&octets).as_bytes().chunks(20).map(|line| str::from_utf8(line).unwrap()).collect::<Vec<_>>().join("\n")),
    ] {
        assert_eq!(read(&text).as_deref(), Ok(PUBLIC), "{name}");
    }
}

#[test]
fn foreign_public_keys_are_refused() {
    let other = SigningKey::generate();
    for text in [
        format!("VAPID_PUBLIC_KEY={}\nVAPID_PRIVATE_KEY={PRIVATE}\n", other.public_base64()),
        json!({"publicKey": other.public_base64(), "privateKey": PRIVATE}).to_string(),
        format!("{PRIVATE}\n{}\n", other.public_base64()),
    ] {
        assert!(read(&text).unwrap_err().contains("does not belong"), "{text}");
    }
    let pem = SigningKey::generate().expose_pem().to_string();
    let (_, public) = PEM.split_once("-----BEGIN PUBLIC KEY-----").unwrap();
    let mixed = format!("{pem}-----BEGIN PUBLIC KEY-----{public}");
    assert!(read(&mixed).unwrap_err().contains("does not belong"));
}

#[test]
fn refusals_say_what_to_remove() {
    let several = format!("A_PRIVATE_KEY={PRIVATE}\nB_PRIVATE_KEY={}\n", &*SigningKey::generate().expose_raw());
    for (text, reason) in [
        ("-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----", "remove its other blocks"),
        ("hello", "remove everything else"),
        ("{\"privateKey\": ", "remove everything around"),
        (&several, "several private keys"),
        ("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA", "decrypt it first"),
    ] {
        assert!(read(text).unwrap_err().contains(reason), "{text}: {:?}", read(text));
    }
}

fn secret(key: &SigningKey) -> SecretKey {
    SecretKey::from_slice(key.expose_private()).unwrap()
}

fn key() -> SigningKey {
    SigningKey::from_private([0x5a; 32]).unwrap()
}

/// A key whose number begins with zeros, as one in 256 does.
fn small(zeros: usize) -> SigningKey {
    let mut private = [0x11; 32];
    private[..zeros].fill(0);
    SigningKey::from_private(private).unwrap()
}

fn hex(octets: &[u8]) -> String {
    octets.iter().map(|octet| format!("{octet:02x}")).collect()
}

fn refused(text: &str) -> KeyError {
    SigningKey::import(text, None).unwrap_err()
}

#[test]
fn exported_keys_read_back_in_every_form() {
    for key in [SigningKey::generate(), key(), small(1), small(2)] {
        let sec1 = secret(&key).to_sec1_pem(LineEnding::CRLF).unwrap();
        let forms = [
            key.expose_pem().to_string(),
            key.expose_pem().replace('\n', "\\n"),
            format!("-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n{}", &*sec1),
            sec1.to_string(),
            key.expose_jwk().to_string(),
            format!(" {}\n", &*key.expose_raw()),
            format!(r#"{{"publicKey":"{}","privateKey":"{}"}}"#, key.public_base64(), &*key.expose_raw()),
            format!("=====\n\nPublic Key:\n{}\n\nPrivate Key:\n{}\n\n=====", key.public_base64(), &*key.expose_raw()),
            STANDARD.encode(key.expose_private()),
            STANDARD_NO_PAD.encode(key.expose_private()),
            URL_SAFE.encode(key.expose_private()),
            hex(key.expose_private()),
            format!("0x{}", hex(key.expose_private()).to_uppercase()),
            STANDARD.encode(&*key.expose_pkcs8()),
            URL_SAFE_NO_PAD.encode(&*secret(&key).to_sec1_der().unwrap()),
        ];
        for form in forms {
            let read = SigningKey::import(&form, Some(&key.public_base64())).unwrap();
            assert!(SigningKey::import(&form, Some(&hex(key.public()))).is_ok());
            assert_eq!(read.expose_private(), key.expose_private());
            assert_eq!(read.public(), key.public());
        }
    }
}

#[test]
fn leading_zeros_do_not_matter() {
    for zeros in [1, 2] {
        let key = small(zeros);
        let short = &key.expose_private()[zeros..];
        assert_eq!(SigningKey::import(&STANDARD.encode(short), None).unwrap().public(), key.public());
        let jwk = format!(r#"{{"kty":"EC","crv":"P-256","d":"{}"}}"#, URL_SAFE_NO_PAD.encode(short));
        assert_eq!(SigningKey::import(&jwk, None).unwrap().public(), key.public());
    }
    let long = [&[0], &key().expose_private()[..]].concat();
    assert_eq!(SigningKey::import(&STANDARD.encode(long), None).unwrap().public(), key().public());
}

#[test]
fn numbers_of_other_lengths_are_refused() {
    for octets in [0, 16, 29, 34, 65] {
        assert_eq!(refused(&URL_SAFE_NO_PAD.encode(vec![1; octets])), KeyError::Length { octets });
    }
    assert_eq!(refused(&URL_SAFE_NO_PAD.encode([1; 33])), KeyError::Length { octets: 33 });
    assert_eq!(refused(&URL_SAFE_NO_PAD.encode([0; 32])), KeyError::Range);
    assert_eq!(refused(&URL_SAFE_NO_PAD.encode([0xff; 32])), KeyError::Range);
    assert_eq!(refused("not a key!"), KeyError::Unrecognised);
}

#[test]
fn halves_of_different_pairs_are_refused() {
    let (key, other) = (key(), small(1));
    let with = |public: &str| SigningKey::import(&key.expose_raw(), Some(public)).unwrap_err();
    assert_eq!(with(&other.public_base64()), KeyError::Mismatch);
    assert_eq!(with("AAAA"), KeyError::PublicKey);
    assert_eq!(with("*"), KeyError::PublicKey);
    let jwk = key.expose_jwk().replace(&*key.expose_raw(), &other.expose_raw());
    assert_eq!(refused(&jwk), KeyError::Mismatch);
    let mut der = key.expose_pkcs8().to_vec();
    let public_at = der.windows(65).position(|window| window == key.public()).unwrap();
    der[public_at..public_at + 65].copy_from_slice(other.public());
    let pem = format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
        STANDARD
            .encode(der)
            .as_bytes()
            .chunks(64)
            .map(|line| std::str::from_utf8(line).unwrap())
            .collect::<Vec<_>>()
            .join("\n")
    );
    assert_eq!(refused(&pem), KeyError::Pem);
}

#[test]
fn refusals_describe_the_input() {
    let public = secret(&key()).public_key().to_public_key_pem(LineEnding::LF).unwrap();
    assert_eq!(refused(&public), KeyError::PublicOnly);
    let der = secret(&key()).public_key().to_public_key_der().unwrap();
    let labelled = format!("Public Key:\n{}\n", key().public_base64());
    for form in [key().public_base64(), hex(key().public()), STANDARD.encode(der.as_bytes()), labelled] {
        assert_eq!(refused(&form), KeyError::PublicOnly, "{form}");
    }
    assert_eq!(refused(r#"{"kty":"EC","crv":"P-256","x":"AA","y":"AA"}"#), KeyError::PublicOnly);
    assert_eq!(refused("-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA"), KeyError::Encrypted);
    let old = "-----BEGIN EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n";
    assert_eq!(refused(old), KeyError::Encrypted);
    assert_eq!(refused("-----BEGIN CERTIFICATE-----\n"), KeyError::Pem);
    assert_eq!(refused("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----"), KeyError::Pem);
    for jwk in ["{", "{}", r#"{"kty":"RSA","crv":"P-256"}"#, r#"{"kty":"EC","crv":"P-384","d":"AA"}"#] {
        assert_eq!(refused(jwk), KeyError::Jwk, "{jwk}");
    }
}

#[test]
fn debug_shows_only_the_public_key() {
    let shown = format!("{:?}", key());
    assert!(shown.contains(&key().public_base64()));
    assert!(!shown.contains(&*key().expose_raw()) && !shown.contains("90"));
}

#[test]
fn public_key_is_derived_by_p256() {
    let secret = SecretKey::from_slice(&[0x5a; 32]).unwrap();
    assert_eq!(key().public()[..], *secret.public_key().to_sec1_point(false).as_bytes());
}
