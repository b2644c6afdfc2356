//! Idempotency keys of calls without a success: within ten minutes a retry of the same request gets the key of the first call.

use std::collections::HashMap;

use aws_lc_rs::digest::{SHA256, digest};
use chrono::TimeDelta;
use parking_lot::Mutex;
use uuid::Uuid;

use super::tools::ToolRequest;
use bellwire_core::clock::Timestamp;

/// Maximum number of calls in memory. The next one removes all others.
const CALLS_MAX: usize = 1_000;
/// Time for a retry. An equal call after that is a new one, such as a greeting on the next day.
const KEPT_FOR: TimeDelta = TimeDelta::minutes(10);

#[derive(Debug, Default)]
pub(super) struct UnansweredCalls(Mutex<HashMap<CallDigest, (Uuid, Timestamp)>>);

/// SHA-256 of a call: its caller and its request to the API. A confirmed number of recipients is not part of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct CallDigest(Vec<u8>);

impl CallDigest {
    pub(super) fn new(caller: Uuid, ToolRequest { method, uri, body }: &ToolRequest) -> Self {
        Self(digest(&SHA256, format!("{caller} {method} {uri} {body}").as_bytes()).as_ref().to_vec())
    }
}

impl UnansweredCalls {
    /// Whether the call repeats one without a success, whose number of recipients was confirmed.
    pub(super) fn is_retry(&self, call: &CallDigest, now: Timestamp) -> bool {
        self.0.lock().get(call).is_some_and(|(_, at)| now - *at < KEPT_FOR)
    }

    /// Returns the key of a call: that of an equal call without a success, or `fresh`.
    pub(super) fn begin(&self, call: &CallDigest, fresh: Uuid, now: Timestamp) -> Uuid {
        let mut keys = self.0.lock();
        keys.retain(|_, (_, at)| now - *at < KEPT_FOR);
        if keys.len() >= CALLS_MAX && !keys.contains_key(call) {
            keys.clear();
        }
        keys.entry(call.clone()).or_insert((fresh, now)).0
    }

    /// Removes the key of a call that succeeded. A refused call does not use its key up.
    pub(super) fn succeeded(&self, call: &CallDigest) {
        self.0.lock().remove(call);
    }
}

#[cfg(test)]
#[path = "../../../tests/unit/api/mcp/retries.rs"]
mod tests;
