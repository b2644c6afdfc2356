//! Which gateway stands behind a host, and which hosts are refused before anybody asks DNS. Pure.

use std::collections::HashMap;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use http::uri::PathAndQuery;

use super::guard::Guard;
use crate::model::lane::Gateway;
use crate::model::subscription::Endpoint;

/// The hosts that browsers' own push services hand out; `*.` stands for a shard's name. They serve port 443 only.
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

/// Labels, and octets of each, in a shard's name: `db5p`, `wns2-par02p`, `api.sandbox` are known, new ones come up.
const SHARD_LABELS_MAX: usize = 2;
const SHARD_LABEL_MAX: usize = 32;

/// Names that no public DNS answers for (RFC 6761, 6762, 7686, 8375, ICANN's `internal`), so whoever registers one
/// means something in our own network.
const SPECIAL_USE: [&str; 7] = ["localhost", "local", "internal", "localdomain", "home.arpa", "invalid", "onion"];

/// What Chrome hands out in place of an endpoint that it has taken away.
const REMOVED: &str = "permanently-removed.invalid";

/// Why an endpoint may not be talked to. `Display` is written for the API's caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum HostRefused {
    /// An address, or a name that resolves to at least one address, outside the public internet.
    #[error("its host is not on the public internet")]
    NotPublic,
    /// A name that is never public: `localhost`, `*.local`, `*.internal`, one without a dot or with one at its end.
    #[error("its host is not a public name")]
    Name,
    /// No host name (RFC 1123): letters, digits and hyphens in labels of 1 to 63 octets, 253 in all.
    #[error("its host is not a valid DNS name")]
    Spelling,
    /// Below the name of a known push service, but none that it would give a host of its own.
    #[error("its host is not one that this push service uses")]
    Shard,
    /// Chrome's mark of an endpoint that no longer exists: prune it.
    #[error("its host says that the subscription was removed")]
    Removed,
    /// A known push service on a port that it does not serve, or port 0.
    #[error("its port is not one of this push service")]
    Port,
    /// Octets that cannot stand in a request line as they are; no URL parser writes them.
    #[error("its path holds characters that must be percent-encoded")]
    Path,
    /// The name has no address now; it may have one later.
    #[error("its host cannot be resolved")]
    Unresolved,
}

/// `host=gateway[@ip:port]`: makes an endpoint's host a gateway. With an address, connections to the host go there
/// and DNS is not asked, nor is the address guarded: whoever configures it vouches for it. So the simulator can be
/// fcm, mozilla, wns and apple in tests and demos.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostMapping {
    /// A host without port; it matches every port.
    pub host: String,
    /// Whose manners that host has.
    pub gateway: Gateway,
    /// Where connections go in place of what DNS says.
    pub address: Option<SocketAddr>,
}

/// Why a text is not a [`HostMapping`].
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
            host: url::Host::parse(host).map_err(|_| ParseHostMappingError("the host is not one"))?.to_string(),
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

/// The known hosts and what the settings add to them.
#[derive(Debug)]
pub(super) struct Hosts {
    mapped: HashMap<String, (Gateway, Option<SocketAddr>)>,
    pub(super) guard: Guard,
}

impl Hosts {
    pub(super) fn new(mappings: Vec<HostMapping>, guard: Guard) -> Self {
        let mapped = mappings.into_iter().map(|m| (m.host, (m.gateway, m.address))).collect();
        Self { mapped, guard }
    }

    /// A host of a push service: a mapped one, else one that is known by its whole name.
    pub(super) fn one_of(&self, gateway: Gateway) -> Option<String> {
        let mapped = self.mapped.iter().filter(|(_, (of, _))| *of == gateway).map(|(host, _)| host.clone()).min();
        let known = KNOWN.into_iter().find(|(host, of)| *of == gateway && !host.starts_with("*."));
        mapped.or_else(|| known.map(|(host, _)| host.to_owned()))
    }

    /// See [`Gateways::recognise`](super::Gateways::recognise).
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

    /// Whether it exists by our own or the operator's word, whatever DNS says.
    pub(super) fn is_vouched_for(&self, host: &str) -> bool {
        self.mapped.contains_key(host) || KNOWN.iter().any(|(name, _)| *name == host)
    }

    /// The gateway of a mapped or known host.
    pub(super) fn gateway(&self, host: &str) -> Option<Gateway> {
        self.mapped.get(host).map(|mapped| mapped.0).or_else(|| known(host))
    }

    /// The address that the settings give a host.
    pub(super) fn pinned(&self, host: &str) -> Option<SocketAddr> {
        self.mapped.get(host)?.1
    }
}

/// Host and port of `host[:port]` as an [`Endpoint`] spells it: 443 unless said.
pub(super) fn split(authority: &str) -> (&str, u16) {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, port.parse().unwrap_or(0)),
        _ => (authority, 443),
    }
}

