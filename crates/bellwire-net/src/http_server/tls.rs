//! TLS of a listener: handshake, certificate, and responses to the TLS-ALPN-01 validation of an ACME authority (RFC
//! 8737).

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rcgen::{CertificateParams, CustomExtension, KeyPair};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::sync::Semaphore;
use tokio_rustls::LazyConfigAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs::{Ticketer, default_provider};
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::rustls::server::Acceptor;
use tokio_rustls::rustls::sign::{CertifiedKey, SingleCertAndKey};
use tokio_rustls::server::TlsStream;

use super::address::household;
use super::certificate::CurrentCertificate;

/// ALPN protocol of the validation (RFC 8737 section 3).
const ACME: &[u8] = b"acme-tls/1";
/// Maximum concurrent challenge lookups. Any client can cause them.
const LOOK_UPS_MAX: usize = 4;
/// Maximum concurrent lookups of one client. Authorities connect from several addresses, but behind a TCP proxy all
/// look the same, so further lookups wait.
const LOOK_UPS_PER_CLIENT: usize = 2;

/// SHA-256 of the key authorization of a domain. `None` without a pending challenge.
pub type Challenge = Pin<Box<dyn Future<Output = Option<[u8; 32]>> + Send>>;

/// Looks up the challenge of the domain in the handshake.
pub type Challenges = Arc<dyn Fn(String) -> Challenge + Send + Sync>;

/// TLS configuration of a listener. Clones share it.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
    questions: Option<Arc<Questions>>,
}

/// Challenge lookups. Each waits for a permit, because a refused validation may fail an order.
struct Questions {
    challenges: Challenges,
    all: Semaphore,
    clients: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
}

impl Questions {
    fn new(challenges: Challenges) -> Self {
        Self { challenges, all: Semaphore::new(LOOK_UPS_MAX), clients: Mutex::default() }
    }

    /// Looks up the challenge of a domain. The permit is released before the handshake continues.
    async fn look_up(&self, client: IpAddr, domain: String) -> Option<[u8; 32]> {
        let own = self.turns_of(household(client));
        // The permit of the client comes first: its waiting lookups must not block the queue of all clients.
        let (_own, _any) = (own.acquire().await.ok()?, self.all.acquire().await.ok()?);
        (self.challenges)(domain).await
    }

    fn turns_of(&self, client: IpAddr) -> Arc<Semaphore> {
        let mut clients = self.clients.lock();
        // Bounded by the number of handshakes in progress.
        clients.retain(|_, turns| turns.strong_count() > 0);
        if let Some(turns) = clients.get(&client).and_then(Weak::upgrade) {
            return turns;
        }
        let turns = Arc::new(Semaphore::new(LOOK_UPS_PER_CLIENT));
        clients.insert(client, Arc::downgrade(&turns));
        turns
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls").field("answers_challenges", &self.questions.is_some()).finish_non_exhaustive()
    }
}

/// Result of a handshake.
pub(super) enum Greeting {
    Agreed(Box<TlsStream<TcpStream>>),
    Answered,
}

impl Tls {
    /// Configures TLS 1.2 and 1.3, HTTP/2 and HTTP/1.1. Session tickets use a key of this process that rotates every
    /// few hours.
    pub fn new(
        shown: Arc<CurrentCertificate>, challenges: Option<Challenges>,
    ) -> Result<Self, tokio_rustls::rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(shown);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config.ticketer = Ticketer::new()?;
        let questions = challenges.map(|challenges| Arc::new(Questions::new(challenges)));
        Ok(Self { config: Arc::new(config), questions })
    }

    /// Performs the handshake without a timeout, which the caller sets.
    pub(super) async fn greet(&self, stream: TcpStream, client: IpAddr) -> io::Result<Greeting> {
        let mut first = [0];
        if stream.peek(&mut first).await? == 1 && first[0].is_ascii_alphabetic() {
            return speak_plainly(stream).await;
        }
        let start = LazyConfigAcceptor::new(Acceptor::default(), stream).await?;
        let hello = start.client_hello();
        let is_authority = hello.alpn().is_some_and(|mut protocols| protocols.any(|protocol| protocol == ACME));
        let (true, Some(questions)) = (is_authority, &self.questions) else {
            let stream = start.into_stream(self.config.clone()).await?;
            return Ok(Greeting::Agreed(Box::new(stream)));
        };
        let domain = hello.server_name().unwrap_or_default().to_owned();
        let Some(digest) = questions.look_up(client, domain.clone()).await else { return Ok(Greeting::Answered) };
        let config = answer(&domain, &digest).map_err(io::Error::other)?;
        start.into_stream(Arc::new(config)).await?.shutdown().await?;
        Ok(Greeting::Answered)
    }
}

/// Sends a 400 with an explanation to a client that speaks HTTP without TLS.
async fn speak_plainly(mut stream: TcpStream) -> io::Result<Greeting> {
    const RESPONSE: &[u8] =
        b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n\
                              Content-Length: 42\r\n\r\nThis port speaks HTTPS. Ask by https://.\r\n";
    stream.write_all(RESPONSE).await?;
    stream.shutdown().await?;
    Ok(Greeting::Answered)
}

/// Builds the configuration of a validation: a self-signed certificate for the domain that contains the digest.
fn answer(domain: &str, digest: &[u8; 32]) -> Result<ServerConfig, Box<dyn std::error::Error + Send + Sync>> {
    let mut params = CertificateParams::new([domain.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?.der().clone();
    let provider = Arc::new(default_provider());
    let key = provider.key_provider.load_private_key(PrivatePkcs8KeyDer::from(key.serialize_der()).into())?;
    // `SingleCertAndKey` does not compare certificate and key. The comparison would refuse the critical ACME extension.
    let pair = SingleCertAndKey::from(CertifiedKey::new(vec![certificate], key));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(pair));
    config.alpn_protocols = vec![ACME.to_vec()];
    Ok(config)
}

#[cfg(test)]
#[path = "../../../../tests/crates/net/unit/http_server/tls.rs"]
mod tests;
