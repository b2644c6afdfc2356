use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD, URL_SAFE};
use p256::elliptic_curve::sec1::ToSec1Point;
use p256::pkcs8::EncodePublicKey as _;

use super::*;

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
fn what_is_written_out_reads_back_in_every_form() {
    for key in [SigningKey::generate(), key(), small(1), small(2)] {
        let sec1 = key.secret().to_sec1_pem(LineEnding::CRLF).unwrap();
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
            base64url::encode(&*key.secret().to_sec1_der().unwrap()),
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
fn numbers_that_lost_or_gained_leading_zeros_are_the_same_key() {
    for zeros in [1, 2] {
        let key = small(zeros);
        let short = &key.expose_private()[zeros..];
        assert_eq!(SigningKey::import(&STANDARD.encode(short), None).unwrap().public(), key.public());
        let jwk = format!(r#"{{"kty":"EC","crv":"P-256","d":"{}"}}"#, base64url::encode(short));
        assert_eq!(SigningKey::import(&jwk, None).unwrap().public(), key.public());
    }
    let long = [&[0], &key().expose_private()[..]].concat();
    assert_eq!(SigningKey::import(&STANDARD.encode(long), None).unwrap().public(), key().public());
}

#[test]
fn a_number_of_another_length_or_out_of_range_is_refused() {
    for octets in [0, 16, 29, 34, 65] {
        assert_eq!(refused(&base64url::encode(vec![1; octets])), KeyError::Length { octets });
    }
    assert_eq!(refused(&base64url::encode([1; 33])), KeyError::Length { octets: 33 });
    assert_eq!(refused(&base64url::encode([0; 32])), KeyError::Range);
    assert_eq!(refused(&base64url::encode([0xff; 32])), KeyError::Range);
    assert_eq!(refused("not a key!"), KeyError::Unrecognised);
}

#[test]
fn halves_of_different_pairs_are_refused_in_every_form() {
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
        base64::Engine::encode(&base64::engine::general_purpose::STANDARD, der)
            .as_bytes()
            .chunks(64)
            .map(|line| std::str::from_utf8(line).unwrap())
            .collect::<Vec<_>>()
            .join("\n")
    );
    assert_eq!(refused(&pem), KeyError::Pem);
}

#[test]
fn a_refusal_says_what_the_thing_is() {
    let public = key().secret().public_key().to_public_key_pem(LineEnding::LF).unwrap();
    assert_eq!(refused(&public), KeyError::PublicOnly);
    let der = key().secret().public_key().to_public_key_der().unwrap();
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
fn debug_shows_only_the_public_half() {
    let shown = format!("{:?}", key());
    assert!(shown.contains(&key().public_base64()));
    assert!(!shown.contains(&*key().expose_raw()) && !shown.contains("90"));
}

#[test]
fn the_public_key_is_the_one_that_p256_derives() {
    let secret = SecretKey::from_slice(&[0x5a; 32]).unwrap();
    assert_eq!(key().public()[..], *secret.public_key().to_sec1_point(false).as_bytes());
}

#[test]
fn a_contact_is_one_that_apple_accepts() {
    for good in [
        "mailto:push@example.com",
        "mailto:a.b+c@mail.example.co.uk",
        "https://example.com",
        "https://example.com/contact?x=1",
    ] {
        assert_eq!(check_subject(good), Ok(()), "{good}");
    }
    for bad in [
        "",
        "push@example.com",
        "mailto:",
        "mailto:push",
        "mailto:@example.com",
        "mailto:push@",
        "mailto:x@localhost",
        "mailto:x@mac.local",
        "mailto:x@a.LOCAL",
        "mailto:x@a.invalid",
        "mailto:x@a.test",
        "mailto:x@a.example",
        "mailto: x@example.com",
        "mailto:<x@example.com>",
        "mailto:mailto:x@example.com",
        "mailto:x@y@example.com",
        "mailto:x@example.com,y@example.com",
        "mailto:x@example.com?subject=y",
        "mailto:x@-a.com",
        "mailto:x@a..com",
        "mailto:x@127.0.0.1",
        "mailto:x@exämple.com",
        "http://example.com",
        "https://localhost",
        "https://10.0.0.1",
        "https://[::1]/",
        "https://intranet",
        "https://user@example.com",
        "https://",
        "MAILTO:x@example.com",
    ] {
        assert!(check_subject(bad).is_err(), "{bad}");
    }
    assert!(check_subject(&format!("mailto:{}@example.com", "a".repeat(255))).is_err());
}
