//! Rate limits of API keys and sessions, and limits against guessing them.
//!
//! An unproven key or session cookie counts against its client, so guessing is slow and costs few queries. A key that proved
//! valid has only its own limit. A guesser at the same address does not affect it.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use uuid::Uuid;

use super::{Budget, Limiter, PerClient, limiter, take, take_several};
use crate::api::ApiConfig;
use crate::api::http::problem::Problem;

/// Maximum keys remembered as valid. When it is reached, all are forgotten and proved again.
const PROVEN_MAX: usize = 100_000;

pub(crate) struct KeyLimits {
    guesses: PerClient,
    keys: Limiter<Uuid>,
    burst: u32,
    /// Keyed hashes of secrets and session ids that were valid at their last use.
    proven: Mutex<HashSet<u64>>,
    hasher: RandomState,
}

impl KeyLimits {
    pub(super) fn new(settings: &ApiConfig) -> Self {
        Self {
            guesses: PerClient::new("keys", settings.guesses_per_client),
            keys: limiter(settings.per_key),
            burst: settings.per_key.burst.max(1),
            proven: Mutex::default(),
            hasher: RandomState::new(),
        }
    }

    pub(super) fn clear(&self) {
        self.guesses.clear();
        self.keys.retain_recent();
    }

    /// Counts a request of a valid key, already counted once, as `n` requests. 429: fewer are left. 422: `n` exceeds the limit.
    pub(crate) fn count_as(&self, key: Uuid, n: u32) -> Result<(), Problem> {
        if n > self.burst {
            let detail = format!("exceed the key's limit of {} at once", self.burst);
            return Err(Problem::invalid_member("/messages", detail));
        }
        NonZeroU32::new(n.saturating_sub(1)).map_or(Ok(()), |more| take_several(&self.keys, "key", &key, more))
    }

    /// Allows a lookup of a key or session. 429: the client has sent too many invalid ones.
    pub(crate) fn attempt(&self, secret: &str, client: IpAddr) -> Result<LookUp<'_>, Problem> {
        let secret = self.hasher.hash_one(secret);
        let is_proven = self.proven.lock().contains(&secret);
        if !is_proven {
            self.guesses.take(client)?;
        }
        Ok(LookUp { limits: self, secret, is_proven })
    }
}

/// A running lookup of a key or session.
pub(crate) struct LookUp<'a> {
    limits: &'a KeyLimits,
    secret: u64,
    is_proven: bool,
}

impl LookUp<'_> {
    /// Counts a valid request against the key or the signed-in teammate. Returns the remaining budget.
    pub(crate) fn succeeded(self, owner: Uuid) -> Result<Budget, Problem> {
        if !self.is_proven {
            let mut proven = self.limits.proven.lock();
            if proven.len() >= PROVEN_MAX {
                proven.clear();
            }
            proven.insert(self.secret);
        }
        take(&self.limits.keys, "key", &owner)
    }

    /// Counts an invalid key against its client.
    pub(crate) fn failed(self) {
        if self.is_proven {
            self.limits.proven.lock().remove(&self.secret);
        }
    }
}

/// Remaining budget of a request's key, for its response. Clones share one value.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyUsage(Arc<OnceLock<Budget>>);

impl KeyUsage {
    pub(crate) fn note(&self, budget: Budget) {
        let _ = self.0.set(budget);
    }

    pub(crate) fn budget(&self) -> Option<Budget> {
        self.0.get().copied()
    }
}

#[cfg(test)]
#[path = "../../../../tests/unit/api/http/limits/keys.rs"]
mod tests;
