//! Hosts that are connected to without the proxy.

use std::net::IpAddr;
use std::str::FromStr;

use url::Host;

use crate::gateway::prefix::Prefix;

/// An entry of the list: a name and all names below it, an address, a network, or everything.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Exempt {
    /// `*`.
    Everything,
    /// `corp.example`, with or without a dot before it.
    Name(String),
    /// `10.0.0.0/8`, or an address alone. Only hosts that are written as addresses are looked for in it: names are not looked up.
    Network(Prefix),
}

/// A text is no [`Exempt`].
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
