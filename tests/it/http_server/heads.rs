//! Heads that the server refuses, and the responses to them.

use std::net::SocketAddr;

use axum::routing::{get, post};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{PING, Running, pong};
use crate::support::app::PATIENCE;
use crate::support::http::{LONG_LIMITS, exchange, read_to_end};
use bellwire_net::http_server::ListenerLimits;

#[tokio::test]
async fn size_of_heads_is_limited() {
    let server = Running::start(pong(), LONG_LIMITS).await;
    let mut stream = server.connect().await;
    let head = format!("GET /ping HTTP/1.1\r\nHost: x\r\nX: {}", "x".repeat(8_192));
    stream.write_all(&head.as_bytes()[..8_192]).await.unwrap();
    assert_refused(&read_to_end(&mut stream).await, 431, "The head of the request exceeds 8192 octets");
}

fn assert_refused(response: &str, status: u16, reason: &str) {
    let (head, body) = response.split_once("\r\n\r\n").expect("a head");
    assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{response}");
    assert!(head.contains("content-type: text/plain"), "{response}");
    assert!(head.contains(&format!("content-length: {}", body.len())), "{response}");
    assert!(body.starts_with(&format!("{status}: {reason}")), "{response}");
}

#[tokio::test]
async fn refusals_without_the_router_have_a_body() {
    let server = Running::start(pong(), ListenerLimits { head_max_bytes: 128 << 10, ..LONG_LIMITS }).await;
    let large = format!("GET /ping HTTP/1.1\r\nHost: x\r\nX: {}\r\n\r\n", "x".repeat(512 << 10));
    let long = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "x".repeat(70_000));
    let cases = [
        (large.as_str(), 431, "The head of the request exceeds 131072 octets"),
        (long.as_str(), 414, "The path and the query"),
        ("GET /ping HTTP/1.1\r\nHost : x\r\n\r\n", 400, "The request line or a header is malformed"),
        ("GET /ping FTP/1.1\r\nHost: x\r\n\r\n", 400, "The request line or a header is malformed"),
        ("GET /ping HTTP/1.1\r\n\r\n", 400, "The header Host is missing"),
    ];
    for (request, status, reason) in cases {
        let mut stream = server.connect().await;
        // The server may respond and close before it has read everything.
        let _ = stream.write_all(request.as_bytes()).await;
        assert_refused(&read_to_end(&mut stream).await, status, reason);
        // After a response that is complete, too.
        let (mut stream, _) = server.ask(PING).await;
        let _ = stream.write_all(request.as_bytes()).await;
        assert_refused(&read_to_end(&mut stream).await, status, reason);
    }
    let full = Running::start(pong(), ListenerLimits { connections: 0, ..LONG_LIMITS }).await;
    assert_refused(
        &read_to_end(&mut full.connect().await).await,
        503,
        "The server has the maximum number of connections",
    );
}

/// A body may look like a response of the HTTP library.
#[tokio::test]
async fn responses_of_the_router_are_not_replaced() {
    let alike = "HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
    let router = pong().route("/alike", get(move || async move { alike }));
    let server = Running::start(router, LONG_LIMITS).await;
    let response = exchange(server.address, "GET /alike HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").await;
    assert!(response.starts_with("HTTP/1.1 200") && response.ends_with(alike), "{response}");
}

/// Statuses of all answers on a connection, which ends behind the last of them.
async fn statuses(address: SocketAddr, request: &str, piece: usize) -> Vec<u16> {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    for octets in request.as_bytes().chunks(piece) {
        if stream.write_all(octets).await.is_err() {
            break;
        }
        tokio::task::yield_now().await;
    }
    let mut octets = Vec::new();
    let _ = timeout(PATIENCE, stream.read_to_end(&mut octets)).await.expect("it is closed");
    let text = String::from_utf8_lossy(&octets);
    text.match_indices("HTTP/1.").map(|(at, _)| text[at + 9..at + 12].parse().unwrap()).collect()
}

#[tokio::test]
async fn ambiguous_heads_are_rejected_with_400() {
    let router = pong().route("/echo", post(|body: axum::body::Bytes| async move { body }));
    let server = Running::start(router, LONG_LIMITS).await;
    let get = |head: &str| format!("GET /ping HTTP/1.1\r\n{head}\r\n");
    let chunked = |coding: &str| {
        format!("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: {coding}\r\n\r\n2\r\nok\r\n0\r\n\r\n")
    };
    let close = "GET /ping HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    let sized = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\n\na\n\n";
    let bare = "GET /ping HTTP/1.1\nHost: x\n\n";
    let rejected = [
        get(""),
        get("Host: x\r\nHost: y\r\n"),
        get("Host: x\r\nhost: x\r\n"),
        get("Host:\r\n"),
        get("Host: a b\r\n"),
        get("Host: a, b\r\n"),
        get("Host: user@x\r\n"),
        get("Host: http://x\r\n"),
        get("Host: x/y\r\n"),
        get("Host: x:http\r\n"),
        get("Host: x:99999\r\n"),
        get("Host: [::1\r\n"),
        get("Host: \u{e4}\r\n"),
        chunked("chunked, chunked"),
        chunked("chunked\r\nTransfer-Encoding: chunked"),
        chunked("gzip, chunked"),
        chunked("identity, chunked"),
        chunked(", chunked"),
        chunked("xchunked"),
        bare.to_owned(),
        get("Host: x\n"),
        "GET /ping HTTP/1.1\nHost: x\r\n\r\n".to_owned(),
        "GET /ping HTTP/1.1\r\nHost: x\r\n\n".to_owned(),
        format!("\n{close}"),
    ];
    for request in rejected {
        for piece in [1, 7, 10_000] {
            assert_eq!(statuses(server.address, &request, piece).await, [400], "{request:?} in pieces of {piece}");
            let pipelined = format!("{PING}{sized}{request}{close}");
            let answers = statuses(server.address, &pipelined, piece).await;
            assert_eq!(answers, [200, 200, 400], "{pipelined:?} in pieces of {piece}");
        }
    }
    let accepted = [
        format!("{PING}{PING}{sized}{close}"),
        format!("\r\n{PING}\r\n{PING}{PING}{close}"),
        format!("{0}{0}{0}{close}", get("Host: x.example:\r\n")),
        format!("{0}{0}{0}{close}", get("Host: [::1]:8080\r\n")),
        format!("{0}{0}{0}{close}", "GET http://x/ping HTTP/1.1\r\nHost: x\r\n\r\n"),
        format!("{sized}{sized}{sized}{close}"),
    ];
    for request in accepted {
        for piece in [1, 7, 10_000] {
            assert_eq!(statuses(server.address, &request, piece).await, [200; 4], "{request:?} in pieces of {piece}");
        }
    }
    // A proxy that forwards what follows a chunked body has not checked it: that body is the last of its connection.
    for last in [chunked("chunked"), chunked("Chunked"), "GET /ping HTTP/1.0\r\n\r\n".to_owned()] {
        assert_eq!(statuses(server.address, &format!("{last}{bare}"), 10_000).await, [200], "{last:?}");
    }
}
