//! Unit tests of `src/api/mcp/retries.rs`, which includes them.

use axum::http::Method;
use serde_json::json;

use super::*;

const NOW: Timestamp = Timestamp::UNIX_EPOCH;

fn send(caller: u128, title: &str) -> CallDigest {
    let uri = "/v1/apps/shop/messages".to_owned();
    CallDigest::new(Uuid::from_u128(caller), &ToolRequest { method: Method::POST, uri, body: json!({"title": title}) })
}

#[test]
fn equal_requests_share_a_key_until_one_succeeds() {
    let calls = UnansweredCalls::default();
    let keys = [2, 3, 4, 5].map(Uuid::from_u128);
    let call = send(1, "Hello");
    assert!(!calls.is_retry(&call, NOW));
    assert_eq!(calls.begin(&call, keys[0], NOW), keys[0]);
    assert!(calls.is_retry(&call, NOW));
    assert_eq!(calls.begin(&call, keys[1], NOW), keys[0], "a retry");
    for other in [send(2, "Hello"), send(1, "Hello again")] {
        assert_eq!(calls.begin(&other, keys[2], NOW), keys[2], "another call");
    }
    calls.succeeded(&call);
    assert_eq!(calls.begin(&call, keys[3], NOW), keys[3]);
}

#[test]
fn equal_request_is_new_after_ten_minutes() {
    let calls = UnansweredCalls::default();
    let (call, keys) = (send(1, "Good morning"), [2, 3].map(Uuid::from_u128));
    calls.begin(&call, keys[0], NOW);
    let later = NOW + KEPT_FOR;
    assert!(!calls.is_retry(&call, later));
    assert_eq!(calls.begin(&call, keys[1], later), keys[1]);
}

#[test]
fn memory_of_calls_is_bounded() {
    let calls = UnansweredCalls::default();
    for n in 0..CALLS_MAX + 5 {
        calls.begin(&send(1, &n.to_string()), Uuid::nil(), NOW);
    }
    assert!(calls.0.lock().len() <= CALLS_MAX);
}
