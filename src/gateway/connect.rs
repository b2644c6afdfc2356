//! From `host[:port]` to a TLS session with an agreed protocol.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

use super::SettingsError;
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
    tls: TlsConnector,
}

impl Connector {
    pub(super) fn new(dns: GuardedDns, extra_ca_pem: Option<&[u8]>) -> Result<Self, SettingsError> {
        Ok(Self { dns, tls: Arc::new(client_config(extra_ca_pem)?).into() })
    }

    /// A session with whoever answers at a checked address and proves to be the host. It takes as long as it takes:
    /// the caller sets the limit.
    pub(super) async fn connect(&self, authority: &str) -> Result<TlsStream<TcpStream>, Failure> {
        let (host, _) = split(authority);
        let name = match literal(host) {
            Some(ip) => ServerName::IpAddress(ip.into()),
            None => ServerName::try_from(host.to_owned()).map_err(|_| Failure::Resolve)?,
        };
        let addresses = self.dns.addresses(authority).await?;
        let tcp = first_of(&addresses).await.map_err(|_| Failure::Connect)?;
        // Requests are batched above this socket already; Nagle's wait would only add to it.
        tcp.set_nodelay(true).map_err(|_| Failure::Connect)?;
        self.tls.connect(name, tcp).await.map_err(|_| Failure::Tls)
    }
}

async fn first_of(addresses: &[SocketAddr]) -> io::Result<TcpStream> {
    let mut attempts: FuturesUnordered<_> = addresses[..addresses.len().min(ADDRESSES_MAX)]
        .iter()
        .zip(0..)
        .map(async |(address, place)| {
            if place > 0 {
                sleep(NEXT_ADDRESS_AFTER * place).await;
            }
            TcpStream::connect(address).await
        })
        .collect();
    let mut failure = io::ErrorKind::AddrNotAvailable.into();
    while let Some(attempt) = attempts.next().await {
        match attempt {
            Ok(tcp) => return Ok(tcp),
            Err(why) => failure = why,
        }
    }
    Err(failure)
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
