//! Checks of a request: headers (RFC 8030), VAPID (RFC 8292) and body. Every fault is reported; [`super::responses`]
//! decides which of them a gateway refuses.

use std::sync::Arc;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED, UnparsedPublicKey};
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde::{Deserialize, Serialize};

use super::subscriptions::{MintTarget, fingerprint};
use bellwire_core::base64url;
use bellwire_core::lane::Gateway;

/// Fault of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RequestFault {
    /// The method is not POST.
    Method,
    /// The path is not an endpoint of this host.
    UnknownEndpoint,
    /// A WNS token with different percent-escapes than in its endpoint.
    EscapedToken,
    /// No `Authorization`, although the gateway or the subscription requires it.
    VapidMissing,
    /// `Authorization` is not of the form `vapid t=…, k=…`, or its token not a JWT with ES256 and an integer `exp`.
    VapidToken,
    /// `k` is not base64url of a point on P-256.
    VapidKey,
    /// The token's signature does not verify with `k`.
    VapidSignature,
    /// `aud` is not the endpoint's origin.
    VapidAudience,
    /// The claim `exp` has passed.
    VapidExpired,
    /// `exp` is more than 24 hours ahead.
    VapidTooLong,
    /// `sub` is missing, or not a `mailto:` or `https:` that the strictest gateway accepts.
    VapidSubject,
    /// `k` is not the key of the subscription.
    VapidWrongKey,
    /// The header `TTL` is missing.
    TtlMissing,
    /// `TTL` is not a number of seconds that this gateway accepts.
    TtlInvalid,
    /// `TTL` is a negative number.
    TtlNegative,
    /// `TTL: 0`: Apple requires a positive number, and WNS requires `X-WNS-Cache-Policy: no-cache` with it.
    TtlZero,
    /// `Urgency` is not one of the four values, or occurs twice.
    Urgency,
    /// `Topic` is too long or of the wrong alphabet; for Apple also: of a length that base64 cannot have.
    Topic,
    /// `Content-Encoding` is not exactly `aes128gcm`.
    Encoding,
    /// The body exceeds the limit of the gateway.
    TooLarge,
    /// The RFC 8188 header of the body violates RFC 8291. Checked only for sampled requests, like the next two faults.
    Sealing,
    /// The body cannot be decrypted with the subscription's keys.
    Unsealable,
    /// The ephemeral key or salt was used for another subscription before.
    SenderKeyReused,
}

/// Maximum lifetime of a VAPID token (RFC 8292 section 2).
const DAY_SECS: i64 = 86_400;
static URGENCY: HeaderName = HeaderName::from_static("urgency");
static TOPIC: HeaderName = HeaderName::from_static("topic");
static TTL: HeaderName = HeaderName::from_static("ttl");
static CACHE_POLICY: HeaderName = HeaderName::from_static("x-wns-cache-policy");

pub(super) fn ttl(gateway: Gateway, headers: &HeaderMap) -> Result<u64, RequestFault> {
    let text = headers.get(&TTL).ok_or(RequestFault::TtlMissing)?.to_str().map_err(|_| RequestFault::TtlInvalid)?;
    if let Some(digits) = text.strip_prefix('-') {
        return Err(if digits.parse::<u64>().is_ok() { RequestFault::TtlNegative } else { RequestFault::TtlInvalid });
    }
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(RequestFault::TtlInvalid);
    }
    let ttl = match (text.parse::<u64>(), gateway) {
        (Ok(ttl), Gateway::Fcm) if ttl > 2_419_200 => return Err(RequestFault::TtlInvalid),
        (Ok(ttl), _) => ttl,
        (Err(_), Gateway::Fcm | Gateway::Mozilla) => return Err(RequestFault::TtlInvalid),
        (Err(_), _) => 1 << 31, // RFC 8030 section 5.2
    };
    let no_cache = || headers.get(&CACHE_POLICY).is_some_and(|policy| policy == "no-cache");
    match gateway {
        Gateway::Apple if ttl == 0 => Err(RequestFault::TtlZero),
        Gateway::Wns if ttl == 0 && !no_cache() => Err(RequestFault::TtlZero),
        _ => Ok(ttl),
    }
}

/// Checks `Urgency`, `Topic` and `Content-Encoding`, the last only for a body.
pub(super) fn headers(gateway: Gateway, headers: &HeaderMap, has_body: bool, faults: &mut Vec<RequestFault>) {
    let mut urgencies = headers.get_all(&URGENCY).iter();
    let known = |value: &HeaderValue| matches!(value.as_bytes(), b"very-low" | b"low" | b"normal" | b"high");
    if urgencies.next().is_some_and(|first| !known(first) || urgencies.next().is_some()) {
        faults.push(RequestFault::Urgency);
    }
    if headers.get(&TOPIC).is_some_and(|topic| !topic_is_fine(gateway, topic.as_bytes())) {
        faults.push(RequestFault::Topic);
    }
    if has_body && headers.get(header::CONTENT_ENCODING).is_none_or(|coding| coding != "aes128gcm") {
        faults.push(RequestFault::Encoding);
    }
}

