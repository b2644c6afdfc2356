//! Unit tests of `crates/bellwire-store/src/audience/reach.rs`, which includes them.

use super::*;

fn page(looked_at: u32, taken: u32) -> SamplePage {
    SamplePage { looked_at: looked_at.into(), taken: taken.into() }
}

#[test]
fn estimate_improves_with_pages_and_evenness() {
    let (share, margin) = share_of(&[page(10, 2); 1_000]);
    assert!((share - 0.2).abs() < 1e-9 && margin <= 3.0 / 10_000.0 + 1e-9, "{share} {margin}");
    // Each a coin toss: √(0.2 × 0.8 / 10,000) × 1.96.
    let mixed: Vec<SamplePage> = (0..10_000).map(|n| page(1, u32::from(n % 5 == 0))).collect();
    let (share, margin) = share_of(&mixed);
    assert!((share - 0.2).abs() < 1e-9 && (margin - 0.00784).abs() < 1e-4, "{share} {margin}");
    // The same subscriptions, but those of a page are all alike: as good as a tenth of them.
    let alike: Vec<SamplePage> = (0..1_000).map(|n| page(10, if n % 5 == 0 { 10 } else { 0 })).collect();
    let (share, margin) = share_of(&alike);
    assert!((share - 0.2).abs() < 1e-9 && (margin - 0.0248).abs() < 1e-4, "{share} {margin}");
}

#[test]
fn sample_without_hits_has_an_upper_bound() {
    assert_eq!(share_of(&[page(10, 0); 100]), (0.0, 0.003));
    assert_eq!(share_of(&[page(10, 10); 100]), (1.0, 0.003));
    assert_eq!(share_of(&[page(10, 5)]), (0.5, 1.0), "one page alone says nothing of others");
    assert_eq!(share_of(&[]), (0.0, 1.0));
}

#[test]
fn a_sample_reads_a_bounded_number_of_pages() {
    assert_eq!(percent(0.01, 60_000), 1.0);
    assert_eq!(percent(0.5, 1_000_000), 1.0);
    assert_eq!(percent(3.0, 10), 100.0);
    assert_eq!(percent(0.5, 0), 50.0);
}
