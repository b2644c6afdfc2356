//! Unit tests of `crates/bellwire-net/src/oidc.rs`, which includes them.

use chrono::{DateTime, TimeDelta};

use super::*;

const AT: Timestamp = DateTime::UNIX_EPOCH;

#[test]
fn attempt_expires_after_ten_minutes() {
    let attempt = OidcAttempt {
        state: CsrfToken::new("state".to_owned()),
        nonce: Nonce::new("nonce".to_owned()),
        verifier: PkceCodeVerifier::new("v".repeat(43)),
        until_s: (AT + ATTEMPT_LASTS).timestamp(),
    };
    assert!(attempt.is_answered_by("state", AT + TimeDelta::seconds(599)));
    assert!(!attempt.is_answered_by("state", AT + TimeDelta::seconds(600)));
    for other in ["", "stat", "states", "STATE"] {
        assert!(!attempt.is_answered_by(other, AT), "{other}");
    }
}

#[test]
fn provider_keys_are_refetched_when_old() {
    let known = |read: Option<i64>, asked: Option<i64>| ProviderCache {
        metadata: None,
        read_at: read.map(|s| AT + TimeDelta::seconds(s)),
        asked_at: asked.map(|s| AT + TimeDelta::seconds(s)),
    };
    for (read, asked, fresh_for, now_s, due) in [
        (None, None, FRESH_FOR, 0, true),
        (None, Some(0), FRESH_FOR, 9, false),
        (None, Some(0), FRESH_FOR, 10, true),
        (Some(0), Some(0), FRESH_FOR, 3_599, false),
        (Some(0), Some(0), FRESH_FOR, 3_600, true),
        (Some(0), Some(3_600), FRESH_FOR, 3_609, false),
        (Some(0), Some(0), KEYS_FRESH_FOR, 59, false),
        (Some(0), Some(0), KEYS_FRESH_FOR, 60, true),
    ] {
        let is_due = known(read, asked).is_due(fresh_for, AT + TimeDelta::seconds(now_s));
        assert_eq!(is_due, due, "{read:?} {asked:?} {fresh_for:?} {now_s}");
    }
}

#[test]
fn provider_errors_are_logged_short() {
    let why = std::io::Error::other(format!("a\nb\u{1b}[31m{}", "x".repeat(10_000)));
    let text = said(&why);
    assert!(text.starts_with("a b [31mxxx") && text.chars().count() == SAID_MAX, "{text}");
}