/// The address that a host is, IPv6 in brackets; `None` for a name.
pub(super) fn literal(host: &str) -> Option<IpAddr> {
    match host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        Some(v6) => v6.parse().ok().map(IpAddr::V6),
        None => host.parse().ok().map(IpAddr::V4),
    }
}

/// Whether a path goes out exactly as it is. Browsers write URLs that do; `http::Uri` refuses the rest rather than
/// change it, and so do we, at registration.
fn sendable(path: &str) -> bool {
    path.starts_with('/') && PathAndQuery::try_from(path).is_ok_and(|parsed| parsed.as_str() == path)
}

fn known(host: &str) -> Option<Gateway> {
    find(host).map(|(gateway, _)| gateway)
}

/// Returns the gateway that a host belongs to and, if only its end is known, what stands before that.
fn find(host: &str) -> Option<(Gateway, Option<&str>)> {
    KNOWN.iter().find_map(|(pattern, gateway)| match pattern.strip_prefix('*') {
        Some(suffix) => {
            host.strip_suffix(suffix).filter(|shard| !shard.is_empty()).map(|shard| (*gateway, Some(shard)))
        }
        None => (host == *pattern).then_some((*gateway, None)),
    })
}

/// The hosts of a known gateway that are known by their whole name; of all of them for any other host.
pub(super) fn listed<'a>(gateway: Option<Gateway>) -> impl Iterator<Item = &'a str> {
    let gateway = gateway.filter(|gateway| *gateway != Gateway::Other);
    let is_whole = move |(name, of): &&(&'static str, Gateway)| {
        !name.starts_with('*') && gateway.is_none_or(|gateway| gateway == *of)
    };
    KNOWN.iter().filter(is_whole).map(|(name, _)| *name)
}