fn topic_is_fine(gateway: Gateway, topic: &[u8]) -> bool {
    let alphabet = topic.iter().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    alphabet && (1..=32).contains(&topic.len()) && !(gateway == Gateway::Apple && topic.len() % 4 == 1)
}

/// Returns the value of a header as text.
pub(super) fn text(headers: &HeaderMap, name: &str) -> Option<Box<str>> {
    headers.get(name).and_then(|value| value.to_str().ok()).map(Into::into)
}

/// A verified VAPID header. Senders use one header for hours, so it is verified once and later recognised by its
/// octets. The checks of time and endpoint are repeated.
#[derive(Debug)]
pub(super) struct VerifiedToken {
    key: [u8; 8],
    aud: String,
    exp: i64,
    subject_is_fine: bool,
}

pub(super) type Verified = Arc<Result<VerifiedToken, RequestFault>>;

#[derive(Deserialize)]
struct JoseHeader {
    alg: String,
}

#[derive(Deserialize)]
struct VapidClaims {
    #[serde(default)]
    aud: serde_json::Value,
    exp: i64,
    #[serde(default)]
    sub: serde_json::Value,
}

impl VerifiedToken {
    /// Parses `Authorization` (RFC 8292 section 3) and verifies its signature.
    pub(super) fn read(authorization: &HeaderValue) -> Result<Self, RequestFault> {
        let text = authorization.to_str().map_err(|_| RequestFault::VapidToken)?;
        let (scheme, parameters) = text.split_once(' ').ok_or(RequestFault::VapidToken)?;
        if !scheme.eq_ignore_ascii_case("vapid") {
            return Err(RequestFault::VapidToken);
        }
        let parameter = |name: &str| {
            parameters.split(',').find_map(|pair| pair.trim().strip_prefix(name)?.strip_prefix('=')).map(str::trim)
        };
        let key = parameter("k").and_then(base64url::decode).ok_or(RequestFault::VapidKey)?;
        if key.len() != 65 || key[0] != 4 {
            return Err(RequestFault::VapidKey);
        }
        let (signed, signature) = parameter("t").and_then(|t| t.rsplit_once('.')).ok_or(RequestFault::VapidToken)?;
        let (jose, claims) = signed.split_once('.').ok_or(RequestFault::VapidToken)?;
        let jose: JoseHeader = from_base64_json(jose)?;
        let claims: VapidClaims = from_base64_json(claims)?;
        let signature = base64url::decode(signature).ok_or(RequestFault::VapidToken)?;
        if jose.alg != "ES256" {
            return Err(RequestFault::VapidToken);
        }
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &key)
            .verify(signed.as_bytes(), &signature)
            .map_err(|_| RequestFault::VapidSignature)?;
        Ok(Self {
            key: fingerprint(&key),
            aud: claims.aud.as_str().unwrap_or_default().to_owned(),
            exp: claims.exp,
            subject_is_fine: claims.sub.as_str().is_some_and(subject_is_fine),
        })
    }

    /// Checks this token for a request at time `now` (seconds since 1970) to a subscription.
    pub(super) fn check(
        &self, gateway: Gateway, origin: &str, target: MintTarget, now: i64, faults: &mut Vec<RequestFault>,
    ) {
        // autopush tolerates clock differences; the others do not.
        let leeway = if gateway == Gateway::Mozilla { 60 } else { 0 };
        if self.aud != origin {
            faults.push(RequestFault::VapidAudience);
        }
        if self.exp.saturating_add(leeway) <= now {
            faults.push(RequestFault::VapidExpired);
        }
        if self.exp > now + DAY_SECS {
            faults.push(RequestFault::VapidTooLong);
        }
        if target.bound.is_some_and(|bound| bound != self.key) {
            faults.push(RequestFault::VapidWrongKey);
        }
        if !self.subject_is_fine {
            faults.push(RequestFault::VapidSubject);
        }
    }
}

fn from_base64_json<T: serde::de::DeserializeOwned>(text: &str) -> Result<T, RequestFault> {
    let json = base64url::decode(text).ok_or(RequestFault::VapidToken)?;
    serde_json::from_slice(&json).map_err(|_| RequestFault::VapidToken)
}

/// Whether Apple accepts a `sub`: a plain mail address at a public name, or an https URL.
fn subject_is_fine(sub: &str) -> bool {
    if let Some(address) = sub.strip_prefix("mailto:") {
        let Some((user, domain)) = address.split_once('@') else { return false };
        let odd = |c: char| c.is_whitespace() || matches!(c, '<' | '>' | ':' | '@' | ',');
        let public = domain.contains('.') && ![".local", ".invalid", ".localhost"].iter().any(|s| domain.ends_with(s));
        return !user.is_empty() && public && !address.replacen('@', "", 1).contains(odd);
    }
    sub.strip_prefix("https://").is_some_and(|rest| !rest.is_empty() && !rest.starts_with("localhost"))
}

#[cfg(test)]
#[path = "../../../../tests/crates/simulator/unit/gateways/check.rs"]
mod tests;
