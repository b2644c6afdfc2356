//! HTTP/2 frame by frame (RFC 9113 section 4), for what no well-behaved library does.

use std::sync::Arc;

use bellwire_gateway::{GatewayConfig, Gateways, Streams};
use bellwire_rules::classify::Failure;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::server::Server;
use super::{HOST, burst, post, statuses};

const HEADERS: u8 = 1;
const SETTINGS: u8 = 4;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const ACK: u8 = 1;
const END_STREAM_AND_HEADERS: u8 = 5;
/// `:status: 200` in HPACK's static table.
const OK: &[u8] = &[0x88];

struct Frames(TlsStream<TcpStream>);

impl Frames {
    /// Reads the client's preface and announces how many streams it may open.
    async fn open(mut tls: TlsStream<TcpStream>, streams: u32) -> Self {
        let mut preface = [0; 24];
        tls.read_exact(&mut preface).await.unwrap();
        assert_eq!(&preface, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
        let mut frames = Self(tls);
        frames.allow(streams).await;
        frames
    }

    async fn allow(&mut self, streams: u32) {
        let setting = [&[0, 3], &streams.to_be_bytes()[..]].concat();
        self.write(SETTINGS, 0, 0, &setting).await;
    }

    async fn write(&mut self, kind: u8, flags: u8, stream: u32, payload: &[u8]) {
        let length = u32::try_from(payload.len()).unwrap().to_be_bytes();
        let frame = [&length[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat();
        self.0.write_all(&frame).await.unwrap();
        self.0.flush().await.unwrap();
    }

    /// The next frame's kind, flags and stream. `None` at the end of the connection.
    async fn read(&mut self) -> Option<(u8, u8, u32)> {
        let mut head = [0; 9];
        self.0.read_exact(&mut head).await.ok()?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; length as usize];
        self.0.read_exact(&mut payload).await.ok()?;
        Some((head[3], head[4], u32::from_be_bytes([head[5], head[6], head[7], head[8]])))
    }

    async fn opened_until(&mut self, until: impl Fn(u8, u8, usize) -> bool) -> Vec<u32> {
        let mut opened = Vec::new();
        while let Some((kind, flags, stream)) = self.read().await {
            if kind == HEADERS {
                opened.push(stream);
            }
            if until(kind, flags, opened.len()) {
                break;
            }
        }
        opened
    }

    /// Streams opened before the client answers a PING: all that it had to send before it saw it.
    async fn opened_before_pong(&mut self) -> Vec<u32> {
        self.write(PING, 0, 0, b"are you?").await;
        self.opened_until(|kind, flags, _| (kind, flags) == (PING, ACK)).await
    }

    async fn answer(&mut self, stream: u32) {
        self.write(HEADERS, END_STREAM_AND_HEADERS, stream, OK).await;
    }

    async fn say_goodbye(&mut self, last_stream: u32) {
        let no_error = [last_stream.to_be_bytes(), [0; 4]].concat();
        self.write(GOAWAY, 0, 0, &no_error).await;
    }
}

#[tokio::test]
async fn streams_above_goaway_last_id_are_unprocessed() {
    let server = Server::start("h2", |number, tls| async move {
        let mut frames = Frames::open(tls, 100).await;
        if number == 0 {
            let opened = frames.opened_until(|_, _, opened| opened == 3).await;
            assert_eq!(opened, [1, 3, 5]);
            frames.say_goodbye(1).await;
            frames.answer(1).await;
        }
        while let Some((kind, _, stream)) = frames.read().await {
            if kind == HEADERS {
                frames.answer(stream).await;
            }
        }
    })
    .await;
    let gateways = Gateways::new(GatewayConfig { connections_per_origin: 1, ..server.settings() }).unwrap();
    // The first to be begun has the lowest stream.
    assert_eq!(statuses(burst(&gateways, 3).await), [Ok(200), Err(Failure::Unprocessed), Err(Failure::Unprocessed)]);
    assert_eq!(gateways.post(post("/")).await.unwrap().status, 200);
    assert_eq!(server.accepted(), 2);
}

#[tokio::test]
async fn changed_stream_limit_is_followed() {
    let server = Server::start("h2", |_, tls| async move {
        let mut frames = Frames::open(tls, 4).await;
        let mut open = frames.opened_until(|_, _, opened| opened == 4).await;
        for stream in open.drain(..) {
            frames.allow(1).await;
            frames.answer(stream).await;
        }
        for _ in 0..10 {
            while open.is_empty() {
                open = frames.opened_before_pong().await;
            }
            assert_eq!(open.len(), 1);
            frames.answer(open.remove(0)).await;
        }
        frames.allow(6).await;
        let opened = frames.opened_until(|_, _, opened| opened == 6).await;
        for stream in opened {
            frames.answer(stream).await;
        }
        while frames.read().await.is_some() {}
    })
    .await;
    let gateways = Gateways::new(GatewayConfig { connections_per_origin: 1, ..server.settings() }).unwrap();
    assert_eq!(statuses(burst(&gateways, 20).await), vec![Ok(200); 20]);
}

#[tokio::test]
async fn changed_settings_change_the_streams() {
    let (allow, mut allowed) = tokio::sync::mpsc::unbounded_channel::<u32>();
    let allowed = Arc::new(tokio::sync::Mutex::new(Some(async move || allowed.recv().await)));
    let server = Server::start("h2", move |_, tls| {
        let allowed = allowed.clone();
        async move {
            let mut frames = Frames::open(tls, 4).await;
            let first = frames.opened_until(|_, _, opened| opened == 1).await;
            frames.answer(first[0]).await;
            let mut next = allowed.lock().await.take().expect("one connection");
            while let Some(streams) = next().await {
                frames.allow(streams).await;
            }
        }
    })
    .await;
    let gateways = Gateways::new(GatewayConfig { connections_per_origin: 1, ..server.settings() }).unwrap();
    let (changed, mut changes) = tokio::sync::mpsc::unbounded_channel();
    gateways.on_streams(move |authority| changed.send(authority.clone()).unwrap());
    assert_eq!(gateways.streams(HOST).most(), 1, "a request opens the first connection");
    assert_eq!(gateways.post(post("/")).await.unwrap().status, 200);
    for (open, most) in [(4, 4), (1, 1), (0, 1), (9, 9)] {
        allow.send(open).unwrap();
        let expected = Streams { open, further: 0 };
        while gateways.streams(HOST) != expected {
            assert_eq!(changes.recv().await.as_deref(), Some(HOST));
        }
        assert_eq!(gateways.streams(HOST).most(), most);
    }
}

#[tokio::test]
async fn nothing_is_sent_before_peer_settings() {
    let server = Server::start("h2", |_, mut tls| async move {
        let mut sent = vec![0; 24 + 9];
        tls.read_exact(&mut sent).await.unwrap(); // preface and the head of the client's SETTINGS
        assert_eq!(sent[24 + 3], SETTINGS);
        tls.shutdown().await.unwrap();
    })
    .await;
    let reply = server.gateways().post(post("/")).await;
    assert!(matches!(reply, Err(Failure::Reset | Failure::Connect)), "{reply:?}");
}

#[tokio::test]
async fn peer_without_http2_is_a_protocol_failure() {
    let server = Server::start("h2", |_, mut tls| async move {
        tls.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").await.unwrap();
        tls.flush().await.unwrap();
        let mut rest = Vec::new();
        let _ = tls.read_to_end(&mut rest).await;
    })
    .await;
    assert_eq!(server.gateways().post(post("/")).await.unwrap_err(), Failure::Protocol);
}
