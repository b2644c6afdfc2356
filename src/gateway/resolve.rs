//! Names to addresses. Every answer is guarded, and what was checked is what is connected to, so that a name cannot
//! be public when asked and private when used (DNS rebinding).

use std::io;
use std::net::SocketAddr;

use tokio::sync::Semaphore;

use super::guard;
use super::hosts::{Hosts, literal, split};
use crate::classify::Failure;
use crate::lane::Gateway;

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

/// A name's addresses, decided anew at every question.
#[cfg(test)]
pub(super) type FakeDns = Box<dyn Fn(&str) -> Vec<std::net::IpAddr> + Send + Sync>;

impl Resolver {
    async fn lookup(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        match self {
            Resolver::System => Ok(tokio::net::lookup_host((host, port)).await?.collect()),
            #[cfg(test)]
            Resolver::Fake(answer) => Ok(answer(host).into_iter().map(|ip| SocketAddr::new(ip, port)).collect()),
        }
    }
}

/// Finds the addresses that an origin may be reached at.
pub(super) struct GuardedDns {
    pub(super) hosts: Hosts,
    resolver: Resolver,
    allow_loopback: bool,
    unknown: Semaphore,
}

impl GuardedDns {
    pub(super) fn new(hosts: Hosts, resolver: Resolver, allow_loopback: bool) -> Self {
        Self { hosts, resolver, allow_loopback, unknown: Semaphore::new(UNKNOWN_LOOKUPS) }
    }

    /// The addresses of `host[:port]`, at least one, all of them public. One that is not refuses them all
    /// ([`Failure::Forbidden`]): an honest push service has none such.
    pub(super) async fn addresses(&self, authority: &str) -> Result<Vec<SocketAddr>, Failure> {
        let (host, port) = split(authority);
        if let Some(address) = self.hosts.pinned(host) {
            return Ok(vec![address]);
        }
        let addresses = match literal(host) {
            Some(ip) => vec![SocketAddr::new(ip, port)],
            None => self.lookup(host, port).await.map_err(|_| Failure::Resolve)?,
        };
        match addresses.iter().all(|address| guard::may_connect(address.ip(), self.allow_loopback)) {
            _ if addresses.is_empty() => Err(Failure::Resolve),
            true => Ok(addresses),
            false => Err(Failure::Forbidden),
        }
    }

    async fn lookup(&self, host: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        let _permit = match self.hosts.gateway(host) {
            Some(Gateway::Other) | None => Some(self.unknown.acquire().await.expect("it is never closed")),
            Some(_) => None,
        };
        self.resolver.lookup(host, port).await
    }
}
