//! TLS servers with scripted behaviour.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bellwire_gateway::{GatewayConfig, Gateways};
use bytes::Bytes;
use h2::RecvStream;
use h2::server::{Builder, SendResponse};
use http::{Request, Response};
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;
use tokio_rustls::server::TlsStream;

use super::{HOST, settings};

/// A listening server; it lives as long as the test's runtime.
pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) ca_pem: String,
    pub(super) accepted: Arc<AtomicUsize>,
    pub(super) ended: Arc<AtomicUsize>,
}

impl Server {
    /// Hands every connection, with its number from 0, to `script`.
    pub(super) async fn start<F: Future<Output = ()> + Send + 'static>(
        alpn: &'static str, script: impl Fn(usize, TlsStream<TcpStream>) -> F + Clone + Send + Sync + 'static,
    ) -> Self {
        let (ca_pem, acceptor) = acceptor(alpn);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (accepted, ended) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let server = Self { address, ca_pem, accepted: accepted.clone(), ended: ended.clone() };
        tokio::spawn(async move {
            while let Ok((tcp, _)) = listener.accept().await {
                let _ = tcp.set_nodelay(true);
                let number = accepted.fetch_add(1, Ordering::SeqCst);
                let (acceptor, script, ended) = (acceptor.clone(), script.clone(), ended.clone());
                tokio::spawn(async move {
                    if let Ok(tls) = acceptor.accept(tcp).await {
                        script(number, tls).await;
                    }
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        server
    }

    /// Speaks HTTP/2 and hands every request to `answer`, in a task of its own.
    pub(super) async fn http2<F: Future<Output = ()> + Send + 'static>(
        builder: Builder,
        answer: impl Fn(Request<RecvStream>, SendResponse<Bytes>) -> F + Clone + Send + Sync + 'static,
    ) -> Self {
        Self::start("h2", move |_, tls| {
            let (builder, answer) = (builder.clone(), answer.clone());
            async move {
                let Ok(mut connection) = builder.handshake(tls).await else { return };
                while let Some(Ok((request, respond))) = connection.accept().await {
                    tokio::spawn(answer(request, respond));
                }
            }
        })
        .await
    }

    pub(super) fn settings(&self) -> GatewayConfig {
        settings(self.address, &self.ca_pem)
    }

    pub(super) fn gateways(&self) -> Gateways {
        Gateways::new(self.settings()).unwrap()
    }

    pub(super) fn accepted(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }

    pub(super) fn ended(&self) -> usize {
        self.ended.load(Ordering::SeqCst)
    }
}

pub(super) fn answer(respond: &mut SendResponse<Bytes>, status: u16) {
    // A client that has given up is not the server's failure.
    let _ = respond.send_response(Response::builder().status(status).body(()).unwrap(), true);
}

pub(super) async fn read(request: Request<RecvStream>) -> Vec<u8> {
    let mut body = request.into_body();
    let mut octets = Vec::new();
    while let Some(Ok(chunk)) = body.data().await {
        body.flow_control().release_capacity(chunk.len()).unwrap();
        octets.extend_from_slice(&chunk);
    }
    octets
}

fn acceptor(alpn: &str) -> (String, TlsAcceptor) {
    let names = [HOST.to_owned(), format!("*.{HOST}")];
    let certified = rcgen::generate_simple_self_signed(names).unwrap();
    let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let mut config = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key.into())
        .unwrap();
    config.alpn_protocols = vec![alpn.into()];
    (certified.cert.pem(), Arc::new(config).into())
}
