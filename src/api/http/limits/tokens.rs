//! Rate limits by subscription token, so that browsers behind one address do not use up each other's limit.
//!
//! A token is counted after its signature was checked, without a query. The route checks whether it is still valid. A revoked
//! token uses up only its own limit.

use std::collections::HashSet;
use std::hash::{BuildHasher as _, RandomState};

use parking_lot::Mutex;

use super::{Budget, Limiter, RequestRate, limiter, take};
use crate::api::http::problem::Problem;

/// Limit of each token: far more than the pages of one browser need.
const OF_TOKEN: RequestRate = RequestRate { burst: 60, per_minute: 60 };
/// Maximum tokens remembered as signed. When it is reached, all are forgotten and checked again.
const SIGNED_MAX: usize = 100_000;

pub(crate) struct TokenLimits {
    tokens: Limiter<u64>,
    /// Keyed hashes of tokens signed by this server, for routes without a subscription in the path.
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

    /// Counts a request against its token. `None`: the token is not known to be signed by this server, so the request counts
    /// against its address.
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
