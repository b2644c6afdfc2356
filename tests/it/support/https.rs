//! A certificate authority of a test's own, and clients that trust it.

use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use axum::body::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::SendRequest;
use hyper::{Request, Response};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, KeyUsagePurpose};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::pem::PemObject as _;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// The host that certificates are for.
pub const HOST: &str = "push.example.com";

/// Signs certificates for [`HOST`].
pub struct Authority {
    issuer: Issuer<'static, KeyPair>,
    /// Certificate that a client has to trust.
    pub pem: String,
}

/// A certificate with its key, both PEM.
pub struct Pair {
    pub chain: String,
    pub key: String,
}

impl Authority {
    pub fn new() -> Self {
        let mut params = CertificateParams::new([]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.distinguished_name.push(DnType::CommonName, "Authority of a test");
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), pem }
    }

    pub fn pair(&self) -> Pair {
        let mut params = CertificateParams::new([HOST.to_owned(), "localhost".to_owned()]).unwrap();
        params.subject_alt_names.push(rcgen::SanType::IpAddress([127, 0, 0, 1].into()));
        params.distinguished_name.push(DnType::CommonName, HOST);
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().unwrap();
        let chain = params.signed_by(&key, &self.issuer).unwrap().pem();
        Pair { chain, key: key.serialize_pem() }
    }
}

impl Pair {
    /// Writes both into files, whole at once, as those do who renew certificates.
    pub fn write(&self, chain: &Path, key: &Path) {
        for (path, text) in [(key, &self.key), (chain, &self.chain)] {
            let new = path.with_extension("new");
            std::fs::write(&new, text).unwrap();
            std::fs::rename(&new, path).unwrap();
        }
    }
}

/// Connects to [`HOST`] at an address by TLS. The certificate of the authority is PEM.
pub async fn connect(address: SocketAddr, ca_pem: &str, protocols: &[&str]) -> io::Result<TlsStream<TcpStream>> {
    secure(TcpStream::connect(address).await?, ca_pem, protocols).await
}

/// Begins a TLS session with [`HOST`] on a connection. The certificate of the authority is PEM.
pub async fn secure(stream: TcpStream, ca_pem: &str, protocols: &[&str]) -> io::Result<TlsStream<TcpStream>> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(ca_pem.as_bytes()).expect("PEM")).expect("a certificate");
    let mut config = ClientConfig::builder_with_provider(Arc::new(default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.as_bytes().to_vec()).collect();
    TlsConnector::from(Arc::new(config)).connect(ServerName::try_from(HOST).unwrap(), stream).await
}

/// A client by HTTP/2.
pub struct Http2(SendRequest<Full<Bytes>>);

impl Http2 {
    pub async fn connect(address: SocketAddr, ca_pem: &str) -> io::Result<Self> {
        let stream = connect(address, ca_pem, &["h2"]).await?;
        let (sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .map_err(io::Error::other)?;
        tokio::spawn(connection);
        Ok(Self(sender))
    }

    /// Sends a request and returns the response without waiting for the end of its body.
    pub async fn begin(&mut self, request: Request<Full<Bytes>>) -> Response<hyper::body::Incoming> {
        self.0.send_request(request).await.expect("it answers")
    }

    pub async fn ask(&mut self, request: Request<Full<Bytes>>) -> Response<Bytes> {
        let (parts, body) = self.begin(request).await.into_parts();
        Response::from_parts(parts, body.collect().await.expect("it ends").to_bytes())
    }

    pub async fn get(&mut self, path: &str) -> Response<Bytes> {
        self.ask(get(path)).await
    }
}

/// A request for a path of [`HOST`].
pub fn get(path: &str) -> Request<Full<Bytes>> {
    Request::get(format!("https://{HOST}{path}")).body(Full::default()).unwrap()
}

/// Port of a listener that was just closed.
pub fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").and_then(|listener| listener.local_addr()).expect("a port").port()
}
