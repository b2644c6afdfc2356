//! Requests with a subscription's token: each token has a limit of its own, so that browsers behind one address do not hold each
//! other up.
//!
//! A token counts once its signature was checked, which takes no query. Whether it still holds is for the route to decide. A revoked
//! token uses up nothing but its own limit.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

use parking_lot::Mutex;

use super::{Budget, Limiter, RequestRate, limiter, take};
use crate::api::http::problem::Problem;

/// Limit of each token: far more than the pages of one browser ask.
const OF_TOKEN: RequestRate = RequestRate { burst: 60, per_minute: 60 };
/// Most tokens remembered as signed. Beyond that all are checked again.
const SIGNED_MAX: usize = 100_000;

pub(crate) struct TokenLimits {
    tokens: Limiter<u64>,
    /// Keyed hashes of tokens that this server signed, for routes whose path names no subscription.
    signed: Mutex<HashSet<u64>>,
    hasher: RandomState,
}

impl TokenLimits {
    pub(super) fn new() -> Self {
        Self { tokens: limiter(OF_TOKEN), signed: Mutex::default(), hasher: RandomState::new() }
    }

    pub(super) fn clear(&self) {
        self.tokens.retain_recent();
    }

    /// Counts a request against its token. `None`: this server is not known to have signed it, so it counts against its address.
    pub(crate) fn take(&self, token: &[u8; 32], is_signed: impl FnOnce() -> bool) -> Option<Result<Budget, Problem>> {
        let token = self.hasher.hash_one(token);
        let is_known = self.signed.lock().contains(&token);
        if !is_known {
            if !is_signed() {
                return None;
            }
            let mut signed = self.signed.lock();
            if signed.len() >= SIGNED_MAX {
                signed.clear();
            }
            signed.insert(token);
        }
        Some(take(&self.tokens, "subscription", &token))
    }
}
