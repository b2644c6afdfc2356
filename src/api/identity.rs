//! Proof of a browser's user by the site's backend: a JWT (RFC 7519) with HS256 or ES256, or the HMAC-SHA-256 of the user id. A
//! browser's own statement proves nothing.
//!
//! ```text
//! JWT   {"alg": "HS256" | "ES256", "kid"?: "ik_…"} . {"sub": user id, "exp": within 7 days, "nbf"?, "iat"?, "aud"?: app}
//! HMAC  hex or base64url of HMAC-SHA-256(key: the secret as text, user id)
//! ```
//!
//! A key is only used with its own algorithm, so that a public key never serves as an HMAC secret, and only in its own form: the
//! HMAC of a user id of the form `header.payload` is the signature of that JWT, so a backend that computes HMACs of chosen user
//! ids would sign JWTs.

pub(crate) mod keys;

use std::fmt;

use aws_lc_rs::hmac;
use aws_lc_rs::rand;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use p256::PublicKey;
use p256::elliptic_curve::sec1::ToSec1Point as _;
use p256::pkcs8::DecodePublicKey as _;
use serde::Deserialize;
use zeroize::Zeroizing;

use super::http::problem::ProblemCode;
use bellwire_core::base64url;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::IdentityKeyId;
use bellwire_core::named;

pub(crate) const SECRET_PREFIX: &str = "bwi_";
/// Maximum lifetime of a token in seconds. It limits the damage of a leaked token.
pub(crate) const LIFETIME_MAX_S: i64 = 7 * 86_400;
/// Tolerated clock difference between the backend and this server, in seconds.
const LEEWAY_S: i64 = 60;
const TOKEN_MAX: usize = 4_096;

named! {
    /// Kind of proof that a key is for. A key is never used for both.
    #[derive(Default)]
    pub(crate) enum ProofForm {
        /// Signed JWTs, which expire.
        #[default]
        Jwt = "jwt",
        /// HMAC-SHA-256 of the user id, valid until the key is deleted.
        Hmac = "hmac",
    }
}

/// Identity key of an app. `Debug` shows no secret.
#[derive(Clone)]
pub(crate) enum Key {
    /// Secret shared with the site's backend, which signs JWTs: the bytes of its text.
    Hs256(Zeroizing<Vec<u8>>),
    /// Secret shared with the site's backend, which computes plain HMACs: the bytes of its text.
    Hmac(Zeroizing<Vec<u8>>),
    /// Public key whose private key stays in the backend: an uncompressed point on P-256.
    Es256([u8; 65]),
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.algorithm())
    }
}

impl Key {
    /// Generates a secret: 32 random bytes in base64url after [`SECRET_PREFIX`]. The whole text is the HMAC key.
    pub(crate) fn generate() -> Zeroizing<String> {
        let mut octets = Zeroizing::new([0; 32]);
        rand::fill(&mut *octets).expect("the system's randomness");
        Zeroizing::new(format!("{SECRET_PREFIX}{}", base64url::encode(*octets)))
    }

    /// Parses a P-256 public key: PEM (SubjectPublicKeyInfo) or a JWK. `None`: neither.
    pub(crate) fn from_public(text: &str) -> Option<Self> {
        let text = text.trim();
        let public = match text.starts_with('{') {
            true => PublicKey::from_sec1_bytes(&point_of_jwk(text)?).ok()?,
            false => PublicKey::from_public_key_pem(text).ok()?,
        };
        Some(Self::Es256(public.to_sec1_point(false).as_bytes().try_into().ok()?))
    }

    /// Returns the JWT `alg` value.
    pub(crate) fn algorithm(&self) -> &'static str {
        match self {
            Self::Hs256(_) | Self::Hmac(_) => "HS256",
            Self::Es256(_) => "ES256",
        }
    }

    pub(crate) fn form(&self) -> ProofForm {
        match self {
            Self::Hs256(_) | Self::Es256(_) => ProofForm::Jwt,
            Self::Hmac(_) => ProofForm::Hmac,
        }
    }
}

fn point_of_jwk(text: &str) -> Option<Vec<u8>> {
    #[derive(Deserialize)]
    struct Jwk {
        kty: String,
        crv: String,
        x: String,
        y: String,
    }
    let jwk: Jwk = serde_json::from_str(text).ok()?;
    let (x, y) = (base64url::decode_any(&jwk.x)?, base64url::decode_any(&jwk.y)?);
    (jwk.kty == "EC" && jwk.crv == "P-256" && x.len() == 32 && y.len() == 32).then(|| [&[4], &x[..], &y].concat())
}

