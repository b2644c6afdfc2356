//! A client's socket, which gives the client up where it keeps us waiting.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep};

use super::Limits;

/// How long a client may go on sending a body that nobody wants. It would not see the response otherwise: a socket that
/// is closed with octets unread resets the connection.
const LINGER: Duration = Duration::from_secs(2);

/// What a connection is busy with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Phase {
    /// Nothing: no octet of a request has come.
    Idle,
    /// A request's line and headers have come in part.
    Head,
    /// A request is being answered; its body may still be on its way.
    Exchange,
}

/// The phase, as the two sides of the HTTP library see it: octets come in on one, requests go out on the other.
#[derive(Debug, Default)]
pub(super) struct Progress {
    phase: AtomicU8,
    body_cut: AtomicBool,
}

impl Progress {
    pub(super) fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Relaxed) {
            0 => Phase::Idle,
            1 => Phase::Head,
            _ => Phase::Exchange,
        }
    }

    pub(super) fn enter(&self, phase: Phase) {
        if phase == Phase::Exchange {
            self.body_cut.store(false, Ordering::Relaxed);
        }
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// Notes that a request's body will not be read to its end.
    pub(super) fn cut_body(&self) {
        self.body_cut.store(true, Ordering::Relaxed);
    }
}

/// The socket, with TLS or without.
pub(super) struct Socket<S> {
    stream: S,
    progress: Arc<Progress>,
    limits: Limits,
    reading: Patience<Phase>,
    writing: Patience<()>,
    closing: Patience<()>,
}

impl<S> Socket<S> {
    pub(super) fn new(stream: S, progress: Arc<Progress>, limits: Limits) -> Self {
        let (reading, writing, closing) = (Patience::default(), Patience::default(), Patience::default());
        Self { stream, progress, limits, reading, writing, closing }
    }

    /// Passes on what became of a write, unless the client has taken nothing for too long.
    fn unless_stalled<T>(&mut self, cx: &mut Context<'_>, written: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if written.is_ready() {
            self.writing.end();
            return written;
        }
        ready!(self.writing.poll(cx, (), self.limits.stalled));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Socket<S> {
    /// A client that takes too long looks like one that has hung up.
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = buf.filled().len();
        let read = Pin::new(&mut this.stream).poll_read(cx, buf);
        let phase = this.progress.phase();
        if read.is_ready() {
            if phase == Phase::Idle && buf.filled().len() > before {
                this.progress.enter(Phase::Head);
                this.reading.end();
            }
            return read;
        }
        let within = match phase {
            Phase::Idle => this.limits.idle,
            Phase::Head => this.limits.head,
            Phase::Exchange => return Poll::Pending,
        };
        ready!(this.reading.poll(cx, phase, within));
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Socket<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write(cx, buf);
        this.unless_stalled(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, bufs);
        this.unless_stalled(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        this.unless_stalled(cx, flushed)
    }

    /// Says that nothing more will come, and lets a client that is still sending see the response first.
    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let said = Pin::new(&mut this.stream).poll_shutdown(cx);
        ready!(this.unless_stalled(cx, said))?;
        if !this.progress.body_cut.load(Ordering::Relaxed) {
            return Poll::Ready(Ok(()));
        }
        let mut octets = [0; 4_096];
        loop {
            if this.closing.poll(cx, (), LINGER).is_ready() {
                return Poll::Ready(Ok(()));
            }
            let mut sink = ReadBuf::new(&mut octets);
            match ready!(Pin::new(&mut this.stream).poll_read(cx, &mut sink)) {
                Ok(()) if !sink.filled().is_empty() => {}
                _ => return Poll::Ready(Ok(())),
            }
        }
    }
}

/// A time limit for something that is waited for. `T` tells one thing from the next.
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
    /// Is ready once the same has been waited for so long.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, with: T, within: Duration) -> Poll<()> {
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(sleep(within)));
        if self.with != Some(with) {
            self.with = Some(with);
            alarm.as_mut().reset(Instant::now() + within);
        }
        alarm.as_mut().poll(cx)
    }

    /// What was waited for has come.
    pub(super) fn end(&mut self) {
        self.with = None;
    }
}
