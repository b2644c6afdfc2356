//! Unit tests of `crates/bellwire-net/src/outbound.rs`, which includes them.

use std::sync::Arc;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::ServerConfig;
use tokio_rustls::rustls::crypto::aws_lc_rs;
use tokio_rustls::rustls::pki_types::PrivatePkcs8KeyDer;

use super::*;

const BODY_MAX_BYTES: usize = 64 << 10;
const PATIENCE: Duration = Duration::from_secs(60);

fn url(text: &str) -> Url {
    Url::parse(text).unwrap()
}

/// Starts a TLS server named `localhost` that sends `response` on each connection. Returns its URL and certificate.
async fn server(response: Vec<u8>) -> (Url, String) {
    let certified = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = PrivatePkcs8KeyDer::from(certified.signing_key.serialize_der());
    let tls = ServerConfig::builder_with_provider(Arc::new(aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certified.cert.der().clone()], key.into())
        .unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(tls));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = url(&format!("https://localhost:{}/keys?key=s3cr3t", listener.local_addr().unwrap().port()));
    tokio::spawn(async move {
        while let Ok((tcp, _)) = listener.accept().await {
            let Ok(mut tls) = acceptor.accept(tcp).await else { continue };
            let _ = tls.read(&mut [0; 4_096]).await;
            // The client may close first.
            let _ = tls.write_all(&response).await;
            let _ = tls.shutdown().await;
        }
    });
    (at, certified.cert.pem())
}

fn client(ca_pem: Option<&str>, timeout: Duration) -> OutboundClient {
    let limits = OutboundLimits { timeout, body_max_bytes: BODY_MAX_BYTES, idle_connections: 0 };
    OutboundClient::new(ca_pem.map(str::as_bytes), None, PlainHttp::ThisMachine, limits).unwrap()
}

fn get(at: &Url) -> Request<Full<Bytes>> {
    Request::get(at.as_str()).body(Full::default()).unwrap()
}

async fn exchange(at: &Url, ca_pem: Option<&str>) -> Result<Response<Bytes>, ExchangeError> {
    client(ca_pem, PATIENCE).exchange(get(at)).await
}

#[tokio::test]
async fn server_must_prove_its_name() {
    let (at, ca_pem) = server(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}".to_vec()).await;
    assert_eq!(exchange(&at, Some(&ca_pem)).await.unwrap().body(), "{}");
    let unknown = exchange(&at, None).await.unwrap_err().to_string();
    assert!(unknown.starts_with("localhost: no connection: invalid peer certificate"), "{unknown}");
    let mut by_address = at;
    by_address.set_host(Some("127.0.0.1")).unwrap();
    let misnamed = exchange(&by_address, Some(&ca_pem)).await.unwrap_err();
    assert!(matches!(misnamed.reason, ExchangeFailure::Connect(_)), "{misnamed}");
}

#[tokio::test]
async fn oversized_or_broken_response_fails() {
    let chunked = |size: usize| {
        let mut response = format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{size:x}\r\n").into_bytes();
        response.resize(response.len() + size, b' ');
        response.extend(b"\r\n0\r\n\r\n");
        response
    };
    let (at, ca_pem) = server(chunked(BODY_MAX_BYTES)).await;
    assert_eq!(exchange(&at, Some(&ca_pem)).await.unwrap().body().len(), BODY_MAX_BYTES);
    let (at, ca_pem) = server(chunked(BODY_MAX_BYTES + 1)).await;
    let reason = exchange(&at, Some(&ca_pem)).await.unwrap_err().reason;
    assert!(matches!(reason, ExchangeFailure::TooLarge { status: StatusCode::OK, max: BODY_MAX_BYTES }), "{reason}");
    let head = format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "x".repeat(HEAD_MAX_BYTES)).into_bytes();
    let (at, ca_pem) = server(head).await;
    let reason = exchange(&at, Some(&ca_pem)).await.unwrap_err().reason;
    assert!(matches!(reason, ExchangeFailure::Broken(_)), "{reason}");
    let (at, ca_pem) = server(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\n{}".to_vec()).await;
    let error = exchange(&at, Some(&ca_pem)).await.unwrap_err();
    assert!(matches!(error.reason, ExchangeFailure::Incomplete { status: StatusCode::OK, .. }), "{error}");
    assert!(!error.to_string().contains("s3cr3t"), "{error}");
}

#[tokio::test]
async fn silent_server_times_out() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let at = url(&format!("http://{}/", listener.local_addr().unwrap()));
    let exchanged = client(None, Duration::from_millis(20)).exchange(get(&at)).await;
    assert_eq!(exchanged.unwrap_err().to_string(), "127.0.0.1: no response within 0.02 s");
}

#[tokio::test]
async fn plain_http_is_refused_where_forbidden() {
    let error = exchange(&url("http://id.example.com/"), None).await.unwrap_err();
    assert!(matches!(error.reason, ExchangeFailure::Insecure), "{error}");
    let admits = |issuer: &str, to: &str| PlainHttp::like(&url(issuer)).admits(&url(to));
    assert!(admits("http://localhost:8080", "http://127.0.0.1:9090"));
    assert!(!admits("http://localhost:8080", "http://id.example.com"));
    assert!(!admits("https://id.example.com", "http://127.0.0.1:9090"), "only this server can reach it");
    assert!(PlainHttp::Anywhere.admits(&url("http://10.0.0.7:4318")));
}

#[test]
fn private_urls_are_https_or_loopback() {
    for (text, private) in [
        ("https://id.example.com", true),
        ("https://10.0.0.7:8443/realms/a", true),
        ("http://localhost:8080", true),
        ("http://127.0.0.7", true),
        ("http://[::1]:8080", true),
        ("http://id.example.com", false),
        ("http://10.0.0.7", false),
        ("http://localhost.example.com", false),
        ("ftp://localhost", false),
    ] {
        assert_eq!(is_private(&url(text)), private, "{text}");
    }
}
