//! Serves one HTTP/2 connection. A single task drives it: all arrived requests are answered together, in one write.
//! Requests with an incomplete body, and those with a rule, become futures that the same task polls. So a request costs
//! neither a task nor a wake-up.

use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

use bytes::{Buf, Bytes};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use h2::server::SendResponse;
use h2::{Reason, RecvStream};
use http::{Request, Response};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::host::{BODY_MAX, Desk, Exchange, Host, Moment, Plan};
use super::rule::RuleAction;
use super::script::Live;

/// Receive windows in octets. Large enough that a sender never waits for them.
const STREAM_WINDOW: u32 = 256 * 1024;
const CONNECTION_WINDOW: u32 = 32 * 1024 * 1024;
/// Maximum requests before their responses are written, so that the first does not wait for ever.
const BATCH_MAX: usize = 256;

/// A request with its whole body.
struct Arrived {
    head: http::request::Parts,
    body: Bytes,
    respond: SendResponse<Bytes>,
}

enum Http2Event {
    Done,
    Arrived(Box<Arrived>),
    Close,
    GoAway,
    /// Send a GOAWAY with a last stream id below this stream.
    GoAwayBelow(SendResponse<Bytes>),
}

type Pending = FuturesUnordered<Pin<Box<dyn Future<Output = Http2Event> + Send>>>;

struct Connection<T> {
    h2: h2::server::Connection<FrameWriter<T>, Bytes>,
    desk: Desk,
    arrived: Vec<Arrived>,
    events: Vec<Http2Event>,
    pending: Pending,
    wire: Arc<Mutex<Bytes>>,
    /// State after a GOAWAY below a stream: the last stream that is answered, and the ignored ones.
    last_stream: u32,
    ignored: Vec<SendResponse<Bytes>>,
}

/// Serves a connection until either side ends it. Errors of the peer also end it, and are ignored.
pub(super) async fn serve<T: AsyncRead + AsyncWrite + Unpin>(io: T, host: Arc<Host>, streams: u32) {
    let wire = Arc::new(Mutex::new(Bytes::new()));
    let handshake = h2::server::Builder::new()
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_concurrent_streams(streams)
        .max_pending_accept_reset_streams(4_096) // a client that cancels much is being tested, not attacked
        .handshake(FrameWriter { io, extra: Arc::clone(&wire) });
    let Ok(h2) = handshake.await else { return };
    let mut connection = Connection {
        h2,
        desk: Desk::new(host),
        arrived: Vec::with_capacity(BATCH_MAX),
        events: Vec::new(),
        pending: FuturesUnordered::new(),
        wire,
        last_stream: u32::MAX,
        ignored: Vec::new(),
    };
    let mut open = true;
    while open {
        open = std::future::poll_fn(|cx| connection.poll_turn(cx)).await;
        // Complete requests before the end of the connection count as received, because a gateway would deliver them.
        open &= connection.turn();
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Connection<T> {
    /// Reads and writes until there is work. Returns `false` after the end of the connection.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        while self.arrived.len() < BATCH_MAX {
            let accepted = pin!(self.h2.accept()).poll(cx);
            match accepted {
                Poll::Ready(Some(Ok((request, respond)))) => self.begin(request, respond),
                Poll::Ready(_) => return Poll::Ready(false),
                Poll::Pending => break,
            }
        }
        while let Poll::Ready(Some(event)) = self.pending.poll_next_unpin(cx) {
            self.events.push(event);
        }
        if self.arrived.is_empty() && self.events.is_empty() { Poll::Pending } else { Poll::Ready(true) }
    }

    /// Accepts a new stream. Its body has usually arrived as well.
    fn begin(&mut self, request: Request<RecvStream>, respond: SendResponse<Bytes>) {
        let (head, mut stream) = request.into_parts();
        if respond.stream_id().as_u32() > self.last_stream {
            return self.ignored.push(respond);
        }
        let mut body = Bytes::new();
        match poll_body(&mut stream, &mut body, &mut Context::from_waker(Waker::noop())) {
            Poll::Ready(true) => self.arrived.push(Arrived { head, body, respond }),
            Poll::Ready(false) => {}
            Poll::Pending => self.pending.push(Box::pin(async move {
                match std::future::poll_fn(|cx| poll_body(&mut stream, &mut body, cx)).await {
                    true => Http2Event::Arrived(Box::new(Arrived { head, body, respond })),
                    false => Http2Event::Done,
                }
            })),
        }
    }

    /// Handles the arrived requests. Returns `false` to cut the connection.
    fn turn(&mut self) -> bool {
        self.desk.renew();
        let streams = (self.arrived.len() + self.events.len() + self.pending.len()) as u64;
        self.desk.host.counters.peak_streams.fetch_max(streams, Ordering::Relaxed);
        let mut open = true;
        for event in std::mem::take(&mut self.events) {
            match event {
                Http2Event::Done => {}
                Http2Event::Arrived(arrived) => self.arrived.push(*arrived),
                Http2Event::Close => open = false,
                Http2Event::GoAway => self.h2.graceful_shutdown(),
                Http2Event::GoAwayBelow(respond) => self.go_away_below(respond),
            }
        }
        for Arrived { head, body, respond } in self.arrived.drain(..) {
            if respond.stream_id().as_u32() > self.last_stream {
                self.ignored.push(respond); // it came with the one that made us say GOAWAY
                continue;
            }
            match self.desk.plan(&head, &body) {
                Plan::Answer(response) => send(response, respond),
                Plan::Act(live, exchange) => {
                    self.pending.push(Box::pin(act(Arc::clone(&self.desk.host), live, exchange, respond)));
                }
            }
        }
        self.desk.host.logbook.touch(self.desk.now.unix_ms);
        open
    }

    /// Writes a GOAWAY directly, because `h2` cannot send one with an older stream than it has seen.
    fn go_away_below(&mut self, respond: SendResponse<Bytes>) {
        let last = respond.stream_id().as_u32().saturating_sub(2);
        self.ignored.push(respond);
        if last >= self.last_stream {
            return;
        }
        self.last_stream = last;
        let mut frame = vec![0, 0, 8, 7, 0, 0, 0, 0, 0]; // length 8, type GOAWAY, no flags, stream 0
        frame.extend(last.to_be_bytes());
        frame.extend(u32::from(Reason::NO_ERROR).to_be_bytes());
        *self.wire.lock() = frame.into();
    }
}

