//! Clients that open TLS-ALPN-01 connections, as a certificate authority does: any client can.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::Router;
use bellwire::testkit::http_server::tls_with_challenge;
use bellwire_net::http_server::refusal::RefusalBody;
use bellwire_net::http_server::serve;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;
use tokio_rustls::rustls::crypto::aws_lc_rs::default_provider;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, ClientConnection, RootCertStore};

use crate::support::app::PATIENCE;
use crate::support::http::LONG_LIMITS;
use crate::support::https::{Authority, HOST};

/// The domain whose challenge is found as late as the test wants.
const SLOW: &str = "slow.example.com";
/// First byte of a handshake record.
const HANDSHAKE: u8 = 22;
const ONE: Ipv4Addr = Ipv4Addr::LOCALHOST;
const ANOTHER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);

struct Asked {
    address: SocketAddr,
    /// Look-ups of [`SLOW`] that have begun.
    begun: Arc<AtomicUsize>,
    /// Each permit lets one of them end.
    may_end: Arc<Semaphore>,
    _stop: watch::Sender<bool>,
}

impl Asked {
    async fn start() -> Self {
        let (begun, may_end) = (Arc::new(AtomicUsize::new(0)), Arc::new(Semaphore::new(0)));
        let (counted, waits) = (begun.clone(), may_end.clone());
        let find = move |domain: String| {
            let (begun, may_end) = (counted.clone(), waits.clone());
            async move {
                if domain == SLOW {
                    begun.fetch_add(1, Ordering::SeqCst);
                    may_end.acquire().await.expect("it is open").forget();
                }
                Some([7; 32])
            }
        };
        let (pair, listener) = (Authority::new().pair(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let (stop, stopped) = watch::channel(false);
        let address = listener.local_addr().unwrap();
        tokio::spawn(serve(
            listener,
            Some(tls_with_challenge(&pair.chain, &pair.key, find)),
            Router::new(),
            LONG_LIMITS,
            RefusalBody::PLAIN,
            stopped,
        ));
        Self { address, begun, may_end, _stop: stop }
    }

    /// Sends the first message of a handshake for a domain, and never a second one.
    async fn ask(&self, from: Ipv4Addr, domain: &str) -> TcpStream {
        let config = ClientConfig::builder_with_provider(Arc::new(default_provider()));
        let config = config.with_safe_default_protocol_versions().unwrap();
        let mut config = config.with_root_certificates(RootCertStore::empty()).with_no_client_auth();
        config.alpn_protocols = vec![b"acme-tls/1".to_vec()];
        let name = ServerName::try_from(domain.to_owned()).unwrap();
        let mut hello = Vec::new();
        ClientConnection::new(Arc::new(config), name).unwrap().write_tls(&mut hello).unwrap();
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind((from, 0).into()).unwrap();
        let mut stream = socket.connect(self.address).await.unwrap();
        stream.write_all(&hello).await.unwrap();
        stream
    }

    async fn until_begun(&self, n: usize) {
        let begun = async {
            while self.begun.load(Ordering::SeqCst) < n {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, begun).await.expect("they are looked up");
    }
}

/// Whether the server continues the handshake instead of closing.
async fn is_answered(stream: &mut TcpStream) -> bool {
    let read = timeout(PATIENCE, stream.read_u8()).await.expect("it answers or closes");
    read.is_ok_and(|octet| octet == HANDSHAKE)
}

#[tokio::test(flavor = "multi_thread")]
async fn finished_challenge_does_not_block_the_authority() {
    let server = Asked::start().await;
    let mut open = Vec::new();
    for n in 0..20 {
        let mut stream = server.ask(ONE, HOST).await;
        assert!(is_answered(&mut stream).await, "question {n}");
        open.push(stream);
    }
    assert!(is_answered(&mut server.ask(ANOTHER, HOST).await).await, "an authority");
}

#[tokio::test(flavor = "multi_thread")]
async fn one_client_uses_half_the_lookups() {
    let server = Asked::start().await;
    let mut slow = Vec::new();
    for _ in 0..6 {
        slow.push(server.ask(ONE, SLOW).await);
    }
    server.until_begun(2).await;
    assert!(is_answered(&mut server.ask(ANOTHER, HOST).await).await, "an authority");
    assert_eq!(server.begun.load(Ordering::SeqCst), 2);
    server.may_end.add_permits(6);
    for stream in &mut slow {
        assert!(is_answered(stream).await, "none was refused");
    }
}
