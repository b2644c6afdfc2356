//! What a panic comes to: it is counted, told in the log without what it was at, and goes no further than it must.
//!
//! What serves one request, delivery, batch or webhook is given up alone. What goes on for ever begins [again](begun_again) after a pause,
//! or ends the process, where its state may be wrong: whoever looks after processes starts another, and other workers take over meanwhile.

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

/// How long work rests after a panic before it begins again; doubles with each further one,
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(60);
/// Work that went on for so long since is taken for healthy: the next pause is short again.
const HEALTHY_AFTER: Duration = Duration::from_secs(300);

static COUNT: LazyLock<Counter> = LazyLock::new(Counter::default);

/// Panics of this process since its start, those that were caught included.
pub(crate) fn count() -> &'static Counter {
    &COUNT
}

/// From now on panics are counted and told in the log; as ever on standard error while there is none.
pub(crate) fn watch() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        note(info);
        if !tracing::dispatcher::has_been_set() {
            before(info);
        }
    }));
}

/// Counts panics, and tells them in the log, beside what was done with them before: for tests.
pub fn watch_too() {
    let before = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        note(info);
        before(info);
    }));
}

/// Panics of this process since [`watch_too`]: for tests.
pub fn counted() -> u64 {
    COUNT.get()
}

/// The log's line stands in the span that panicked: it has the request's id, or the delivery's.
fn note(info: &PanicHookInfo<'_>) {
    COUNT.inc();
    let place = info.location().map(ToString::to_string);
    let backtrace = Backtrace::capture(); // with RUST_BACKTRACE=1
    let backtrace = (backtrace.status() == BacktraceStatus::Captured).then(|| backtrace.to_string());
    let thread = std::thread::current().name().map(str::to_owned);
    error!(place, thread, backtrace, why = words(info), "a panic");
}

/// What a panic says, if that was written when the program was. What was put together then may quote an endpoint, a payload or a key.
fn words<'a>(info: &'a PanicHookInfo<'_>) -> &'a str {
    info.payload().downcast_ref::<&'static str>().copied().unwrap_or("not told, since it may quote data")
}

/// Work that panicked; the log tells where.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("it panicked; the log tells where")]
pub(crate) struct Panicked;

/// What work comes to. What it shares with others must not stay half changed when it panics: our mutexes are not poisoned.
pub(crate) async fn caught<T>(work: impl Future<Output = T>) -> Result<T, Panicked> {
    AssertUnwindSafe(work).catch_unwind().await.map_err(|_| Panicked)
}

pub(crate) fn caught_now<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    catch_unwind(AssertUnwindSafe(work)).map_err(|_| Panicked)
}

/// Work that is to go on for ever: begins again after each panic. Ends when the work does.
pub(crate) async fn begun_again<W: Future<Output = ()>>(name: &'static str, work: impl Fn() -> W) {
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

/// How long work rests that panicked after it went on for so long, and had rested so long before.
fn rest_after(before: Option<Duration>, went_on: Duration) -> Duration {
    match before.filter(|_| went_on < HEALTHY_AFTER) {
        None => PAUSE,
        Some(before) => (before * 2).min(PAUSE_MAX),
    }
}

/// Where tests make something panic. Nothing happens in a program that is built for release.
#[inline]
pub(crate) fn point(place: &'static str, of: Uuid) {
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

    /// Panics that are still to come, by place and by what is at it.
    static WANTED: Mutex<Option<HashMap<(&'static str, Uuid), usize>>> = Mutex::new(None);

    /// Makes a [place](super::point) panic for what has this id, so many times.
    pub fn inject(place: &'static str, of: Uuid, times: usize) {
        WANTED.lock().get_or_insert_default().insert((place, of), times);
    }

    /// How many of these panics are still to come.
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
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn panicking_work_backs_off_up_to_a_minute() {
        let (mut rest, mut rests) = (None, Vec::new());
        for _ in 0..8 {
            rest = Some(rest_after(rest, Duration::from_secs(1)));
            rests.extend(rest.map(|rest| rest.as_secs()));
        }
        assert_eq!(rests, [1, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(rest_after(rest, HEALTHY_AFTER), PAUSE);
    }

    #[tokio::test]
    async fn work_restarts_after_a_panic() {
        let begun = AtomicUsize::new(0);
        let work = begun_again("a test", || async {
            assert!(begun.fetch_add(1, Ordering::Relaxed) > 0, "not at first");
        });
        work.await;
        assert_eq!(begun.load(Ordering::Relaxed), 2);
    }

    #[tokio::test]
    async fn what_panics_is_given_up_alone() {
        assert_eq!(caught(async { 7 }).await, Ok(7));
        assert_eq!(caught(async { panic!("a test") }).await, Err::<(), _>(Panicked));
        assert_eq!(caught_now(|| panic!("a test")), Err::<(), _>(Panicked));
    }

    #[test]
    fn only_static_panic_texts_are_shown() {
        static TOLD: parking_lot::Mutex<Vec<String>> = parking_lot::Mutex::new(Vec::new());
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            TOLD.lock().push(words(info).to_owned());
            before(info);
        }));
        let secret = "https://push.example/secret";
        let _ = caught_now(|| panic!("the endpoint {secret} is wrong"));
        let _ = caught_now(|| panic!("words of the program alone"));
        let told = TOLD.lock().clone(); // not held: the hook waits for it, too
        assert!(told.iter().any(|words| words == "words of the program alone"), "{told:?}");
        assert!(told.iter().any(|words| words == "not told, since it may quote data"), "{told:?}");
        assert!(told.iter().all(|words| !words.contains("secret")), "{told:?}");
    }
}