/// Reads a body up to [`BODY_MAX`]. Returns `false` if the client reset the stream.
fn poll_body(stream: &mut RecvStream, body: &mut Bytes, cx: &mut Context<'_>) -> Poll<bool> {
    while body.len() <= BODY_MAX {
        match ready!(stream.poll_data(cx)) {
            None => break,
            Some(Err(_)) => return Poll::Ready(false),
            Some(Ok(chunk)) => {
                // Fails only for a reset stream, whose octets need no release.
                let _reset = stream.flow_control().release_capacity(chunk.len());
                *body = if body.is_empty() { chunk } else { [&body[..], &chunk[..]].concat().into() };
            }
        }
    }
    Poll::Ready(true)
}

/// Queues a response. Fails only if the client has reset the stream, which is ignored.
fn send(response: Response<Bytes>, mut respond: SendResponse<Bytes>) {
    let (head, body) = response.into_parts();
    let end = body.is_empty();
    if let Ok(mut stream) = respond.send_response(Response::from_parts(head, ()), end)
        && !end
    {
        let _given_up = stream.send_data(body, true);
    }
}

/// Waits for the delay of a rule. Returns `false` if the client reset the stream meanwhile.
async fn wait(host: &Host, live: &Live, respond: &mut SendResponse<Bytes>) -> bool {
    let time = Duration::from_millis(live.rule.delay_ms);
    let waited = async {
        if !time.is_zero() {
            tokio::time::sleep(time).await;
        }
        if let RuleAction::Hold = live.rule.action {
            host.hold(live).await;
        }
    };
    tokio::select! {
        biased;
        () = given_up(respond) => false,
        () = waited => true,
    }
}

