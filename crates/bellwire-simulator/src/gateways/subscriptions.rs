//! Mints subscriptions without storage. Keys are derived from (seed, host, index). The token of an endpoint contains
//! its index and its VAPID key, so that a million endpoints need no memory.
//!
//! ```text
//! token = (index ‖ binding) ⊕ tag[..12] (12) | tag (64) | filler (from the tag)
//! tag   = HMAC-SHA-512(host's key, index (4) ‖ binding (8))
//! ```
//!
//! A changed token, or one of another host, does not resolve.

use aws_lc_rs::{agreement, digest, hmac};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use serde::Serialize;

use bellwire_core::lane::Gateway;

/// Result of `PushManager.subscribe()` for a page. `p256dh` and `auth` are base64url without padding.
#[derive(Clone, PartialEq, Eq, Serialize)]
pub struct Minted {
    /// URL of the push resource.
    pub endpoint: String,
    /// Public key of the browser, an uncompressed P-256 point.
    pub p256dh: String,
    /// Authentication secret of 16 octets.
    pub auth: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct MintTarget {
    pub index: u32,
    /// [`fingerprint`] of the VAPID key of the subscription, if it has one.
    pub bound: Option<[u8; 8]>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MintResolution {
    /// An endpoint that was minted by this host.
    Known(MintTarget),
    /// A WNS endpoint whose percent-escapes were decoded or rewritten.
    Escaped,
    Unknown,
}

pub(super) struct Subscriber {
    /// Private key of the browser, which decrypts payloads.
    pub private: agreement::PrivateKey,
    pub public: [u8; 65],
    pub auth: [u8; 16],
}

/// Mints and resolves the subscriptions of one host.
pub(super) struct Minter {
    gateway: Gateway,
    origin: String,
    keys: hmac::Key,
    tags: hmac::Key,
    mix: u64,
}

const INFO: usize = 12;
const TAG: usize = 64;
/// Octets of a token, and of the longer tokens: of Mozilla's subscriptions with a key, and of all Apple's.
const SHORT: usize = 108;
const LONG: usize = 144;
/// Prefix of a WNS token. It guarantees a `%2b`, and `%3d%3d` at the end.
const WNS_PREFIX: [u8; 7] = [5, 6, 0, 0, 0, 0x7e, 1];

/// Returns the first octets of the SHA-256 of a VAPID public key, to which a subscription is bound.
pub(super) fn fingerprint(public: &[u8]) -> [u8; 8] {
    head(digest::digest(&digest::SHA256, public).as_ref())
}

/// Returns the first `N` octets of a longer digest.
pub(super) fn head<const N: usize>(octets: &[u8]) -> [u8; N] {
    *octets.first_chunk().expect("a digest is longer than what is taken of it")
}

impl Minter {
    pub(super) fn new(seed: u64, gateway: Gateway, host: &str, origin: String) -> Self {
        let root = hmac::Key::new(hmac::HMAC_SHA256, &seed.to_be_bytes());
        let derive = |label: &str| hmac::sign(&root, format!("{label} {} {host}", gateway.name()).as_bytes());
        Self {
            gateway,
            origin,
            keys: hmac::Key::new(hmac::HMAC_SHA256, derive("keys").as_ref()),
            tags: hmac::Key::new(hmac::HMAC_SHA512, derive("tags").as_ref()),
            mix: u64::from_be_bytes(head(derive("mix").as_ref())),
        }
    }

    /// Scheme, host and, unless it is 443, port: the required `aud` of a token.
    pub(super) fn origin(&self) -> &str {
        &self.origin
    }

    /// Returns the subscription with this index, bound to the VAPID key (65 octets) if one is given.
    pub(super) fn mint(&self, index: u32, vapid: Option<&[u8]>) -> Minted {
        let bound = vapid.map(fingerprint);
        let subscriber = self.subscriber(index);
        Minted {
            endpoint: format!("{}{}", self.origin, self.path(MintTarget { index, bound })),
            p256dh: URL_SAFE_NO_PAD.encode(subscriber.public),
            auth: URL_SAFE_NO_PAD.encode(subscriber.auth),
        }
    }

    pub(super) fn subscriber(&self, index: u32) -> Subscriber {
        let derive = |label: u8, round: u8| {
            let mut input = [label, round, 0, 0, 0, 0];
            input[2..].copy_from_slice(&index.to_be_bytes());
            hmac::sign(&self.keys, &input)
        };
        // One digest in 2^32 is not a valid P-256 scalar (zero, or not below the order); then the next round is used.
        let private = (0..=u8::MAX)
            .find_map(|round| {
                agreement::PrivateKey::from_private_key(&agreement::ECDH_P256, derive(b'k', round).as_ref()).ok()
            })
            .expect("256 digests in a row are not all outside P-256's order");
        let public = private.compute_public_key().expect("a valid private key has a public one");
        Subscriber { public: head(public.as_ref()), auth: head(derive(b'a', 0).as_ref()), private }
    }

    /// Returns the position of an endpoint in [0, 1), for rules with a share.
    pub(super) fn fraction(&self, index: u32) -> f64 {
        (scatter(self.mix ^ u64::from(index)) >> 11) as f64 / (1u64 << 53) as f64
    }

    /// Whether the endpoint belongs to the sample of one in `n`. Independent of [`fraction`](Self::fraction).
    pub(super) fn sampled(&self, index: u32, n: u32) -> bool {
        n <= 1 || scatter(!self.mix ^ u64::from(index)).is_multiple_of(u64::from(n))
    }

    pub(super) fn resolve(&self, path: &str) -> MintResolution {
        let mut octets = [0; LONG];
        let Some(len) = self.decode(path, &mut octets) else {
            let escaped = self.gateway == Gateway::Wns && path.starts_with("/w/?token=");
            return if escaped && self.known_when_unescaped(path) {
                MintResolution::Escaped
            } else {
                MintResolution::Unknown
            };
        };
        let tag: [u8; TAG] = head(&octets[INFO..]);
        let info: [u8; INFO] = std::array::from_fn(|i| octets[i] ^ tag[i]);
        let bound = Some(head(&info[4..])).filter(|bound| *bound != [0; 8]);
        let target = MintTarget { index: u32::from_be_bytes(head(&info)), bound };
        if self.length(target) != len || self.octets(target)[..len] != octets[..len] {
            return MintResolution::Unknown;
        }
        // The path must have the version with which the endpoint was minted.
        if self.gateway == Gateway::Mozilla && path.starts_with("/wpush/v2/") != bound.is_some() {
            return MintResolution::Unknown;
        }
        MintResolution::Known(target)
    }

    fn length(&self, target: MintTarget) -> usize {
        match self.gateway {
            Gateway::Apple => LONG,
            Gateway::Mozilla if target.bound.is_some() => LONG,
            _ => SHORT,
        }
    }

    fn octets(&self, target: MintTarget) -> [u8; LONG] {
        let mut info = [0; INFO];
        info[..4].copy_from_slice(&target.index.to_be_bytes());
        info[4..].copy_from_slice(&target.bound.unwrap_or_default());
        let tag: [u8; TAG] = head(hmac::sign(&self.tags, &info).as_ref());
        std::array::from_fn(|i| match i {
            0..INFO => info[i] ^ tag[i],
            _ => tag[(i - INFO) % TAG] ^ if i < INFO + TAG { 0 } else { 0xa5 },
        })
    }

    fn path(&self, target: MintTarget) -> String {
        let all = self.octets(target);
        let octets = &all[..self.length(target)];
        match self.gateway {
            Gateway::Fcm => {
                let (instance, rest) = octets.split_at(8);
                format!("/fcm/send/{}:APA91b{}", URL_SAFE_NO_PAD.encode(instance), URL_SAFE_NO_PAD.encode(rest))
            }
            Gateway::Mozilla => {
                let version = if target.bound.is_some() { "v2" } else { "v1" };
                format!("/wpush/{version}/gAAAAA{}", URL_SAFE_NO_PAD.encode(octets))
            }
            Gateway::Wns => {
                let token = STANDARD.encode([&WNS_PREFIX[..], octets].concat());
                format!("/w/?token={}", token.replace('+', "%2b").replace('/', "%2f").replace('=', "%3d"))
            }
            Gateway::Apple => format!("/Q{}", URL_SAFE_NO_PAD.encode(octets)),
            Gateway::Other => format!("/up{}?up=1", URL_SAFE_NO_PAD.encode(octets)),
        }
    }

    /// Decodes the result of [`path`](Self::path) strictly: every accepted path has exactly one spelling.
    fn decode(&self, path: &str, octets: &mut [u8; LONG]) -> Option<usize> {
        match self.gateway {
            Gateway::Fcm => {
                let (instance, rest) = path.strip_prefix("/fcm/send/")?.split_once(":APA91b")?;
                let at = decode_base64(instance, octets)?;
                (at == 8).then_some(())?;
                Some(at + decode_base64(rest, &mut octets[8..])?)
            }
            Gateway::Mozilla => {
                let token = path.strip_prefix("/wpush/v1/").or_else(|| path.strip_prefix("/wpush/v2/"))?;
                decode_base64(token.strip_prefix("gAAAAA")?, octets)
            }
            Gateway::Wns => decode_wns(path.strip_prefix("/w/?token=")?, octets),
            Gateway::Apple => decode_base64(path.strip_prefix("/Q")?, octets),
            Gateway::Other => decode_base64(path.strip_prefix("/up")?.strip_suffix("?up=1")?, octets),
        }
    }

    fn known_when_unescaped(&self, path: &str) -> bool {
        let lower = path.replace("%2B", "%2b").replace("%2F", "%2f").replace("%3D", "%3d");
        let (start, token) = lower.split_at("/w/?token=".len());
        let token = token.replace(['+', ' '], "%2b").replace('/', "%2f").replace('=', "%3d");
        let canonical = format!("{start}{token}");
        canonical != path && matches!(self.resolve(&canonical), MintResolution::Known(_))
    }
}

fn decode_base64(text: &str, out: &mut [u8]) -> Option<usize> {
    let mut buffer = [0; 192];
    let len = URL_SAFE_NO_PAD.decode_slice(text, &mut buffer).ok()?;
    out.get_mut(..len)?.copy_from_slice(&buffer[..len]);
    Some(len)
}

fn decode_wns(token: &str, out: &mut [u8; LONG]) -> Option<usize> {
    if token.contains(['+', '/', '=']) {
        return None;
    }
    let plain = token.replace("%2b", "+").replace("%2f", "/").replace("%3d", "=");
    let octets = STANDARD.decode(plain).ok()?;
    let rest = octets.strip_prefix(&WNS_PREFIX)?;
    out.get_mut(..rest.len())?.copy_from_slice(rest);
    Some(rest.len())
}

/// Distributes consecutive numbers evenly over 64 bits (the finaliser of SplitMix64).
fn scatter(mut x: u64) -> u64 {
    x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
#[path = "../../../../tests/crates/simulator/unit/gateways/subscriptions.rs"]
mod tests;
