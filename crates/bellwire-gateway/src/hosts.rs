//! Gateways by host, and hosts that are refused before a DNS lookup. Pure.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use http::uri::PathAndQuery;

use super::guard::Guard;
use bellwire_core::lane::Gateway;
use bellwire_core::subscription::Endpoint;

/// Hosts of the push services of browsers, on port 443 only; `*.` stands for the name of a shard.
const KNOWN: [(&str, Gateway); 8] = [
    ("fcm.googleapis.com", Gateway::Fcm),
    ("jmt17.google.com", Gateway::Fcm), // Chromium built without Google's keys
    ("updates.push.services.mozilla.com", Gateway::Mozilla),
    ("*.push.services.mozilla.com", Gateway::Mozilla),
    ("*.mozaws.net", Gateway::Mozilla), // Mozilla's stage
    ("*.notify.windows.com", Gateway::Wns),
    ("web.push.apple.com", Gateway::Apple),
    ("*.push.apple.com", Gateway::Apple),
];

/// Maximum labels, and octets of each, in the name of a shard such as `db5p`, `wns2-par02p` or `api.sandbox`.
const SHARD_LABELS_MAX: usize = 2;
const SHARD_LABEL_MAX: usize = 32;

/// Names without public DNS (RFC 6761, 6762, 7686, 8375, ICANN's `internal`). An endpoint with such a name aims at the
/// network of the server.
const SPECIAL_USE: [&str; 7] = ["localhost", "local", "internal", "localdomain", "home.arpa", "invalid", "onion"];

/// Host with which Chrome replaces a removed endpoint.
const REMOVED: &str = "permanently-removed.invalid";

/// Reason to refuse an endpoint. `Display` is written for the caller of the API.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostRefused {
    /// The host is an address outside the public internet, or resolves to one.
    #[error("its host is not on the public internet")]
    NotPublic,
    /// The name is never public: `localhost`, `*.local`, `*.internal`, without a dot, or with a dot at its end.
    #[error("its host is not a public name")]
    Name,
    /// The host is not a valid name (RFC 1123): letters, digits and hyphens in labels of 1 to 63 octets, 253 in total.
    #[error("its host is not a valid DNS name")]
    Spelling,
    /// The host is below the domain of a known push service, but has no valid name of a shard.
    #[error("its host is not one that this push service uses")]
    Shard,
    /// Mark of Chrome for a removed subscription, which can be pruned.
    #[error("its host reports that the subscription was removed")]
    Removed,
    /// The port is 0, or is not served by the known push service.
    #[error("its port is not one of this push service")]
    Port,
    /// The path has octets that a request line cannot contain. URL parsers escape them.
    #[error("its path holds characters that must be percent-encoded")]
    Path,
    /// The name has no address at the moment.
    #[error("its host cannot be resolved")]
    Unresolved,
}

/// Mapping of a host to a push service, written as `host=gateway[@ip:port]`. With an address, connections to the host use it
/// without DNS and without the guard, because the operator vouches for it. The simulator uses it to act as fcm, mozilla, wns
/// and apple.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostMapping {
    /// Host without port. The mapping applies to every port.
    pub host: String,
    /// Gateway of the host.
    pub gateway: Gateway,
    /// Address that replaces the result of DNS.
    pub address: Option<SocketAddr>,
}

/// Error of a text that is not a [`HostMapping`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("expected host=gateway or host=gateway@ip:port with one of {names}: {0}", names = Gateway::names())]
pub struct ParseHostMappingError(&'static str);

impl FromStr for HostMapping {
    type Err = ParseHostMappingError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (host, rest) = text.split_once('=').ok_or(ParseHostMappingError("there is no ="))?;
        let (gateway, address) = match rest.split_once('@') {
            Some((gateway, address)) => (gateway, Some(address)),
            None => (rest, None),
        };
        Ok(Self {
            host: url::Host::parse(host).map_err(|_| ParseHostMappingError("the host is invalid"))?.to_string(),
            gateway: Gateway::from_name(gateway).ok_or(ParseHostMappingError("the gateway is unknown"))?,
            address: address
                .map(|a| a.parse().map_err(|_| ParseHostMappingError("the address is not ip:port")))
                .transpose()?,
        })
    }
}

impl fmt::Display for HostMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.host, self.gateway.name())?;
        self.address.map_or(Ok(()), |address| write!(f, "@{address}"))
    }
}

#[derive(Debug)]
pub(super) struct HostTable {
    mapped: HashMap<String, (Gateway, Option<SocketAddr>)>,
    pub(super) guard: Guard,
}

impl HostTable {
    pub(super) fn new(mappings: Vec<HostMapping>, guard: Guard) -> Self {
        let mapped = mappings.into_iter().map(|m| (m.host, (m.gateway, m.address))).collect();
        Self { mapped, guard }
    }

