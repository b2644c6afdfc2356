//! A gateway without HTTP/2.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use bellwire_gateway::{GatewayConfig, Gateways, Streams};
use bellwire_rules::classify::Failure;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;

use super::server::Server;
use super::{HOST, burst, post, statuses};

/// Reads one request of the six octets "sealed". `None` at the end of the connection.
async fn read_request(tls: &mut TlsStream<TcpStream>) -> Option<String> {
    let mut read = Vec::new();
    while !read.ends_with(b"\r\n\r\nsealed") {
        read.push(tls.read_u8().await.ok()?);
    }
    Some(String::from_utf8(read).unwrap())
}

async fn write(tls: &mut TlsStream<TcpStream>, text: &str) {
    // A client that has given up is not the server's failure.
    let _ = tls.write_all(text.as_bytes()).await;
    let _ = tls.flush().await;
}

#[tokio::test]
async fn sequential_requests_share_one_connection() {
    let heads = Arc::new(Mutex::new(Vec::new()));
    let seen = heads.clone();
    let server = Server::start("http/1.1", move |_, mut tls| {
        let seen = seen.clone();
        async move {
            while let Some(request) = read_request(&mut tls).await {
                seen.lock().unwrap().push(request);
                write(&mut tls, "HTTP/1.1 201 Created\r\nlocation: /m/1\r\ncontent-length: 2\r\n\r\nok").await;
            }
        }
    })
    .await;
    let gateways = server.gateways();
    for path in ["/w/?token=a%2bb%2F=", "/a//b/../c?x={y}|z^`\\'"] {
        let reply = gateways.post(post(path)).await.unwrap();
        assert_eq!(
            (reply.status, &reply.body[..], &reply.headers["location"]),
            (201, &b"ok"[..], &"/m/1".parse().unwrap())
        );
    }
    assert_eq!(server.accepted(), 1);
    assert_eq!(
        heads.lock().unwrap()[0],
        "POST /w/?token=a%2bb%2F= HTTP/1.1\r\nauthorization: vapid t=a.b.c, k=BA1\r\nttl: 60\r\nurgency: normal\r\n\
         content-encoding: aes128gcm\r\ncontent-type: application/octet-stream\r\ncontent-length: 6\r\n\
         host: push.example.net\r\n\r\nsealed"
    );
    assert!(heads.lock().unwrap()[1].starts_with("POST /a//b/../c?x={y}|z^`\\' HTTP/1.1\r\n"));
}

#[tokio::test]
async fn many_requests_share_a_few_connections() {
    let server = Server::start("http/1.1", |_, mut tls| async move {
        while read_request(&mut tls).await.is_some() {
            write(&mut tls, "HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n").await;
        }
    })
    .await;
    let gateways = server.gateways();
    assert_eq!(statuses(burst(&gateways, 100).await), vec![Ok(201); 100]);
    assert!((1..=32).contains(&server.accepted()), "{}", server.accepted());
}

#[tokio::test]
async fn connections_grow_while_all_are_busy() {
    let all_there = Arc::new(tokio::sync::Barrier::new(20));
    let server = Server::start("http/1.1", move |_, mut tls| {
        let all_there = all_there.clone();
        async move {
            while read_request(&mut tls).await.is_some() {
                all_there.wait().await; // 20 at once need as many connections
                write(&mut tls, "HTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n").await;
            }
        }
    })
    .await;
    let gateways = Gateways::new(GatewayConfig { http1_connections_per_origin: 20, ..server.settings() }).unwrap();
    assert_eq!(gateways.streams(HOST), Streams::NONE);
    assert_eq!(statuses(burst(&gateways, 40).await), vec![Ok(201); 40]);
    assert_eq!(server.accepted(), 20);
    assert_eq!(gateways.streams(HOST), Streams { open: 20, further: 0 });
}

#[tokio::test]
async fn endless_body_is_cut_and_connection_dropped() {
    let server = Server::start("http/1.1", |_, mut tls| async move {
        read_request(&mut tls).await;
        write(&mut tls, "HTTP/1.1 403 Forbidden\r\n\r\n").await;
        while tls.write_all(&[b'x'; 1000]).await.is_ok() {}
    })
    .await;
    let gateways = server.gateways();
    for accepted in 1..=2 {
        let reply = gateways.post(post("/")).await.unwrap();
        assert_eq!((reply.status, reply.body.len()), (403, 4096));
        assert_eq!(server.accepted(), accepted);
    }
}

#[tokio::test]
async fn failure_after_request_is_not_unprocessed() {
    let server = Server::start("http/1.1", |number, mut tls| async move {
        read_request(&mut tls).await;
        if number == 1 {
            write(&mut tls, "SSH-2.0-nonsense\r\n\r\n").await;
        }
    })
    .await;
    assert_eq!(server.gateways().post(post("/")).await.unwrap_err(), Failure::Reset);
    assert_eq!(server.gateways().post(post("/")).await.unwrap_err(), Failure::Protocol);
    assert_eq!(server.accepted.load(Ordering::SeqCst), 2);
}
