//! Unit tests of `crates/bellwire-telemetry/src/panics.rs`, which includes them.

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
    assert!(told.iter().any(|words| words == "withheld, since it may contain data"), "{told:?}");
    assert!(told.iter().all(|words| !words.contains("secret")), "{told:?}");
}
