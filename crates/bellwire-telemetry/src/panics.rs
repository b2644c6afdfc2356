//! Handling of panics: each one is counted, logged without its data, and confined to the work that caused it.
//!
//! Work for one request, delivery, batch or webhook is abandoned. Permanent work is [restarted](begun_again) after a pause. Where state may
//! be inconsistent, the process ends: the service manager starts another one, and other workers take over meanwhile.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::future::Future;
use std::panic::{AssertUnwindSafe, PanicHookInfo, catch_unwind};
use std::sync::LazyLock;
use std::time::Duration;

use futures_util::FutureExt as _;
use prometheus_client::metrics::counter::Counter;
use tokio::time::{Instant, sleep};
use tracing::error;
use uuid::Uuid;

/// Pause before panicked work is restarted. It doubles with each further panic.
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Running time after which work counts as healthy: the next pause is short again.
const HEALTHY_AFTER: Duration = Duration::from_secs(300);

static COUNT: LazyLock<Counter> = LazyLock::new(Counter::default);

/// Returns the number of panics of this process since its start, including caught ones.
pub fn count() -> &'static Counter {
    &COUNT
}

/// Installs a panic hook that counts and logs panics. Without a log, they are printed to standard error as before.
pub fn watch() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        note(info);
        if !tracing::dispatcher::has_been_set() {
            before(info);
        }
    }));
}

/// Counts and logs panics, and calls the previous hook as well. For tests.
pub fn watch_too() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        note(info);
        before(info);
    }));
}

/// Returns the number of panics since [`watch_too`], for tests.
pub fn counted() -> u64 {
    COUNT.get()
}

/// Logs a panic. The log line is in the span that panicked, so it has the id of the request or delivery.
fn note(info: &PanicHookInfo<'_>) {
    COUNT.inc();
    let place = info.location().map(ToString::to_string);
    let backtrace = Backtrace::capture(); // with RUST_BACKTRACE=1
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    let thread = std::thread::current().name().map(str::to_owned);
    error!(place, thread, backtrace, why = words(info), "a panic");
}

/// Returns a panic's message if it is a constant. A formatted message may contain an endpoint, a payload or a key.
fn words<'a>(info: &'a PanicHookInfo<'_>) -> &'a str {
    info.payload().downcast_ref::<&'static str>().copied().unwrap_or("withheld, since it may contain data")
}

/// Error of work that panicked. The log names the place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it panicked; the log names the place")]
pub struct Panicked;

/// Runs work and catches its panic. State shared with other work must stay consistent when it panics: mutexes are not poisoned.
pub async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|_| Panicked)
}

pub fn caught_now<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| Panicked)
}

/// Runs permanent work, and restarts it after each panic. Returns when the work returns.
pub async fn begun_again<W: Future<Output = ()>>(name: &'static str, work: impl Fn() -> W) {
    let mut pause = None;
    loop {
        let began = Instant::now();
        let Err(Panicked) = caught(async { work().await }).await else { return };
        let rest = rest_after(pause, began.elapsed());
        error!(work = name, again_in_s = rest.as_secs(), "what panicked begins again");
        sleep(rest).await;
        pause = Some(rest);
    }
}

/// Returns the pause before work is restarted, from the previous pause and the time the work ran since.
fn rest_after(before: Option<Duration>, went_on: Duration) -> Duration {
    match before.filter(|_| went_on < HEALTHY_AFTER) {
        None => PAUSE,
        Some(before) => (before * 2).min(PAUSE_MAX),
    }
}

/// Marks a point at which tests can cause a panic. `of` is the id of the work. Does nothing in release builds.
#[inline]
pub fn point(place: &'static str, of: Uuid) {
    #[cfg(debug_assertions)]
    injected::reached(place, of);
    #[cfg(not(debug_assertions))]
    let _ = (place, of);
}

#[cfg(debug_assertions)]
pub use injected::{inject, injected};

#[cfg(debug_assertions)]
mod injected {
    use std::collections::HashMap;

    use parking_lot::Mutex;
    use uuid::Uuid;

    /// Pending panics, by point and id of the work.
    static WANTED: Mutex<Option<HashMap<(&'static str, Uuid), usize>>> = Mutex::new(None);

    /// Makes a [point](super::point) panic this many times for the work with this id.
    pub fn inject(place: &'static str, of: Uuid, times: usize) {
        WANTED.lock().get_or_insert_default().insert((place, of), times);
    }

    /// Returns the number of pending panics at this point.
    pub fn injected(place: &'static str, of: Uuid) -> usize {
        WANTED.lock().as_ref().and_then(|wanted| wanted.get(&(place, of)).copied()).unwrap_or(0)
    }

    pub(super) fn reached(place: &'static str, of: Uuid) {
        let is_wanted = match WANTED.lock().as_mut().and_then(|wanted| wanted.get_mut(&(place, of))) {
            Some(left) if *left > 0 => {
                *left -= 1;
                true
            }
            _ => false,
        };
        assert!(!is_wanted, "a test wants {place} of {of} to panic");
    }
}

#[cfg(test)]
#[path = "../../../tests/crates/telemetry/unit/panics.rs"]
mod tests;
