//! Health request to a server.

use std::io;
use std::net::SocketAddr;

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Requests a path over a new connection and returns the status. There is no timeout. An error means that the server is
/// unreachable or closed the connection.
pub async fn status(address: SocketAddr, path: &str) -> io::Result<StatusCode> {
    let stream = TcpStream::connect(address).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    let request = Request::get(path)
        .header(header::HOST, address.to_string())
        .header(header::CONNECTION, "close")
        .body(Body::empty())
        .map_err(io::Error::other)?;
    let answer = async { sender.send_request(request).await.map(|answer| answer.status()) };
    tokio::pin!(answer);
    tokio::select! {
        biased;
        status = &mut answer => status,
        // The response may have arrived before the end of the connection.
        _ = connection => answer.await,
    }
    .map_err(io::Error::other)
}
