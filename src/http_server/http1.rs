//! One connection by HTTP/1.1.

use std::convert::Infallible;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, Request, header};
use hyper::body::{Body as HttpBody, Frame, Incoming, SizeHint};
use hyper::server::conn::http1::Builder;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::time::sleep;
use tower::Service as _;

use super::connection::{Host, Visitor, log};
use super::socket::{Phase, Progress, Socket};
use super::{HEAD_MIN_BYTES, Limits};

/// How long connections stay open after a stop, whether they have a request or not: one may be on its way, and would be lost with
/// the connection. It is answered, as the last one. Longer than a packet takes around the world.
const LAST_CALL: Duration = Duration::from_millis(500);

fn builder(limits: &Limits) -> Builder {
    let mut http = Builder::new();
    // A backstop only, since `Socket` tells idleness from a slow head. It also has the library look at the socket
    // again as soon as a response is out, from where on idleness counts.
    http.timer(TokioTimer::new()).header_read_timeout(limits.idle + limits.head);
    http.max_header_size(limits.head_max_bytes).max_buf_size(limits.head_max_bytes.max(HEAD_MIN_BYTES));
    http
}

/// Serves one request after the other until the client or we have had enough.
pub(super) async fn serve<S>(stream: S, visitor: Visitor, host: Host)
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let Host { router, limits, stop } = host;
    let (progress, peer) = (Arc::new(Progress::default()), visitor.peer);
    let socket = Socket::new(stream, progress.clone(), limits);
    let answer = service_fn(|request: Request<Incoming>| {
        let exchange = Exchange::begin(progress.clone());
        let (mut router, visitor) = (router.clone(), visitor.clone());
        async move {
            let mut request = request
                .map(|body| Body::new(Asked { at_end: body.is_end_stream(), body, progress: exchange.0.clone() }));
            visitor.introduce(request.extensions_mut());
            let Ok(mut response) = router.call(request).await;
            if *visitor.stop.borrow() {
                response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            Ok::<_, Infallible>(response.map(|body| Answer { body, _exchange: exchange }))
        }
    });
    let mut connection = pin!(builder(&limits).serve_connection(TokioIo::new(socket), answer));
    let mut told = stop;
    tokio::select! {
        biased;
        ended = connection.as_mut() => return log(ended, peer),
        _ = told.wait_for(|stop| *stop) => {}
    }
    tokio::select! {
        ended = connection.as_mut() => return log(ended, peer),
        () = sleep(LAST_CALL) => {}
    }
    // The library takes a half-sent head for none. Its request is still answered, as the last one.
    if progress.phase() != Phase::Head {
        connection.as_mut().graceful_shutdown();
    }
    log(connection.await, peer);
}

/// Lasts from a request's head to the end of its response.
struct Exchange(Arc<Progress>);

impl Exchange {
    fn begin(progress: Arc<Progress>) -> Self {
        progress.enter(Phase::Exchange);
        Self(progress)
    }
}

impl Drop for Exchange {
    fn drop(&mut self) {
        self.0.enter(Phase::Idle);
    }
}

/// A request's body, which tells whether it was read to its end.
struct Asked {
    body: Incoming,
    at_end: bool,
    progress: Arc<Progress>,
}

impl HttpBody for Asked {
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

impl Drop for Asked {
    fn drop(&mut self) {
        if !self.at_end {
            self.progress.cut_body();
        }
    }
}

/// A response's body, with which the exchange ends.
struct Answer {
    body: Body,
    _exchange: Exchange,
}

impl HttpBody for Answer {
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
