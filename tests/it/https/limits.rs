//! What a client may cost that speaks TLS and HTTP/2, over real sockets.

use std::convert::Infallible;
use std::net::SocketAddr;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Uri, Version};
use axum::routing::get;
use bellwire::testkit::http_server::{Limits, serve, tls};
use h2::RecvStream;
use h2::client::SendRequest;
use http_body_util::BodyExt as _;
use hyper::Request;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::http_server::{PATIENT, SHORT};
use crate::support::app::PATIENCE;
use crate::support::https::{Authority, HOST, Http2, connect, get as ask};

struct Running {
    address: SocketAddr,
    ca: String,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
}

impl Running {
    async fn start(limits: Limits) -> Self {
        let endless = || async {
            Body::from_stream(futures_util::stream::repeat(Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 40_000]))))
        };
        let told = |uri: Uri, version: Version, headers: HeaderMap| async move {
            format!("{uri} {version:?} {}", headers["host"].to_str().unwrap())
        };
        let router = Router::new()
            .route("/ping", get(|| async { "pong" }))
            .route("/told", get(told))
            .route("/large", get(|| async { vec![b'x'; 1 << 20] }))
            .route("/endless", get(endless))
            .route("/never", get(|| async { std::future::pending::<()>().await }));
        let (authority, listener) = (Authority::new(), TcpListener::bind("127.0.0.1:0").await.unwrap());
        let pair = authority.pair();
        let (stop, stopped) = watch::channel(false);
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(serve(listener, Some(tls(&pair.chain, &pair.key)), router, limits, stopped));
        Self { address, ca: authority.pem, stop, serving }
    }

    async fn http2(&self) -> Http2 {
        Http2::connect(self.address, &self.ca).await.expect("it listens")
    }

    /// HTTP/2 without anybody who does what a good client does; and what its connection ends in.
    async fn frames(&self, window: u32) -> (SendRequest<Bytes>, JoinHandle<Result<(), h2::Error>>) {
        let stream = connect(self.address, &self.ca, &["h2"]).await.expect("it listens");
        let mut client = h2::client::Builder::new();
        let client = client.initial_window_size(window).initial_connection_window_size(1 << 24);
        let (sender, connection) = client.handshake(stream).await.unwrap();
        (sender.ready().await.unwrap(), tokio::spawn(connection))
    }
}

async fn closed(stream: &mut TcpStream) {
    let mut octets = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut octets)).await.expect("it is closed");
}

