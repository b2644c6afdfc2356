//! From `host[:port]` to a TLS session with an agreed protocol, directly or through the network's proxy.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep_until};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::SettingsError;
use super::egress::{Egress, Target, Troubles};
use super::hosts::{literal, split};
use super::resolve::GuardedDns;
use crate::classify::Failure;

/// Head start of an address before the next one is tried beside it (RFC 8305 section 5).
const NEXT_ADDRESS_AFTER: Duration = Duration::from_millis(250);

/// Addresses of one host that are tried.
const ADDRESSES_MAX: usize = 6;

/// Opens TLS sessions.
pub(super) struct Connector {
    pub(super) dns: GuardedDns,
    egress: Option<Egress>,
    pub(super) troubles: Troubles,
    /// How long the proxy may take: less than the whole connect, so that it is known who was slow.
    proxy_timeout: Duration,
    tls: TlsConnector,
}

impl Connector {
    pub(super) fn new(
        dns: GuardedDns,
        egress: Option<Egress>,
        troubles: Troubles,
        connect_timeout: Duration,
        extra_ca_pem: Option<&[u8]>,
    ) -> Result<Self, SettingsError> {
        let tls = Arc::new(client_config(extra_ca_pem)?).into();
        Ok(Self { dns, egress, troubles, proxy_timeout: connect_timeout * 4 / 5, tls })
    }

    /// A session with whoever answers at a checked address and proves to be the host. It takes as long as it takes:
    /// the caller sets the limit.
    pub(super) async fn connect(&self, authority: &str) -> Result<TlsStream<TcpStream>, Failure> {
        let (host, _) = split(authority);
        let name = match literal(host) {
            Some(ip) => ServerName::IpAddress(ip.into()),
            None => ServerName::try_from(host.to_owned()).map_err(|_| Failure::Resolve)?,
        };
        let tcp = match self.egress.as_ref().filter(|egress| !egress.exempts(host)) {
            Some(egress) => self.tunnel(egress, authority).await?,
            None => first_of(self.dns.addresses(authority).await?).await.map_err(|_| Failure::Connect)?,
        };
        // Requests are batched above this socket already; Nagle's wait would only add to it.
        tcp.set_nodelay(true).map_err(|_| Failure::Connect)?;
        self.tls.connect(name, tcp).await.map_err(|_| Failure::Tls)
    }

    /// Whether the proxy looks this host up: one that somebody vouches for, so that no stranger's name leads it into our network.
    pub(super) fn is_looked_up_by_proxy(&self, host: &str) -> bool {
        let asked = self.egress.as_ref().filter(|egress| egress.looks_up() && !egress.exempts(host));
        asked.is_some() && self.dns.hosts.gateway(host).is_some() && self.dns.hosts.pinned(host).is_none()
    }

    /// A connection through the proxy. The addresses of strangers' hosts are checked as ever, and it is asked for those.
    async fn tunnel(&self, egress: &Egress, authority: &str) -> Result<TcpStream, Failure> {
        let (host, port) = split(authority);
        let targets = if self.is_looked_up_by_proxy(host) {
            vec![Target::Name(host, port)]
        } else {
            // Which of them it reaches is its network's affair, not ours: most reach IPv4.
            let mut addresses = self.dns.addresses(authority).await?;
            addresses.sort_by_key(SocketAddr::is_ipv6);
            addresses.into_iter().map(Target::Address).collect()
        };
        let gateway = self.dns.hosts.gateway(host);
        match egress.tunnel(&targets, self.proxy_timeout).await {
            Ok(tcp) => {
                gateway.inspect(|gateway| self.troubles.passed(*gateway));
                Ok(tcp)
            }
            Err(why) => {
                gateway.inspect(|gateway| self.troubles.refused(*gateway, &why, Instant::now()));
                Err(Failure::Proxy)
            }
        }
    }
}

