//! TLS in front of a listener: the handshake, the certificate that it shows, and answers to an authority that asks by TLS-ALPN-01
//! (RFC 8737) whether we are who orders a certificate.

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
use super::certificate::Shown;

/// The protocol by which an authority asks (RFC 8737 section 3).
const ACME: &[u8] = b"acme-tls/1";
/// Authorities' questions that are looked up at a time: anybody can ask.
const LOOK_UPS_MAX: usize = 4;
/// And those of one client. Authorities ask from several places, and through what passes TCP on all look the same: more of them wait.
const LOOK_UPS_PER_CLIENT: usize = 2;

/// The SHA-256 of what an authority is to find at a domain just now; none: it is to find nothing.
pub(crate) type Challenge = Pin<Box<dyn Future<Output = Option<[u8; 32]>> + Send>>;

/// Looks up the challenge of a domain, as the client named it.
pub(crate) type Challenges = Arc<dyn Fn(String) -> Challenge + Send + Sync>;

/// How a listener speaks TLS. Clones share all of it.
#[derive(Clone)]
pub struct Tls {
    config: Arc<ServerConfig>,
    questions: Option<Arc<Questions>>,
}

/// Authorities' questions. Each waits for its turn, however many others ask: one that is refused may fail an order.
struct Questions {
    challenges: Challenges,
    all: Semaphore,
    /// The turns of those who are asking.
    clients: Mutex<HashMap<IpAddr, Weak<Semaphore>>>,
}

impl Questions {
    fn new(challenges: Challenges) -> Self {
        Self { challenges, all: Semaphore::new(LOOK_UPS_MAX), clients: Mutex::default() }
    }

    /// Reads what that client is to find at a domain. The turn ends with it: what the client does with the answer holds up nobody.
    async fn look_up(&self, client: IpAddr, domain: String) -> Option<[u8; 32]> {
        let own = self.turns_of(household(client));
        // The client's own first: those who wait for it must not stand in the line of all.
        let (_own, _any) = (own.acquire().await.ok()?, self.all.acquire().await.ok()?);
        (self.challenges)(domain).await
    }

    fn turns_of(&self, client: IpAddr) -> Arc<Semaphore> {
        let mut clients = self.clients.lock();
        // No more than there are handshakes under way.
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

/// What came of a handshake.
pub(super) enum Greeting {
    /// There is a session.
    Agreed(Box<TlsStream<TcpStream>>),
    /// The client has had its answer, and nothing follows.
    Answered,
}

impl Tls {
    /// TLS 1.2 and 1.3 with the certificate that is shown at the time, HTTP/2 and HTTP/1.1. Sessions are resumed by tickets under a key of
    /// this process, which changes every few hours.
    pub(crate) fn new(shown: Arc<Shown>, challenges: Option<Challenges>) -> Result<Self, tokio_rustls::rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(shown);
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config.ticketer = Ticketer::new()?;
        let questions = challenges.map(|challenges| Arc::new(Questions::new(challenges)));
        Ok(Self { config: Arc::new(config), questions })
    }

    /// Shakes hands. It takes as long as it takes: the caller sets the limit.
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

/// Tells a client that speaks HTTP without TLS what it should have done, as far as it waits to hear it.
async fn speak_plainly(mut stream: TcpStream) -> io::Result<Greeting> {
    const RESPONSE: &[u8] =
        b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n\
                              Content-Length: 42\r\n\r\nThis port speaks HTTPS. Ask by https://.\r\n";
    stream.write_all(RESPONSE).await?;
    stream.shutdown().await?;
    Ok(Greeting::Answered)
}

/// What convinces an authority: a certificate of our own making for the domain, with the digest in it.
fn answer(domain: &str, digest: &[u8; 32]) -> Result<ServerConfig, Box<dyn std::error::Error + Send + Sync>> {
    let mut params = CertificateParams::new([domain.to_owned()])?;
    params.custom_extensions = vec![CustomExtension::new_acme_identifier(digest)];
    let key = KeyPair::generate()?;
    let certificate = params.self_signed(&key)?.der().clone();
    let provider = Arc::new(default_provider());
    let key = provider.key_provider.load_private_key(PrivatePkcs8KeyDer::from(key.serialize_der()).into())?;
    // Not by way of what compares certificate and key: it knows no such extension, which is critical, and refuses it.
    let pair = SingleCertAndKey::from(CertifiedKey::new(vec![certificate], key));
    let mut config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(pair));
    config.alpn_protocols = vec![ACME.to_vec()];
    Ok(config)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_authority_has_an_answer_by_its_own_protocol_alone() {
        assert_eq!(answer("push.example.com", &[7; 32]).unwrap().alpn_protocols, [ACME]);
    }
}
