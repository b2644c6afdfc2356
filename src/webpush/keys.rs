//! VAPID key pairs (RFC 8292): made, read from the forms that other senders keep them in, and written out again for
//! whoever leaves. And the contact that a token names, checked as the strictest gateway checks it.

use std::fmt;

use aws_lc_rs::rand;
use p256::SecretKey;
use p256::elliptic_curve::sec1::ToSec1Point as _;
use p256::pkcs8::{DecodePrivateKey as _, DecodePublicKey as _, EncodePrivateKey as _, LineEnding};
use serde::Deserialize;
use zeroize::Zeroizing;

use crate::model::base64url;

/// Why a key pair was refused. `Display` is written for the API's caller and never shows key material.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// None of the forms that we read.
    #[error("is neither PEM, nor DER, nor a JWK, nor base64 or hex of a private key")]
    Unrecognised,
    /// PEM with a passphrase.
    #[error("is encrypted: decrypt it first, for example with `openssl pkey`")]
    Encrypted,
    /// A public key, in whatever form.
    #[error("holds only a public key: the private key is needed to sign")]
    PublicOnly,
    /// PEM that does not decode as a private key on P-256 whose public half, if it is inside, belongs to it.
    #[error("is not a sound PEM private key on the curve P-256 (prime256v1)")]
    Pem,
    /// JSON that is not an EC key on P-256.
    #[error("is not a JWK with \"kty\": \"EC\", \"crv\": \"P-256\" and base64url `d`")]
    Jwk,
    /// A raw private key of the wrong length.
    #[error("a private key has 32 octets, here are {octets}")]
    Length {
        /// How many there are.
        octets: usize,
    },
    /// Zero, or not below the order of the curve.
    #[error("is not a private key on P-256: the number is out of range")]
    Range,
    /// The public key beside it does not decode to an uncompressed point.
    #[error("the public key is not base64 of 65 octets that begin with 4")]
    PublicKey,
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

    /// Reads a private key as other senders keep it: PEM (PKCS#8 or SEC1), a JWK, what `web-push` prints, as JSON or for people, or base64
    /// or hex, in any spelling, of the number alone or of DER. If the public key stands beside it (base64 or hex of the uncompressed point), it must
    /// belong to it.
    pub fn import(private: &str, public: Option<&str>) -> Result<Self, KeyError> {
        let text = private.trim();
        let key = if text.contains("-----BEGIN ") {
            Self::from_pem(text)
        } else if text.starts_with('{') {
            Self::from_jwk(text)
        } else if let Some(private) = labelled(text, "Private Key:") {
            Self::import(private, labelled(text, "Public Key:"))
        } else if labelled(text, "Public Key:").is_some() {
            Err(KeyError::PublicOnly)
        } else {
            Self::from_octets(&Zeroizing::new(octets_of(text).ok_or(KeyError::Unrecognised)?))
        }?;
        let Some(public) = public else { return Ok(key) };
        let point = octets_of(public.trim()).ok_or(KeyError::PublicKey)?;
        if point.len() != 65 || point[0] != 4 {
            return Err(KeyError::PublicKey);
        }
        if point != key.public { Err(KeyError::Mismatch) } else { Ok(key) }
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

    fn from_pem(text: &str) -> Result<Self, KeyError> {
        // Environment variables often carry PEM with its line ends spelt out.
        let text = Zeroizing::new(text.replace("\\n", "\n"));
        if text.contains("ENCRYPTED") {
            return Err(KeyError::Encrypted);
        }
        // `openssl ecparam -genkey` writes a block of parameters first.
        let begin = ["-----BEGIN PRIVATE KEY-----", "-----BEGIN EC PRIVATE KEY-----"];
        let Some(start) = begin.iter().find_map(|begin| text.find(begin)) else {
            return Err(if text.contains("PUBLIC KEY") { KeyError::PublicOnly } else { KeyError::Pem });
        };
        let secret = SecretKey::from_pem(&text[start..]).map_err(|_| KeyError::Pem)?;
        Self::from_private(secret.to_bytes().into())
    }

    fn from_jwk(text: &str) -> Result<Self, KeyError> {
        if let Ok(Pair { public_key, private_key }) = serde_json::from_str::<Pair>(text) {
            return Self::import(&Zeroizing::new(private_key), public_key.as_deref());
        }
        let jwk: Jwk = serde_json::from_str(text).map_err(|_| KeyError::Jwk)?;
        if jwk.kty != "EC" || jwk.crv != "P-256" {
            return Err(KeyError::Jwk);
        }
        let d = Zeroizing::new(jwk.d.ok_or(KeyError::PublicOnly)?);
        let key = Self::from_number(&Zeroizing::new(base64url::decode_any(&d).ok_or(KeyError::Jwk)?))?;
        for (given, own) in [(jwk.x, &key.public[1..33]), (jwk.y, &key.public[33..])] {
            let Some(given) = given else { continue };
            if significant(&base64url::decode_any(&given).ok_or(KeyError::Jwk)?) != significant(own) {
                return Err(KeyError::Mismatch);
            }
        }
        Ok(key)
    }

    /// The number alone, or DER (PKCS#8 or SEC1).
    fn from_octets(octets: &[u8]) -> Result<Self, KeyError> {
        if let Ok(secret) =
            SecretKey::from_pkcs8_der(octets).map_err(drop).or_else(|()| SecretKey::from_sec1_der(octets).map_err(drop))
        {
            return Self::from_private(secret.to_bytes().into());
        }
        if p256::PublicKey::from_sec1_bytes(octets).is_ok() || p256::PublicKey::from_public_key_der(octets).is_ok() {
            return Err(KeyError::PublicOnly);
        }
        Self::from_number(octets)
    }

    /// A number of 32 octets, or what tools make of one that begins with zeros (30 or 31) or looks negative (33).
    fn from_number(octets: &[u8]) -> Result<Self, KeyError> {
        let number = significant(octets);
        if !(30..=33).contains(&octets.len()) || number.len() > 32 {
            return Err(KeyError::Length { octets: octets.len() });
        }
        let mut private = [0; 32];
        private[32 - number.len()..].copy_from_slice(number);
        Self::from_private(private)
    }
}

