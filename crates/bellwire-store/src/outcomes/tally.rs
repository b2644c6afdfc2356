//! Adds results of deliveries to the counts of messages, at the end of a transaction.

use std::collections::BTreeMap;

use sqlx::PgConnection;

use crate::outcomes::ledger::settlement::Settlement;
use bellwire_core::delivery::Ending;
use bellwire_core::id::{LaneId, MessageId};

/// Changes of `message_counts`, rows to which many transactions add. They are written late and in the order of their keys: see
/// [the order of locks](super).
#[derive(Debug, Default)]
pub struct Tally {
    changes: BTreeMap<(MessageId, LaneId), Change>,
}

#[derive(Debug, Default)]
struct Change {
    ended: BTreeMap<i16, i64>,
    /// Change of the number of targeted recipients. Negative if deliveries were merged.
    targeted: i64,
}

impl Tally {
    pub fn of<'a>(settlements: impl Iterator<Item = &'a Settlement>) -> Self {
        let mut tally = Self::default();
        for settlement in settlements {
            let of = settlement.delivery();
            if let Some(end) = settlement.end() {
                tally.count(of.message, of.lane, end.ending());
            }
        }
        tally
    }

    pub fn count(&mut self, message: MessageId, lane: LaneId, ending: Ending) {
        *self.changes.entry((message, lane)).or_default().ended.entry(ending.code()).or_default() += 1;
    }

    /// Adds a delivery as targeted.
    pub fn target(&mut self, message: MessageId, lane: LaneId) {
        self.changes.entry((message, lane)).or_default().targeted += 1;
    }

    /// Removes one targeted delivery, because it is the same as another of its message.
    pub fn merge(&mut self, message: MessageId, lane: LaneId) {
        self.changes.entry((message, lane)).or_default().targeted -= 1;
    }

    /// Writes the counts. Only events and alerts may be written after it in the transaction.
    pub async fn write(self, conn: &mut PgConnection) -> sqlx::Result<()> {
        if self.changes.is_empty() {
            return Ok(());
        }
        let n = |change: &Change, ending: Ending| change.ended.get(&ending.code()).copied().unwrap_or(0);
        let changes = &self.changes;
        execute!(
            conn,
            "INSERT INTO message_counts AS c (message, lane, accepted, gone, expired, dead, cancelled, capped, targeted)
             SELECT * FROM unnest($1::uuid[], $2::integer[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
                                  $7::bigint[], $8::bigint[], $9::bigint[]) ORDER BY 1, 2
             ON CONFLICT (message, lane) DO UPDATE
             SET targeted = c.targeted + excluded.targeted, accepted = c.accepted + excluded.accepted, gone = c.gone + excluded.gone,
                 expired = c.expired + excluded.expired, dead = c.dead + excluded.dead,
                 cancelled = c.cancelled + excluded.cancelled, capped = c.capped + excluded.capped",
            changes,
            |((message, lane), it)| (*message, *lane, n(it, Ending::Accepted), n(it, Ending::Gone)),
            |((message, lane), it)| (n(it, Ending::Expired)),
            |(_, it)| (n(it, Ending::Dead), n(it, Ending::Cancelled), n(it, Ending::Capped), it.targeted)
        )
    }
}
