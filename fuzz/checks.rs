//! Properties for any input. The fuzz targets search for a counterexample; a test of the main crate replays the corpus against the same
//! checks.

use std::time::Duration;

use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_rules::classify::retry_after;
use bellwire_rules::policy::expression::Expression;
use bellwire_rules::policy::preview::preview;
use bellwire_rules::policy::{Layer, Places, Policy, PolicyLevel, Terms};
use bellwire_segment::Expression as Segment;

/// An expression is refused at a place inside it, or has a value for any number of retries, the same every time.
pub fn expression(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match Expression::parse(text) {
        Ok(expression) => {
            for retried in [0, 1, 2, 99, 1_000, u32::MAX] {
                let value = expression.value(retried);
                assert_eq!(value.to_bits(), expression.value(retried).to_bits(), "{text:?}");
            }
            let wrapped = format!("({text})");
            // Parentheses around the whole change nothing, as long as they leave it within its bounds.
            if let Ok(same) = Expression::parse(&wrapped) {
                assert_eq!(same.value(3).to_bits(), expression.value(3).to_bits(), "{text:?}");
            }
        }
        Err(error) => {
            assert!((1..=text.chars().count() + 1).contains(&error.position), "{text:?}: {error}");
            assert!(!error.what.is_empty());
        }
    }
}

/// A segment is refused at a place inside it, or is written down in one way, which reads the same again, as does its opposite.
pub fn segment(input: &[u8]) {
    let Ok(text) = std::str::from_utf8(input) else { return };
    match Segment::parse(text) {
        Ok(segment) => {
            let written = segment.to_string();
            assert_eq!(Segment::parse(&written).as_ref(), Ok(&segment), "{text:?}: {written:?}");
            assert_eq!(segment.clone().negated().negated(), segment, "{text:?}");
            // Longer by a few signs, it may leave its bounds.
            let opposite = segment.negated();
            if let Ok(same) = Segment::parse(&opposite.to_string()) {
                assert_eq!(same, opposite, "{text:?}");
            }
        }
        Err(error) => {
            assert!((1..=text.chars().count() + 1).contains(&error.position), "{text:?}: {error}");
            assert!(!error.what.is_empty());
        }
    }
}

/// A header's value asks for at most a day, and white space around it means nothing.
pub fn retry_after(input: &[u8]) {
    const NOON: i64 = 1_800_014_400;
    let Some(now) = Timestamp::from_timestamp(NOON, 0) else { unreachable!("a time within chrono's range") };
    let wait = retry_after::parse(input, now);
    assert!(wait.is_none_or(|wait| wait <= Duration::from_secs(86_400)), "{input:?}: {wait:?}");
    let padded = [b" \t", input, b" "].concat();
    assert_eq!(retry_after::parse(&padded, now), wait, "{input:?}");
}

/// A policy is refused with pointers that lead somewhere, or has a timetable that adds up and survives being written
/// and read again.
pub fn layer(input: &[u8]) {
    let Ok(value) = serde_json::from_slice(input) else { return };
    for place in [PolicyLevel::Message, PolicyLevel::Subscription, PolicyLevel::Topic, PolicyLevel::Tier] {
        let terms = Terms { place, max_retries: 100 };
        let layer = match Layer::parse(&value, &terms) {
            Ok(parsed) => parsed.layer,
            Err(errors) => {
                assert!(!errors.is_empty());
                assert!(
                    errors.iter().all(|e| (e.pointer.is_empty() || e.pointer.starts_with('/')) && !e.detail.is_empty())
                );
                continue;
            }
        };
        let policy = Policy::in_force(Tier::Promotional, &Places { message: Some(&layer), ..Places::default() });
        let table = preview(&policy, None);
        assert_eq!(table.posts, table.retries + 1);
        assert_eq!(table.rows.last().map_or(0, |row| row.last), table.retries);
        assert!(table.shortest_window_s <= table.longest_window_s && table.window_s.is_finite());
        if layer.retry.is_some() {
            let written = policy.to_json();
            let again = Layer::parse(&written, &terms).unwrap_or_else(|errors| panic!("{written}: {errors:?}"));
            assert_eq!(again.layer.retry, layer.retry, "{written}");
        }
    }
}
