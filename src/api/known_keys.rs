//! API keys used within the last second, with their apps: a server that sends codes uses the same key each time.

use std::collections::HashMap;

use chrono::TimeDelta;
use parking_lot::Mutex;

use super::extract::AppRef;
use bellwire_core::clock::Timestamp;
use bellwire_store::keys::api_keys::{ApiKey, SecretMac};
use bellwire_store::keys::apps::App;

/// Time for which a key is cached. Another process may have revoked it, or changed its app. A change in this process
/// [drops](KnownKeys::changing) it at once.
const BELIEVED_FOR: TimeDelta = TimeDelta::seconds(1);
/// Keys in memory at most, beyond which all are read again. Only valid ones get in.
const KNOWN_MAX: usize = 10_000;

/// Credential of a request: the keyed hash of a secret, and the app in the path, if any.
pub(crate) type CredentialKey = (SecretMac, Option<AppRef>);

/// Cached result: the key, and that app if the key is valid for it.
pub(crate) type CachedKey = (ApiKey, Option<App>);

#[derive(Default)]
pub(crate) struct KnownKeys(Mutex<CachedKeys>);

#[derive(Default)]
struct CachedKeys {
    /// Number of changes: a result read before a change is not cached after it.
    generation: u64,
    read: HashMap<CredentialKey, (Timestamp, CachedKey)>,
}

#[derive(Debug)]
pub(crate) struct KeyRead {
    generation: u64,
    began: Timestamp,
}

impl KnownKeys {
    /// Returns the result of the last second, if the key has not expired since. Otherwise a read begins.
    pub(crate) fn recall(&self, shown: &CredentialKey, now: Timestamp) -> Result<CachedKey, KeyRead> {
        let known = self.0.lock();
        match known.read.get(shown) {
            Some((at, read)) if (now - at).abs() < BELIEVED_FOR && read.0.expires_at.is_none_or(|end| end > now) => {
                Ok(read.clone())
            }
            _ => Err(KeyRead { generation: known.generation, began: now }),
        }
    }

    /// Remembers what a reading found, unless something was changed since it began.
    pub(crate) fn remember(&self, KeyRead { generation, began }: KeyRead, shown: CredentialKey, read: CachedKey) {
        let mut known = self.0.lock();
        if known.generation != generation {
            return;
        }
        if known.read.len() >= KNOWN_MAX {
            known.read.clear();
        }
        known.read.insert(shown, (began, read));
    }

    /// Guard to hold while keys or apps are changed, until the commit: earlier results are dropped at its end, after success or
    /// failure.
    pub(crate) fn changing(&self) -> Changing<'_> {
        Changing(self)
    }
}

#[must_use = "it forgets when it is dropped"]
pub(crate) struct Changing<'a>(&'a KnownKeys);

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        let mut known = self.0.0.lock();
        known.generation += 1;
        known.read.clear();
    }
}

#[cfg(test)]
mod tests {
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
}
