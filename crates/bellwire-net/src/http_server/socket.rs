//! Socket of a client with timeouts for idle and slow clients.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::ListenerLimits;
use super::head::Heads;
use super::progress::{ConnectionPhase, ConnectionProgress};
use super::refusal::{RefusalBody, status_of_library};

/// Time without octets of the client after which a shut down connection is closed, and the maximum in all. Until then its
/// octets are read: closing a socket with unread octets resets the connection, and the client loses the end of its response.
const LINGER: Duration = Duration::from_secs(2);
const LINGER_MAX: Duration = Duration::from_secs(30);

pub(super) struct Socket<S> {
    stream: S,
    progress: Arc<ConnectionProgress>,
    limits: ListenerLimits,
    /// Parser of HTTP/1.1 heads. `None` for HTTP/2.
    heads: Option<Heads>,
    refusal: Option<RefusalBody>,
    /// Rest of a response that is written in place of the library's.
    replacement: Option<Bytes>,
    /// Octets after a head that the library has not parsed yet: at most one read.
    held: BytesMut,
    reading: Patience<ConnectionPhase>,
    writing: Patience<()>,
    lingering: Patience<u64>,
    closing: Patience<()>,
}

impl<S> Socket<S> {
    pub(super) fn new(
        stream: S, progress: Arc<ConnectionProgress>, limits: ListenerLimits, http1: Option<(Heads, RefusalBody)>,
    ) -> Self {
        let (heads, refusal) = http1.unzip();
        let (reading, writing) = (Patience::default(), Patience::default());
        let (lingering, closing) = (Patience::default(), Patience::default());
        Self {
            stream,
            progress,
            limits,
            heads,
            refusal,
            replacement: None,
            held: BytesMut::new(),
            reading,
            writing,
            lingering,
            closing,
        }
    }

    /// Returns the result of a write, or an error once the client has read nothing for [`ListenerLimits::stalled`].
    fn unless_stalled<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.writing.end();
            return written;
        }
        ready!(self.writing.poll(cx, (), self.limits.stalled));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> Socket<S> {
    /// Reads available octets, at most to the end of a head.
    fn poll_octets(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Some(heads) = &mut self.heads else { return Pin::new(&mut self.stream).poll_read(cx, buf) };
        if heads.is_at_end_of_head(&self.progress) {
            self.progress.parsed.register(cx.waker());
            // The head may have been parsed before the waker was registered.
            if heads.is_at_end_of_head(&self.progress) {
                return Poll::Pending;
            }
        }
        if !self.held.is_empty() {
            let most = self.held.len().min(buf.remaining());
            let passed = heads.pass(&self.held[..most], &self.progress);
            buf.put_slice(&self.held[..passed]);
            self.held.advance(passed);
            return Poll::Ready(Ok(()));
        }
        let before = buf.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(cx, buf))?;
        let passed = heads.pass(&buf.filled()[before..], &self.progress);
        self.held.extend_from_slice(&buf.filled()[before + passed..]);
        buf.set_filled(before + passed);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Socket<S> {
    /// Treats a timeout like the end of the connection.
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = this.poll_octets(cx, buf);
        let phase = this.progress.phase();
        if read.is_ready() {
            if buf.filled().len() > before {
                this.progress.note_read();
                if phase == ConnectionPhase::Idle {
                    this.progress.enter(ConnectionPhase::Head);
                    this.reading.end();
                }
            }
            return read;
        }
        let within = match phase {
            ConnectionPhase::Idle => this.limits.idle,
            ConnectionPhase::Head => this.limits.head,
            ConnectionPhase::Exchange => return Poll::Pending,
        };
        ready!(this.reading.poll(cx, phase, within));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> Socket<S> {
    /// Writes a response with a body in place of one that the library sends without a body, because it cannot parse a
    /// head. Returns `None` for all other octets.
    fn poll_replacement(&mut self, cx: &mut Context<'_>, octets: &[u8]) -> Option<Poll<io::Result<usize>>> {
        if self.replacement.is_none() && !self.progress.is_responding() {
            let (status, detail) = status_of_library(octets, &self.limits)?;
            // The client may still be sending, and must receive the response nevertheless.
            self.progress.cut_body();
            self.replacement = Some(self.refusal?.response(status, &detail).into());
        }
        let rest = self.replacement.as_mut()?;
        while !rest.is_empty() {
            match Pin::new(&mut self.stream).poll_write(cx, rest) {
                Poll::Ready(Ok(0)) => return Some(Poll::Ready(Err(io::ErrorKind::WriteZero.into()))),
                Poll::Ready(Ok(written)) => rest.advance(written),
                stopped => return Some(stopped),
            }
        }
        self.replacement = None;
        Some(Poll::Ready(Ok(octets.len())))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let Some(written) = this.poll_replacement(cx, buf) {
            return this.unless_stalled(cx, written);
        }
        let written = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.unless_stalled(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>, cx: &mut Context<'_>, bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if let [octets] = bufs
            && let Some(written) = this.poll_replacement(cx, octets)
        {
            return this.unless_stalled(cx, written);
        }
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        this.unless_stalled(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        if matches!(flushed, Poll::Ready(Ok(()))) {
            this.progress.note_flushed();
        }
        this.unless_stalled(cx, flushed)
    }

    /// Shuts the write side down, and reads for a while, so that a client that still sends receives the response. Such a client
    /// sends the rest of a body by HTTP/1.1, and WINDOW_UPDATEs by HTTP/2.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let said = Pin::new(&mut this.stream).poll_shutdown(cx);
        ready!(this.unless_stalled(cx, said))?;
        if this.heads.is_some() && !this.progress.body_cut.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        let mut octets = [0; 4_096];
        loop {
            let is_silent = this.lingering.poll(cx, this.progress.reads(), LINGER).is_ready();
            if is_silent || this.closing.poll(cx, (), LINGER_MAX).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let mut sink = ReadBuf::new(&mut octets);
            match ready!(Pin::new(&mut this.stream).poll_read(cx, &mut sink)) {
                Ok(()) if !sink.filled().is_empty() => this.progress.note_read(),
                _ => return Poll::Ready(Ok(())),
            }
        }
    }
}

/// Timeout of an operation. `T` distinguishes one operation from the next.
pub(super) struct Patience<T> {
    with: Option<T>,
    alarm: Option<Pin<Box<Sleep>>>,
}

impl<T> Default for Patience<T> {
    fn default() -> Self {
        Self { with: None, alarm: None }
    }
}

impl<T: Copy + PartialEq> Patience<T> {
    /// Completes once the same operation has taken this time.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, with: T, within: Duration) -> Poll<()> {
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep(within)));
        if self.with != Some(with) {
            self.with = Some(with);
            alarm.as_mut().reset(Instant::now() + within);
        }
        alarm.as_mut().poll(cx)
    }

    /// Ends the operation that the timeout is for.
    pub(super) fn end(&mut self) {
        self.with = None;
    }
}