impl fmt::Debug for SigningKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SigningKey({}, …)", self.public_base64())
    }
}

#[derive(Deserialize)]
struct Jwk {
    kty: String,
    crv: String,
    x: Option<String>,
    y: Option<String>,
    d: Option<String>,
}

/// What `web-push generate-vapid-keys --json` prints.
#[derive(Deserialize)]
struct Pair {
    #[serde(rename = "publicKey", alias = "public_key")]
    public_key: Option<String>,
    #[serde(rename = "privateKey", alias = "private_key")]
    private_key: String,
}

/// What stands on the line behind a label, as `web-push generate-vapid-keys` prints keys for people.
fn labelled<'a>(text: &'a str, label: &str) -> Option<&'a str> {
    let (_, behind) = text.split_once(label)?;
    behind.lines().map(str::trim).find(|line| !line.is_empty())
}

/// What base64 or hex stands for. No key is as long in one of them as another one is in the other.
fn octets_of(text: &str) -> Option<Vec<u8>> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    if !matches!(digits.len(), 64 | 130) || !digits.bytes().all(|octet| octet.is_ascii_hexdigit()) {
        return base64url::decode_any(text);
    }
    (0..digits.len()).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok()).collect()
}

/// A big-endian number without its leading zeros.
fn significant(octets: &[u8]) -> &[u8] {
    &octets[octets.iter().position(|&octet| octet != 0).unwrap_or(octets.len())..]
}

/// Why a contact was refused, for the API's caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct SubjectError(&'static str);

/// Longest contact, in octets.
pub(crate) const SUBJECT_MAX: usize = 255;

/// Top-level names that no mail or web server on the Internet has (RFC 2606, RFC 6761, RFC 6762, RFC 9476, and names
/// in private use). Apple answers 403 `BadJwtToken` to the ones it knows; FCM and Mozilla do not look.
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

/// Checks the `sub` claim (RFC 8292 section 2.1) as Apple does: `mailto:user@host` or `https://host/…`, with a host
/// that can exist on the Internet, and nothing else around it.
pub(crate) fn check_subject(subject: &str) -> Result<(), SubjectError> {
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
mod tests;
