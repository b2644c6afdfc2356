//! HTTP/2 with `h2` directly, because SETTINGS, GOAWAY and stream resets affect the result.

use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt as _;
use h2::client::SendRequest;
use h2::{Reason, RecvStream};
use http::uri::Authority;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout, timeout_at};
use tokio_rustls::client::TlsStream;

use super::driver::{ConnectionEvents, Driver, NoReply};
use super::request::{self, Outgoing};
use super::streams::Signal;
use super::{BODY_MAX, Reply};
use bellwire_rules::classify::Failure;

/// Receive window of a stream in octets; more than [`BODY_MAX`].
const STREAM_WINDOW: u32 = 16 << 10;

const CONNECTION_WINDOW: u32 = 1 << 20;

/// Maximum octets of response headers.
const HEADERS_MAX: u32 = 16 << 10;

/// Maximum reset streams (deadline, endless body) that are remembered, so that late frames on them are not an error.
const RESET_STREAMS_MAX: usize = 1024;

/// Time within which h2 assigns a stream to a request. After it, the peer has just lowered its limit.
const OPENED_WITHIN: Duration = Duration::from_secs(1);

/// A connection. `sender` is empty after the last request.
pub(super) struct Http2 {
    sender: Mutex<Option<SendRequest<Bytes>>>,
}

impl Http2 {
    /// Returns after the peer's first SETTINGS, which contain its limit of streams.
    pub(super) async fn open(
        tls: TlsStream<TcpStream>, streams_max: usize, limit: Arc<AtomicUsize>, signal: Arc<Signal>,
    ) -> Result<(Self, Driver), Failure> {
        let (sender, connection) = h2::client::Builder::new()
            .enable_push(false)
            .initial_max_send_streams(0)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_header_list_size(HEADERS_MAX)
            .max_concurrent_reset_streams(RESET_STREAMS_MAX)
            .handshake(Gathered(tls))
            .await
            .map_err(|why| failure(&why))?;
        limit.store(0, Ordering::Relaxed);
        let mut peer = PeerConnection { connection, streams_max, limit, signal, yielded: false };
        std::future::poll_fn(|cx| peer.poll_settings(cx)).await?;
        Ok((Self { sender: Mutex::new(Some(sender)) }, Box::pin(peer)))
    }

    /// Sends a request on a stream and reads the response.
    pub(super) async fn exchange(
        &self, post: &impl Outgoing, authority: &Authority, progress: &ConnectionEvents, deadline: Instant,
    ) -> Result<Reply, NoReply> {
        let request = request::http2(post, authority).ok_or(NoReply::Failed(Failure::Forbidden))?;
        // A clone, because the original refuses a second request while its first waits inside h2 for a stream. That
        // happens after the peer has lowered its limit.
        let mut sender = self.sender.lock().clone().ok_or(NoReply::NotSent)?;
        let (response, mut stream) = sender.send_request(request, false).map_err(|_| NoReply::NotSent)?;
        progress.sent();
        // If the stream has ended already, the response contains the reason.
        let _ = stream.send_data(post.body().clone(), true);
        drop(stream);

        let mut response = pin!(response);
        let response = match timeout(OPENED_WITHIN, &mut response).await {
            Ok(response) => response,
            // Dropping the response removes the request from the queue of h2. If h2 opens the stream just now, the peer
            // sees a reset.
            Err(_) if sender.ready().now_or_never().is_none() => return Err(NoReply::NoStream),
            Err(_) => timeout_at(deadline, response).await.map_err(|_| NoReply::Failed(Failure::Deadline))?,
        };
        let (head, mut body) = response.map_err(|why| NoReply::Failed(failure(&why)))?.into_parts();
        progress.heard();
        let mut kept = BytesMut::new();
        if !body.is_end_stream() {
            // The status counts even after the deadline or a reset. Dropping the body resets the rest of the stream.
            let _ = timeout_at(deadline, read(&mut body, &mut kept)).await;
        }
        Ok(Reply { status: head.status.as_u16(), headers: head.headers, body: kept.freeze() })
    }

    pub(super) fn close(&self) {
        self.sender.lock().take();
    }
}

async fn read(body: &mut RecvStream, kept: &mut BytesMut) -> Result<(), h2::Error> {
    while let Some(chunk) = body.data().await {
        let chunk = chunk?;
        kept.extend_from_slice(&chunk[..chunk.len().min(BODY_MAX - kept.len())]);
        if kept.len() == BODY_MAX {
            break;
        }
        body.flow_control().release_capacity(chunk.len())?;
    }
    Ok(())
}

fn failure(why: &h2::Error) -> Failure {
    if why.is_remote() {
        // h2 returns a remote GOAWAY as the error of exactly the streams above its last id.
        let untouched = why.is_go_away() || why.reason() == Some(Reason::REFUSED_STREAM);
        if untouched { Failure::Unprocessed } else { Failure::Reset }
    } else if why.is_io() {
        Failure::Reset
    } else {
        Failure::Protocol
    }
}

/// Runs the connection and publishes the number of streams that the peer allows.
struct PeerConnection {
    connection: h2::client::Connection<Gathered, Bytes>,
    streams_max: usize,
    limit: Arc<AtomicUsize>,
    signal: Arc<Signal>,
    yielded: bool,
}

impl PeerConnection {
    fn poll_settings(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        let ended = self.poll_connection(cx);
        if self.limit.load(Ordering::Relaxed) > 0 {
            return Poll::Ready(Ok(()));
        }
        let why = ready!(ended);
        Poll::Ready(Err(why.map_or_else(|why| failure(&why), |()| Failure::Reset)))
    }

    fn poll_connection(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), h2::Error>> {
        let ended = Pin::new(&mut self.connection).poll(cx);
        let allowed = self.connection.max_concurrent_send_streams().min(self.streams_max);
        if allowed != self.limit.swap(allowed, Ordering::Relaxed) {
            self.signal.changed();
        }
        ended
    }
}

impl Future for PeerConnection {
    type Output = ();

    /// Yields once after each wake-up, so that all requests that are ready share one TLS record and one system call.
    /// Together with [`Gathered`] a POST takes about a third less CPU time than with either alone (`benches/post.rs`).
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if !std::mem::replace(&mut self.yielded, true) {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        self.yielded = false;
        self.poll_connection(cx).map(drop)
    }
}

/// A TLS stream without vectored writes, because each would become a TLS record and a system call. Without them h2
/// copies bodies below 1 KiB, which nearly all are, into its buffer of 16 KiB.
struct Gathered(TlsStream<TcpStream>);

impl AsyncRead for Gathered {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(cx, buf)
    }
}

impl AsyncWrite for Gathered {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
