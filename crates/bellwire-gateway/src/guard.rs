//! Addresses of the public internet. All addresses of an endpoint's host must be public. Otherwise a subscriber could
//! direct requests into the network of the server.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::prefix::Nat64;

/// IPv4 blocks that are not globally reachable, as (network, prefix length): IANA's special-purpose registry.
const NOT_PUBLIC_V4: [(Ipv4Addr, u32); 16] = [
    (Ipv4Addr::new(0, 0, 0, 0), 8),       // "this network"; 0.0.0.0 reaches the host itself
    (Ipv4Addr::new(10, 0, 0, 0), 8),      // private
    (Ipv4Addr::new(100, 64, 0, 0), 10),   // carrier-grade NAT
    (Ipv4Addr::new(127, 0, 0, 0), 8),     // loopback
    (Ipv4Addr::new(169, 254, 0, 0), 16),  // link-local; clouds keep their metadata service there
    (Ipv4Addr::new(172, 16, 0, 0), 12),   // private
    (Ipv4Addr::new(192, 0, 0, 0), 24),    // IETF protocol assignments
    (Ipv4Addr::new(192, 0, 2, 0), 24),    // documentation
    (Ipv4Addr::new(192, 31, 196, 0), 24), // AS112
    (Ipv4Addr::new(192, 52, 193, 0), 24), // AMT
    (Ipv4Addr::new(192, 88, 99, 0), 24),  // 6to4 relays
    (Ipv4Addr::new(192, 168, 0, 0), 16),  // private
    (Ipv4Addr::new(198, 18, 0, 0), 15),   // benchmarking
    (Ipv4Addr::new(198, 51, 100, 0), 24), // documentation
    (Ipv4Addr::new(203, 0, 113, 0), 24),  // documentation
    (Ipv4Addr::new(224, 0, 0, 0), 3),     // multicast, reserved, broadcast
];

/// IPv6 blocks within 2000::/3 that are not ordinary public addresses. Addresses outside 2000::/3 are refused anyway.
/// Teredo and 6to4 are refused completely, because they embed an IPv4 address that the sender chooses.
const NOT_PUBLIC_V6: [(Ipv6Addr, u32); 5] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // IETF protocol assignments, Teredo, ORCHID
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16), // 6to4
    (Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48), // AS112
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

/// Addresses to which connections are allowed.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    allow_loopback: bool,
    nat64: Vec<Nat64>,
}

impl Guard {
    /// Creates a guard. It checks the embedded IPv4 address of addresses with one of the `nat64` prefixes.
    pub(super) fn new(allow_loopback: bool, nat64: Vec<Nat64>) -> Self {
        Self { allow_loopback, nat64 }
    }

    /// Whether a connection to this address is allowed: a public one, or loopback if `allow_loopback` is set.
    pub(super) fn may_connect(&self, address: IpAddr) -> bool {
        self.is_public(address) || self.allow_loopback && address.is_loopback()
    }

    fn is_public(&self, address: IpAddr) -> bool {
        match address {
            IpAddr::V4(v4) => is_public_v4(v4),
            IpAddr::V6(v6) => match self.nat64.iter().find_map(|prefix| prefix.embedded(v6)) {
                Some(v4) => is_public_v4(v4),
                None => is_public_v6(v6),
            },
        }
    }

    pub(super) fn allows_loopback(&self) -> bool {
        self.allow_loopback
    }
}

fn is_public_v4(v4: Ipv4Addr) -> bool {
    !NOT_PUBLIC_V4.iter().any(|&(net, len)| u32::from(net) ^ u32::from(v4) < 1 << (32 - len))
}

/// Only 2000::/3 is assigned as global unicast (RFC 4291 section 2.4). That excludes `::`, `::1`, mapped and compatible
/// IPv4, discard, ULA, link-local, site-local and multicast. It also excludes NAT64 (64:ff9b::/96 and 64:ff9b:1::/48)
/// unless it is set.
fn is_public_v6(v6: Ipv6Addr) -> bool {
    v6.segments()[0] >> 13 == 1
        && !NOT_PUBLIC_V6.iter().any(|&(net, len)| u128::from(net) ^ u128::from(v6) < 1 << (128 - len))
}
