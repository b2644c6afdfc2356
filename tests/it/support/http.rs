//! HTTP over real sockets, and limits of listeners.

use std::net::SocketAddr;
use std::time::Duration;

use axum::http::{Method, Request};
use bellwire_net::http_server::ListenerLimits;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::client::legacy::Client;
use hyper_util::rt::TokioExecutor;
use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::time::timeout;

use super::app::PATIENCE;

/// Sends a JSON request to a process, and returns the status of the response.
pub async fn request_status(to: SocketAddr, method: Method, path: &str, headers: &[(&str, &str)], body: Value) -> u16 {
    let client: Client<_, Full<Bytes>> = Client::builder(TokioExecutor::new()).build_http();
    let mut request = Request::builder().method(method).uri(format!("http://{to}{path}"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let body = if body.is_null() {
        Full::default()
    } else {
        request = request.header("content-type", "application/json");
        Full::from(body.to_string())
    };
    let response = client.request(request.body(body).expect("a request")).await.expect("an answer");
    let status = response.status().as_u16();
    response.into_body().collect().await.expect("a body");
    status
}

/// So short that a test waits for it, so long that a busy machine is not taken for a slow client.
pub const SHORT_TIMEOUT: Duration = Duration::from_millis(500);

/// Longer than any test.
pub const LONG_TIMEOUT: Duration = Duration::from_secs(3_600);

/// Limits that no test reaches.
pub const LONG_LIMITS: ListenerLimits = ListenerLimits {
    idle: LONG_TIMEOUT,
    head: LONG_TIMEOUT,
    head_max_bytes: 8_192,
    stalled: LONG_TIMEOUT,
    connections: 100,
    connections_per_client: None,
};

/// A connection from another address of this machine.
pub async fn connect_from(client: [u8; 4], server: SocketAddr) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((client, 0).into()).unwrap();
    socket.connect(server).await.expect("it listens")
}

/// Reads to the end.
pub async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut octets = Vec::new();
    timeout(PATIENCE, stream.read_to_end(&mut octets)).await.expect("it is closed").expect("it is closed in order");
    String::from_utf8(octets).unwrap()
}

/// Sends a request and returns everything up to the end of the connection.
pub async fn exchange(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(request.as_bytes()).await.unwrap();
    read_to_end(&mut stream).await
}
