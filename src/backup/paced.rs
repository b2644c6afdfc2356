//! A writer with a rate limit, so that deliveries of a busy server have priority over a backup.

use std::io::{self, Write};
use std::num::NonZeroU64;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Writes to `inner`, and sleeps after each write to keep the rate.
pub(super) struct Paced<W> {
    inner: W,
    octets: u64,
    /// Maximum octets per second.
    max_rate: Option<NonZeroU64>,
    /// Time at which the octets so far may have been written.
    due: Instant,
}

impl<W: Write> Paced<W> {
    pub(super) fn new(inner: W, max_rate: Option<NonZeroU64>) -> Self {
        Self { inner, octets: 0, max_rate, due: Instant::now() }
    }

    /// Octets written so far.
    pub(super) fn octets(&self) -> u64 {
        self.octets
    }

    pub(super) fn get_ref(&self) -> &W {
        &self.inner
    }
}

impl<W: Write> Write for Paced<W> {
    fn write(&mut self, octets: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(octets)?;
        self.octets += n as u64;
        if let Some(max_rate) = self.max_rate {
            let now = Instant::now();
            // Idle time gives no credit: later writes are not faster.
            self.due = self.due.max(now) + takes(n, max_rate);
            sleep(self.due - now);
        }
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

/// Returns the time that `octets` take at this rate.
fn takes(octets: usize, rate: NonZeroU64) -> Duration {
    Duration::from_nanos(u64::try_from(octets as u128 * 1_000_000_000 / u128::from(rate.get())).unwrap_or(u64::MAX))
}

#[cfg(test)]
#[path = "../../tests/unit/backup/paced.rs"]
mod tests;