async fn begin(sender: &mut SendRequest<Bytes>, path: &str) -> RecvStream {
    let request = Request::get(format!("https://{HOST}{path}")).body(()).unwrap();
    sender.send_request(request, true).unwrap().0.await.unwrap().into_body()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_request_looks_the_same_to_handlers_and_large_responses_come_whole() {
    let server = Running::start(PATIENT).await;
    let mut client = server.http2().await;
    let told = client.get("/told?a=b").await;
    assert_eq!(told.body(), "/told?a=b HTTP/2.0 push.example.com");
    let large = client.get("/large").await;
    assert_eq!((large.body().len(), &large.headers()["content-length"]), (1 << 20, &"1048576".parse().unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handshake_that_hangs_is_given_up_and_keeps_nobody_else_out() {
    let server = Running::start(Limits { head: SHORT, connections: 4, ..PATIENT }).await;
    // Half of the connections may shake hands: both places are taken, one by somebody who stops amid the ClientHello.
    let (mut silent, mut slow) =
        (TcpStream::connect(server.address).await.unwrap(), TcpStream::connect(server.address).await.unwrap());
    slow.write_all(&[22, 3, 1, 2, 0, 1, 0]).await.unwrap();
    let mut third = TcpStream::connect(server.address).await.unwrap();
    closed(&mut third).await;
    closed(&mut silent).await;
    closed(&mut slow).await;
    assert_eq!(server.http2().await.get("/ping").await.body(), "pong");
}

#[tokio::test(flavor = "multi_thread")]
async fn those_who_have_shaken_hands_do_not_count_as_handshakes_but_as_connections() {
    let server = Running::start(Limits { connections: 3, ..PATIENT }).await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = server.http2().await;
        assert_eq!(client.get("/ping").await.body(), "pong");
        clients.push(client);
    }
    assert!(Http2::connect(server.address, &server.ca).await.is_err(), "all places are taken");
    for client in &mut clients {
        assert_eq!(client.get("/ping").await.body(), "pong");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_asks_nothing_is_closed_whatever_else_it_says_and_one_with_an_open_request_is_not() {
    let server = Running::start(Limits { idle: SHORT, ..PATIENT }).await;
    let (mut sender, ended) = server.frames(65_535).await;
    drop(begin(&mut sender, "/ping").await);
    timeout(PATIENCE, ended).await.expect("it is closed").unwrap().expect("in good order");
    let (mut busy, ended) = server.frames(65_535).await;
    let request = Request::get(format!("https://{HOST}/never")).body(()).unwrap();
    let _never = busy.send_request(request, true).unwrap();
    assert!(timeout(3 * SHORT, ended).await.is_err(), "it is still there");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_is_not_read_is_given_up_with_its_connection_once_nothing_else_is_open() {
    let server = Running::start(Limits { stalled: SHORT, ..PATIENT }).await;
    let (mut sender, connection) = server.frames(65_535).await;
    // Its window is never opened again: what is read is not given back.
    let mut stalled = begin(&mut sender, "/endless").await;
    let read = async {
        loop {
            match stalled.data().await {
                Some(Ok(_)) => {}
                end => break end.is_some(),
            }
        }
    };
    assert!(timeout(PATIENCE, read).await.expect("it is given up"), "and not as if it were whole");
    let _ = timeout(PATIENCE, connection).await.expect("the connection is closed");
    assert_eq!(server.http2().await.get("/ping").await.body(), "pong");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_that_is_read_slowly_but_steadily_comes_whole() {
    let server = Running::start(Limits { stalled: 4 * SHORT, ..PATIENT }).await;
    let (mut sender, _connection) = server.frames(65_535).await;
    let mut body = begin(&mut sender, "/large").await;
    let mut taken = 0;
    // In all it takes much longer than one part may.
    while let Some(part) = body.data().await {
        let part = part.expect("it is not given up").len();
        taken += part;
        tokio::time::sleep(SHORT / 10).await;
        body.flow_control().release_capacity(part).unwrap();
    }
    assert_eq!(taken, 1 << 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_takes_requests_back_as_fast_as_they_come_is_thrown_out() {
    let server = Running::start(PATIENT).await;
    let mut stream = connect(server.address, &server.ca, &["h2"]).await.unwrap();
    let mut octets = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0".to_vec();
    // `:method GET`, `:path /`, `:scheme https`, `:authority` empty; each taken back at once (CVE-2023-44487).
    let head = [0x82, 0x84, 0x87, 0x41, 0x01, b'x'];
    for stream in (1u32..2_000).step_by(2) {
        octets.extend([0, 0, head.len() as u8, 1, 5]);
        octets.extend(stream.to_be_bytes());
        octets.extend(head);
        octets.extend([0, 0, 4, 3, 0]);
        octets.extend(stream.to_be_bytes());
        octets.extend(8u32.to_be_bytes());
    }
    let _ = stream.write_all(&octets).await;
    let mut answer = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut answer)).await.expect("it is closed");
    // GOAWAY with ENHANCE_YOUR_CALM
    let goaway = answer.windows(9).position(|frame| frame[3] == 7 && frame[5..9] == [0; 4]).expect("a GOAWAY");
    assert_eq!(answer[goaway + 13..goaway + 17], 11u32.to_be_bytes(), "{:?}", &answer[goaway..]);
    assert_eq!(server.http2().await.get("/ping").await.body(), "pong");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_has_a_size_and_a_connection_so_many_requests() {
    let server = Running::start(PATIENT).await;
    let mut client = server.http2().await;
    let mut large = ask("/ping");
    large.headers_mut().insert("x", "x".repeat(9_000).parse().unwrap());
    assert_eq!(client.ask(large).await.status(), 431);
    assert_eq!(client.get("/ping").await.body(), "pong");
    let (sender, _connection) = server.frames(65_535).await;
    let mut sender = sender.ready().await.unwrap();
    drop(begin(&mut sender, "/ping").await);
    assert_eq!(sender.current_max_send_streams(), 100);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_answers_what_had_begun_and_waits_for_nobody_who_asks_nothing() {
    let server = Running::start(PATIENT).await;
    let (mut silent, mut busy) = (server.http2().await, server.http2().await);
    assert_eq!(silent.get("/ping").await.body(), "pong");
    // Somebody who never says that he has read the end.
    let mute = connect(server.address, &server.ca, &["h2"]).await.unwrap();
    let shaking = TcpStream::connect(server.address).await.unwrap();
    let large = busy.begin(ask("/large")).await;
    server.stop.send(true).unwrap();
    assert_eq!(large.into_body().collect().await.unwrap().to_bytes().len(), 1 << 20);
    timeout(PATIENCE, server.serving).await.expect("nobody is waited for any longer").unwrap();
    drop((mute, shaking));
}
