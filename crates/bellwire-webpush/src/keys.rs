//! VAPID key pairs (RFC 8292): generated, imported from the forms of other senders, and exported. It also checks the contact of a
//! token like the strictest gateway.

use std::fmt;

use aws_lc_rs::rand;
use p256::SecretKey;
use p256::elliptic_curve::sec1::ToSec1Point as _;
use p256::pkcs8::{EncodePrivateKey as _, LineEnding};
use zeroize::Zeroizing;

use bellwire_core::base64url;

mod import;

/// Why a key pair was refused. `Display` is written for the API's caller and never shows key material.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No private key in a form that is read.
    #[error(
        "holds no private key that can be read: expected PEM, DER, a JWK, or base64 or hex of 32 octets, alone or behind a label such \
         as `private key`; remove everything else from the file"
    )]
    Unrecognised,
    /// PEM with a passphrase.
    #[error("is encrypted: decrypt it first, for example with `openssl pkey`")]
    Encrypted,
    /// Only a public key in any form.
    #[error("holds only a public key: the private key is needed to sign")]
    PublicOnly,
    /// PEM that does not decode as a private key on P-256 whose public half, if it is inside, belongs to it.
    #[error(
        "has no sound PEM block `PRIVATE KEY` or `EC PRIVATE KEY` on the curve P-256 (prime256v1); remove its other blocks"
    )]
    Pem,
    /// JSON that is not an EC key on P-256.
    #[error(
        "is no JSON with a JWK (\"kty\": \"EC\", \"crv\": \"P-256\", `d`) or a member `privateKey`; remove what stands around the JSON"
    )]
    Jwk,
    /// A raw private key of the wrong length.
    #[error("a private key has 32 octets, here are {octets}")]
    Length {
        /// Number of octets.
        octets: usize,
    },
    /// Zero, or not below the order of the curve.
    #[error("is not a private key on P-256: the number is out of range")]
    Range,
    /// The public key beside it does not decode to an uncompressed point.
    #[error("has a public key that is not base64 or hex of a point on P-256; correct the public key, or remove it")]
    PublicKey,
    /// Private keys of several pairs.
    #[error("holds several private keys: leave one of them, or name its public key")]
    Several,
    /// Two halves of different pairs.
    #[error("the public key does not belong to the private key")]
    Mismatch,
}

/// A VAPID key pair on P-256. `Debug` shows the public half; the private half is wiped when dropped.
pub struct SigningKey {
    private: Zeroizing<[u8; 32]>,
    public: [u8; 65],
}

impl SigningKey {
    /// Makes a new pair.
    pub fn generate() -> Self {
        let mut private = Zeroizing::new([0; 32]);
        loop {
            rand::fill(&mut *private).expect("the system's randomness");
            // Out of range once in 2^32 times.
            if let Ok(key) = Self::from_private(*private) {
                return key;
            }
        }
    }

    /// Takes a private key (a number, big endian) and derives its public key.
    pub fn from_private(private: [u8; 32]) -> Result<Self, KeyError> {
        let private = Zeroizing::new(private);
        let secret = SecretKey::from_bytes((&*private).into()).map_err(|_| KeyError::Range)?;
        let public = secret.public_key().to_sec1_point(false);
        Ok(Self { public: public.as_bytes().try_into().expect("an uncompressed point has 65 octets"), private })
    }

    /// The uncompressed point: what pages subscribe with, and the `k` of every request.
    pub fn public(&self) -> &[u8; 65] {
        &self.public
    }

    /// The public key as pages and headers spell it: base64url without padding.
    pub fn public_base64(&self) -> String {
        base64url::encode(self.public)
    }

    /// The private number, big endian. A secret.
    pub fn expose_private(&self) -> &[u8; 32] {
        &self.private
    }

    /// PKCS#8 PEM, which every tool reads. A secret.
    pub fn expose_pem(&self) -> Zeroizing<String> {
        self.secret().to_pkcs8_pem(LineEnding::LF).expect("a checked key encodes")
    }

