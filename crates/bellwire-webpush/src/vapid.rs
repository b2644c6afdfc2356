//! VAPID token of RFC 8292, which identifies the sender. It is signed once per (key, origin) and used for hours, as gateways
//! recommend.

#[cfg(test)]
mod verifier;

use std::collections::HashMap;
use std::fmt;

use http::HeaderValue;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use parking_lot::RwLock;
use serde::Serialize;

use super::keys::SigningKey;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::VapidKeyId;

/// Validity of a token in seconds. The standard allows 24 hours. Half of it leaves room for wrong clocks.
pub(crate) const LIFE_S: i64 = 12 * 3600;
/// Time for which a token is used, in seconds.
const USE_S: i64 = LIFE_S / 2;
/// Step back of the clock, in seconds, up to which a cached token is still used.
const BACKSTEP_S: i64 = 3600;
/// Maximum cached origins of one key. An app that may push anywhere could name any number of hosts. Beyond the maximum, the
/// oldest token is dropped, which costs one signature.
const ORIGINS_MAX: usize = 256;

/// Claims as serialised. `exp` is an integer: Mozilla responds with 401 to a float.
#[derive(Serialize)]
#[cfg_attr(test, derive(serde::Deserialize))]
struct WireClaims {
    aud: String,
    exp: i64,
    #[cfg_attr(test, serde(default))]
    sub: String,
}

struct SignedToken {
    header: HeaderValue,
    subject: Box<str>,
    signed_at_s: i64,
}

impl SignedToken {
    fn serves(&self, subject: &str, now_s: i64) -> bool {
        // A corrected subject must count at once: gateways refuse every push until it does.
        (-BACKSTEP_S..USE_S).contains(&(now_s - self.signed_at_s)) && *self.subject == *subject
    }
}

/// Tokens by (key, origin). Entries are replaced, never changed. `Debug` shows no token.
#[derive(Default)]
pub struct TokenCache(RwLock<HashMap<VapidKeyId, HashMap<Box<str>, SignedToken>>>);

impl fmt::Debug for TokenCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenCache(…)")
    }
}

impl TokenCache {
    /// Returns the `Authorization` header for requests to `origin` (`https://host[:port]`, no slash), marked sensitive. Costs a
    /// read lock and a hash lookup, and every six hours a signature, which is computed outside the lock, so possibly by two
    /// threads.
    pub fn header(&self, id: VapidKeyId, key: &SigningKey, subject: &str, origin: &str, now: Timestamp) -> HeaderValue {
        let now_s = now.timestamp();
        if let Some(token) = self.0.read().get(&id).and_then(|origins| origins.get(origin))
            && token.serves(subject, now_s)
        {
            return token.header.clone();
        }
        let header = sign(key, subject, origin, now);
        let token = SignedToken { header: header.clone(), subject: subject.into(), signed_at_s: now_s };
        let mut keys = self.0.write();
        let origins = keys.entry(id).or_default();
        if origins.len() >= ORIGINS_MAX && !origins.contains_key(origin) {
            let oldest = origins.iter().min_by_key(|(_, token)| token.signed_at_s).map(|(origin, _)| origin.clone());
            if let Some(oldest) = oldest {
                origins.remove(&oldest);
            }
        }
        origins.insert(origin.into(), token);
        header
    }

    /// Drops the tokens of a key that will not sign again.
    pub fn forget(&self, id: VapidKeyId) {
        self.0.write().remove(&id);
    }
}

/// Signs a token that expires [`LIFE_S`] from now. Returns the `Authorization` header (RFC 8292 section 3), marked sensitive.
pub fn sign(key: &SigningKey, subject: &str, origin: &str, now: Timestamp) -> HeaderValue {
    let claims = WireClaims { aud: origin.into(), exp: now.timestamp() + LIFE_S, sub: subject.into() };
    let signer = EncodingKey::from_ec_der(&key.expose_pkcs8());
    let token = jsonwebtoken::encode(&Header::new(Algorithm::ES256), &claims, &signer)
        .expect("a checked P-256 key signs and strings encode");
    let mut header = HeaderValue::try_from(format!("vapid t={token}, k={}", key.public_base64()))
        .expect("base64url and ASCII punctuation");
    header.set_sensitive(true);
    header
}

#[cfg(test)]
#[path = "../../../tests/crates/webpush/unit/vapid.rs"]
mod tests;
