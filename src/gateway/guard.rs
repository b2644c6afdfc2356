//! Which addresses are the public internet. Everything an endpoint's host resolves to must be, or a subscriber could
//! make us talk to our own network.

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

/// IPv6 blocks within 2000::/3 that are not ordinary public addresses; all outside 2000::/3 is refused anyway.
/// Teredo and 6to4 are refused whole: they embed an IPv4 address of the sender's choice.
const NOT_PUBLIC_V6: [(Ipv6Addr, u32); 5] = [
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23), // IETF protocol assignments, Teredo, ORCHID
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32), // documentation
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16), // 6to4
    (Ipv6Addr::new(0x2620, 0x4f, 0x8000, 0, 0, 0, 0, 0), 48), // AS112
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20), // documentation
];

/// Which addresses may be connected to.
#[derive(Debug, Clone)]
pub(super) struct Guard {
    allow_loopback: bool,
    nat64: Vec<Nat64>,
}

impl Guard {
    /// One that lets loopback through besides what is public, or not. Addresses of these prefixes are what they are translated to.
    pub(super) fn new(allow_loopback: bool, nat64: Vec<Nat64>) -> Self {
        Self { allow_loopback, nat64 }
    }

    /// Whether a connection may go to this address: a public one, or, where allowed, loopback.
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

    /// Whether loopback may be connected to.
    pub(super) fn allows_loopback(&self) -> bool {
        self.allow_loopback
    }
}

fn is_public_v4(v4: Ipv4Addr) -> bool {
    !NOT_PUBLIC_V4.iter().any(|&(net, len)| u32::from(net) ^ u32::from(v4) < 1 << (32 - len))
}

/// Only 2000::/3 is handed out as global unicast (RFC 4291 section 2.4). That leaves out `::`, `::1`, mapped and compatible IPv4,
/// NAT64 (64:ff9b::/96 and 64:ff9b:1::/48) unless it is set, discard, ULA, link-local, site-local, multicast.
fn is_public_v6(v6: Ipv6Addr) -> bool {
    v6.segments()[0] >> 13 == 1
        && !NOT_PUBLIC_V6.iter().any(|&(net, len)| u128::from(net) ^ u128::from(v6) < 1 << (128 - len))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_public_addresses_pass() {
        let guard = Guard::new(false, Vec::new());
        let public = |text: &str| guard.may_connect(text.parse().unwrap());
        for address in [
            "0.0.0.0",
            "0.1.2.3",
            "10.0.0.1",
            "10.255.255.255",
            "100.64.0.1",
            "100.127.255.255",
            "127.0.0.1",
            "127.255.255.254",
            "169.254.169.254",
            "172.16.0.1",
            "172.31.255.255",
            "192.0.0.1",
            "192.0.0.192",
            "192.0.2.1",
            "192.88.99.1",
            "192.168.0.1",
            "198.18.0.1",
            "198.19.255.255",
            "198.51.100.1",
            "203.0.113.7",
            "224.0.0.1",
            "239.255.255.255",
            "240.0.0.1",
            "255.255.255.255",
            "::",
            "::1",
            "::7f00:1",
            "::ffff:127.0.0.1",
            "::ffff:10.0.0.1",
            "::ffff:1.1.1.1",
            "64:ff9b::a00:1",
            "64:ff9b::101:101",
            "64:ff9b:1::1",
            "100::1",
            "2001::1",
            "2001:0:53aa::1",
            "2001:20::1",
            "2001:db8::1",
            "2002:7f00:1::",
            "2002:a00:1::1",
            "3fff::1",
            "4000::1",
            "5f00::1",
            "fc00::1",
            "fd12:3456::1",
            "fe80::1",
            "febf::1",
            "fec0::1",
            "ff02::1",
        ] {
            assert!(!public(address), "{address}");
        }
        for address in [
            "1.1.1.1",
            "9.255.255.255",
            "11.0.0.0",
            "100.63.255.255",
            "100.128.0.0",
            "126.255.255.255",
            "128.0.0.0",
            "142.250.74.74",
            "169.253.255.255",
            "172.15.255.255",
            "172.32.0.0",
            "192.0.1.0",
            "192.167.255.255",
            "198.17.255.255",
            "198.20.0.0",
            "223.255.255.255",
            "2606:4700:4700::1111",
            "2a00:1450:4001::200a",
            "2001:200::1",
            "2001:db9::1",
            "2003::1",
            "3ffe::1",
        ] {
            assert!(public(address), "{address}");
        }
    }

    #[test]
    fn allowing_loopback_allows_nothing_else() {
        let guard = Guard::new(true, vec!["64:ff9b::/96".parse().unwrap()]);
        let allowed = |text: &str| guard.may_connect(text.parse().unwrap());
        assert!(allowed("127.0.0.1") && allowed("127.8.8.8") && allowed("::1"));
        assert!(!allowed("10.0.0.1") && !allowed("::ffff:127.0.0.1") && !allowed("0.0.0.0") && !allowed("::"));
        assert!(!allowed("64:ff9b::127.0.0.1"), "the translator's");
    }

    #[test]
    fn where_a_network_translates_an_address_is_what_it_is_translated_to() {
        let guard = |prefixes: &[&str]| Guard::new(false, prefixes.iter().map(|text| text.parse().unwrap()).collect());
        let well_known = guard(&["64:ff9b::/96"]);
        let own = guard(&["64:ff9b::/96", "64:ff9b:1:fffe::/96", "2a00:64::/64"]);
        let public = |guard: &Guard, text: &str| guard.may_connect(text.parse().unwrap());
        for (outside, inside) in [
            ("64:ff9b::1.1.1.1", "64:ff9b::10.0.0.1"),
            ("64:ff9b::142.250.74.74", "64:ff9b::169.254.169.254"),
            ("64:ff9b::8.8.8.8", "64:ff9b::127.0.0.1"),
            ("2606:4700:4700::1111", "64:ff9b::100.64.0.1"),
        ] {
            assert!(public(&well_known, outside) && public(&own, outside), "{outside}");
            assert!(!public(&well_known, inside) && !public(&own, inside), "{inside}");
        }
        for (outside, inside) in [
            ("64:ff9b:1:fffe::1.1.1.1", "64:ff9b:1:fffe::10.0.0.1"), // of RFC 8215
            ("2a00:64:0:0:1:101:100::", "2a00:64:0:0:a:0:100::"),    // of the network's own addresses
        ] {
            assert!(public(&own, outside) && !public(&own, inside), "{outside} {inside}");
        }
        assert!(!public(&well_known, "64:ff9b:1:fffe::1.1.1.1"), "nobody said where in it the address is");
        assert!(!public(&own, "64:ff9b:1::1.1.1.1"));
    }
}