    /// PKCS#8 DER. A secret.
    pub fn expose_pkcs8(&self) -> Zeroizing<Vec<u8>> {
        self.secret().to_pkcs8_der().expect("a checked key encodes").to_bytes()
    }

    /// A JWK (RFC 7517). A secret.
    pub fn expose_jwk(&self) -> Zeroizing<String> {
        let [x, y] = [&self.public[1..33], &self.public[33..]].map(base64url::encode);
        let d = self.expose_raw();
        Zeroizing::new(format!(r#"{{"kty":"EC","crv":"P-256","x":"{x}","y":"{y}","d":"{}"}}"#, &*d))
    }

    /// The private number in base64url, as the `web-push` libraries of most languages want it. A secret.
    pub fn expose_raw(&self) -> Zeroizing<String> {
        Zeroizing::new(base64url::encode(*self.private))
    }

    fn secret(&self) -> SecretKey {
        SecretKey::from_bytes((&*self.private).into()).expect("checked when it came in")
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({}, …)", self.public_base64())
    }
}

/// A big-endian number without its leading zeros.
fn significant(octets: &[u8]) -> &[u8] {
    &octets[octets.iter().position(|&octet| octet != 0).unwrap_or(octets.len())..]
}

/// Why a contact was refused, for the API's caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SubjectError(&'static str);

/// Longest contact, in octets.
pub const SUBJECT_MAX: usize = 255;

/// Top-level names without mail or web servers on the Internet (RFC 2606, RFC 6761, RFC 6762, RFC 9476, and names in private use). Apple
/// responds with 403 `BadJwtToken` to several of them. FCM and Mozilla do not check.
const UNREAL: [&str; 12] = [
    "alt",
    "corp",
    "example",
    "home",
    "internal",
    "invalid",
    "lan",
    "local",
    "localdomain",
    "localhost",
    "onion",
    "test",
];

/// Checks the `sub` claim (RFC 8292 section 2.1) like Apple does: `mailto:user@host` or `https://host/…`, with a host that can
/// exist on the Internet, and no other text.
pub fn check_subject(subject: &str) -> Result<(), SubjectError> {
    let refuse = |why| Err(SubjectError(why));
    if subject.is_empty() || subject.len() > SUBJECT_MAX {
        return refuse("must have 1 to 255 octets");
    }
    if !subject.bytes().all(|b| b.is_ascii_graphic() && b != b'<' && b != b'>') {
        return refuse("must not hold spaces, angle brackets or characters outside ASCII");
    }
    if let Some(address) = subject.strip_prefix("mailto:") {
        let Some((user, host)) = address.split_once('@') else {
            return refuse("must be a whole mail address: mailto:user@example.com");
        };
        if user.is_empty() || user.contains([':', ',', '?']) {
            return refuse("must be a single mail address after a single `mailto:`");
        }
        return if is_real_host(host) { Ok(()) } else { refuse("must be a mail address on a real domain") };
    }
    if !subject.starts_with("https://") {
        return refuse("must begin with mailto: or https://");
    }
    let Ok(url) = url::Url::parse(subject) else { return refuse("must be a mail address or an https URL") };
    if !url.username().is_empty() || url.password().is_some() {
        return refuse("must not carry a user name or password");
    }
    match url.host() {
        Some(url::Host::Domain(host)) if is_real_host(host) => Ok(()),
        _ => refuse("must be an https URL on a real domain"),
    }
}

fn is_real_host(host: &str) -> bool {
    let fits = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let Some((_, top)) = host.rsplit_once('.') else { return false };
    host.len() <= 253
        && host.split('.').all(fits)
        && top.bytes().any(|b| b.is_ascii_alphabetic())
        && !UNREAL.contains(&top.to_ascii_lowercase().as_str())
}

#[cfg(test)]
#[path = "../../../tests/crates/webpush/unit/keys.rs"]
mod tests;
