//! One connection by HTTP/2.
//!
//! | while a client … | it has | then |
//! |---|---|---|
//! | has requests open | [`STREAMS_MAX`] of them; more are refused | the stream is reset |
//! | takes requests back | [`RESETS_WAITING_MAX`] that we have not begun with | the connection is closed |
//! | does not take a response | [`Limits::stalled`] since the last part that it took | the request is dropped, and the connection takes no more |
//! | does not answer a PING | [`PING_WITHIN`] | the connection is closed |
//! | has no request open | [`Limits::idle`], [`FAREWELL`] once it was told that we close | the connection is closed |

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

use super::Limits;
use super::connection::{Host, Visitor, log};
use super::socket::{Patience, Phase, Progress, Socket};

/// Requests of one connection that are answered at a time; RFC 9113 section 6.5.2 asks for no fewer.
const STREAMS_MAX: u32 = 100;
/// Requests that a client may take back before we begin with them, at a time: a browser that leaves a page does so, more is an attack
/// (CVE-2023-44487).
const RESETS_WAITING_MAX: usize = 20;
/// Streams that we reset ourselves for a client's faults, until the connection is closed for them.
const FAULTS_MAX: usize = 100;
/// Octets of a request's body that may be on their way.
const STREAM_WINDOW: u32 = 64 << 10;
/// Octets of the bodies of all requests of a connection.
const CONNECTION_WINDOW: u32 = 256 << 10;
/// Octets of a response that wait for the client, beside what is in a part of [`PART_MAX`].
const SEND_BUFFER: usize = 64 << 10;
/// Octets of a response that are handed over at a time: what a slow client must take within [`Limits::stalled`].
const PART_MAX: usize = 16 << 10;
/// How often a client with open requests is asked whether it is still there, and how soon it must say so.
const PING_EVERY: Duration = Duration::from_secs(30);
const PING_WITHIN: Duration = Duration::from_secs(20);
/// How long a client that was told that the connection ends may take to close it.
const FAREWELL: Duration = Duration::from_secs(2);

/// How many requests are open, how many there were, and whether one was dropped since its response was not taken.
#[derive(Debug, Clone, Copy, Default)]
struct Requests {
    open: usize,
    begun: u64,
    stalled: bool,
}

fn builder(limits: &Limits, requests: watch::Sender<Requests>) -> Builder<Streams> {
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

/// Serves requests beside each other until the client or we have had enough.
pub(super) async fn serve<S>(stream: S, visitor: Visitor, host: Host)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Host { router, limits, stop } = host;
    let (requests, peer) = (watch::Sender::new(Requests::default()), visitor.peer);
    // Idleness is a matter of requests here, not of octets: the socket looks at writes only.
    let progress = Arc::new(Progress::default());
    progress.enter(Phase::Exchange);
    let socket = Socket::new(stream, progress, limits);
    let answer = service_fn(|request: Request<Incoming>| {
        let open = Open::begin(requests.clone());
        let (mut router, visitor) = (router.clone(), visitor.clone());
        async move {
            let mut request = as_by_http1(request.map(Body::new));
            visitor.introduce(request.extensions_mut());
            let Ok(response) = router.call(request).await;
            let (turns, rest) = (TURNS.with(Arc::clone), Bytes::new());
            Ok::<_, Infallible>(response.map(|body| Answer { body, rest, turns, _open: open }))
        }
    });
    let mut connection = pin!(builder(&limits, requests.clone()).serve_connection(TokioIo::new(socket), answer));
    let (mut told, mut stalled) = (stop, requests.subscribe());
    tokio::select! {
        biased;
        ended = connection.as_mut() => return log(ended, peer),
        _ = stalled.wait_for(|now| now.stalled) => {}
        () = idle_for(requests.subscribe(), limits.idle) => {}
        _ = told.wait_for(|stop| *stop) => {}
    }
    connection.as_mut().graceful_shutdown();
    tokio::select! {
        biased;
        ended = connection.as_mut() => log(ended, peer),
        () = idle_for(requests.subscribe(), FAREWELL) => {}
    }
}

/// Is ready once no request has been open for so long.
async fn idle_for(mut requests: watch::Receiver<Requests>, within: Duration) {
    loop {
        let Ok(before) = requests.wait_for(|now| now.open == 0).await.map(|now| *now) else { return };
        if timeout(within, requests.wait_for(|now| now.begun != before.begun)).await.is_err() {
            return;
        }
    }
}

/// A request as a handler knows it from HTTP/1.1: the host is a header, the URL only path and query.
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

/// Lasts from a request's head to the end of its response.
struct Open(watch::Sender<Requests>);

impl Open {
    fn begin(requests: watch::Sender<Requests>) -> Self {
        requests.send_modify(|requests| {
            requests.open += 1;
            requests.begun += 1;
        });
        Self(requests)
    }
}

impl Drop for Open {
    fn drop(&mut self) {
        self.0.send_modify(|requests| requests.open -= 1);
    }
}

tokio::task_local! {
    /// How often a part of this stream's response was handed over or taken: odd while the client has yet to take one.
    static TURNS: Arc<AtomicU64>;
}

/// Runs streams, each until its client keeps it waiting for too long. What the client has not taken by then stays in the library, which
/// resets a stream only behind it: so the connection is to end.
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

/// A response's body in parts, with which the request ends.
struct Answer {
    body: Body,
    /// Of a frame, what was not handed over yet.
    rest: Bytes,
    turns: Arc<AtomicU64>,
    _open: Open,
}

impl HttpBody for Answer {
    type Data = Bytes;
    type Error = axum::Error;

    /// Is called as soon as there is room for the next part: the last one has been taken.
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
