//! Last errors of push services by lane, until the next heartbeat writes them.

use std::collections::HashMap;

use parking_lot::Mutex;

use bellwire_core::clock::Timestamp;
use bellwire_core::id::LaneId;
use bellwire_rules::classify::{Outcome, ResponseKind};
use bellwire_store::operations::reports::LastError;

/// Errors since the last heartbeat, one per lane.
#[derive(Default)]
pub(super) struct LastWords(Mutex<HashMap<LaneId, LastError>>);

impl LastWords {
    /// Records a response, unless it is an acceptance or only reports a gone subscription.
    pub(super) fn hear(&self, lane: LaneId, outcome: &Outcome, now: Timestamp) {
        if matches!(outcome.kind, ResponseKind::Accepted { .. } | ResponseKind::Gone | ResponseKind::Unprocessed) {
            return;
        }
        let detail = outcome.detail.as_deref().map(str::to_owned);
        let row =
            LastError { lane, at: now, status: outcome.status.and_then(|status| i16::try_from(status).ok()), detail };
        self.0.lock().insert(lane, row);
    }

    /// Removes and returns the errors that were not written yet.
    pub(super) fn take(&self) -> Vec<LastError> {
        std::mem::take(&mut *self.0.lock()).into_values().collect()
    }

    /// Restores errors whose write failed. Newer errors win.
    pub(super) fn give_back(&self, untold: Vec<LastError>) {
        let mut said = self.0.lock();
        for row in untold {
            said.entry(row.lane).or_insert(row);
        }
    }
}
