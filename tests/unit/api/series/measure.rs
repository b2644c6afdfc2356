//! Unit tests of `src/api/series/measure.rs`, which includes them.

use super::*;

#[test]
fn every_measure_and_dimension_goes_by_its_name() {
    let all: Vec<_> = Measure::all().collect();
    assert!(all.iter().all(|measure| Measure::named(&measure.name()) == Some(*measure)));
    assert!(Dimension::ALL.into_iter().all(|dimension| Dimension::from_name(dimension.name()) == Some(dimension)));
}

/// Only facts within a measure's span are read: each must come to the same without all others.
#[test]
fn measure_needs_only_facts_of_its_span() {
    let mut all = FactCounts::default();
    (0..).zip(Fact::all()).for_each(|(n, fact)| (0..=n % 7).for_each(|_| all.add(fact)));
    for measure in Measure::all() {
        let (first, last) = measure.facts();
        let mut read = FactCounts::default();
        all.stored().filter(|(code, _)| (first..=last).contains(code)).for_each(|(code, n)| read.add_stored(code, n));
        let value = |counts| measure.value(counts, 0, None, &Filters::default());
        assert_eq!(value(&read), value(&all), "{}", measure.name());
    }
}

#[test]
fn rates_have_honest_denominators() {
    let mut counts = FactCounts::default();
    let times = [
        (Fact::Ended(Ending::Accepted), 6),
        (Fact::Ended(Ending::Gone), 2),
        (Fact::Ended(Ending::Retry), 5),
        (Fact::Posted(StatusClass::Success), 6),
        (Fact::Posted(StatusClass::Failed), 4),
        (Fact::ReceiptAsked, 4),
        (Fact::Receipt(ReceiptKind::Displayed), 2),
        (Fact::Receipt(ReceiptKind::Clicked), 1),
    ];
    for (fact, n) in times {
        (0..n).for_each(|_| counts.add(fact));
    }
    let value =
        |name: &str, counts: &FactCounts| Measure::named(name).unwrap().value(counts, 7, None, &Filters::default());
    for (name, expected) in [
        ("ended", json!(8)),
        ("attempts", json!(10)),
        ("retried", json!(5)),
        ("acceptance_rate", json!(0.75)),
        ("gone_rate", json!(0.25)),
        ("error_rate", json!(0.4)),
        ("receipts_asked", json!(4)),
        ("display_rate", json!(0.5)),
        ("click_rate", json!(0.5)),
        ("subscriptions_active", json!(7)),
    ] {
        assert_eq!(value(name, &counts), expected, "{name}");
    }
    let nothing = FactCounts::default();
    for name in ["acceptance_rate", "gone_rate", "error_rate", "display_rate", "click_rate", "latency_p95"] {
        assert_eq!(value(name, &nothing), Value::Null, "{name} of nothing");
    }
    let mut late = FactCounts::default();
    late.add(Fact::ReceiptAsked);
    (0..2).for_each(|_| late.add(Fact::Receipt(ReceiptKind::Displayed)));
    assert_eq!(value("display_rate", &late), Value::Null, "more was displayed than asked for: of earlier pushes");
    let part = |part| Measure::Ended.value(&counts, 0, Some(part), &Filters::default());
    assert_eq!((part("accepted"), part("gone"), part("dead")), (json!(6), json!(2), json!(0)));
    let only_gone = Filters { outcomes: vec![Ending::Gone], ..Filters::default() };
    assert_eq!(Measure::Ended.value(&counts, 0, None, &only_gone), json!(2));
}
