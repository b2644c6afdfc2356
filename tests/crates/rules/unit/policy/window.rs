//! Unit tests of `crates/bellwire-rules/src/policy/window.rs`, which includes them.

use super::*;

fn at(s: i64) -> Timestamp {
    Timestamp::from_timestamp(1_800_000_000 + s, 0).unwrap()
}

#[test]
fn events_count_for_a_minute() {
    let mut window = Window::default();
    assert_eq!(window.count(at(0), true), WindowCounts { events: 1, hits: 1 });
    assert_eq!(window.count(at(30), false), WindowCounts { events: 2, hits: 1 });
    assert_eq!(window.count(at(54), false), WindowCounts { events: 3, hits: 1 });
    assert_eq!(window.count(at(60), false), WindowCounts { events: 3, hits: 0 });
    assert_eq!(window.count(at(1_000), true), WindowCounts { events: 1, hits: 1 });
}

#[test]
fn hit_counts_at_the_time_of_its_event() {
    let mut window = Window::default();
    window.event(at(0));
    window.event(at(20));
    window.hit(at(0));
    assert_eq!(window.totals(at(50)), WindowCounts { events: 2, hits: 1 });
    assert_eq!(window.totals(at(60)), WindowCounts { events: 1, hits: 0 });
    window.hit(at(0)); // forgotten
    window.withdraw(at(20));
    assert_eq!(window.totals(at(60)), WindowCounts::default());
}

#[test]
fn clock_set_back_keeps_hits_for_their_time() {
    let mut window = Window::default();
    window.count(at(100), true);
    assert_eq!(window.count(at(70), true), WindowCounts { events: 2, hits: 2 });
    window.count(at(1_000_000), true);
    assert_eq!(window.count(at(100), true), WindowCounts { events: 1, hits: 1 });
    assert_eq!(window.count(at(160), true), WindowCounts { events: 1, hits: 1 });
}
