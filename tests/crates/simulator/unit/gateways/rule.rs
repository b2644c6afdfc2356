//! Unit tests of `crates/bellwire-simulator/src/gateways/rule.rs`, which includes them.

use super::*;

#[test]
fn rules_are_written_as_json_and_checked() {
    let read = |json: &str| serde_json::from_str::<Rule>(json);
    let rule =
        read(r#"{"gateway":"fcm","share":[0,0.02],"attempts":[1,2],"action":{"unavailable":{"retry_after_s":1}}}"#);
    let rule = rule.unwrap();
    assert_eq!(rule.action, RuleAction::Unavailable { retry_after_s: Some(1) });
    assert_eq!(read(&serde_json::to_string(&rule).unwrap()).unwrap(), rule);
    assert_eq!(read(r#"{"action":"hang"}"#).unwrap().action, RuleAction::Hang);
    assert!(read(r#"{"actoin":"hang"}"#).is_err());
    let answer = |status| Rule::always(RuleAction::Answer { status, headers: vec![], body: String::new() }).validate();
    assert_eq!((answer(599), answer(600), answer(100)), (Ok(()), Err(InvalidRule::Status), Err(InvalidRule::Status)));
    let share = |share| Rule { share: Some(share), ..Rule::default() }.validate();
    assert_eq!((share([0.0, 1.0]), share([0.5, 0.1])), (Ok(()), Err(InvalidRule::Share)));
    let headers = vec![("a b".into(), String::new())];
    let odd = Rule::always(RuleAction::Answer { status: 200, headers, body: String::new() });
    assert_eq!(odd.validate(), Err(InvalidRule::Header));
}
