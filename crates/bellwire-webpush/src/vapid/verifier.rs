//! Checks of a token like those of the strictest push service, for tests.

use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};

use super::WireClaims;
use crate::keys::check_subject;
use bellwire_core::base64url;
use bellwire_core::clock::Timestamp;

/// The longest life that RFC 8292 section 2 lets a token have left, in seconds.
const LIFE_MAX_S: i64 = 24 * 3600;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct VerifiedClaims {
    pub(super) audience: String,
    /// Expiry, in seconds since 1970.
    pub(super) expires_s: i64,
    pub(super) subject: String,
    /// Key that signed it, an uncompressed point. The caller checks whether it is the subscription's key.
    pub(super) key: [u8; 65],
}

/// Fault of an `Authorization` header for a push service.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(super) enum VapidError {
    /// Another scheme, or none.
    #[error("the Authorization scheme is not vapid")]
    Scheme,
    #[error("the Authorization needs exactly one t and one k")]
    Parameters,
    /// `k` is not unpadded base64url of an uncompressed P-256 point.
    #[error("k is not base64url of a P-256 point")]
    Key,
    /// `t` is not a JWT signed with ES256 whose claims are an `aud` string, an integer `exp` and a `sub` string.
    #[error("t is not an ES256 token with aud, exp and sub")]
    Token,
    #[error("the signature was not made with the key k")]
    Signature,
    #[error("aud is not the origin of the push resource")]
    Audience,
    #[error("the token has expired")]
    Expired,
    /// More than 24 hours are left.
    #[error("exp is more than 24 hours ahead")]
    TooLong,
    #[error("sub is missing or not a real contact")]
    Subject,
}

/// Checks an `Authorization` as the strictest push service would: scheme, key, signature, audience, life, contact.
pub(super) fn verify(authorization: &str, audience: &str, now: Timestamp) -> Result<VerifiedClaims, VapidError> {
    let (token, key) = parameters(authorization)?;
    let key: [u8; 65] = base64url::decode(key).and_then(|point| point.try_into().ok()).ok_or(VapidError::Key)?;
    if key[0] != 4 {
        return Err(VapidError::Key);
    }
    let mut validation = Validation::new(Algorithm::ES256);
    validation.validate_exp = false; // by its own clock: done below with ours
    validation.validate_aud = false; // it would take an array that holds ours, which gateways refuse
    validation.required_spec_claims.clear();
    let claims = jsonwebtoken::decode::<WireClaims>(token, &DecodingKey::from_ec_der(&key), &validation)
        .map_err(|error| match error.kind() {
            ErrorKind::InvalidSignature => VapidError::Signature,
            _ => VapidError::Token,
        })?
        .claims;
    let left_s = claims.exp.saturating_sub(now.timestamp());
    if claims.aud != audience {
        Err(VapidError::Audience)
    } else if left_s <= 0 {
        Err(VapidError::Expired)
    } else if left_s > LIFE_MAX_S {
        Err(VapidError::TooLong)
    } else if check_subject(&claims.sub).is_err() {
        Err(VapidError::Subject)
    } else {
        Ok(VerifiedClaims { audience: claims.aud, expires_s: claims.exp, subject: claims.sub, key })
    }
}

/// `t` and `k` of `vapid t=…, k=…`; other parameters are ignored (RFC 8292 section 3).
fn parameters(authorization: &str) -> Result<(&str, &str), VapidError> {
    let (scheme, rest) = authorization.split_once(' ').ok_or(VapidError::Scheme)?;
    if !scheme.eq_ignore_ascii_case("vapid") {
        return Err(VapidError::Scheme);
    }
    let (mut token, mut key) = (None, None);
    for parameter in rest.split(',') {
        let (name, value) = parameter.trim().split_once('=').ok_or(VapidError::Parameters)?;
        let twice = match name {
            "t" => token.replace(value),
            "k" => key.replace(value),
            _ => None,
        };
        if twice.is_some() {
            return Err(VapidError::Parameters);
        }
    }
    token.zip(key).ok_or(VapidError::Parameters)
}
