//! Names to addresses. Every answer is guarded, and what was checked is what is connected to, so that a name cannot
//! be public when asked and private when used (DNS rebinding).

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use dns_lookup::{AddrInfoHints, LookupErrorKind, SockType, getaddrinfo};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::hosts::{Hosts, listed, literal, split};
use super::missing::Missing;
use crate::classify::Failure;
use crate::model::lane::Gateway;

/// Look-ups of unknown hosts that run at once. Each blocks a thread for as long as its name server pleases, so without
/// this bound a few hostile domains could stop the look-ups of everybody else.
const UNKNOWN_LOOKUPS: usize = 32;

/// Who is asked.
pub(super) enum Resolver {
    /// `getaddrinfo` of this host.
    System,
    /// A test's own DNS.
    #[cfg(test)]
    Fake(FakeDns),
}

/// Why a name has no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoAddress {
    /// It does not exist, as DNS has it, or as whoever answers in its place.
    NoSuchName,
    /// Anything else: it has none at present, or nobody could be asked.
    NotNow,
}

/// A name's addresses, decided anew at every question.
#[cfg(test)]
pub(super) type FakeDns = Box<dyn Fn(&str) -> Result<Vec<IpAddr>, NoAddress> + Send + Sync>;

impl Resolver {
    /// At least one address.
    async fn lookup(&self, host: &str) -> Result<Vec<IpAddr>, NoAddress> {
        let addresses = match self {
            Resolver::System => {
                let host = host.to_owned();
                let asked = tokio::task::spawn_blocking(move || ask_system(&host)).await;
                asked.unwrap_or(Err(NoAddress::NotNow))?
            }
            #[cfg(test)]
            Resolver::Fake(answer) => answer(host)?,
        };
        if addresses.is_empty() { Err(NoAddress::NotNow) } else { Ok(addresses) }
    }
}

fn ask_system(host: &str) -> Result<Vec<IpAddr>, NoAddress> {
    let hints = AddrInfoHints { socktype: SockType::Stream.into(), ..AddrInfoHints::default() };
    let found = getaddrinfo(Some(host), None, Some(hints)).map_err(|error| match error.kind() {
        LookupErrorKind::NoName => NoAddress::NoSuchName,
        _ => NoAddress::NotNow,
    })?;
    found.map(|info| info.map(|info| info.sockaddr.ip())).collect::<Result<_, _>>().map_err(|_| NoAddress::NotNow)
}

/// Finds the addresses that an origin may be reached at.
pub(super) struct GuardedDns {
    pub(super) hosts: Hosts,
    resolver: Resolver,
    unknown: Semaphore,
    missing: Missing,
    /// The host of each known gateway that last had an address.
    seen: Mutex<HashMap<Gateway, Box<str>>>,
}

impl GuardedDns {
    pub(super) fn new(hosts: Hosts, resolver: Resolver, gone_after: Duration) -> Self {
        let (unknown, missing) = (Semaphore::new(UNKNOWN_LOOKUPS), Missing::new(gone_after));
        Self { hosts, resolver, unknown, missing, seen: Mutex::default() }
    }

    /// The addresses of `host[:port]`, at least one, all of them public. One that is not refuses them all
    /// ([`Failure::Forbidden`]): an honest push service has none such. [`Failure::InvalidHost`] if the host is gone for good.
    pub(super) async fn addresses(&self, authority: &str) -> Result<Vec<SocketAddr>, Failure> {
        let (host, port) = split(authority);
        if let Some(address) = self.hosts.pinned(host) {
            return Ok(vec![address]);
        }
        let addresses = match literal(host) {
            Some(ip) => vec![ip],
            None => match self.lookup(host).await {
                Ok(addresses) => addresses,
                Err(NoAddress::NoSuchName) if self.is_gone(host).await => return Err(Failure::InvalidHost),
                Err(_) => return Err(Failure::unresolved(host)),
            },
        };
        match addresses.iter().all(|address| self.hosts.guard.may_connect(*address)) {
            true => Ok(addresses.into_iter().map(|address| SocketAddr::new(address, port)).collect()),
            false => Err(Failure::Forbidden),
        }
    }

    async fn lookup(&self, host: &str) -> Result<Vec<IpAddr>, NoAddress> {
        let _permit = match self.hosts.gateway(host) {
            Some(Gateway::Other) | None => Some(self.unknown.acquire().await.expect("it is never closed")),
            Some(_) => None,
        };
        let addresses = self.resolver.lookup(host).await?;
        self.missing.found(host);
        if let Some(gateway) = self.hosts.gateway(host) {
            self.seen.lock().insert(gateway, host.into());
        }
        Ok(addresses)
    }

    /// Whether a host that DNS does not know at present is gone for good: so it has been for hours, and it is not our own DNS
    /// that fails or hides things from us, since others of the same push service are there. Of a host that somebody vouches
    /// for that is never believed.
    async fn is_gone(&self, host: &str) -> bool {
        if self.hosts.is_vouched_for(host) || !self.missing.missed(host, Instant::now()) {
            return false;
        }
        let gateway = self.hosts.gateway(host);
        let seen = gateway.and_then(|gateway| self.seen.lock().get(&gateway).cloned());
        for witness in listed(gateway).chain(seen.as_deref()).filter(|witness| *witness != host) {
            if self.resolver.lookup(witness).await.is_ok() {
                return true;
            }
        }
        false
    }
}