/// Reason for which a token proves no user. The texts are for developers of the site.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Unproven {
    #[error("is neither a JWT nor the HMAC-SHA-256 of the user id in hex or base64url")]
    Malformed,
    /// The app has no key that could have signed the token.
    #[error("is signed with a key that this app does not have or that was deleted")]
    UnknownKey,
    /// A plain HMAC, but all keys of the app are for JWTs.
    #[error(
        "is a plain HMAC, and this app's identity keys are for JWTs: have your backend sign a JWT, or make a key for HMACs \
         with `bellwire app identity-key create APP --name NAME --form hmac`"
    )]
    HmacOfJwtKey,
    /// A JWT under HS256, but the app's secrets (or the named one) are for plain HMACs.
    #[error(
        "is a JWT, and this app's secrets are for plain HMACs: have your backend compute the HMAC of the user id, or make \
         a key for JWTs with `bellwire app identity-key create APP --name NAME --form jwt`"
    )]
    JwtOfHmacKey,
    /// The HMAC of a user id that looks like the beginning of a JWT.
    #[error(
        "is the HMAC of a user id that reads like the beginning of a JWT: for such a user, have your backend sign a JWT"
    )]
    Mistakable,
    /// Unsupported algorithm, such as `none`.
    #[error("is signed by an unsupported algorithm: use HS256 or ES256")]
    Algorithm,
    /// The header has `crit` or `zip`, which change the meaning of a token.
    #[error("has `crit` or `zip` in its header, which are not supported: sign without them")]
    Extension,
    /// Wrong signature: the token was changed, signed with another key, or is the HMAC of another user id.
    #[error("has a wrong signature: it was changed, or made with another key or for another user")]
    Signature,
    #[error("has no `exp`, the time when it expires in seconds since 1970")]
    NoExpiry,
    #[error("has expired: have your backend sign a new one")]
    Expired,
    /// `exp` is further ahead than [`LIFETIME_MAX_S`].
    #[error("may be valid for at most 7 days")]
    TooLong,
    #[error("is not valid yet: compare the clocks")]
    NotYet,
    #[error("is for another user: `sub` must be the `user_id`")]
    User,
    #[error("is for another audience: `aud`, if present, must name this app by id or slug")]
    Audience,
}

impl Unproven {
    pub(crate) fn code(self) -> ProblemCode {
        match self {
            Self::Malformed => ProblemCode::UserTokenMalformed,
            Self::UnknownKey => ProblemCode::UserTokenKeyUnknown,
            Self::HmacOfJwtKey | Self::JwtOfHmacKey => ProblemCode::UserTokenForm,
            Self::Mistakable => ProblemCode::UserTokenUserMistakable,
            Self::Algorithm => ProblemCode::UserTokenAlgorithm,
            Self::Extension => ProblemCode::UserTokenExtension,
            Self::Signature => ProblemCode::UserTokenSignature,
            Self::NoExpiry => ProblemCode::UserTokenWithoutExpiry,
            Self::Expired => ProblemCode::UserTokenExpired,
            Self::TooLong => ProblemCode::UserTokenValidTooLong,
            Self::NotYet => ProblemCode::UserTokenNotYetValid,
            Self::User => ProblemCode::UserTokenOfAnotherUser,
            Self::Audience => ProblemCode::UserTokenAudience,
        }
    }
}

/// Checks that a token proves `user`. `names` are the app's id and slug, which `aud` may contain.
pub(crate) fn prove(
    token: &str, user: &str, app: [&str; 2], keys: &[(IdentityKeyId, Key)], now: Timestamp,
) -> Result<(), Unproven> {
    if token.len() > TOKEN_MAX {
        return Err(Unproven::Malformed);
    }
    if token.contains('.') { check_jwt(token, user, app, keys, now) } else { check_hmac(token, user, keys) }
}

fn check_hmac(token: &str, user: &str, keys: &[(IdentityKeyId, Key)]) -> Result<(), Unproven> {
    let tag = read_hex(token).or_else(|| base64url::decode_any(token)).filter(|tag| tag.len() == 32);
    let tag = tag.ok_or(Unproven::Malformed)?;
    if begins_like_a_jwt(user) {
        return Err(Unproven::Mistakable);
    }
    let mut refused = if keys.is_empty() { Unproven::UnknownKey } else { Unproven::HmacOfJwtKey };
    for (_, key) in keys {
        let Key::Hmac(secret) = key else { continue };
        if hmac::verify(&hmac::Key::new(hmac::HMAC_SHA256, secret), user.as_bytes(), &tag).is_ok() {
            return Ok(());
        }
        refused = Unproven::Signature;
    }
    Err(refused)
}

/// Whether a text could be the signing input of a JWT: base64 of a JSON object, a dot, any text. Another verifier with the same
/// secret may not distinguish the two forms.
fn begins_like_a_jwt(text: &str) -> bool {
    header_of(text).is_some()
}

