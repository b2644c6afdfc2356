//! Serves one HTTP/2 connection.
//!
//! | while a client … | it has | then |
//! |---|---|---|
//! | has open requests | [`STREAMS_MAX`]; more are refused | the stream is reset |
//! | resets requests | [`RESETS_WAITING_MAX`] that have not started | the connection is closed |
//! | does not read a response | [`ListenerLimits::stalled`] since the last part that it read | the request is dropped, and the connection accepts no more |
//! | does not answer a PING | [`PING_WITHIN`] | the connection is closed |
//! | has no open request | [`ListenerLimits::idle`] | GOAWAY |
//! | has no open request and sends nothing after a GOAWAY | [`FAREWELL`] | the connection is closed |

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::uri::PathAndQuery;
use axum::http::{HeaderValue, Request, Uri, header};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::rt::Executor;
use hyper::server::conn::http2::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio::time::timeout;
use tower::Service as _;

use super::ListenerLimits;
use super::progress::{ConnectionPhase, ConnectionProgress};
use super::slots::Activity;
use super::socket::{Patience, Socket};
use super::visitor::{Host, Visitor, log};

/// Maximum concurrent requests of a connection. RFC 9113 section 6.5.2 recommends at least 100.
const STREAMS_MAX: u32 = 100;
/// Maximum reset requests that have not started. A browser that leaves a page resets a few; more are an attack
/// (CVE-2023-44487).
const RESETS_WAITING_MAX: usize = 20;
/// Maximum streams that the server resets for faults of the client before it closes the connection.
const FAULTS_MAX: usize = 100;
/// Octets of the receive window of a request.
const STREAM_WINDOW: u32 = 64 << 10;
/// Octets of the receive window of a connection.
const CONNECTION_WINDOW: u32 = 256 << 10;
/// Octets of a response in the send buffer, in addition to a part of [`PART_MAX`].
const SEND_BUFFER: usize = 64 << 10;
/// Maximum octets of a part of a response. A slow client must read a part within [`ListenerLimits::stalled`].
const PART_MAX: usize = 16 << 10;
/// Interval of PINGs to a client with open requests, and the timeout of the answer below.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_WITHIN: Duration = Duration::from_secs(20);
/// Time for which a client may keep an idle connection open after a GOAWAY. It begins again while the client sends
/// WINDOW_UPDATEs, because it still reads a response, at most [`FAREWELLS_MAX`] times.
const FAREWELL: Duration = Duration::from_secs(2);
const FAREWELLS_MAX: usize = 15;
/// The same time for a connection whose slot already belongs to another one.
const SHORT_FAREWELL: Duration = Duration::from_millis(200);

/// Number of open and of all requests, and whether one was dropped because its response was not read.
#[derive(Debug, Clone, Copy, Default)]
struct Requests {
    open: usize,
    begun: u64,
    stalled: bool,
}

fn builder(limits: &ListenerLimits, requests: watch::Sender<Requests>) -> Builder<Streams> {
    let mut http = Builder::new(Streams { patience: limits.stalled, requests });
    http.timer(TokioTimer::new())
        .keep_alive_interval(PING_EVERY)
        .keep_alive_timeout(PING_WITHIN)
        .max_concurrent_streams(STREAMS_MAX)
        .max_pending_accept_reset_streams(RESETS_WAITING_MAX)
        .max_local_error_reset_streams(FAULTS_MAX)
        .max_header_list_size(u32::try_from(limits.head_max_bytes).unwrap_or(u32::MAX))
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER);
    http
}

/// Serves concurrent requests until the client, a limit or a stop ends the connection.
pub(super) async fn serve<S>(stream: S, visitor: Visitor, host: Host, activity: Arc<Activity>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Host { router, limits, stop, .. } = host;
    let (requests, peer) = (watch::Sender::new(Requests::default()), visitor.peer);
    // Requests, not octets, define idleness here, so the socket checks writes only.
    let progress = Arc::new(ConnectionProgress::default());
    progress.enter(ConnectionPhase::Exchange);
    let socket = Socket::new(stream, progress.clone(), limits, None);
    let answer = service_fn(|request: Request<Incoming>| {
        let open = OpenRequest::begin(requests.clone(), activity.clone());
        let (mut router, visitor) = (router.clone(), visitor.clone());
        async move {
            let mut request = as_by_http1(request.map(Body::new));
            visitor.introduce(request.extensions_mut());
            let Ok(response) = router.call(request).await;
            let (turns, rest) = (TURNS.with(Arc::clone), Bytes::new());
            Ok::<_, Infallible>(response.map(|body| Http2Response { body, rest, turns, _open: open }))
        }
    });
    let mut connection = pin!(builder(&limits, requests.clone()).serve_connection(TokioIo::new(socket), answer));
    let (mut told, mut stalled) = (stop, requests.subscribe());
    let farewell = tokio::select! {
        biased;
        ended = connection.as_mut() => return log(ended, peer),
        _ = stalled.wait_for(|now| now.stalled) => FAREWELL,
        () = idle_for(requests.subscribe(), limits.idle) => FAREWELL,
        _ = told.wait_for(|stop| *stop) => FAREWELL,
        () = activity.closed() => SHORT_FAREWELL,
    };
    connection.as_mut().graceful_shutdown();
    for _ in 0..FAREWELLS_MAX {
        let reads = progress.reads();
        tokio::select! {
            biased;
            ended = connection.as_mut() => return log(ended, peer),
            () = idle_for(requests.subscribe(), farewell) => {}
        }
        if progress.reads() == reads {
            return;
        }
    }
}

