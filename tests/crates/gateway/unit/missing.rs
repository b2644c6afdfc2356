//! Unit tests of `crates/bellwire-gateway/src/missing.rs`, which includes them.

use super::*;

const HOUR: Duration = Duration::from_secs(3600);

#[test]
fn host_missing_for_hours_is_gone() {
    let (missing, now) = (Missing::new(6 * HOUR), Instant::now());
    assert_eq!([0, 1, 5].map(|hours| missing.missed("a.example", now + HOUR * hours)), [false; 3]);
    assert!(missing.missed("a.example", now + HOUR * 6));
    assert!(!missing.missed("b.example", now + HOUR * 6), "each for itself");
    missing.found("a.example");
    assert!(!missing.missed("a.example", now + HOUR * 7), "it begins anew");
}

#[test]
fn missing_hosts_take_bounded_memory() {
    let (missing, now) = (Missing::new(6 * HOUR), Instant::now());
    for n in 0..HOSTS_MAX {
        missing.missed(&format!("{n}.example"), now);
    }
    assert!(!missing.missed("late.example", now) && !missing.missed("late.example", now + 7 * HOUR), "no room");
    assert!(!missing.missed("late.example", now + KEPT));
    assert!(missing.missed("late.example", now + KEPT + 6 * HOUR));
}
