//! What gateways last said that was not what was hoped for, by lane, until the next heartbeat tells it to people.

use std::collections::HashMap;

use parking_lot::Mutex;

use crate::store::operations::reports::WordsRow;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::LaneId;
use bellwire_rules::classify::{Kind, Outcome};

/// What was said since the last heartbeat: one answer a lane.
#[derive(Default)]
pub(super) struct LastWords(Mutex<HashMap<LaneId, WordsRow>>);

impl LastWords {
    /// Notes an answer, unless it is what was hoped for, or says no more than that a subscription is gone.
    pub(super) fn hear(&self, lane: LaneId, outcome: &Outcome, now: Timestamp) {
        if matches!(outcome.kind, Kind::Accepted { .. } | Kind::Gone | Kind::Unprocessed) {
            return;
        }
        let detail = outcome.detail.as_deref().map(str::to_owned);
        let row =
            WordsRow { lane, at: now, status: outcome.status.and_then(|status| i16::try_from(status).ok()), detail };
        self.0.lock().insert(lane, row);
    }

    /// What has not been told yet.
    pub(super) fn take(&self) -> Vec<WordsRow> {
        std::mem::take(&mut *self.0.lock()).into_values().collect()
    }

    /// What could not be told is told the next time, unless something newer has been said.
    pub(super) fn give_back(&self, untold: Vec<WordsRow>) {
        let mut said = self.0.lock();
        for row in untold {
            said.entry(row.lane).or_insert(row);
        }
    }
}
