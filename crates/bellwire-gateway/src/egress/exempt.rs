//! Hosts with direct connections in spite of the proxy.

use std::net::IpAddr;
use std::str::FromStr;

use url::Host;

use crate::prefix::Prefix;

/// Entry of the list: a domain with its subdomains, an address, a network, or all hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exempt {
    /// All hosts, written as `*`.
    Everything,
    /// A domain such as `corp.example`, with or without a leading dot.
    Name(String),
    /// A network such as `10.0.0.0/8`, or an address. Matches hosts that are addresses; names are not resolved.
    Network(Prefix),
}

/// Error of a text that is not an [`Exempt`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("expected a host name, an address, a network such as 10.0.0.0/8, or *")]
pub struct NotExempt;

impl FromStr for Exempt {
    type Err = NotExempt;

    fn from_str(text: &str) -> Result<Self, NotExempt> {
        if text == "*" {
            return Ok(Self::Everything);
        }
        if let Ok(network) = text.parse() {
            return Ok(Self::Network(network));
        }
        match Host::parse(text.strip_prefix('.').unwrap_or(text)) {
            Ok(Host::Domain(name)) => Ok(Self::Name(name)),
            _ => Err(NotExempt),
        }
    }
}

impl Exempt {
    pub(super) fn has_name(&self, host: &str) -> bool {
        match self {
            Self::Everything => true,
            Self::Name(name) => {
                host.strip_suffix(name.as_str()).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
            }
            Self::Network(_) => false,
        }
    }

    pub(super) fn has_address(&self, address: IpAddr) -> bool {
        match self {
            Self::Everything => true,
            Self::Name(_) => false,
            Self::Network(network) => network.contains(address),
        }
    }
}
