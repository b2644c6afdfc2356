//! Subscription: push endpoint and keys of one browser. Values of these types have been checked.

use std::fmt;
use std::sync::Arc;

use p256::elliptic_curve::sec1::FromSec1Point as _;

use crate::base64url;
use crate::clock::Timestamp;
use crate::named;

named! {
    /// State of a subscription. Only active ones get pushes. In any state, registering its
    /// endpoint again makes it active and starts its next life. Deliveries for an earlier life are not sent to it.
    pub enum SubscriptionState {
        /// It gets pushes. Set by registration: of a new endpoint, of one that had ended, or as a replacement.
        Active = "active",
        /// Stored, but without pushes. The push service accepted others in the lane but never this one, so its keys are
        /// probably wrong. Set by maintenance (`store::audience::refusals`). Waiting deliveries are cancelled.
        Suspended = "suspended",
        /// Reported as gone by the push service (404, 410), or DNS did not find its endpoint's host for hours. Set by the
        /// settlement of that attempt (`ledger` of `bellwire-store`). Waiting deliveries end as gone. Retention deletes the
        /// row.
        Gone = "gone",
        /// Ended by its browser, its site or the erasure of its user (`store::audience::subscriptions`). Waiting deliveries are
        /// cancelled. Retention deletes the row.
        Unsubscribed = "unsubscribed",
        /// Replaced by another subscription of the same browser, which has its topics and waiting deliveries. Set by the
        /// registration of the other one (`store::audience::replacement`). Retention deletes the row.
        Replaced = "replaced",
        /// The browser's `expirationTime` has passed. Set by maintenance (`sweeps` of `bellwire-store`). Waiting deliveries end
        /// as gone. Retention deletes the row.
        Expired = "expired",
    }
}

impl SubscriptionState {
    /// Whether the subscription can be changed: it is active, or can become active without a new registration.
    pub fn lives(self) -> bool {
        matches!(self, Self::Active | Self::Suspended)
    }

    /// Whether a replacement inherits from it. Unsubscribed and replaced subscriptions pass nothing on.
    pub fn has_heirs(self) -> bool {
        matches!(self, Self::Active | Self::Suspended | Self::Gone | Self::Expired)
    }
}

/// Consent of a person. Unknown parts are `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Consent {
    /// Time of the consent.
    pub at: Option<Timestamp>,
    /// Source of the consent in the words of the site: at most [`CONSENT_SOURCE_CHARS_MAX`] characters.
    pub source: Option<String>,
}

impl Consent {
    /// Source of a consent by registration without further details.
    pub const BY_BROWSER: &str = "browser";

    /// Whether a time or a source is known.
    pub fn is_known(&self) -> bool {
        self.at.is_some() || self.source.is_some()
    }
}

/// Maximum characters of a consent's source.
pub const CONSENT_SOURCE_CHARS_MAX: usize = 200;

/// Maximum bytes of an endpoint. Real ones have up to about 500; UnifiedPush allows 1,000.
pub const ENDPOINT_MAX: usize = 2048;

