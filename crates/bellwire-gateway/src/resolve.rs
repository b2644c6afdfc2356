//! Name resolution. Each result is checked, and connections use the checked address. A name therefore cannot be public
//! in the check and private in the connect (DNS rebinding).

use std::collections::HashMap;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use dns_lookup::{AddrInfoHints, LookupErrorKind, SockType, getaddrinfo};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::hosts::{HostTable, listed, literal, split};
use super::missing::Missing;
use bellwire_core::lane::Gateway;
use bellwire_rules::classify::Failure;

/// Maximum concurrent lookups of unknown hosts. Each blocks a thread until its name server responds, so a few hostile
/// domains could otherwise block all lookups.
const UNKNOWN_LOOKUPS: usize = 32;

pub(super) enum Resolver {
    System,
    #[cfg(debug_assertions)]
    Fake(FakeDns),
}

/// Reason why a name has no address.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NoAddress {
    /// The name does not exist according to DNS.
    NoSuchName,
    /// Any other reason: the name has no address at present, or no server responded.
    NotNow,
}

/// Function that returns the addresses of a name at each lookup.
#[cfg(debug_assertions)]
pub(super) type FakeDns = Box<dyn Fn(&str) -> Result<Vec<IpAddr>, NoAddress> + Send + Sync>;

impl Resolver {
    async fn lookup(&self, host: &str) -> Result<Vec<IpAddr>, NoAddress> {
        let addresses = match self {
            Resolver::System => {
                let host = host.to_owned();
                let asked = tokio::task::spawn_blocking(move || ask_system(&host)).await;
                asked.unwrap_or(Err(NoAddress::NotNow))?
            }
            #[cfg(debug_assertions)]
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

/// Resolves origins to checked addresses.
pub(super) struct GuardedDns {
    pub(super) hosts: HostTable,
    resolver: Resolver,
    unknown: Semaphore,
    missing: Missing,
    /// Last host with an address of each known gateway.
    seen: Mutex<HashMap<Gateway, Box<str>>>,
}

impl GuardedDns {
    pub(super) fn new(hosts: HostTable, resolver: Resolver, gone_after: Duration) -> Self {
        let (unknown, missing) = (Semaphore::new(UNKNOWN_LOOKUPS), Missing::new(gone_after));
        Self { hosts, resolver, unknown, missing, seen: Mutex::default() }
    }

    /// Returns the addresses of `host[:port]`, at least one. A single address that is not public makes the lookup fail
    /// with [`Failure::Forbidden`], because an honest push service has none. A host that is gone fails with
    /// [`Failure::InvalidHost`].
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

    /// Whether a host without a DNS record is gone for good. It must have been missing for hours, while another host of the
    /// same push service resolves, so that DNS itself works. A known or mapped host is never gone.
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