    /// Returns a host of a push service: a mapped one, else one whose full name is known.
    pub(super) fn one_of(&self, gateway: Gateway) -> Option<String> {
        let mapped = self.mapped.iter().filter(|(_, (of, _))| *of == gateway).map(|(host, _)| host.clone()).min();
        let known = KNOWN.into_iter().find(|(host, of)| *of == gateway && !host.starts_with("*."));
        mapped.or_else(|| known.map(|(host, _)| host.to_owned()))
    }
    pub(super) fn is_mapped(&self, endpoint: &Endpoint) -> bool {
        self.mapped.contains_key(split(endpoint.authority()).0)
    }

    pub(super) fn recognise(&self, endpoint: &Endpoint) -> Result<Gateway, HostRefused> {
        if !sendable(endpoint.expose_path()) {
            return Err(HostRefused::Path);
        }
        let (host, port) = split(endpoint.authority());
        if let Some((gateway, _)) = self.mapped.get(host) {
            return Ok(*gateway);
        }
        if port == 0 {
            return Err(HostRefused::Port);
        }
        if let Some(address) = literal(host) {
            return match self.guard.may_connect(address) {
                true => Ok(Gateway::Other),
                false => Err(HostRefused::NotPublic),
            };
        }
        if host == REMOVED {
            return Err(HostRefused::Removed);
        }
        if never_public(host) && !(host == "localhost" && self.guard.allows_loopback()) {
            return Err(HostRefused::Name);
        }
        if !is_dns_name(host) {
            return Err(HostRefused::Spelling);
        }
        match find(host) {
            Some(_) if port != 443 => Err(HostRefused::Port),
            Some((gateway, shard)) if shard.is_none_or(is_shard) => Ok(gateway),
            Some(_) => Err(HostRefused::Shard),
            None => Ok(Gateway::Other),
        }
    }

    /// Whether the host is built in or configured, so that it counts as existing even without a DNS record.
    pub(super) fn is_vouched_for(&self, host: &str) -> bool {
        self.mapped.contains_key(host) || KNOWN.iter().any(|(name, _)| *name == host)
    }

    pub(super) fn gateway(&self, host: &str) -> Option<Gateway> {
        self.mapped.get(host).map(|mapped| mapped.0).or_else(|| known(host))
    }

    pub(super) fn pinned(&self, host: &str) -> Option<SocketAddr> {
        self.mapped.get(host)?.1
    }
}

/// Splits the `host[:port]` of an [`Endpoint`]. The default port is 443.
pub(super) fn split(authority: &str) -> (&str, u16) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().unwrap_or(0)),
        _ => (authority, 443),
    }
}

/// Returns the address of a host that is an address, with IPv6 in brackets. `None` for a name.
pub(super) fn literal(host: &str) -> Option<IpAddr> {
    match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(v6) => v6.parse().ok().map(IpAddr::V6),
        None => host.parse().ok().map(IpAddr::V4),
    }
}

/// Whether a path can be sent unchanged. `http::Uri` refuses other paths, so they are refused at registration. Browsers
/// create valid paths.
fn sendable(path: &str) -> bool {
    path.starts_with('/') && PathAndQuery::try_from(path).is_ok_and(|parsed| parsed.as_str() == path)
}

fn known(host: &str) -> Option<Gateway> {
    find(host).map(|(gateway, _)| gateway)
}

/// Returns the gateway of a host. The second value is the name before the known suffix, for a pattern with `*`.
fn find(host: &str) -> Option<(Gateway, Option<&str>)> {
    KNOWN.iter().find_map(|(pattern, gateway)| match pattern.strip_prefix('*') {
        Some(suffix) => {
            host.strip_suffix(suffix).filter(|shard| !shard.is_empty()).map(|shard| (*gateway, Some(shard)))
        }
        None => (host == *pattern).then_some((*gateway, None)),
    })
}

/// Returns the known full host names of a gateway, or of all gateways for any other host.
pub(super) fn listed<'a>(gateway: Option<Gateway>) -> impl Iterator<Item = &'a str> {
    let gateway = gateway.filter(|gateway| *gateway != Gateway::Other);
    let is_whole = move |(name, of): &&(&'static str, Gateway)| {
        !name.starts_with('*') && gateway.is_none_or(|gateway| gateway == *of)
    };
    KNOWN.iter().filter(is_whole).map(|(name, _)| *name)
}

/// Whether a name has the form of a shard of a push service.
fn is_shard(name: &str) -> bool {
    name.split('.').count() <= SHARD_LABELS_MAX && name.split('.').all(|label| label.len() <= SHARD_LABEL_MAX)
}

fn is_dns_name(host: &str) -> bool {
    let is_label = |label: &str| {
        (1..=63).contains(&label.len())
            && label.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    host.len() <= 253 && host.split('.').all(is_label)
}

fn never_public(host: &str) -> bool {
    let special = |suffix: &&str| host.strip_suffix(*suffix).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    !host.contains('.') || host.ends_with('.') || SPECIAL_USE.iter().any(special)
}
