//! Network prefixes, and IPv4 addresses embedded in IPv6 addresses by a network that translates (NAT64).

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

/// An address and the number of leading bits that define the network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix {
    address: IpAddr,
    bits: u32,
}

/// Error of a text that is not a [`Prefix`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected an address and the length of its prefix, such as 10.0.0.0/8 or 64:ff9b::/96")]
pub struct NoPrefix;

impl Prefix {
    pub(super) fn contains(self, address: IpAddr) -> bool {
        match (self.address, address) {
            (IpAddr::V4(net), IpAddr::V4(v4)) => {
                let differs = u32::from(net) ^ u32::from(v4);
                differs.checked_shr(32 - self.bits).unwrap_or(0) == 0
            }
            (IpAddr::V6(net), IpAddr::V6(v6)) => {
                let differs = u128::from(net) ^ u128::from(v6);
                differs.checked_shr(128 - self.bits).unwrap_or(0) == 0
            }
            _ => false,
        }
    }
}

/// Parses `address/bits` or an address. Bits after the prefix must be zero.
impl FromStr for Prefix {
    type Err = NoPrefix;

    fn from_str(text: &str) -> Result<Self, NoPrefix> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| NoPrefix)?;
        let all = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.map_or(Ok(all), str::parse).ok().filter(|bits| *bits <= all).ok_or(NoPrefix)?;
        let beyond = match address {
            IpAddr::V4(v4) => u32::from(v4).checked_shl(bits).unwrap_or(0) != 0,
            IpAddr::V6(v6) => u128::from(v6).checked_shl(bits).unwrap_or(0) != 0,
        };
        if beyond { Err(NoPrefix) } else { Ok(Self { address, bits }) }
    }
}

impl fmt::Display for Prefix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.address, self.bits)
    }
}

/// A prefix with which a network translates IPv6 to IPv4 (RFC 6052 section 2.2). It has 32, 40, 48, 56, 64 or 96 bits:
/// `64:ff9b::/96`, a part of `64:ff9b:1::/48` (RFC 8215), or a prefix of the network itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nat64(Prefix);

/// Prefix lengths that an IPv4 address can follow.
const LENGTHS: [u32; 6] = [32, 40, 48, 56, 64, 96];
/// Index of the zero byte that interrupts the embedded IPv4 address.
const LEFT_OUT: usize = 8;

impl Nat64 {
    /// Returns the embedded IPv4 address, or `None` for an address with another prefix.
    pub(super) fn embedded(self, address: Ipv6Addr) -> Option<Ipv4Addr> {
        if !self.0.contains(address.into()) {
            return None;
        }
        let octets = address.octets();
        let first = (self.0.bits / 8) as usize;
        let mut places = (first..octets.len()).filter(|place| *place != LEFT_OUT);
        let mut next = || places.next().map_or(0, |place| octets[place]);
        Some(Ipv4Addr::new(next(), next(), next(), next()))
    }
}

impl FromStr for Nat64 {
    type Err = NoPrefix;

    fn from_str(text: &str) -> Result<Self, NoPrefix> {
        let prefix: Prefix = text.parse()?;
        let is_one = prefix.address.is_ipv6() && LENGTHS.contains(&prefix.bits);
        if is_one { Ok(Self(prefix)) } else { Err(NoPrefix) }
    }
}

#[cfg(test)]
#[path = "../../../tests/crates/gateway/unit/prefix.rs"]
mod tests;
