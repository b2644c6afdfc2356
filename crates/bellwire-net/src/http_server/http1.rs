//! Serves one HTTP/1.1 connection.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Request, StatusCode, header};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;
use tower::Service as _;

use super::head::{Heads, fault};
use super::progress::{ConnectionPhase, ConnectionProgress};
use super::slots::Activity;
use super::socket::Socket;
use super::visitor::{Host, Visitor, log};
use super::{HEAD_MIN_BYTES, ListenerLimits};

/// Time for which connections stay open after a stop, because a request may be in transit. Such a request gets the last
/// response of its connection. Longer than the round trip around the world.
const LAST_CALL: Duration = Duration::from_millis(500);

fn builder(limits: &ListenerLimits) -> Builder {
    let mut http = Builder::new();
    // A backstop only, since `Socket` distinguishes idleness from a slow head. The timer also makes the library poll
    // the socket right after a response, at which the idle time starts.
    http.timer(TokioTimer::new()).header_read_timeout(limits.idle + limits.head);
    http.max_header_size(limits.head_max_bytes).max_buf_size(limits.head_max_bytes.max(HEAD_MIN_BYTES));
    http
}

/// Serves one request after the other until the client, a limit or a stop ends the connection.
pub(super) async fn serve<S>(stream: S, visitor: Visitor, host: Host, activity: Arc<Activity>)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Host { router, limits, refusal, stop } = host;
    let (progress, peer) = (Arc::new(ConnectionProgress::default()), visitor.peer);
    let socket = Socket::new(stream, progress.clone(), limits, Some((Heads::new(), refusal)));
    let answer = service_fn(|request: Request<Incoming>| {
        let length = request.body().size_hint().exact();
        let (exchange, has_bare_lf) = ExchangeGuard::begin(progress.clone(), activity.clone(), length);
        let fault = fault(request.version(), request.headers(), has_bare_lf);
        let (mut router, visitor) = (router.clone(), visitor.clone());
        async move {
            let mut request = request.map(|body| {
                Body::new(TrackedRequestBody {
                    at_end: body.is_end_stream(),
                    body,
                    progress: exchange.progress.clone(),
                })
            });
            visitor.introduce(request.extensions_mut());
            let mut response = match fault {
                None => {
                    let Ok(response) = router.call(request).await;
                    response
                }
                Some(reason) => {
                    exchange.progress.cut_body();
                    refusal.to_request(StatusCode::BAD_REQUEST, reason)
                }
            };
            // Octets after a chunked body are not checked.
            if fault.is_some() || length.is_none() || *visitor.stop.borrow() {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response.map(|body| Http1Response { body, _exchange: exchange }))
        }
    });
    let mut connection = pin!(builder(&limits).serve_connection(TokioIo::new(socket), answer));
    let mut told = stop;
    let is_evicted = tokio::select! {
        biased;
        ended = connection.as_mut() => return log(ended, peer),
        _ = told.wait_for(|stop| *stop) => false,
        () = activity.closed() => true,
    };
    if is_evicted {
        // A request that has begun meanwhile gets the last response of the connection.
        if progress.phase() == ConnectionPhase::Exchange {
            connection.as_mut().graceful_shutdown();
            log(connection.await, peer);
        }
        return;
    }
    tokio::select! {
        ended = connection.as_mut() => return log(ended, peer),
        () = sleep(LAST_CALL) => {}
    }
    // The library ignores a half-sent head. Its request still gets the last response of the connection.
    if progress.phase() != ConnectionPhase::Head {
        connection.as_mut().graceful_shutdown();
    }
    log(connection.await, peer);
}

/// Marks the connection as busy from the head of a request to the end of its response.
struct ExchangeGuard {
    progress: Arc<ConnectionProgress>,
    activity: Arc<Activity>,
}

impl ExchangeGuard {
    /// Starts an exchange with the length of the request's body. Also returns whether the head contains a bare LF.
    fn begin(progress: Arc<ConnectionProgress>, activity: Arc<Activity>, body: Option<u64>) -> (Self, bool) {
        activity.begin();
        let has_bare_lf = progress.begin(body);
        (Self { progress, activity }, has_bare_lf)
    }
}

impl Drop for ExchangeGuard {
    fn drop(&mut self) {
        self.progress.enter(ConnectionPhase::Idle);
        self.activity.wait();
    }
}

/// Request body that records whether it was read completely.
struct TrackedRequestBody {
    body: Incoming,
    at_end: bool,
    progress: Arc<ConnectionProgress>,
}

impl HttpBody for TrackedRequestBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<hyper::Result<Frame<Bytes>>>> {
        let frame = Pin::new(&mut self.body).poll_frame(cx);
        self.at_end = matches!(frame, Poll::Ready(None)) || self.body.is_end_stream();
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl Drop for TrackedRequestBody {
    fn drop(&mut self) {
        if !self.at_end {
            self.progress.cut_body();
        }
    }
}

/// Response body that ends the exchange when it is dropped.
struct Http1Response {
    body: Body,
    _exchange: ExchangeGuard,
}

impl HttpBody for Http1Response {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
