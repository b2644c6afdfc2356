//! Cache of API keys used within the last second, with their apps: a server that sends one-time codes uses the same key each
//! time.

use std::collections::HashMap;

use chrono::TimeDelta;
use parking_lot::Mutex;

use super::app_ref::AppRef;
use bellwire_core::clock::Timestamp;
use bellwire_store::keys::api_keys::{ApiKey, SecretMac};
use bellwire_store::keys::apps::App;

/// Time for which a key is cached. Another process may have revoked it, or changed its app. A change in this process
/// [drops](KnownKeys::changing) it at once.
const BELIEVED_FOR: TimeDelta = TimeDelta::seconds(1);
/// Maximum cached keys. When it is reached, the cache is emptied. Invalid keys are not cached.
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
    /// Returns a cached result of the last second if the key has not expired. Otherwise starts a read.
    pub(crate) fn recall(&self, shown: &CredentialKey, now: Timestamp) -> Result<CachedKey, KeyRead> {
        let known = self.0.lock();
        match known.read.get(shown) {
            Some((at, read)) if (now - at).abs() < BELIEVED_FOR && read.0.expires_at.is_none_or(|end| end > now) => {
                Ok(read.clone())
            }
            _ => Err(KeyRead { generation: known.generation, began: now }),
        }
    }

    /// Caches the result of a read, unless something changed since it started.
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

    /// Returns a guard to hold while keys or apps are changed, until the commit. Its drop empties the cache, after success or
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
#[path = "../../../tests/unit/api/http/known_keys.rs"]
mod tests;
