//! Connects to `host[:port]` with TLS and ALPN, directly or through the proxy.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::SettingsError;
use super::dial::first_of;
use super::egress::{Egress, Troubles, TunnelTarget};
use super::hosts::{literal, split};
use super::resolve::GuardedDns;
use bellwire_rules::classify::Failure;

pub(super) struct Connector {
    pub(super) dns: GuardedDns,
    egress: Option<Egress>,
    pub(super) troubles: Troubles,
    /// Timeout of connecting through the proxy. Shorter than the connect timeout, so that a slow proxy can be distinguished
    /// from a slow push service.
    proxy_timeout: Duration,
    tls: TlsConnector,
}

impl Connector {
    pub(super) fn new(
        dns: GuardedDns, egress: Option<Egress>, troubles: Troubles, connect_timeout: Duration,
        extra_ca_pem: Option<&[u8]>,
    ) -> Result<Self, SettingsError> {
        let tls = Arc::new(client_config(extra_ca_pem)?).into();
        Ok(Self { dns, egress, troubles, proxy_timeout: connect_timeout * 4 / 5, tls })
    }

    /// Opens a TLS session to a checked address with the certificate of the host. There is no timeout here; the caller
    /// sets it.
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
        // Requests are batched before this socket, so Nagle's algorithm would only delay them.
        tcp.set_nodelay(true).map_err(|_| Failure::Connect)?;
        self.tls.connect(name, tcp).await.map_err(|_| Failure::Tls)
    }

    /// Whether the proxy resolves this host. Only known and mapped hosts: another name could lead the proxy into the internal
    /// network.
    pub(super) fn is_looked_up_by_proxy(&self, host: &str) -> bool {
        let asked = self.egress.as_ref().filter(|egress| egress.looks_up() && !egress.exempts(host));
        asked.is_some() && self.dns.hosts.gateway(host).is_some() && self.dns.hosts.pinned(host).is_none()
    }

    /// Opens a tunnel through the proxy. Other hosts are resolved and checked here, and the tunnel leads to the
    /// address.
    async fn tunnel(&self, egress: &Egress, authority: &str) -> Result<TcpStream, Failure> {
        let (host, port) = split(authority);
        let targets = if self.is_looked_up_by_proxy(host) {
            vec![TunnelTarget::Name(host, port)]
        } else {
            // Most proxies reach IPv4, so these addresses come first.
            let mut addresses = self.dns.addresses(authority).await?;
            addresses.sort_by_key(SocketAddr::is_ipv6);
            addresses.into_iter().map(TunnelTarget::Address).collect()
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

/// Returns a TLS configuration with Mozilla's roots and additional certificates (PEM).
pub fn client_config(extra_ca_pem: Option<&[u8]>) -> Result<ClientConfig, SettingsError> {
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
