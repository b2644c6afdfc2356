//! Progress of long work on standard error, with rate and remaining time: a bar on a terminal, else a line every few seconds.

use std::io::{self, IsTerminal as _, Write};
use std::time::{Duration, Instant};

use indicatif::{HumanBytes, HumanCount, HumanDuration, ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;

/// Time between two plain lines.
const EVERY: Duration = Duration::from_secs(5);

/// Unit in which steps are counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Unit {
    Bytes,
    Lines,
}

#[derive(Debug)]
pub(crate) struct Progress {
    what: &'static str,
    unit: Unit,
    /// Hidden unless standard error is a terminal.
    bar: ProgressBar,
    is_quiet: bool,
    /// Time of the next plain line.
    next: Mutex<Instant>,
}

impl Progress {
    /// Begins work of this many steps. `None`: the number is unknown. A quiet one shows nothing.
    pub(crate) fn begin(what: &'static str, unit: Unit, total: Option<u64>, is_quiet: bool) -> Self {
        let is_drawn = !is_quiet && io::stderr().is_terminal();
        let target = if is_drawn { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
        let template = match (total, unit) {
            (Some(_), Unit::Bytes) => "{prefix} [{wide_bar}] {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left",
            (Some(_), Unit::Lines) => "{prefix} [{wide_bar}] {human_pos} of {human_len} lines, {per_sec}, {eta} left",
            (None, Unit::Bytes) => "{prefix} {spinner} {bytes}, {bytes_per_sec}, {elapsed}",
            (None, Unit::Lines) => "{prefix} {spinner} {human_pos} lines, {per_sec}, {elapsed}",
        };
        let style = ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar =
            ProgressBar::with_draw_target(total, target).with_style(style.progress_chars("=> ")).with_prefix(what);
        Self { what, unit, bar, is_quiet, next: Mutex::new(Instant::now() + EVERY) }
    }

    /// Counts further steps. Beyond the total, the total grows.
    pub(crate) fn add(&self, steps: u64) {
        self.bar.inc(steps);
        if self.bar.length().is_some_and(|total| self.bar.position() > total) {
            self.bar.set_length(self.bar.position());
        }
        let mut next = self.next.lock();
        if !self.is_quiet && self.bar.is_hidden() && Instant::now() >= *next {
            *next = Instant::now() + EVERY;
            // Without standard error there is no reader.
            let _ = writeln!(io::stderr(), "{}", self.line());
        }
    }

    fn line(&self) -> String {
        let amount = |steps: u64| match self.unit {
            Unit::Bytes => HumanBytes(steps).to_string(),
            Unit::Lines => format!("{} lines", HumanCount(steps)),
        };
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate is not negative, and shown rounded"
        )]
        let rate = amount(self.bar.per_sec() as u64);
        let done = amount(self.bar.position());
        match self.bar.length() {
            None => format!("{}: {done}, {rate} per second", self.what),
            Some(total) => {
                let left = HumanDuration(self.bar.eta());
                format!("{}: {done} of {}, {rate} per second, {left} left", self.what, amount(total))
            }
        }
    }

    /// Counts what is written.
    pub(crate) fn counting<W: Write>(&self, inner: W) -> Counting<'_, W> {
        Counting { inner, progress: self }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

/// A writer whose bytes are steps of a progress.
#[derive(Debug)]
pub(crate) struct Counting<'a, W> {
    inner: W,
    progress: &'a Progress,
}

impl<W: Write> Write for Counting<'_, W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let n = self.inner.write(bytes)?;
        self.progress.add(n as u64);
        Ok(n)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

#[cfg(test)]
#[path = "../tests/unit/progress.rs"]
mod tests;
