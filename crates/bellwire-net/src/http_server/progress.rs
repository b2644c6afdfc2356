//! The progress of a connection, shared by its socket and its requests.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use futures_util::task::AtomicWaker;
use parking_lot::Mutex;

/// Activity of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum ConnectionPhase {
    /// Idle: no byte of a request has arrived.
    Idle,
    Head,
    /// A request is being answered. Its body may still be arriving.
    Exchange,
}

/// State shared by the two sides of the HTTP library: the socket that it reads, and the handler that it calls.
#[derive(Debug, Default)]
pub(super) struct ConnectionProgress {
    phase: AtomicU8,
    pub(super) body_cut: AtomicBool,
    reads: AtomicU64,
    bare_lf: AtomicBool,
    /// Whether bytes of a router's response may have to be written.
    responding: AtomicBool,
    /// Length of the last request's body, until the socket has read it. The inner `None`: a chunked body.
    body: Mutex<Option<Option<u64>>>,
    pub(super) parsed: AtomicWaker,
}

impl ConnectionProgress {
    pub(super) fn phase(&self) -> ConnectionPhase {
        match self.phase.load(Ordering::Relaxed) {
            0 => ConnectionPhase::Idle,
            1 => ConnectionPhase::Head,
            _ => ConnectionPhase::Exchange,
        }
    }

    pub(super) fn enter(&self, phase: ConnectionPhase) {
        if phase == ConnectionPhase::Exchange {
            self.body_cut.store(false, Ordering::Relaxed);
        }
        self.phase.store(phase as u8, Ordering::Relaxed);
    }

    /// Records that the library has parsed a head. Returns whether the head contains a bare LF.
    pub(super) fn begin(&self, body: Option<u64>) -> bool {
        self.enter(ConnectionPhase::Exchange);
        self.responding.store(true, Ordering::Relaxed);
        *self.body.lock() = Some(body);
        self.parsed.wake();
        self.bare_lf.swap(false, Ordering::Relaxed)
    }

    pub(super) fn is_responding(&self) -> bool {
        self.responding.load(Ordering::Relaxed)
    }

    /// Records that everything was written. Ends the response, unless more of it will follow.
    pub(super) fn note_flushed(&self) {
        if self.phase() != ConnectionPhase::Exchange {
            self.responding.store(false, Ordering::Relaxed);
        }
    }

    pub(super) fn take_body(&self) -> Option<Option<u64>> {
        self.body.lock().take()
    }

    pub(super) fn note_bare_lf(&self) {
        self.bare_lf.store(true, Ordering::Relaxed);
    }

    /// Number of reads that returned bytes.
    pub(super) fn reads(&self) -> u64 {
        self.reads.load(Ordering::Relaxed)
    }

    pub(super) fn note_read(&self) {
        self.reads.fetch_add(1, Ordering::Relaxed);
    }

    /// Records that a request's body will not be read to its end.
    pub(super) fn cut_body(&self) {
        self.body_cut.store(true, Ordering::Relaxed);
    }
}
