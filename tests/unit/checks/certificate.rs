//! Unit tests of `src/checks/certificate.rs`, which includes them.

use chrono::{DateTime, TimeDelta};

use super::*;

#[test]
fn certificate_days_and_urgency_are_reported() {
    let now = DateTime::UNIX_EPOCH;
    let (file, ordered) = (false, true);
    for (is_ordered, days, failure, health, named) in [
        (file, Some(60), None, Health::Ok, "60 more days, until 1970-03-02 00:00 UTC"),
        (file, Some(13), None, Health::Warning, "13 more days"),
        (file, Some(2), None, Health::Failure, "2 more days"),
        (file, Some(0), None, Health::Failure, "has expired, on 1970-01-01"),
        (ordered, Some(2), None, Health::Ok, "2 more days"),
        (ordered, Some(0), None, Health::Failure, "has expired"),
        (ordered, Some(60), Some("no address"), Health::Warning, "The last order failed: no address."),
        (ordered, Some(2), Some("no address"), Health::Failure, "no address"),
        (ordered, None, None, Health::Warning, "There is no certificate of push.example.com yet."),
        (ordered, None, Some("no address"), Health::Failure, "no address"),
    ] {
        let not_after = days.map(|days| now + TimeDelta::days(days));
        let place = "push.example.com".to_owned();
        let found = CertificateFinding { place, is_ordered, not_after, failure: failure.map(str::to_owned) };
        let finding = judge(&found, now);
        assert_eq!(finding.health, health, "{finding:?}");
        assert!(finding.detail.contains(named), "{named}: {finding:?}");
        assert_eq!(finding.advice.is_some(), health != Health::Ok, "{finding:?}");
    }
}
