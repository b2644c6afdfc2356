//! Rate limits of API keys and sessions, and limits of guessing them.
//!
//! A key or a session's cookie counts against its client until it has proved to be valid, so that guessing is slow and cheap for
//! the database. From then on only its own rate counts: a guesser at the same address does not affect it.

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

/// Keys that are remembered as valid. Only valid ones get in; beyond this many all are proved anew.
const PROVEN_MAX: usize = 100_000;

pub(crate) struct KeyLimits {
    guesses: PerClient,
    keys: Limiter<Uuid>,
    burst: u32,
    /// Secrets, and ids of sessions whose cookies we signed, that were valid when they were last shown, as a keyed hash.
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

    /// Counts a request of a valid key, which has counted as one, as `n`. 429: the key has not as many left. 422: it never has.
    pub(crate) fn count_as(&self, key: Uuid, n: u32) -> Result<(), Problem> {
        if n > self.burst {
            let detail = format!("are more at once than the key's limit lets in, which is {}", self.burst);
            return Err(Problem::invalid_member("/messages", detail));
        }
        NonZeroU32::new(n.saturating_sub(1)).map_or(Ok(()), |more| take_several(&self.keys, "key", &key, more))
    }

    /// Lets a key, or a session, be looked up. 429: its client has shown too many that were not valid.
    pub(crate) fn attempt(&self, secret: &str, client: IpAddr) -> Result<LookUp<'_>, Problem> {
        let secret = self.hasher.hash_one(secret);
        let is_proven = self.proven.lock().contains(&secret);
        if !is_proven {
            self.guesses.take(client)?;
        }
        Ok(LookUp { limits: self, secret, is_proven })
    }
}

/// A key or a session that is being looked up.
pub(crate) struct LookUp<'a> {
    limits: &'a KeyLimits,
    secret: u64,
    is_proven: bool,
}

impl LookUp<'_> {
    /// Counts a valid request against its owner, the key itself or the signed-in teammate. Returns the remaining budget.
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

    /// Counts an invalid key.
    pub(crate) fn failed(self) {
        if self.is_proven {
            self.limits.proven.lock().remove(&self.secret);
        }
    }
}

/// Limit of a request's key, for its response. Clones share one.
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
