//! Unit tests of `crates/bellwire-rules/src/classify/detail.rs`, which includes them.

use super::*;

fn cleaned(raw: &[u8]) -> String {
    clean(raw).map_or(String::new(), String::from)
}

#[test]
fn endpoint_or_token_lookalikes_are_redacted() {
    for secret in [
        "https://fcm.googleapis.com/wp/abc",
        "HTTPS://EXAMPLE.COM",
        "fcm.googleapis.com/wp/abc:APA91",
        "https:\\/\\/fcm.googleapis.com\\/wp\\/abc",
        "https%3A%2F%2Ffcm.googleapis.com%2Fwp%2Fabc",
        "eyJ0eXAiOiJKV1QiLCJhbGciOiJFUzI1NiJ9.eyJhdWQiOiJodHRwczovL2ZjbSJ9",
        "//updates.push.services.mozilla.com/wpush/v2/x",
    ] {
        assert_eq!(cleaned(format!("bad endpoint {secret} given").as_bytes()), "bad endpoint [redacted] given");
        let json = cleaned(format!("{{\"code\":400,\"at\":\"{secret}\"}}").as_bytes());
        assert_eq!(json, "{\"code\":400,\"at\":\"[redacted]\"}");
    }
}

#[test]
fn ordinary_words_survive() {
    let said = "the key in the authorization header do not correspond; id 0192b7e2-5a64-7c3e-9b1d-3a2f4e5d6c7b";
    assert_eq!(cleaned(said.as_bytes()), said);
    assert_eq!(cleaned(b"\0a\0b\r\n\tc\x1b "), "a b c");
    assert_eq!(clean(b""), None);
    assert_eq!(clean(b" \0\n"), None);
}

#[test]
fn detail_has_at_most_500_octets() {
    for raw in [vec![0xff; 5000], "ä ".repeat(3000).into_bytes(), vec![b'a'; 9000], "a b ".repeat(2000).into_bytes()] {
        let out = cleaned(&raw);
        assert!(out.len() <= DETAIL_MAX && !out.contains('\0'), "{} octets", out.len());
    }
}

#[test]
fn truncated_url_is_removed_completely() {
    let raw = [" ".repeat(READ_MAX - 10).into_bytes(), b"https://fcm.googleapis.com/wp/abc".to_vec()].concat();
    assert_eq!(clean(&raw), None);
}
