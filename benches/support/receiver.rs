//! Webhook receivers: TLS and HTTP/2 servers in the benchmark's process, whose CPU time is not counted.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use h2::RecvStream;
use h2::server::SendResponse;
use http::{Request, Response, StatusCode};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

/// Behaviour of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// It answers at once.
    Takes,
    /// It never answers.
    Hangs,
}

/// A receiver that runs until the runtime ends.
pub struct Receiver {
    pub host: &'static str,
    pub address: SocketAddr,
    pub ca_pem: String,
    requests: Arc<AtomicU64>,
}

impl Receiver {
    pub async fn start(host: &'static str, manner: Manner) -> Self {
        let certified = rcgen::generate_simple_self_signed([host.to_owned()]).expect("a certificate");
        let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
        let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
            .with_safe_default_protocol_versions()
            .and_then(|builder| {
                builder.with_no_client_auth().with_single_cert(vec![certified.cert.der().clone()], key.into())
            })
            .expect("a server configuration");
        config.alpn_protocols = vec![b"h2".to_vec()];
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("bound");
        let requests = Arc::new(AtomicU64::new(0));
        let (acceptor, counted) = (TlsAcceptor::from(Arc::new(config)), requests.clone());
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                tokio::spawn(serve(acceptor.clone(), tcp, manner, counted.clone()));
            }
        });
        Self { host, address, ca_pem: certified.cert.pem(), requests }
    }

    /// Requests so far.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }
}

async fn serve(acceptor: TlsAcceptor, tcp: TcpStream, manner: Manner, requests: Arc<AtomicU64>) -> Option<()> {
    let tls = acceptor.accept(tcp).await.ok()?;
    let mut connection = h2::server::handshake(tls).await.ok()?;
    while let Some(Ok((request, respond))) = connection.accept().await {
        requests.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(take(request, respond, manner));
    }
    Some(())
}

async fn take(request: Request<RecvStream>, mut respond: SendResponse<Bytes>, manner: Manner) -> Option<()> {
    let mut body = request.into_body();
    while let Some(Ok(chunk)) = body.data().await {
        body.flow_control().release_capacity(chunk.len()).ok()?;
    }
    if manner == Manner::Hangs {
        std::future::pending::<()>().await;
    }
    let mut answer = Response::new(());
    *answer.status_mut() = StatusCode::NO_CONTENT;
    respond.send_response(answer, true).ok().map(drop)
}