/// Completes once no request has been open for this time.
async fn idle_for(mut requests: watch::Receiver<Requests>, within: Duration) {
    loop {
        let Ok(before) = requests.wait_for(|now| now.open == 0).await.map(|now| *now) else { return };
        if timeout(within, requests.wait_for(|now| now.begun != before.begun)).await.is_err() {
            return;
        }
    }
}

/// Converts a request to the form of HTTP/1.1: the host is a header, and the URL has only path and query.
fn as_by_http1(mut request: Request<Body>) -> Request<Body> {
    let uri = request.uri();
    let host = uri.authority().and_then(|authority| HeaderValue::try_from(authority.as_str()).ok());
    let path = uri.path_and_query().cloned().unwrap_or_else(|| PathAndQuery::from_static("/"));
    *request.uri_mut() = Uri::from(path);
    if let Some(host) = host {
        request.headers_mut().insert(header::HOST, host);
    }
    request
}

/// Counts a request as open from its head to the end of its response.
struct OpenRequest {
    requests: watch::Sender<Requests>,
    activity: Arc<Activity>,
}

impl OpenRequest {
    fn begin(requests: watch::Sender<Requests>, activity: Arc<Activity>) -> Self {
        requests.send_modify(|requests| {
            activity.begin();
            requests.open += 1;
            requests.begun += 1;
        });
        Self { requests, activity }
    }
}

impl Drop for OpenRequest {
    fn drop(&mut self) {
        self.requests.send_modify(|requests| {
            requests.open -= 1;
            if requests.open == 0 {
                self.activity.wait();
            }
        });
    }
}

tokio::task_local! {
    /// Number of times that a part of this response was sent or read. Odd while a part is unread.
    static TURNS: Arc<AtomicU64>;
}

/// Runs streams, each with a timeout for unread parts. The unread part stays in the library, which resets a stream only
/// after it, so a timeout ends the connection.
#[derive(Clone)]
struct Streams {
    patience: Duration,
    requests: watch::Sender<Requests>,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let (turns, within, requests) = (Arc::new(AtomicU64::new(0)), self.patience, self.requests.clone());
        tokio::spawn(TURNS.scope(turns.clone(), async move {
            let (mut stream, mut patience) = (Box::pin(stream), Patience::default());
            let stalled = poll_fn(|cx| {
                if stream.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(false);
                }
                let turn = turns.load(Ordering::Relaxed);
                if turn % 2 == 0 { Poll::Pending } else { patience.poll(cx, turn, within).map(|()| true) }
            });
            if stalled.await {
                drop(stream);
                requests.send_modify(|requests| requests.stalled = true);
            }
        }));
    }
}

/// Response body in parts. Dropping it ends the request.
struct Http2Response {
    body: Body,
    rest: Bytes,
    turns: Arc<AtomicU64>,
    _open: OpenRequest,
}

impl HttpBody for Http2Response {
    type Data = Bytes;
    type Error = axum::Error;

    /// The library polls as soon as there is room for the next part, so the last part has been read.
    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        let taken = self.turns.load(Ordering::Relaxed).next_multiple_of(2);
        self.turns.store(taken, Ordering::Relaxed);
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
                Some(Ok(frame)) => match frame.into_data() {
                    Ok(data) => self.rest = data,
                    Err(trailers) => return Poll::Ready(Some(Ok(trailers))),
                },
                end => return Poll::Ready(end),
            }
        }
        let part = self.rest.len().min(PART_MAX);
        let part = self.rest.split_to(part);
        self.turns.store(taken + 1, Ordering::Relaxed);
        Poll::Ready(Some(Ok(Frame::data(part))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (body, rest) = (self.body.size_hint(), self.rest.len() as u64);
        let mut hint = SizeHint::new();
        hint.set_lower(body.lower() + rest);
        if let Some(upper) = body.upper() {
            hint.set_upper(upper + rest);
        }
        hint
    }
}
