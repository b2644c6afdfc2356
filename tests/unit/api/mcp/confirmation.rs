//! Unit tests of `src/api/mcp/confirmation.rs`, which includes them.

use super::*;

fn counted(count: i64, margin: i64) -> Value {
    json!({"audience_estimate": count, "audience_margin": margin})
}

#[test]
fn only_the_present_count_confirms() {
    assert_eq!(refusal(Some(3), &counted(3, 0)), None);
    for (expected, reason) in [(None, "needs the number"), (Some(4), "is 3, not 4"), (Some(i64::MIN), "is 3")] {
        let refusal = refusal(expected, &counted(3, 0)).expect("a refusal");
        assert!(refusal["sent"] == false && refusal["recipients"] == 3, "{refusal}");
        assert!(refusal["next"].as_str().is_some_and(|next| next.contains(reason)), "{refusal}");
    }
}

#[test]
fn estimates_are_confirmed_within_their_margin() {
    assert_eq!(refusal(Some(1_010), &counted(1_000, 10)), None);
    assert!(refusal(Some(1_011), &counted(1_000, 10)).is_some());
}

#[test]
fn messages_of_campaigns_add_up() {
    let campaign = json!({"messages": [counted(2, 0), counted(5, 1)]});
    assert_eq!(recipients(&campaign), Recipients { count: 7, margin: 1 });
    let replay = json!({"matched": 4, "messages": ["msg_1"]});
    assert_eq!(recipients(&replay), Recipients { count: 4, margin: 0 });
}

#[test]
fn campaign_that_was_not_counted_whole_is_refused() {
    let refusal = refusal(Some(3), &json!({"messages": [counted(3, 0)], "more_messages": 1})).expect("a refusal");
    assert!(refusal["next"].as_str().is_some_and(|next| next.contains("too many messages")), "{refusal}");
}
