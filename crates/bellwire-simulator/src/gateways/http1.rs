//! Serves one HTTP/1.1 connection, for clients without `h2` and hosts without HTTP/2. Faults that end a stream in
//! HTTP/2 end the connection here.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::stream;
use http::{Request, Response, header};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Full, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite};

use super::host::{BODY_MAX, Desk, Exchange, Host, Moment, Plan};
use super::rule::RuleAction;
use super::script::Live;

/// Ends a connection on behalf of a rule.
#[derive(Debug, thiserror::Error)]
#[error("connection cut by the script")]
struct ConnectionCut;

type CutBody = UnsyncBoxBody<Bytes, ConnectionCut>;

/// Serves a connection until either side ends it.
pub(super) async fn serve<T: AsyncRead + AsyncWrite + Unpin>(io: T, host: Arc<Host>) {
    let desk = Mutex::new(Desk::new(host));
    let service = service_fn(|request| answer(&desk, request));
    // The end of a connection is up to the client or to a rule.
    let _ended = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(io), service).await;
}

async fn answer(desk: &Mutex<Desk>, request: Request<Incoming>) -> Result<Response<CutBody>, ConnectionCut> {
    let (head, incoming) = request.into_parts();
    let body = read(incoming).await?;
    let (host, plan) = {
        let mut desk = desk.lock();
        desk.renew();
        let plan = desk.plan(&head, &body);
        desk.host.logbook.touch(desk.now.unix_ms);
        desk.host.counters.peak_streams.fetch_max(1, std::sync::atomic::Ordering::Relaxed);
        (Arc::clone(&desk.host), plan)
    };
    match plan {
        Plan::Answer(response) => Ok(whole(response)),
        Plan::Act(live, exchange) => act(&host, &live, exchange).await,
    }
}

async fn read(mut incoming: Incoming) -> Result<Bytes, ConnectionCut> {
    let mut body = Vec::new();
    while let Some(frame) = incoming.frame().await {
        if let Ok(data) = frame.map_err(|_| ConnectionCut)?.into_data() {
            body.extend_from_slice(&data);
        }
        if body.len() > BODY_MAX {
            break;
        }
    }
    Ok(body.into())
}

fn whole(response: Response<Bytes>) -> Response<CutBody> {
    response.map(|body| Full::new(body).map_err(|never: Infallible| match never {}).boxed_unsync())
}

async fn act(host: &Host, live: &Live, exchange: Exchange) -> Result<Response<CutBody>, ConnectionCut> {
    if live.rule.delay_ms > 0 {
        tokio::time::sleep(Duration::from_millis(live.rule.delay_ms)).await;
    }
    if live.rule.action == RuleAction::Hold {
        host.hold(live).await;
    }
    let now = Moment::new(&host.clock);
    let response = decide(host, live, exchange, &now).await;
    host.logbook.touch(now.unix_ms);
    if live.rule.action == RuleAction::Hang && response.is_err() {
        std::future::pending::<()>().await;
    }
    response
}

async fn decide(
    host: &Host, live: &Live, exchange: Exchange, now: &Moment,
) -> Result<Response<CutBody>, ConnectionCut> {
    if let Some(response) = host.scripted(&live.rule.action, &exchange) {
        return Ok(whole(host.send(exchange, response, now)));
    }
    match live.rule.action {
        RuleAction::Hold | RuleAction::GoAway => {
            let response = host.answer(&exchange);
            let mut response = whole(host.send(exchange, response, now));
            if live.rule.action == RuleAction::GoAway {
                response.headers_mut().insert(header::CONNECTION, header::HeaderValue::from_static("close"));
            }
            Ok(response)
        }
        RuleAction::Truncate { status } => {
            let mut response = begin(host, exchange, status, truncated(), now)?;
            response.headers_mut().insert(header::CONTENT_LENGTH, header::HeaderValue::from_static("1000"));
            Ok(response)
        }
        RuleAction::SlowBody { status, octets, every_ms } => {
            begin(host, exchange, status, slow(octets, Duration::from_millis(every_ms)), now)
        }
        RuleAction::EndlessBody { status } => begin(host, exchange, status, endless(), now),
        _ => {
            host.settle(exchange, None, live.rule.action == RuleAction::LoseAnswer, now.unix_ms);
            Err(ConnectionCut)
        }
    }
}

fn begin(
    host: &Host, exchange: Exchange, status: u16, body: CutBody, now: &Moment,
) -> Result<Response<CutBody>, ConnectionCut> {
    let response = Response::builder().status(status).body(Bytes::new()).map_err(|_| ConnectionCut)?;
    Ok(host.send(exchange, response, now).map(|_| body))
}

fn truncated() -> CutBody {
    let parts = stream::unfold(true, |first| async move {
        if first {
            return Some((Ok(Frame::data(Bytes::from_static(b"{\"reason\":"))), false));
        }
        tokio::task::yield_now().await; // lets hyper write what there is
        Some((Err(ConnectionCut), false))
    });
    StreamBody::new(parts).boxed_unsync()
}

fn slow(octets: u32, every: Duration) -> CutBody {
    let parts = stream::unfold(octets, move |left| async move {
        let left = left.checked_sub(1)?;
        tokio::time::sleep(every).await;
        Some((Ok(Frame::data(Bytes::from_static(b"."))), left))
    });
    StreamBody::new(parts).boxed_unsync()
}

fn endless() -> CutBody {
    static CHUNK: [u8; 16_384] = [b'.'; 16_384];
    StreamBody::new(stream::repeat_with(|| Ok(Frame::data(Bytes::from_static(&CHUNK))))).boxed_unsync()
}