/// Runs an action that is more than a response. The length of the function follows from the number of actions.
async fn act(host: Arc<Host>, live: Arc<Live>, exchange: Exchange, mut respond: SendResponse<Bytes>) -> Http2Event {
    let is_waited_for = wait(&host, &live, &mut respond).await;
    let now = Moment::new(&host.clock);
    let unanswered = |exchange, accepted| host.settle(exchange, None, accepted, now.unix_ms);
    if !is_waited_for {
        unanswered(exchange, false);
        return Http2Event::Done;
    }
    if let Some(response) = host.scripted(&live.rule.action, &exchange) {
        send(host.send(exchange, response, &now), respond);
        return Http2Event::Done;
    }
    let begin = |exchange, respond: SendResponse<Bytes>, status| begin_answer(&host, exchange, respond, status, &now);
    match live.rule.action {
        RuleAction::Hold => {
            let response = host.answer(&exchange);
            send(host.send(exchange, response, &now), respond);
        }
        RuleAction::Hang => {
            unanswered(exchange, false);
            host.logbook.touch(now.unix_ms);
            given_up(&mut respond).await;
        }
        RuleAction::Reset { code } => {
            unanswered(exchange, false);
            respond.send_reset(code.into());
        }
        RuleAction::Close => {
            unanswered(exchange, false);
            return Http2Event::Close;
        }
        RuleAction::LoseAnswer => {
            unanswered(exchange, true);
            return Http2Event::Close;
        }
        RuleAction::GoAway => {
            let response = host.answer(&exchange);
            send(host.send(exchange, response, &now), respond);
            return Http2Event::GoAway;
        }
        RuleAction::GoAwayBelow => {
            unanswered(exchange, false);
            return Http2Event::GoAwayBelow(respond);
        }
        RuleAction::Truncate { status } => {
            if let Some(mut stream) = begin(exchange, respond, status) {
                let _given_up = stream.send_data(Bytes::from_static(b"{\"reason\":"), false);
                tokio::task::yield_now().await; // lets the connection write what there is
                stream.send_reset(Reason::INTERNAL_ERROR);
            }
        }
        RuleAction::SlowBody { status, octets, every_ms } => {
            if let Some(stream) = begin(exchange, respond, status) {
                slow_body(stream, octets, Duration::from_millis(every_ms)).await;
            }
        }
        RuleAction::EndlessBody { status } => {
            if let Some(stream) = begin(exchange, respond, status) {
                endless_body(stream).await;
            }
        }
        // Answered above, or an action for connections.
        _ => unanswered(exchange, false),
    }
    Http2Event::Done
}

fn begin_answer(
    host: &Host, exchange: Exchange, mut respond: SendResponse<Bytes>, status: u16, now: &Moment,
) -> Option<h2::SendStream<Bytes>> {
    let response = Response::builder().status(status).body(Bytes::new()).ok()?;
    let head = host.send(exchange, response, now).map(|_| ());
    host.logbook.touch(now.unix_ms);
    respond.send_response(head, false).ok()
}

/// Waits until the client resets the stream or the connection ends.
async fn given_up(respond: &mut SendResponse<Bytes>) {
    let _reason = std::future::poll_fn(|cx| respond.poll_reset(cx)).await;
}

async fn slow_body(mut stream: h2::SendStream<Bytes>, octets: u32, every: Duration) {
    for left in (0..octets).rev() {
        tokio::time::sleep(every).await;
        if stream.send_data(Bytes::from_static(b"."), left == 0).is_err() {
            return;
        }
    }
}

async fn endless_body(mut stream: h2::SendStream<Bytes>) {
    static CHUNK: [u8; 16_384] = [b'.'; 16_384];
    loop {
        stream.reserve_capacity(CHUNK.len());
        let Some(Ok(room)) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await else { return };
        if stream.send_data(Bytes::from_static(&CHUNK[..room.min(CHUNK.len())]), false).is_err() {
            return;
        }
    }
}

/// Octets of a connection. `extra` is written at the next flush, at which `h2` has written whole frames.
struct FrameWriter<T> {
    io: T,
    extra: Arc<Mutex<Bytes>>,
}

impl<T: AsyncRead + Unpin> AsyncRead for FrameWriter<T> {
    fn poll_read(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for FrameWriter<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, octets: &[u8]) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(cx, octets)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>, cx: &mut Context<'_>, slices: &[std::io::IoSlice<'_>],
    ) -> Poll<std::io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        let this = self.get_mut();
        let mut extra = this.extra.lock();
        while !extra.is_empty() {
            let written = ready!(Pin::new(&mut this.io).poll_write(cx, &extra))?;
            extra.advance(written);
        }
        Pin::new(&mut this.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}
