//! HTTP/1.1 for gateways without HTTP/2, with one request at a time on a persistent connection.

use bytes::{Bytes, BytesMut};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout_at};
use tokio_rustls::client::TlsStream;

use super::driver::{ConnectionEvents, Driver, NoReply};
use super::request::{self, Outgoing};
use super::{BODY_MAX, Reply};
use bellwire_rules::classify::Failure;

/// Maximum octets of the head of a response.
const HEAD_MAX: usize = 16 << 10;

/// A connection. `sender` is empty during a request, and after the last one.
pub(super) struct Http1 {
    sender: Mutex<Option<SendRequest<Full<Bytes>>>>,
}

impl Http1 {
    pub(super) async fn open(tls: TlsStream<TcpStream>) -> Result<(Self, Driver), Failure> {
        let (sender, connection) = http1::Builder::new()
            .max_buf_size(HEAD_MAX)
            .handshake(TokioIo::new(tls))
            .await
            .map_err(|_| Failure::Connect)?;
        // The request in flight receives the error of the connection.
        let driver = async { drop(connection.await) };
        Ok((Self { sender: Mutex::new(Some(sender)) }, Box::pin(driver)))
    }

    pub(super) async fn exchange(
        &self, post: &impl Outgoing, progress: &ConnectionEvents, deadline: Instant,
    ) -> Result<Reply, NoReply> {
        let request =
            request::http1(post, Full::new(post.body().clone())).ok_or(NoReply::Failed(Failure::Forbidden))?;
        let mut sender = self.sender.lock().take().ok_or(NoReply::NotSent)?;
        let head = async {
            sender.ready().await.map_err(|_| NoReply::NotSent)?;
            progress.sent();
            sender.try_send_request(request).await.map_err(|why| match why.message() {
                Some(_) => NoReply::NotSent,
                None if why.error().is_parse() => NoReply::Failed(Failure::Protocol),
                None => NoReply::Failed(Failure::Reset),
            })
        };
        let response = timeout_at(deadline, head).await.map_err(|_| NoReply::Failed(Failure::Deadline))??;
        progress.heard();
        let (head, mut body) = response.into_parts();
        let mut kept = BytesMut::new();
        // The status counts, even if the body is cut off by the deadline or the end of the connection.
        if let Ok(true) = timeout_at(deadline, read(&mut body, &mut kept)).await {
            *self.sender.lock() = Some(sender);
        }
        Ok(Reply { status: head.status.as_u16(), headers: head.headers, body: kept.freeze() })
    }

    pub(super) fn close(&self) {
        self.sender.lock().take();
    }
}

async fn read(body: &mut Incoming, kept: &mut BytesMut) -> bool {
    while let Some(frame) = body.frame().await {
        let Ok(frame) = frame else { return false };
        let Ok(chunk) = frame.into_data() else { continue };
        if chunk.len() > BODY_MAX - kept.len() {
            kept.extend_from_slice(&chunk[..BODY_MAX - kept.len()]);
            return false;
        }
        kept.extend_from_slice(&chunk);
    }
    true
}