/// Returns the members of the JSON object at the beginning of a JWT.
fn header_of(text: &str) -> Option<serde_json::Map<String, serde_json::Value>> {
    let (header, _) = text.split_once('.')?;
    serde_json::from_slice(&base64url::decode_any(header)?).ok()
}

/// Whether a JWT requires extensions (RFC 7515, 4.1.11; RFC 7516, 4.1.3). Tokens with unknown extensions must be refused.
fn has_extensions(token: &str) -> bool {
    header_of(token).is_some_and(|header| ["crit", "zip"].iter().any(|name| header.contains_key(*name)))
}

fn read_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |b: u8| char::from(b).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let pairs = text.as_bytes().chunks_exact(2);
    (text.len() == 64).then(|| pairs.map(|pair| Some(digit(pair[0])? << 4 | digit(pair[1])?)).collect())?
}

#[derive(Deserialize)]
struct IdentityClaims {
    sub: Option<String>,
    exp: Option<f64>,
    nbf: Option<f64>,
    iat: Option<f64>,
    aud: Option<AudienceNames>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum AudienceNames {
    One(String),
    Several(Vec<String>),
}

impl AudienceNames {
    fn hold(&self, wanted: [&str; 2]) -> bool {
        let names = match self {
            Self::One(name) => std::slice::from_ref(name),
            Self::Several(names) => names,
        };
        names.iter().any(|name| wanted.contains(&name.as_str()))
    }
}

fn check_jwt(
    token: &str, user: &str, app: [&str; 2], keys: &[(IdentityKeyId, Key)], now: Timestamp,
) -> Result<(), Unproven> {
    if has_extensions(token) {
        return Err(Unproven::Extension);
    }
    let header = jsonwebtoken::decode_header(token).map_err(|error| match error.kind() {
        // An algorithm that the crate does not know, such as `none`, does not even deserialize.
        ErrorKind::Json(_) | ErrorKind::InvalidAlgorithmName => Unproven::Algorithm,
        _ => Unproven::Malformed,
    })?;
    if !matches!(header.alg, Algorithm::HS256 | Algorithm::ES256) {
        return Err(Unproven::Algorithm);
    }
    // A key id that is not of our form is the backend's own affair.
    let named = header.kid.as_deref().and_then(|kid| kid.parse::<IdentityKeyId>().ok());
    let meant: Vec<&Key> =
        keys.iter().filter(|(id, _)| named.is_none_or(|named| named == *id)).map(|(_, key)| key).collect();
    let mut refused = match header.alg {
        Algorithm::HS256 if meant.iter().any(|key| key.form() == ProofForm::Hmac) => Unproven::JwtOfHmacKey,
        _ => Unproven::UnknownKey,
    };
    for key in meant {
        let key = match (key, header.alg) {
            (Key::Hs256(secret), Algorithm::HS256) => DecodingKey::from_secret(secret),
            (Key::Es256(point), Algorithm::ES256) => DecodingKey::from_ec_der(point),
            _ => continue,
        };
        match jsonwebtoken::decode::<IdentityClaims>(token, &key, &signature_only(header.alg)) {
            Ok(decoded) => return check_claims(&decoded.claims, user, app, now),
            Err(error) => {
                refused = match error.kind() {
                    ErrorKind::InvalidSignature => Unproven::Signature,
                    _ => Unproven::Malformed,
                }
            }
        }
    }
    Err(refused)
}

/// Validates only the signature. The claims are checked here with the server's clock.
fn signature_only(algorithm: Algorithm) -> Validation {
    let mut validation = Validation::new(algorithm);
    validation.required_spec_claims.clear();
    validation.validate_exp = false;
    validation.validate_aud = false;
    validation
}

fn check_claims(claims: &IdentityClaims, user: &str, app: [&str; 2], now: Timestamp) -> Result<(), Unproven> {
    let (now_s, leeway_s) = (now.timestamp() as f64, LEEWAY_S as f64);
    let expires_s = claims.exp.ok_or(Unproven::NoExpiry)?;
    if expires_s + leeway_s <= now_s {
        return Err(Unproven::Expired);
    }
    if expires_s > now_s + leeway_s + LIFETIME_MAX_S as f64 {
        return Err(Unproven::TooLong);
    }
    if [claims.nbf, claims.iat].into_iter().flatten().any(|from_s| from_s > now_s + leeway_s) {
        return Err(Unproven::NotYet);
    }
    if claims.sub.as_deref() != Some(user) {
        return Err(Unproven::User);
    }
    if claims.aud.as_ref().is_some_and(|aud| !aud.hold(app)) {
        return Err(Unproven::Audience);
    }
    Ok(())
}

#[cfg(test)]
#[path = "../../tests/unit/api/identity.rs"]
mod tests;
