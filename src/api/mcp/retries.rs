//! Idempotency keys of calls without a response: a retry with equal arguments gets the key of the first call.

use std::collections::HashMap;

use aws_lc_rs::digest::{SHA256, digest};
use parking_lot::Mutex;
use uuid::Uuid;

/// Calls in memory at most, beyond which all are forgotten.
const CALLS_MAX: usize = 1_000;

#[derive(Debug, Default)]
pub(super) struct UnansweredCalls(Mutex<HashMap<Vec<u8>, Uuid>>);

/// A call: its caller, tool and arguments, as a digest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CallDigest(Vec<u8>);

impl CallDigest {
    pub(super) fn new(caller: Uuid, tool: &str, arguments: &str) -> Self {
        Self(digest(&SHA256, format!("{caller} {tool} {arguments}").as_bytes()).as_ref().to_vec())
    }
}

impl UnansweredCalls {
    /// Returns the key of a call: that of an equal call without a response, or `fresh`.
    pub(super) fn begin(&self, call: &CallDigest, fresh: Uuid) -> Uuid {
        let mut keys = self.0.lock();
        if keys.len() >= CALLS_MAX && !keys.contains_key(&call.0) {
            keys.clear();
        }
        *keys.entry(call.0.clone()).or_insert(fresh)
    }

    /// Forgets the key of a call that got its response.
    pub(super) fn answered(&self, call: &CallDigest) {
        self.0.lock().remove(&call.0);
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/api/mcp/retries.rs"]
mod tests;