/// Reason for which an endpoint or key is refused. The text is for the API's caller.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSubscription {
    /// The endpoint is not a valid URL of a push service.
    #[error("{0}")]
    Endpoint(&'static str),
    /// `keys.p256dh` is not base64 of an uncompressed point on P-256.
    #[error("{0}")]
    P256dh(&'static str),
    /// `keys.auth` is not base64 of 16 bytes.
    #[error("{0}")]
    Auth(&'static str),
}

/// URL of a push resource (RFC 8030 section 4): https, a host, no user info, at most [`ENDPOINT_MAX`] bytes, stored unchanged.
/// It is a capability, so `Debug` shows only its origin.
///
/// The gateway client decides whether connections to its host are allowed, at registration and at every connect.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Endpoint {
    url: Arc<str>,
    /// Length of `https://host[:port]` within `url`.
    origin_len: u16,
}

impl Endpoint {
    /// Parses a URL reported by a browser.
    pub fn parse(url: &str) -> Result<Self, InvalidSubscription> {
        let refuse = |why| Err(InvalidSubscription::Endpoint(why));
        if url.len() > ENDPOINT_MAX {
            return refuse("is longer than 2048 octets");
        }
        if !url.bytes().all(|b| b.is_ascii_graphic()) {
            return refuse("holds a space, a control character or one outside ASCII");
        }
        let Ok(parsed) = url::Url::parse(url) else { return refuse("is not a URL") };
        if parsed.scheme() != "https" || !url.get(..8).is_some_and(|start| start.eq_ignore_ascii_case("https://")) {
            return refuse("must begin with https://");
        }
        if !parsed.username().is_empty() || parsed.password().is_some() {
            return refuse("must not carry a user name or password");
        }
        if parsed.fragment().is_some() {
            return refuse("must not carry a fragment");
        }
        let authority_len = url["https://".len()..].find(['/', '?', '\\']).unwrap_or(url.len() - "https://".len());
        let (given, rest) = url.split_at("https://".len() + authority_len);
        // Capital letters and the default port name the same host; one endpoint is stored in one spelling.
        let lower = given.to_ascii_lowercase();
        let origin = lower.strip_suffix(":443").unwrap_or(&lower);
        // What we would connect to must be what the URL standard reads, letter for letter: no escapes, no octal, decimal or shortened
        // addresses.
        if parsed.origin().ascii_serialization() != origin {
            return refuse("must spell its host in the plain form: no escapes, and addresses in full");
        }
        let (url, origin_len) = (format!("{origin}{rest}"), origin.len());
        Ok(Self { url: url.into(), origin_len: u16::try_from(origin_len).expect("checked against ENDPOINT_MAX") })
    }

    /// Returns the whole URL. It is a secret: with it and a VAPID key, pushes can be sent.
    #[inline]
    pub fn expose(&self) -> &str {
        &self.url
    }

    /// Returns `https://host[:port]`: the audience of VAPID tokens (RFC 8292 section 2).
    #[inline]
    pub fn origin(&self) -> &str {
        &self.url[..usize::from(self.origin_len)]
    }

    /// Returns `host[:port]`, for `Host` or `:authority` of a request.
    #[inline]
    pub fn authority(&self) -> &str {
        &self.origin()["https://".len()..]
    }

    /// Returns path and query exactly as registered, for the request line. They are secret.
    #[inline]
    pub fn expose_path(&self) -> &str {
        match &self.url[usize::from(self.origin_len)..] {
            "" => "/",
            path => path,
        }
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Endpoint({}/…)", self.origin())
    }
}

/// A browser's keys for encrypting payloads (RFC 8291 section 2). `Debug` shows nothing.
#[derive(Clone, PartialEq, Eq)]
pub struct BrowserKeys {
    /// Public key of the browser: an uncompressed point on the curve.
    pub p256dh: [u8; 65],
    /// Authentication secret.
    pub auth: [u8; 16],
}

impl BrowserKeys {
    /// Parses `keys.p256dh` and `keys.auth` in base64 or base64url, with or without padding.
    pub fn parse(p256dh: &str, auth: &str) -> Result<Self, InvalidSubscription> {
        let point = base64url::decode_any(p256dh).ok_or(InvalidSubscription::P256dh("is not base64"))?;
        let p256dh: [u8; 65] = point.try_into().map_err(|_| {
            InvalidSubscription::P256dh("must be 65 octets: an uncompressed P-256 point, beginning with 4")
        })?;
        let sec1 = p256::Sec1Point::from_bytes(p256dh)
            .map_err(|_| InvalidSubscription::P256dh("is not an uncompressed P-256 point"))?;
        if p256dh[0] != 4 || p256::PublicKey::from_sec1_point(&sec1).is_none().into() {
            return Err(InvalidSubscription::P256dh("is not a point on P-256"));
        }
        let auth = base64url::decode_any(auth).ok_or(InvalidSubscription::Auth("is not base64"))?;
        let auth = auth.try_into().map_err(|_| InvalidSubscription::Auth("must be 16 octets"))?;
        Ok(Self { p256dh, auth })
    }
}

impl fmt::Debug for BrowserKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BrowserKeys(…)")
    }
}