/// Whether a push service might give one of its hosts such a name.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn hosts(mappings: &[&str], allow_loopback: bool) -> Hosts {
        Hosts::new(mappings.iter().map(|m| m.parse().unwrap()).collect(), Guard::new(allow_loopback, Vec::new()))
    }

    fn recognise(hosts: &Hosts, url: &str) -> Result<Gateway, HostRefused> {
        hosts.recognise(&Endpoint::parse(url).unwrap_or_else(|why| panic!("{url}: {why}")))
    }

    #[test]
    fn a_known_host_names_its_gateway_and_a_lookalike_does_not() {
        let hosts = hosts(&[], false);
        for (url, gateway) in [
            ("https://fcm.googleapis.com/fcm/send/a:b", Gateway::Fcm),
            ("https://jmt17.google.com/fcm/send/a", Gateway::Fcm),
            ("https://updates.push.services.mozilla.com/wpush/v2/g", Gateway::Mozilla),
            ("https://eu.push.services.mozilla.com/wpush/v2/g", Gateway::Mozilla),
            ("https://db5p.notify.windows.com/w/?token=a%2bb%2f", Gateway::Wns),
            ("https://wns2-par02p.notify.windows.com/w/", Gateway::Wns),
            ("https://web.push.apple.com/Q", Gateway::Apple),
            ("https://api.sandbox.push.apple.com/Q", Gateway::Apple),
            ("https://ntfy.sh/up?up=1", Gateway::Other),
            ("https://ntfy.example.org:8443/up", Gateway::Other),
            ("https://evil-fcm.googleapis.com/", Gateway::Other),
            ("https://fcm.googleapis.com.evil.org/", Gateway::Other),
            ("https://notify.windows.com/", Gateway::Other),
            ("https://xpush.apple.com/", Gateway::Other),
        ] {
            assert_eq!(recognise(&hosts, url), Ok(gateway), "{url}");
        }
    }

    #[test]
    fn a_host_that_can_never_be_public_is_refused_without_asking_dns() {
        let hosts = hosts(&[], false);
        for (url, why) in [
            ("https://fcm.googleapis.com:8443/", HostRefused::Port),
            ("https://ntfy.sh:0/", HostRefused::Port),
            ("https://permanently-removed.invalid/fcm/send/x", HostRefused::Removed),
            ("https://localhost/", HostRefused::Name),
            ("https://a.localhost:9/", HostRefused::Name),
            ("https://printer.local/", HostRefused::Name),
            ("https://metadata.google.internal/", HostRefused::Name),
            ("https://router.home.arpa/", HostRefused::Name),
            ("https://x.invalid/", HostRefused::Name),
            ("https://postgres/", HostRefused::Name),
            ("https://ntfy.sh./", HostRefused::Name),
            ("https://a..push.apple.com/Q", HostRefused::Spelling),
            ("https://.push.apple.com/Q", HostRefused::Spelling),
            ("https://-a.push.apple.com/Q", HostRefused::Spelling),
            ("https://a_b.push.apple.com/Q", HostRefused::Spelling),
            ("https://a.-.ntfy.sh/", HostRefused::Spelling),
            ("https://a.b.c.push.apple.com/Q", HostRefused::Shard),
            ("https://nope-nope-nope-nope-nope-nope-nope.notify.windows.com/w/", HostRefused::Shard),
            ("https://127.0.0.1/", HostRefused::NotPublic),
            ("https://169.254.169.254/latest/meta-data", HostRefused::NotPublic),
            ("https://10.0.0.1:8443/", HostRefused::NotPublic),
            ("https://[::1]/", HostRefused::NotPublic),
            ("https://[::1]:8443/", HostRefused::NotPublic),
            ("https://[::ffff:a00:1]/", HostRefused::NotPublic),
            ("https://[fd00::1]/", HostRefused::NotPublic),
            ("https://ntfy.sh/<a>", HostRefused::Path),
            ("https://ntfy.sh?up=1", HostRefused::Path),
            ("https://ntfy.sh\\up", HostRefused::Path),
        ] {
            assert_eq!(recognise(&hosts, url), Err(why), "{url}");
        }
        for public in ["https://1.1.1.1/", "https://[2606:4700:4700::1111]:8443/"] {
            assert_eq!(recognise(&hosts, public), Ok(Gateway::Other), "{public}");
        }
    }

    #[test]
    fn a_name_of_more_octets_than_dns_has_room_for_is_refused() {
        let hosts = hosts(&[], false);
        let of = |labels: usize, octets: usize| {
            format!("https://{}example.org/", format!("{}.", "a".repeat(octets)).repeat(labels))
        };
        assert_eq!(recognise(&hosts, &of(1, 63)), Ok(Gateway::Other));
        assert_eq!(recognise(&hosts, &of(1, 64)), Err(HostRefused::Spelling));
        assert_eq!(recognise(&hosts, &of(4, 60)), Err(HostRefused::Spelling), "255 octets");
    }

    #[test]
    fn an_endpoint_that_hides_its_host_is_refused_before_the_guard_sees_it() {
        for url in [
            "http://1.1.1.1/",
            "ftp://ntfy.sh/",
            "https://user@ntfy.sh/",
            "https://user:word@ntfy.sh/",
            "https://ntfy.sh@127.0.0.1/",
            "https://2130706433/",         // decimal 127.0.0.1
            "https://0177.0.0.1/",         // octal
            "https://0x7f.1/",             // hexadecimal, shortened
            "https://127.1/",              // shortened
            "https://%31%32%37.0.0.1/",    // escaped
            "https://LOCALHOST/",          // capitals
            "https://[::ffff:127.0.0.1]/", // not IPv6's plain form
            "https://[0:0:0:0:0:0:0:1]/",
            "https://ntfy.sh:443/",
            "https:ntfy.sh/",
            "https:///ntfy.sh/",
        ] {
            assert!(Endpoint::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn loopback_passes_only_when_allowed_and_nothing_else_with_it() {
        let hosts = hosts(&[], true);
        for url in ["https://localhost:1/", "https://127.0.0.1:1/", "https://[::1]:1/"] {
            assert_eq!(recognise(&hosts, url), Ok(Gateway::Other), "{url}");
        }
        assert_eq!(recognise(&hosts, "https://10.0.0.1/"), Err(HostRefused::NotPublic));
        assert_eq!(recognise(&hosts, "https://printer.local/"), Err(HostRefused::Name));
    }

    #[test]
    fn a_mapping_decides_before_everything_else_and_reads_back_what_it_writes() {
        let text = "web.push.apple.com=apple@127.0.0.1:4443";
        let mapping: HostMapping = text.parse().unwrap();
        assert_eq!(mapping.to_string(), text);
        assert_eq!("Push.Internal=mozilla".parse::<HostMapping>().unwrap().to_string(), "push.internal=mozilla");
        let hosts = hosts(&[text, "push.internal=mozilla"], false);
        assert_eq!(recognise(&hosts, "https://web.push.apple.com:8443/Q"), Ok(Gateway::Apple));
        assert_eq!(recognise(&hosts, "https://push.internal/Q"), Ok(Gateway::Mozilla));
        assert_eq!(hosts.pinned("web.push.apple.com"), Some("127.0.0.1:4443".parse().unwrap()));
        assert_eq!(hosts.pinned("push.internal"), None);
        for bad in ["", "host", "host=", "host=gcm", "=fcm", "h=fcm@", "h=fcm@localhost:1", "h=fcm@1.1.1.1", "a b=fcm"]
        {
            assert!(bad.parse::<HostMapping>().is_err(), "{bad}");
        }
    }
}
