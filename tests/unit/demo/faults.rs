//! Unit tests of `src/demo/faults.rs`, which includes them.

use super::*;

#[test]
fn every_endpoint_meets_the_rule_of_its_fate() {
    let rules = lasting();
    for at in (0..1_000).map(|n| f64::from(n) / 1_000.0) {
        let rule = rules.iter().find(|rule| rule.share.is_some_and(|[from, to]| from <= at && at < to));
        let expected = match rule.map(|rule| (&rule.action, rule.attempts)) {
            Some((RuleAction::NotFound | RuleAction::Gone, None)) => Fate::Gone,
            Some((RuleAction::Unavailable { .. }, Some([1, 1]))) => Fate::Recovers,
            Some((RuleAction::TooLarge, Some([1, 2]))) => Fate::Shrinks,
            Some((RuleAction::TooLarge, None)) => Fate::Dies,
            None => Fate::Fine,
            other => panic!("{other:?}"),
        };
        assert_eq!(Fate::of(at), expected, "{at}");
    }
}
