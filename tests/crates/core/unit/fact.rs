//! Unit tests of `crates/bellwire-core/src/fact.rs`, which includes them.

use super::*;

#[test]
fn every_fact_has_a_number_of_its_own() {
    let facts: Vec<Fact> = Fact::all().collect();
    let mut codes: Vec<i16> = facts.iter().map(|fact| fact.code()).collect();
    codes.sort_unstable();
    codes.dedup();
    assert_eq!(codes.len(), facts.len());
    // Those that SQL knows by their numbers.
    assert_eq!((Fact::Ended(Ending::Accepted).code(), Fact::Won.code()), (1, 40));
    assert_eq!(Loss::ALL.map(|loss| Fact::Lost(loss).code()), [41, 42, 43, 44, 45, 46]);
    assert_eq!(ReceiptKind::ALL.map(|kind| Fact::Receipt(kind).code()), [21, 22, 23, 24, 25, 26]);
}

#[test]
fn what_is_stored_reads_back() {
    let mut counts = FactCounts::default();
    counts.add(Fact::Won);
    counts.add(Fact::Won);
    counts.add(Fact::Waited(WAITS + 7));
    let stored: Vec<_> = counts.stored().collect();
    assert_eq!(stored, [(40, 2), (148, 1)]);
    let mut read = FactCounts::default();
    stored.iter().for_each(|(code, n)| read.add_stored(*code, *n));
    read.add_stored(9_999, 1);
    read.add_stored(-1, 1);
    assert_eq!(read, counts);
}

#[test]
fn quantiles_are_within_19_percent_of_the_truth() {
    for truth_ms in [11, 25, 99, 100, 500, 1_000, 4_321, 60_000, 3_600_000, 86_400_000] {
        let mut counts = FactCounts::default();
        counts.add(Fact::Waited(wait_class(Duration::from_millis(truth_ms))));
        let (read, truth) = (counts.wait_quantile(0.5).unwrap(), truth_ms as f64 / 1_000.0);
        assert!((read / truth).max(truth / read) <= 1.19, "{truth_ms} ms reads as {read} s");
    }
}

#[test]
fn a_quantile_is_where_its_share_lies() {
    let mut counts = FactCounts::default();
    assert_eq!(counts.wait_quantile(0.5), None);
    for waited_ms in (1..=100).map(|n| n * 100) {
        counts.add(Fact::Waited(wait_class(Duration::from_millis(waited_ms))));
    }
    for (share, truth) in [(0.0, 0.1), (0.5, 5.0), (0.95, 9.5), (1.0, 10.0)] {
        let read = counts.wait_quantile(share).unwrap();
        assert!((read / truth).max(truth / read) <= 1.19, "{share}: {read}");
    }
    for (waited, shortest, longest) in [(Duration::ZERO, 0.01, 0.01), (Duration::MAX, 118_000.0, 119_000.0)] {
        let mut counts = FactCounts::default();
        counts.add(Fact::Waited(wait_class(waited)));
        let read = counts.wait_quantile(0.5).unwrap();
        assert!((shortest..=longest).contains(&read), "{waited:?}: {read}");
    }
}

#[test]
fn every_status_has_a_class() {
    for (status, class) in [
        (Some(201), "2xx"),
        (Some(307), "3xx"),
        (Some(404), "gone"),
        (Some(410), "gone"),
        (Some(413), "4xx"),
        (Some(429), "429"),
        (Some(503), "5xx"),
        (Some(999), "5xx"),
        (Some(100), "5xx"),
        (None, "none"),
    ] {
        assert_eq!(StatusClass::of(status).name(), class, "{status:?}");
    }
}
