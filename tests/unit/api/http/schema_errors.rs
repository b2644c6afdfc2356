//! Unit tests of `src/api/http/schema_errors.rs`, which includes them.

use serde_json::json;

use super::*;
use crate::api::messages::compose::MessageRequest;

fn told<T: ToSchema>(body: &Value) -> Vec<(String, String)> {
    mismatches::<T>(body).into_iter().map(|error| (error.pointer.expect("a member"), error.detail)).collect()
}

#[test]
fn all_faults_are_reported_in_json_terms() {
    let body = json!({
        "to": {"users": ["ann", 3], "topics": "news"}, "ttl": "1h", "tier": "urgent", "envelope": 1, "nmae": 1,
        "content": {"body": 2, "actions": [{"action": "a"}]}, "payload": 3
    });
    let told = told::<MessageRequest>(&body);
    let expected = [
        ("/content/actions/0/title", "is missing"),
        ("/content/body", "must be a string"),
        ("/content/title", "is missing"),
        ("/envelope", "must be true or false"),
        ("/nmae", "is not known here; known are"),
        ("/payload", "must be a string or an object"),
        ("/tier", "must be `transactional`, `promotional` or `engagement`"),
        ("/to/topics", "is not known here; known are `all`, `segment`, `subscriptions`, `topic`, `users`"),
        ("/to/users/1", "must be a string"),
        ("/ttl", "must be a whole number"),
    ];
    for (pointer, words) in expected {
        let found = told.iter().find(|(at, _)| at == pointer).unwrap_or_else(|| panic!("{pointer} in {told:?}"));
        assert!(found.1.starts_with(words), "{found:?}");
    }
    assert_eq!(told.len(), expected.len(), "{told:?}");
    assert_eq!(super::mismatches::<MessageRequest>(&json!({})), [FieldError::member("/to", "is missing")]);
    assert_eq!(super::mismatches::<MessageRequest>(&json!(3)), [FieldError::member("", "must be an object")]);
    let right = json!({"to": {"all": true}, "tier": 1, "ttl": null, "payload": {"base64": "AA"}});
    assert_eq!(super::mismatches::<MessageRequest>(&right), []);
}

#[test]
fn no_word_of_the_program_is_told() {
    for (said, plain) in [
        ("invalid type: string \"x\", expected u32", "must be a whole number from 0 to 4294967295"),
        ("invalid type: integer `3`, expected struct MessageRequest", "must be an object"),
        ("invalid value: integer `256`, expected u8", "must be a whole number from 0 to 255"),
        ("unknown variant `loud`, expected one of `low`, `high`", "must be one of `low`, `high`"),
        ("unknown field `x`, expected `n` or `m`", "`x` is not known here; known are `n` or `m`"),
        ("invalid digit found in string", "must be a whole number"),
        ("must lie ahead", "must lie ahead"),
    ] {
        assert_eq!(in_plain_words(said), plain);
    }
}
