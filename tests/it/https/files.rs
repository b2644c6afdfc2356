//! A certificate in files: what browsers get, what they are told, and that it is read again when it changes.

use serde_json::Value;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::support::app::PATIENCE;
use crate::support::https::{Authority, HOST, Http2, Pair, connect};
use crate::support::{Server, TempDir, TestApp};

const GET: &str = "GET /healthz HTTP/1.1\r\nHost: push.example.com\r\nConnection: close\r\n\r\n";

/// Sends a request and returns everything up to the end of the connection.
async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut octets = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut octets)).await.expect("it is closed").expect("in order");
    String::from_utf8(octets).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn https_serves_both_protocols_and_redirects() {
    let (app, dir, authority) = (TestApp::start().await, TempDir::new(), Authority::new());
    let (chain, key) = (dir.path().join("chain.pem"), dir.path().join("key.pem"));
    authority.pair().write(&chain, &key);
    let args = ["--tls-cert", chain.to_str().unwrap(), "--tls-key", key.to_str().unwrap(), "--roles", "api"];
    let more = ["--redirect-listen", "127.0.0.1:0", "--public-url", "https://push.example.com", "--hsts-max-age", "1d"];
    let mut server = Server::with(&app, &[&args[..], &more].concat()).await;
    let redirects: Value = serde_json::from_str(&server.until_said("sent on to HTTPS").await).unwrap();

    let mut http2 = Http2::connect(server.address, &authority.pem).await.unwrap();
    let answer = http2.get("/healthz").await;
    assert_eq!(answer.status(), 200);
    assert_eq!(answer.headers()["strict-transport-security"], "max-age=86400");
    let by_http1 = connect(server.address, &authority.pem, &["http/1.1"]).await.unwrap();
    let answer = exchange(by_http1, GET).await;
    assert!(
        answer.starts_with("HTTP/1.1 200") && answer.contains("strict-transport-security: max-age=86400"),
        "{answer}"
    );
    let by_none = connect(server.address, &authority.pem, &[]).await.unwrap();
    assert!(exchange(by_none, GET).await.starts_with("HTTP/1.1 200"), "who offers no protocol speaks HTTP/1.1");
    assert!(connect(server.address, &authority.pem, &["spdy/3"]).await.is_err(), "nothing in common");
    let plain = TcpStream::connect(server.address).await.unwrap();
    let answer = exchange(plain, GET).await;
    assert!(answer.starts_with("HTTP/1.1 400") && answer.ends_with("Ask by https://.\r\n"), "{answer}");

    let redirects = redirects["address"].as_str().unwrap();
    let sent = exchange(TcpStream::connect(redirects).await.unwrap(), &GET.replace("/healthz", "/admin/?a=b")).await;
    assert!(
        sent.starts_with("HTTP/1.1 308") && sent.contains("location: https://push.example.com/admin/?a=b\r\n"),
        "{sent}"
    );
    assert!(!sent.contains("strict-transport-security"), "{sent}");
    server.terminate();
    assert!(server.end(PATIENCE).await.success());
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn valid_new_certificate_is_adopted_live() {
    let (app, dir) = (TestApp::start().await, TempDir::new());
    let (before, after) = (Authority::new(), Authority::new());
    let (chain, key) = (dir.path().join("chain.pem"), dir.path().join("key.pem"));
    before.pair().write(&chain, &key);
    let args = ["--tls-cert", chain.to_str().unwrap(), "--tls-key", key.to_str().unwrap(), "--roles", "api"];
    let mut server = Server::with(&app, &args).await;
    let mut standing = Http2::connect(server.address, &before.pem).await.unwrap();
    assert_eq!(standing.get("/healthz").await.status(), 200);

    // A certificate that does not fit the key.
    let (one, other) = (after.pair(), after.pair());
    Pair { chain: one.chain, key: other.key.clone() }.write(&chain, &key);
    let warning = server.until_said("the one before stays").await;
    assert!(warning.contains("do not match") && warning.contains("chain.pem"), "{warning}");
    assert!(!warning.contains("PRIVATE"), "{warning}");
    assert!(
        Http2::connect(server.address, &before.pem).await.is_ok()
            && Http2::connect(server.address, &after.pem).await.is_err()
    );

    other.write(&chain, &key);
    server.until_said("a certificate is shown").await;
    let mut new = Http2::connect(server.address, &after.pem).await.expect("the new one is shown");
    assert_eq!(new.get("/healthz").await.status(), 200);
    assert!(Http2::connect(server.address, &before.pem).await.is_err(), "{HOST} has another certificate");
    assert_eq!(standing.get("/healthz").await.status(), 200, "what stood goes on");
    server.terminate();
    assert!(server.end(PATIENCE).await.success());
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn public_listener_without_tls_warns() {
    let (app, dir, authority) = (TestApp::start().await, TempDir::new(), Authority::new());
    let (chain, key) = (dir.path().join("chain.pem"), dir.path().join("key.pem"));
    authority.pair().write(&chain, &key);
    let tls = ["--tls-cert", chain.to_str().unwrap(), "--tls-key", key.to_str().unwrap()];
    for (args, is_warned) in [
        (vec!["--listen", "0.0.0.0:0"], true),
        (vec!["--listen", "0.0.0.0:0", "--trusted-proxies", "1"], false),
        ([&["--listen", "0.0.0.0:0"], &tls[..]].concat(), false),
        (vec![], false),
    ] {
        let mut server = Server::with(&app, &[&["--roles", "api"], &args[..]].concat()).await;
        server.terminate();
        let log = server.rest_of_log().await;
        assert_eq!(log.contains("without TLS"), is_warned, "{args:?}\n{log}");
    }
    app.finish().await;
}
