//! Client identity by address. The owner of an IPv6 address usually controls its whole /64.

use std::net::IpAddr;

/// Returns the network of one household or server: an IPv4 address, or the /64 of an IPv6 address.
pub fn household(address: IpAddr) -> IpAddr {
    network(address, 64)
}

/// Returns the network of one customer of a provider: the /48 of an IPv6 address, with 65,536 households. `None` for
/// IPv4.
pub fn site(address: IpAddr) -> Option<IpAddr> {
    Some(network(address, 48)).filter(IpAddr::is_ipv6)
}

fn network(address: IpAddr, bits: u32) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(v6) => IpAddr::from((u128::from(v6) >> (128 - bits) << (128 - bits)).to_be_bytes()),
        v4 => v4,
    }
}

#[cfg(test)]
#[path = "../../../../tests/crates/net/unit/address.rs"]
mod tests;