/// The first connection of those to these addresses that comes about. Each is begun when the one before has failed, or has had its
/// head start (RFC 8305 section 5), so that a family of addresses without a way out costs no time.
pub(super) async fn first_of(addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    first_of_with(NEXT_ADDRESS_AFTER, addresses).await
}

async fn first_of_with(head_start: Duration, addresses: Vec<SocketAddr>) -> io::Result<TcpStream> {
    let mut left = in_turns(addresses).into_iter().take(ADDRESSES_MAX);
    let (mut attempts, mut next_at) = (FuturesUnordered::new(), Instant::now());
    let mut failure = io::ErrorKind::AddrNotAvailable.into();
    let mut next = left.next();
    while next.is_some() || !attempts.is_empty() {
        tokio::select! {
            biased;
            () = sleep_until(next_at), if next.is_some() => {
                attempts.extend(next.take().map(TcpStream::connect));
                (next, next_at) = (left.next(), Instant::now() + head_start);
            }
            Some(attempt) = attempts.next() => match attempt {
                Ok(tcp) => return Ok(tcp),
                Err(why) => (failure, next_at) = (why, Instant::now()),
            },
        }
    }
    Err(failure)
}

/// The addresses, those of the first one's family and of the other in turns (RFC 8305 section 4).
fn in_turns(addresses: Vec<SocketAddr>) -> Vec<SocketAddr> {
    let first_is_v6 = addresses.first().is_some_and(SocketAddr::is_ipv6);
    let (one, other): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|address| address.is_ipv6() == first_is_v6);
    let (mut one, mut other) = (one.into_iter(), other.into_iter());
    let pairs = std::iter::from_fn(|| Some([one.next(), other.next()]).filter(|pair| pair.iter().any(Option::is_some)));
    pairs.flatten().flatten().collect()
}

/// TLS by Mozilla's roots, and these certificates (PEM) beside them.
pub(crate) fn client_config(extra_ca_pem: Option<&[u8]>) -> Result<ClientConfig, SettingsError> {
    let mut roots = RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() };
    if let Some(pem) = extra_ca_pem {
        let read = CertificateDer::pem_slice_iter(pem).collect::<Result<Vec<_>, _>>();
        let certificates = read.map_err(|why| SettingsError::ExtraCa(why.to_string()))?;
        if certificates.is_empty() {
            return Err(SettingsError::ExtraCa("it holds none".into()));
        }
        for certificate in certificates {
            roots.add(certificate).map_err(|why| SettingsError::ExtraCa(why.to_string()))?;
        }
    }
    let mut config = ClientConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    fn addresses(texts: &[&str]) -> Vec<SocketAddr> {
        texts.iter().map(|text| text.parse().unwrap()).collect()
    }

    #[test]
    fn both_families_are_tried_in_turns() {
        let given = addresses(&["[2001:db8::1]:1", "[2001:db8::2]:1", "[2001:db8::3]:1", "192.0.2.1:1", "192.0.2.2:1"]);
        let turns = addresses(&["[2001:db8::1]:1", "192.0.2.1:1", "[2001:db8::2]:1", "192.0.2.2:1", "[2001:db8::3]:1"]);
        assert_eq!(in_turns(given), turns);
        assert_eq!(in_turns(Vec::new()), []);
    }

    #[tokio::test]
    async fn an_address_without_a_way_to_it_costs_the_next_one_no_time() {
        let there = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (there_at, closed_at) = (there.local_addr().unwrap(), closed.local_addr().unwrap());
        drop(closed);
        let for_ever = Duration::from_secs(86_400);
        let tcp = first_of_with(for_ever, vec![closed_at, closed_at, there_at]).await.unwrap();
        assert_eq!(tcp.peer_addr().unwrap(), there_at);
        let refused = first_of(vec![closed_at]).await.unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused);
        assert_eq!(first_of(Vec::new()).await.unwrap_err().kind(), io::ErrorKind::AddrNotAvailable);
    }
}
