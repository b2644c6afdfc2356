//! Unit tests of `src/api/http/found_values.rs`, which includes them.

use serde_json::json;

use super::*;

#[test]
fn scalars_are_shown_and_secrets_are_not() {
    let body =
        json!({"ttl": -1, "max": 0, "name": "", "password": "x", "tags": ["a\nb"], "to": {}, "keys": {"auth": "y"}});
    for (pointer, detail, shown) in [
        ("/ttl", "must be 0", "must be 0 (found -1)"),
        ("/max", "must be 1 to 50", "must be 1 to 50 (found 0)"),
        ("/name", "is short", "is short (found \"\")"),
        ("/tags/0", "is wrong", "is wrong (found \"a\\nb\")"),
        ("/password", "is short", "is short"),
        ("/keys/auth", "is short", "is short"),
        ("/to", "is empty", "is empty"),
        ("/absent", "is missing", "is missing"),
        ("/ttl", "-1 is negative", "-1 is negative"),
    ] {
        let mut told = detail.to_owned();
        add_value(&mut told, pointer, &body);
        assert_eq!(told, shown, "{pointer}");
    }
}
