//! Unit tests of `crates/bellwire-store/src/queue/claims/batches.rs`, which includes them.

use super::*;

#[test]
fn paced_cursor_keeps_its_pace() {
    let start: Timestamp = "2026-12-01T09:00:00Z".parse().unwrap();
    let ms = chrono::TimeDelta::milliseconds;
    assert_eq!([1, 1_000, 999_999, 1_000_000, 60_000_000].map(paced_size), [1_000_000, 1_000, 1, 1, 1]);
    let mut due_at = start;
    for second in 0..60 {
        let now = start + ms(second * 1_000 + 700); // each look is late
        due_at = paced(due_at, 10_000, 100, now);
    }
    assert_eq!(due_at, start + ms(60_000), "6,000 in a minute, as asked for");
    let late = start + ms(3_600_000);
    assert_eq!(paced(start, 10_000, 100, late), late - ms(2_000) + ms(1_000));
}
