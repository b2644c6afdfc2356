//! What became of deliveries, added to the accounts of messages and to the rollups at the end of a transaction.

use std::collections::BTreeMap;

use chrono::{DurationRound as _, TimeDelta};
use sqlx::PgConnection;
use uuid::Uuid;

use crate::model::clock::Timestamp;
use crate::model::delivery::Ending;
use crate::store::outcomes::ledger::settlement::Settlement;

/// Rows of `message_counts` and `rollups` that many transactions add to. They are written late and in the order of their
/// keys: see [the order of locks](super).
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// How many deliveries of a (message, lane) ended in which way.
    ended: BTreeMap<(Uuid, i32), BTreeMap<i16, i64>>,
    /// How many attempts in a (lane, tier) came to what.
    attempted: BTreeMap<(i32, i16, i16), i64>,
}

impl Tally {
    /// What settlements come to.
    pub(crate) fn of<'a>(settlements: impl Iterator<Item = &'a Settlement>) -> Self {
        let mut tally = Self::default();
        for settlement in settlements {
            let of = settlement.delivery();
            if let Some(end) = settlement.end() {
                tally.count(of.message.0, of.lane.0, end.ending());
            }
            for (_, ending) in settlement.attempts() {
                tally.roll_up(of.lane.0, of.tier.code(), ending);
            }
        }
        tally
    }

    /// Adds a delivery that ended without another POST.
    pub(crate) fn ended_unsent(&mut self, message: Uuid, lane: i32, tier: i16, ending: Ending) {
        self.count(message, lane, ending);
        self.roll_up(lane, tier, ending);
    }

    fn count(&mut self, message: Uuid, lane: i32, ending: Ending) {
        *self.ended.entry((message, lane)).or_default().entry(ending.code()).or_default() += 1;
    }

    fn roll_up(&mut self, lane: i32, tier: i16, ending: Ending) {
        *self.attempted.entry((lane, tier, ending.code())).or_default() += 1;
    }

    /// Writes it: accounts, then rollups. Nothing but events and alerts may be written after it.
    pub(crate) async fn write(self, conn: &mut PgConnection, now: Timestamp) -> sqlx::Result<()> {
        self.write_counts(conn).await?;
        self.write_rollups(conn, now).await
    }

    async fn write_counts(&self, conn: &mut PgConnection) -> sqlx::Result<()> {
        if self.ended.is_empty() {
            return Ok(());
        }
        let (messages, lanes): (Vec<Uuid>, Vec<i32>) = self.ended.keys().copied().unzip();
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
            &messages,
            &lanes,
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

    async fn write_rollups(&self, conn: &mut PgConnection, now: Timestamp) -> sqlx::Result<()> {
        if self.attempted.is_empty() {
            return Ok(());
        }
        sqlx::query!(
            "INSERT INTO rollups AS r (minute, lane, tier, ending, n)
             SELECT $1, t.* FROM unnest($2::integer[], $3::smallint[], $4::smallint[], $5::bigint[]) AS t
             ORDER BY 2, 3, 4
             ON CONFLICT (minute, lane, tier, ending) DO UPDATE SET n = r.n + excluded.n",
            minute(now),
            &self.attempted.keys().map(|(lane, _, _)| *lane).collect::<Vec<_>>(),
            &self.attempted.keys().map(|(_, tier, _)| *tier).collect::<Vec<_>>(),
            &self.attempted.keys().map(|(_, _, ending)| *ending).collect::<Vec<_>>(),
            &self.attempted.values().copied().collect::<Vec<_>>()
        )
        .execute(conn)
        .await
        .map(drop)
    }
}

/// The start of the minute that `now` lies in.
pub(crate) fn minute(now: Timestamp) -> Timestamp {
    now.duration_trunc(TimeDelta::minutes(1)).unwrap_or(now)
}
