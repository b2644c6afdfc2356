//! Unit tests of `src/api/http/known_keys.rs`, which includes them.

use std::time::Duration;

use chrono::DateTime;
use uuid::Uuid;

use super::*;
use bellwire_core::id::ApiKeyId;

const AT: Timestamp = DateTime::UNIX_EPOCH;

fn read(expires_at: Option<Timestamp>) -> CachedKey {
    let key = ApiKey {
        id: ApiKeyId(Uuid::nil()),
        app: None,
        hint: String::new(),
        name: String::new(),
        scopes: Vec::new(),
        created_at: AT,
        expires_at,
        revoked_at: None,
        last_used_on: None,
        made_by: None,
        made_by_teammate: None,
    };
    (key, None)
}

fn shown(n: u8, app: Option<&str>) -> CredentialKey {
    ([n; 32], app.map(AppRef::from))
}

/// Has a key read, unless it is known. Returns whether it was known.
fn ask(keys: &KnownKeys, shown: &CredentialKey, now: Timestamp, found: CachedKey) -> bool {
    keys.recall(shown, now).map_err(|reading| keys.remember(reading, shown.clone(), found)).is_ok()
}

#[test]
fn key_is_cached_a_second_per_app() {
    let keys = KnownKeys::default();
    let shop = shown(1, Some("shop"));
    assert!(!ask(&keys, &shop, AT, read(None)));
    assert!(ask(&keys, &shop, AT + Duration::from_millis(999), read(None)));
    for other in [shown(2, Some("shop")), shown(1, Some("other")), shown(1, None)] {
        assert!(keys.recall(&other, AT).is_err());
    }
    assert!(!ask(&keys, &shop, AT + Duration::from_secs(1), read(None)), "it is read again");
    assert!(ask(&keys, &shop, AT + Duration::from_millis(1_500), read(None)), "and known again");
}

#[test]
fn expired_key_is_not_cached() {
    let (keys, end) = (KnownKeys::default(), AT + Duration::from_millis(500));
    let key = shown(1, None);
    assert!(!ask(&keys, &key, AT, read(Some(end))));
    assert!(ask(&keys, &key, end - Duration::from_millis(1), read(None)));
    assert!(keys.recall(&key, end).is_err());
}

#[test]
fn read_before_a_change_is_not_cached() {
    let keys = KnownKeys::default();
    let key = shown(1, None);
    let early = keys.recall(&key, AT).unwrap_err();
    assert!(!ask(&keys, &key, AT, read(None)));
    drop(keys.changing());
    assert!(keys.recall(&key, AT).is_err(), "it is forgotten");
    keys.remember(early, key.clone(), read(None));
    assert!(keys.recall(&key, AT).is_err(), "a reading that began before must not bring it back");
    assert!(!ask(&keys, &key, AT, read(None)));
    assert!(ask(&keys, &key, AT, read(None)), "one that began after does");
}
