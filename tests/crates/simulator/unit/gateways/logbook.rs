//! Unit tests of `crates/bellwire-simulator/src/gateways/logbook.rs`, which includes them.

use super::*;

fn record(logbook: &Logbook, id: Option<&str>, status: u16) {
    let plaintext = Bytes::from_static(b"{}");
    let sample = Sample { id: id.map(Into::into), plaintext, ttl: Some(60), urgency: None, topic: None };
    logbook.record((0, "fcm.test"), 1, sample, Some(status), status == 201, 5);
}

#[test]
fn repeated_acceptance_is_a_duplicate_retry_not() {
    let logbook = Logbook::new(LogbookLimits { deliveries: 2, plaintexts: 1 });
    for (id, status) in [("a", 503), ("a", 201), ("b", 201), ("b", 201), ("c", 201)] {
        record(&logbook, Some(id), status);
    }
    let report = logbook.report(BTreeMap::new(), vec![]);
    assert_eq!((report.deliveries, report.repeats, report.duplicates, report.records_dropped), (2, 2, 1, 1));
    let received = logbook.received((0, 1));
    let statuses = |at: usize| received[at].attempts.iter().filter_map(|a| a.status).collect::<Vec<_>>();
    assert_eq!((statuses(0), statuses(1)), (vec![503, 201], vec![201, 201]));
    assert!(received[0].plaintext.is_some() && received[1].plaintext.is_none());
    assert_eq!(logbook.delivery("b").map(|delivery| delivery.accepted), Some(2));
}

#[test]
fn recorded_plaintext_is_the_accepted_one() {
    let logbook = Logbook::new(LogbookLimits { deliveries: 1, plaintexts: 1 });
    for (text, status) in [("whole", 413), ("small", 201), ("again", 201)] {
        let plaintext = Bytes::from_static(text.as_bytes());
        let sample = Sample { id: Some("a".into()), plaintext, ttl: None, urgency: None, topic: None };
        logbook.record((0, "fcm.test"), 1, sample, Some(status), status == 201, 5);
    }
    assert_eq!(logbook.delivery("a").and_then(|delivery| delivery.plaintext).as_deref(), Some(&b"small"[..]));
}

#[test]
fn an_ephemeral_key_may_serve_one_subscription_only() {
    let logbook = Logbook::new(LogbookLimits { deliveries: 2, plaintexts: 0 });
    assert!(!logbook.sender_reused([1; 8], (0, 1)));
    assert!(!logbook.sender_reused([1; 8], (0, 1)), "the same body, sent again");
    assert!(logbook.sender_reused([1; 8], (0, 2)));
}

#[test]
fn requests_equal_the_sum_of_results() {
    let counters = Counters::new();
    counters.decided(Some(201), true);
    counters.decided(Some(599), false);
    counters.decided(None, true);
    let report = counters.report(Gateway::Fcm, None);
    assert_eq!((report.requests, report.accepted, report.unanswered), (3, 2, 1));
    assert_eq!(report.statuses, BTreeMap::from([(201, 1), (599, 1)]));
    counters.reset();
    assert_eq!(counters.report(Gateway::Fcm, None).requests, 0);
}
