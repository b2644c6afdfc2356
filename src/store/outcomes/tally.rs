//! What became of deliveries, added to the accounts of messages at the end of a transaction.

use std::collections::BTreeMap;

use sqlx::PgConnection;

use crate::model::delivery::Ending;
use crate::model::id::{LaneId, MessageId};
use crate::store::outcomes::ledger::settlement::Settlement;

/// Rows of `message_counts`, which many transactions add to. They are written late and in the order of their keys: see
/// [the order of locks](super).
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// How many deliveries of a (message, lane) ended in which way.
    ended: BTreeMap<(MessageId, LaneId), BTreeMap<i16, i64>>,
}

impl Tally {
    /// What settlements come to.
    pub(crate) fn of<'a>(settlements: impl Iterator<Item = &'a Settlement>) -> Self {
        let mut tally = Self::default();
        for settlement in settlements {
            let of = settlement.delivery();
            if let Some(end) = settlement.end() {
                tally.count(of.message, of.lane, end.ending());
            }
        }
        tally
    }

    /// Adds a delivery that ended.
    pub(crate) fn count(&mut self, message: MessageId, lane: LaneId, ending: Ending) {
        *self.ended.entry((message, lane)).or_default().entry(ending.code()).or_default() += 1;
    }

    /// Writes it. Nothing but events and alerts may be written after it.
    pub(crate) async fn write(self, conn: &mut PgConnection) -> sqlx::Result<()> {
        if self.ended.is_empty() {
            return Ok(());
        }
        let (messages, lanes): (Vec<MessageId>, Vec<LaneId>) = self.ended.keys().copied().unzip();
        let column = |ending: Ending| {
            self.ended.values().map(|ns| ns.get(&ending.code()).copied().unwrap_or(0)).collect::<Vec<i64>>()
        };
        sqlx::query!(
            "INSERT INTO message_counts AS c (message, lane, accepted, gone, expired, dead, cancelled, capped)
             SELECT * FROM unnest($1::uuid[], $2::integer[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[],
                                  $7::bigint[], $8::bigint[]) ORDER BY 1, 2
             ON CONFLICT (message, lane) DO UPDATE
             SET accepted = c.accepted + excluded.accepted, gone = c.gone + excluded.gone,
                 expired = c.expired + excluded.expired, dead = c.dead + excluded.dead,
                 cancelled = c.cancelled + excluded.cancelled, capped = c.capped + excluded.capped",
            &messages as &[MessageId],
            &lanes as &[LaneId],
            &column(Ending::Accepted),
            &column(Ending::Gone),
            &column(Ending::Expired),
            &column(Ending::Dead),
            &column(Ending::Cancelled),
            &column(Ending::Capped)
        )
        .execute(conn)
        .await
        .map(drop)
    }
}
