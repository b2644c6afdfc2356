//! Limits per client with TLS and HTTP/2, over real sockets.

use std::convert::Infallible;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, Uri, Version};
use axum::routing::get;
use bellwire::testkit::http_server::tls;
use bellwire_net::http_server::refusal::RefusalBody;
use bellwire_net::http_server::{ListenerLimits, serve};
use h2::RecvStream;
use h2::client::SendRequest;
use http_body_util::BodyExt as _;
use hyper::Request;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use crate::support::app::PATIENCE;
use crate::support::http::{LONG_LIMITS, SHORT_TIMEOUT, connect_from};
use crate::support::https::{Authority, HOST, Http2, connect, get as ask, secure};

struct Running {
    address: SocketAddr,
    ca: String,
    stop: watch::Sender<bool>,
    serving: JoinHandle<()>,
    /// Releases the body of `/page`.
    page: Arc<Notify>,
}

impl Running {
    async fn start(limits: ListenerLimits) -> Self {
        Self::start_at(TcpListener::bind("127.0.0.1:0").await.unwrap(), limits).await
    }

    async fn start_at(listener: TcpListener, limits: ListenerLimits) -> Self {
        let page = Arc::new(Notify::new());
        let released = page.clone();
        let body_of_page = move || {
            let released = released.clone();
            let body = async move {
                released.notified().await;
                Ok::<_, Infallible>(vec![b'x'; PAGE])
            };
            std::future::ready(Body::from_stream(futures_util::stream::once(body)))
        };
        let endless = || async {
            Body::from_stream(futures_util::stream::repeat(Ok::<_, Infallible>(Bytes::from_static(&[b'x'; 40_000]))))
        };
        let told = |uri: Uri, version: Version, headers: HeaderMap| async move {
            format!("{uri} {version:?} {}", headers["host"].to_str().unwrap())
        };
        let router = Router::new()
            .route("/ping", get(|| async { "pong" }))
            .route("/told", get(told))
            .route("/page", get(body_of_page))
            .route("/large", get(|| async { vec![b'x'; 1 << 20] }))
            .route("/endless", get(endless))
            .route("/never", get(|| async { std::future::pending::<()>().await }));
        let authority = Authority::new();
        let pair = authority.pair();
        let (stop, stopped) = watch::channel(false);
        let address = listener.local_addr().unwrap();
        let serving = tokio::spawn(serve(
            listener,
            Some(tls(&pair.chain, &pair.key)),
            router,
            limits,
            RefusalBody::PLAIN,
            stopped,
        ));
        Self { address, ca: authority.pem, stop, serving, page }
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
async fn handlers_see_equal_requests_over_https() {
    let server = Running::start(LONG_LIMITS).await;
    let mut client = server.http2().await;
    let told = client.get("/told?a=b").await;
    assert_eq!(told.body(), "/told?a=b HTTP/2.0 push.example.com");
    let large = client.get("/large").await;
    assert_eq!((large.body().len(), &large.headers()["content-length"]), (1 << 20, &"1048576".parse().unwrap()));
}

#[tokio::test(flavor = "multi_thread")]
async fn hanging_handshake_times_out_or_makes_room() {
    let server = Running::start(ListenerLimits { head: SHORT_TIMEOUT, connections: 4, ..LONG_LIMITS }).await;
    // Half of the connections may shake hands: both slots are taken, one by a client that stops amid the ClientHello.
    let (mut silent, mut slow) =
        (TcpStream::connect(server.address).await.unwrap(), TcpStream::connect(server.address).await.unwrap());
    slow.write_all(&[22, 3, 1, 2, 0, 1, 0]).await.unwrap();
    assert_eq!(server.http2().await.get("/ping").await.body(), "pong");
    closed(&mut silent).await;
    closed(&mut slow).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silent_handshakes_of_few_addresses_lock_out_nobody() {
    let server =
        Running::start(ListenerLimits { connections: 40, connections_per_client: Some(8), ..LONG_LIMITS }).await;
    let mut silent = Vec::new();
    for client in 2..12 {
        for _ in 0..8 {
            silent.push(connect_from([127, 0, 0, client], server.address).await);
        }
    }
    for _ in 0..8 {
        assert_eq!(server.http2().await.get("/ping").await.body(), "pong");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn client_has_fewer_handshakes_than_connections() {
    let server = Running::start(ListenerLimits { connections_per_client: Some(8), ..LONG_LIMITS }).await;
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.push(TcpStream::connect(server.address).await.unwrap());
    }
    closed(&mut silent[2]).await;
    let mut byte = [0];
    let open = timeout(SHORT_TIMEOUT, silent[0].read(&mut byte)).await;
    assert!(open.is_err(), "the handshakes before it go on");
}

#[tokio::test(flavor = "multi_thread")]
async fn full_server_closes_longest_idle_http2_connection() {
    let server = Running::start(ListenerLimits { connections: 3, ..LONG_LIMITS }).await;
    let mut clients = Vec::new();
    for _ in 0..3 {
        let mut client = server.http2().await;
        assert_eq!(client.get("/ping").await.body(), "pong");
        clients.push(client);
    }
    assert_eq!(clients[0].get("/ping").await.body(), "pong");
    assert_eq!(server.http2().await.get("/ping").await.body(), "pong");
    let mut kept = [clients.remove(0), clients.remove(1)];
    for client in &mut kept {
        assert_eq!(client.get("/ping").await.body(), "pong", "the second one was idle longest");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_https_connection_is_closed_busy_kept() {
    let server = Running::start(ListenerLimits { idle: SHORT_TIMEOUT, ..LONG_LIMITS }).await;
    let (mut sender, ended) = server.frames(65_535).await;
    drop(begin(&mut sender, "/ping").await);
    timeout(PATIENCE, ended).await.expect("it is closed").unwrap().expect("in good order");
    let (mut busy, ended) = server.frames(65_535).await;
    let request = Request::get(format!("https://{HOST}/never")).body(()).unwrap();
    let _never = busy.send_request(request, true).unwrap();
    assert!(timeout(3 * SHORT_TIMEOUT, ended).await.is_err(), "it is still there");
}

#[tokio::test(flavor = "multi_thread")]
async fn unread_response_is_aborted() {
    let server = Running::start(ListenerLimits { stalled: SHORT_TIMEOUT, ..LONG_LIMITS }).await;
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
async fn slowly_read_response_completes() {
    let server = Running::start(ListenerLimits { stalled: 4 * SHORT_TIMEOUT, ..LONG_LIMITS }).await;
    let (mut sender, _connection) = server.frames(65_535).await;
    let mut body = begin(&mut sender, "/large").await;
    let mut taken = 0;
    // In all it takes much longer than one part may.
    while let Some(part) = body.data().await {
        let part = part.expect("it is not given up").len();
        taken += part;
        tokio::time::sleep(SHORT_TIMEOUT / 10).await;
        body.flow_control().release_capacity(part).unwrap();
    }
    assert_eq!(taken, 1 << 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn rapid_resets_are_disconnected() {
    let server = Running::start(LONG_LIMITS).await;
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
async fn head_size_and_request_count_are_limited() {
    let server = Running::start(LONG_LIMITS).await;
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

/// Octets of a page that fits into the send buffer of the system as a whole.
const PAGE: usize = 200_000;

fn listener_with_large_send_buffer() -> TcpListener {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_send_buffer_size(1 << 20).unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    socket.listen(16).unwrap()
}

/// The end of the page is in the send buffer of the system when the server has nothing left to do. Then a client that reads
/// slowly sends a WINDOW_UPDATE. If the server had closed the connection, the reply would be a reset, which discards the buffer.
#[tokio::test(flavor = "multi_thread")]
async fn slow_client_gets_its_response_after_shutdown() {
    let mut server = Running::start_at(listener_with_large_send_buffer(), LONG_LIMITS).await;
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4_096).unwrap();
    let stream = secure(socket.connect(server.address).await.unwrap(), &server.ca, &["h2"]).await.unwrap();
    let window = u32::try_from(PAGE).unwrap();
    let mut client = h2::client::Builder::new();
    let client = client.initial_window_size(window).initial_connection_window_size(window);
    let (mut sender, mut connection) = client.handshake::<_, Bytes>(stream).await.unwrap();
    let request = Request::get(format!("https://{HOST}/page")).body(()).unwrap();
    let (response, _) = sender.send_request(request, true).unwrap();
    let response = tokio::select! {
        ended = &mut connection => panic!("{ended:?}"),
        response = response => response.unwrap(),
    };
    server.stop.send(true).unwrap();
    let said_goodbye = poll_fn(|cx| match Pin::new(&mut connection).poll(cx) {
        Poll::Ready(ended) => panic!("{ended:?}"),
        Poll::Pending => match sender.poll_ready(cx) {
            Poll::Ready(Err(_)) => Poll::Ready(()),
            _ => Poll::Pending,
        },
    });
    timeout(PATIENCE, said_goodbye).await.expect("a GOAWAY");
    server.page.notify_one();
    let closed = timeout(SHORT_TIMEOUT, &mut server.serving).await;
    let (mut body, mut octets, mut is_over) = (response.into_body(), 0, false);
    loop {
        let data = tokio::select! {
            biased;
            data = body.data() => data,
            ended = &mut connection, if !is_over => {
                ended.expect("the connection is not reset");
                is_over = true;
                continue;
            }
        };
        let Some(data) = data else { break };
        let n = data.expect("the connection is not reset").len();
        body.flow_control().release_capacity(n).unwrap();
        octets += n;
    }
    assert_eq!(octets, PAGE);
    assert!(closed.is_err(), "the server waits for the client");
    drop((connection, sender));
    timeout(PATIENCE, server.serving).await.expect("the client has disconnected").unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn shutdown_completes_requests_and_drops_idle() {
    let server = Running::start(LONG_LIMITS).await;
    let (mut silent, mut busy) = (server.http2().await, server.http2().await);
    assert_eq!(silent.get("/ping").await.body(), "pong");
    // A client that never acknowledges the end.
    let mute = connect(server.address, &server.ca, &["h2"]).await.unwrap();
    let shaking = TcpStream::connect(server.address).await.unwrap();
    let large = busy.begin(ask("/large")).await;
    server.stop.send(true).unwrap();
    assert_eq!(large.into_body().collect().await.unwrap().to_bytes().len(), 1 << 20);
    timeout(PATIENCE, server.serving).await.expect("nobody is waited for any longer").unwrap();
    drop((mute, shaking));
}
