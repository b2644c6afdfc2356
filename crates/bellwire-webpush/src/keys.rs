//! VAPID key pairs (RFC 8292): generation, import from other senders, and export. Also checks the contact as strictly as any
//! push service.

use std::fmt;

use aws_lc_rs::rand;
use p256::SecretKey;
use p256::elliptic_curve::sec1::ToSec1Point as _;
use p256::pkcs8::{EncodePrivateKey as _, LineEnding};
use zeroize::Zeroizing;

use bellwire_core::base64url;

mod import;

/// Reason for which a key pair is refused. The text is for the API's caller, and never contains key material.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum KeyError {
    /// No private key in a supported form.
    #[error(
        "holds no private key that can be read: expected PEM, DER, a JWK, or base64 or hex of 32 octets, alone or behind a label such \
         as `private key`; remove everything else from the file"
    )]
    Unrecognised,
    /// PEM that is encrypted with a passphrase.
    #[error("is encrypted: decrypt it first, for example with `openssl pkey`")]
    Encrypted,
    /// Only a public key.
    #[error("holds only a public key: the private key is needed to sign")]
    PublicOnly,
    /// Invalid PEM: not a private key on P-256, or its public key does not match.
    #[error(
        "has no valid PEM block `PRIVATE KEY` or `EC PRIVATE KEY` on the curve P-256 (prime256v1); remove its other blocks"
    )]
    Pem,
    /// JSON that is not an EC key on P-256.
    #[error(
        "is not JSON with a JWK (\"kty\": \"EC\", \"crv\": \"P-256\", `d`) or a member `privateKey`; remove everything around the JSON"
    )]
    Jwk,
    /// A raw private key of the wrong length.
    #[error("a private key has 32 octets, but {octets} were given")]
    Length {
        /// Number of bytes of the given key.
        octets: usize,
    },
    /// Zero, or not below the order of the curve.
    #[error("is not a private key on P-256: the number is out of range")]
    Range,
    /// The given public key is not an uncompressed point.
    #[error("has a public key that is not base64 or hex of a point on P-256; correct the public key, or remove it")]
    PublicKey,
    /// Several different private keys.
    #[error("holds several private keys: leave one of them, or name its public key")]
    Several,
    /// Private and public key of different pairs.
    #[error("the public key does not belong to the private key")]
    Mismatch,
}

/// VAPID key pair on P-256. `Debug` shows only the public key; the private key is zeroed on drop.
pub struct SigningKey {
    private: Zeroizing<[u8; 32]>,
    public: [u8; 65],
}

impl SigningKey {
    /// Generates a key pair.
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

    /// Creates a pair from a private key (a big-endian number).
    pub fn from_private(private: [u8; 32]) -> Result<Self, KeyError> {
        let private = Zeroizing::new(private);
        let secret = SecretKey::from_bytes((&*private).into()).map_err(|_| KeyError::Range)?;
        let public = secret.public_key().to_sec1_point(false);
        Ok(Self { public: public.as_bytes().try_into().expect("an uncompressed point has 65 octets"), private })
    }

    /// Returns the public key as an uncompressed point: pages subscribe with it, and it is `k` in every request.
    pub fn public(&self) -> &[u8; 65] {
        &self.public
    }

    /// Returns the public key in base64url without padding, as in pages and headers.
    pub fn public_base64(&self) -> String {
        base64url::encode(self.public)
    }

    /// Returns the private key as a big-endian number. A secret.
    pub fn expose_private(&self) -> &[u8; 32] {
        &self.private
    }

    /// Returns the private key as PKCS#8 PEM, which every tool reads. A secret.
    pub fn expose_pem(&self) -> Zeroizing<String> {
        self.secret().to_pkcs8_pem(LineEnding::LF).expect("a checked key encodes")
    }

    /// Returns the private key as PKCS#8 DER. A secret.
    pub fn expose_pkcs8(&self) -> Zeroizing<Vec<u8>> {
        self.secret().to_pkcs8_der().expect("a checked key encodes").to_bytes()
    }

    /// Returns the private key as JWK (RFC 7517). A secret.
    pub fn expose_jwk(&self) -> Zeroizing<String> {
        let [x, y] = [&self.public[1..33], &self.public[33..]].map(base64url::encode);
        let d = self.expose_raw();
        Zeroizing::new(format!(r#"{{"kty":"EC","crv":"P-256","x":"{x}","y":"{y}","d":"{}"}}"#, &*d))
    }

    /// Returns the private key in base64url, as most `web-push` libraries expect it. A secret.
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

/// Returns a big-endian number without leading zeros.
fn significant(octets: &[u8]) -> &[u8] {
    &octets[octets.iter().position(|&octet| octet != 0).unwrap_or(octets.len())..]
}

/// Reason for which a contact is refused, for the API's caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SubjectError(String);

/// Maximum bytes of a contact.
pub const SUBJECT_MAX: usize = 255;

/// Top-level names without mail or web servers on the Internet (RFC 2606, RFC 6761, RFC 6762, RFC 9476, and names in private use). Apple
/// responds with 403 `BadJwtToken` to several of them. FCM and Mozilla do not check. Names for examples (`example`, `example.com`) are
/// accepted, with a warning of `bellwire doctor`.
const UNREAL: [&str; 11] =
    ["alt", "corp", "home", "internal", "invalid", "lan", "local", "localdomain", "localhost", "onion", "test"];

/// Checks the `sub` claim (RFC 8292 section 2.1) like Apple does: `mailto:user@host` or `https://host/…`, with a host that can
/// exist on the Internet, and no other text.
pub fn check_subject(subject: &str) -> Result<(), SubjectError> {
    let refuse = |why: &str| Err(SubjectError(why.to_owned()));
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
        return check_host(host);
    }
    if !subject.starts_with("https://") {
        return refuse("must begin with mailto: or https://");
    }
    let Ok(url) = url::Url::parse(subject) else { return refuse("must be a mail address or an https URL") };
    if !url.username().is_empty() || url.password().is_some() {
        return refuse("must not carry a user name or password");
    }
    match url.host() {
        Some(url::Host::Domain(host)) => check_host(host),
        _ => refuse("must be an https URL with the name of a host, not its IP address"),
    }
}

fn check_host(host: &str) -> Result<(), SubjectError> {
    let fits = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let top = host.rsplit('.').next().unwrap_or_default();
    if UNREAL.contains(&top.to_ascii_lowercase().as_str()) {
        return Err(SubjectError(format!("must be on a public domain: names that end in {top:?} are reserved")));
    }
    let is_public = host.len() <= 253
        && host.contains('.')
        && host.split('.').all(fits)
        && top.bytes().any(|b| b.is_ascii_alphabetic());
    is_public.then_some(()).ok_or_else(|| SubjectError(format!("must be on a public domain, which {host:?} is not")))
}

#[cfg(test)]
#[path = "../../../tests/crates/webpush/unit/keys.rs"]
mod tests;
