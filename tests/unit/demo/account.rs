//! Unit tests of `src/demo/account.rs`, which includes them.

use super::*;

#[test]
fn latency_is_told_by_nearest_rank() {
    let latency = Latency::of((1..=200).rev().collect());
    assert_eq!((latency.messages, latency.p50_ms, latency.p99_ms, latency.max_ms), (200, 100, 198, 200));
    let one = Latency::of(vec![7]);
    assert_eq!((one.p50_ms, one.p99_ms, one.max_ms), (7, 7, 7));
    assert_eq!(Latency::of(vec![]).messages, 0);
}

#[test]
fn peak_is_the_densest_half() {
    let times: Vec<i64> = (0..50).map(|n| n * 100).chain((0..50).map(|n| 10_000 + n)).collect();
    assert!((peak_per_s(&times) - 1_000.0).abs() < 30.0, "{}", peak_per_s(&times));
    assert_eq!(peak_per_s(&[]), 0.0);
}
