use super::*;

const T: Timestamp = Timestamp::UNIX_EPOCH;

fn minutes(n: i64) -> Timestamp {
    T + TimeDelta::minutes(n)
}

fn trigger(at_most: Option<AtMost>) -> Trigger {
    Trigger {
        on: Cause::Event("cart_added".into()),
        filter: None,
        after_s: 1_800,
        unless: vec!["bought".into()],
        at_most,
        did_not: None,
    }
}

#[test]
fn causes_round_trip() {
    for text in ["subscribed", "joined:news", "event:cart_added", "sent:cmp_01920000-0000-7000-8000-000000000001"] {
        assert_eq!(text.parse::<Cause>().map(|cause| cause.to_string()), Ok(text.to_owned()));
    }
    for text in ["", "Subscribed", "joined:", "event:", "event:a b", "event:ä", "sent:x", "left:news", "subscribed:x"]
    {
        assert_eq!(text.parse::<Cause>(), Err(NoCause), "{text}");
    }
}

#[test]
fn a_person_waits_once_at_a_time() {
    let waits = EntryState { waits_since: Some(minutes(0)), sent_at: None };
    assert_eq!(trigger(None).enter(EntryState::default(), minutes(1), false, minutes(1)), Entering::Until(minutes(31)));
    assert_eq!(trigger(None).enter(waits, minutes(1), false, minutes(1)), Entering::Waits);
}

#[test]
fn messages_to_one_person_are_limited() {
    let had = EntryState { waits_since: None, sent_at: Some(minutes(0)) };
    let enter = |at_most, at| trigger(at_most).enter(had, at, false, at);
    assert_eq!(enter(Some(AtMost::Once), minutes(9_999)), Entering::Limited);
    assert_eq!(enter(Some(AtMost::OncePer(600)), minutes(9)), Entering::Limited);
    assert_eq!(enter(Some(AtMost::OncePer(600)), minutes(10)), Entering::Until(minutes(40)));
    assert_eq!(enter(None, minutes(1)), Entering::Until(minutes(31)));
}

#[test]
fn order_of_reports_changes_nothing() {
    let enter = |is_ended| trigger(None).enter(EntryState::default(), minutes(5), is_ended, minutes(20));
    assert_eq!(enter(true), Entering::Cancelled, "bought later, reported earlier");
    assert_eq!(enter(false), Entering::Until(minutes(35)));
    assert!(trigger(None).ends("bought", minutes(5), minutes(5)));
    assert!(!trigger(None).ends("bought", minutes(4), minutes(5)), "bought earlier, reported later");
    assert!(!trigger(None).ends("cart_added", minutes(9), minutes(5)));
}

#[test]
fn trial_tells_messages_cancellations_and_limits() {
    let event = |person, at, ends: Option<&str>| PastEvent { person, at: minutes(at), ends: ends.map(str::to_owned) };
    let trial = trigger(Some(AtMost::OncePer(3_600))).try_out(vec![
        event(1, 50, Some("bought")),
        event(1, 0, None),
        event(1, 10, None),
        event(1, 40, None),
        event(2, 5, None),
        event(2, 20, Some("bought")),
        event(1, 200, None),
    ]);
    let result = |at, result| TrialEntry { at: minutes(at), result };
    let expected = [
        result(0, TrialResult::Message(minutes(30))),
        result(5, TrialResult::Cancelled("bought".into(), minutes(20))),
        result(40, TrialResult::Limited),
        result(200, TrialResult::Message(minutes(230))),
    ];
    assert_eq!(trial, expected);
}

#[test]
fn history_lets_nobody_enter() {
    let now = T + TimeDelta::days(10);
    let enter = |at| trigger(None).enter(EntryState::default(), at, false, now);
    assert_eq!(enter(now - ENTERS_FOR - TimeDelta::seconds(1)), Entering::Old);
    assert_eq!(enter(now - ENTERS_FOR), Entering::Until(now - ENTERS_FOR + TimeDelta::minutes(30)));
}
