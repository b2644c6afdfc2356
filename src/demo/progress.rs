//! Progress output on standard error: a bar on a terminal, otherwise a line per second.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use parking_lot::Mutex;

/// Time between two plain lines.
const EVERY: Duration = Duration::from_secs(1);
const BAR: &str = "{elapsed:>4} {prefix:<15} [{bar:32}] {human_pos}/{human_len} {msg}";

#[derive(Debug)]
pub(super) struct Progress {
    began: Instant,
    /// Progress bar. `None`: standard error is not a terminal.
    bar: Option<ProgressBar>,
    plain: Mutex<Plain>,
}

#[derive(Debug)]
struct Plain {
    what: &'static str,
    total: u64,
    next: Instant,
}

impl Progress {
    /// Creates the output, depending on whether standard error is a terminal.
    pub(super) fn new() -> Self {
        let began = Instant::now();
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template(BAR).unwrap_or_else(|_| ProgressStyle::default_bar());
            ProgressBar::new(0).with_style(style.progress_chars("=> "))
        });
        Self { began, bar, plain: Mutex::new(Plain { what: "", total: 0, next: began }) }
    }

    /// Time since the demo began.
    pub(super) fn elapsed(&self) -> Duration {
        self.began.elapsed()
    }

    /// Starts a phase with this many steps.
    pub(super) fn begin(&self, what: &'static str, total: u64) {
        if let Some(bar) = &self.bar {
            bar.set_prefix(what);
            bar.set_length(total);
            bar.set_position(0);
            bar.set_message("");
        }
        *self.plain.lock() = Plain { what, total, next: Instant::now() + EVERY };
    }

    /// Reports the number of steps done. `remark` is called only if it is printed.
    pub(super) fn reach(&self, done: u64, remark: impl FnOnce() -> String) {
        if let Some(bar) = &self.bar {
            bar.set_position(done);
            bar.set_message(remark());
            return;
        }
        let mut plain = self.plain.lock();
        if Instant::now() >= plain.next {
            plain.next = Instant::now() + EVERY;
            let line = format!("{}: {done} of {} {}", plain.what, plain.total, remark());
            self.line(line.trim_end());
        }
    }

    pub(super) fn say(&self, text: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.line(text)),
            None => self.line(text),
        }
    }

    fn line(&self, text: &str) {
        // Without standard error there is no reader.
        let _ = writeln!(std::io::stderr(), "{:6.1} s  {text}", self.elapsed().as_secs_f64());
    }

    pub(super) fn finish(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
        }
    }
}
