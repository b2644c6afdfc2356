//! Asks a server how it is.

use std::io;
use std::net::SocketAddr;

use axum::body::Body;
use axum::http::{Request, StatusCode, header};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;

/// Asks the server at that address for a path, on a connection of its own, and returns the status of its answer. Waits for as long as
/// it takes; an error means that it cannot be reached or hung up.
pub(crate) async fn status(address: SocketAddr, path: &str) -> io::Result<StatusCode> {
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
        // What it said before it hung up may be there.
        _ = connection => answer.await,
    }
    .map_err(io::Error::other)
}
