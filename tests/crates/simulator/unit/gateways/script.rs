//! Unit tests of `crates/bellwire-simulator/src/gateways/script.rs`, which includes them.

use super::*;

fn subject(endpoint: Option<(u32, f64)>) -> Subject<'static> {
    Subject { host: (0, "fcm.test"), gateway: Gateway::Fcm, endpoint }
}

fn script(rules: impl IntoIterator<Item = Rule>) -> (Script, Instant) {
    let (script, now) = (Script::new(), Instant::now());
    rules.into_iter().for_each(|rule| {
        script.add(rule, now);
    });
    (script, now)
}

fn deciding(script: &Script, endpoint: (u32, f64), now: Instant) -> Option<RuleAction> {
    for_request(&script.current(), &subject(Some(endpoint)), now).map(|live| live.rule.action.clone())
}

#[test]
fn the_first_rule_that_matches_decides() {
    let (script, now) = script([
        Rule { host: Some("wns.test".into()), ..Rule::always(RuleAction::Hang) },
        Rule { gateway: Some(Gateway::Apple), ..Rule::always(RuleAction::Hang) },
        Rule { endpoints: Some([7].into()), ..Rule::always(RuleAction::Gone) },
        Rule { share: Some([0.0, 0.01]), ..Rule::always(RuleAction::TooLarge) },
        Rule { share: Some([0.01, 0.03]), ..Rule::always(RuleAction::ServerError) },
    ]);
    assert_eq!(deciding(&script, (7, 0.0), now), Some(RuleAction::Gone));
    assert_eq!(deciding(&script, (8, 0.0), now), Some(RuleAction::TooLarge));
    assert_eq!(deciding(&script, (8, 0.01), now), Some(RuleAction::ServerError));
    assert_eq!(deciding(&script, (8, 0.03), now), None);
    assert!(for_request(&script.current(), &subject(None), now).is_none());
}

#[test]
fn attempts_count_per_endpoint_hits_in_total() {
    let (script, now) = script([Rule { attempts: Some([1, 2]), count: Some(3), ..Rule::always(RuleAction::Gone) }]);
    let acts = |index| deciding(&script, (index, 0.5), now).is_some();
    assert_eq!([acts(1), acts(1), acts(1), acts(2), acts(2)], [true, true, false, true, false]);
    assert_eq!(script.report()[0].hits, 3);
}

#[test]
fn a_rule_acts_only_within_its_window() {
    let rule = Rule { after_ms: 100, for_ms: Some(50), ..Rule::always(RuleAction::Gone) };
    let (script, now) = script([rule, Rule { after_ms: 200, ..Rule::always(RuleAction::RefuseTcp) }]);
    let at = |ms| now + Duration::from_millis(ms);
    let acts = |ms| deciding(&script, (1, 0.5), at(ms)).is_some();
    assert_eq!([acts(99), acts(100), acts(149), acts(150)], [false, true, true, false]);
    let (shut, next) = listener(&script.current(), &subject(None), at(150));
    assert!(shut.is_none() && next == Some(at(200)));
    let (shut, next) = listener(&script.current(), &subject(None), at(200));
    assert!(shut.is_some() && next.is_none());
}
