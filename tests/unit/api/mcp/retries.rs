//! Unit tests of `src/api/mcp/retries.rs`, which includes them.

use super::*;

#[test]
fn equal_calls_share_a_key_until_answered() {
    let calls = UnansweredCalls::default();
    let (caller, keys) = (Uuid::from_u128(1), [2, 3, 4, 5].map(Uuid::from_u128));
    let call = CallDigest::new(caller, "messages_send", "{}");
    assert_eq!(calls.begin(&call, keys[0]), keys[0]);
    assert_eq!(calls.begin(&call, keys[1]), keys[0], "a retry");
    for other in
        [CallDigest::new(keys[0], "messages_send", "{}"), CallDigest::new(caller, "messages_send", r#"{"app":"x"}"#)]
    {
        assert_eq!(calls.begin(&other, keys[2]), keys[2], "another call");
    }
    calls.answered(&call);
    assert_eq!(calls.begin(&call, keys[3]), keys[3]);
}

#[test]
fn memory_of_calls_is_bounded() {
    let calls = UnansweredCalls::default();
    for n in 0..CALLS_MAX + 5 {
        calls.begin(&CallDigest::new(Uuid::nil(), "topics_set", &n.to_string()), Uuid::nil());
    }
    assert!(calls.0.lock().len() <= CALLS_MAX);
}
