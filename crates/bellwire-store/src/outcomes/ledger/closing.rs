//! Shared rows that follow from endings, written at the end of a transaction.

use sqlx::PgConnection;

use super::take::QueuedDelivery;
use crate::outcomes::events::{self, Event};
use crate::outcomes::slas;
use crate::outcomes::tally::Tally;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Ending;
use bellwire_core::id::{LaneId, MessageId};

/// Collector of rows that a transaction writes last because of [the order of locks](crate): counts, missed SLAs, and events.
#[derive(Debug, Default)]
pub struct Closing {
    tally: Tally,
    /// Deliveries that ended without a timely acceptance, by message and lane.
    missed: Vec<(MessageId, LaneId)>,
    told: Vec<Event>,
}

impl Closing {
    /// Starts with existing counts.
    pub(super) fn of(tally: Tally) -> Self {
        Self { tally, ..Self::default() }
    }

    /// Adds a delivery that ended without another POST. `write` checks whether it missed its SLA.
    pub(super) fn ended_unsent(&mut self, row: &QueuedDelivery, ending: Ending) {
        self.tally.count(row.message, row.lane, ending);
        if ending.misses_sla() {
            self.missed.push((row.message, row.lane));
        }
    }

    /// Adds a delivery that was enqueued in this transaction, as targeted.
    pub fn enqueued(&mut self, message: MessageId, lane: LaneId) {
        self.tally.target(message, lane);
    }

    /// Adds a delivery that could not be enqueued because it already waits: a delivery for another subscription moved to this
    /// one. Both count as one.
    pub fn merged(&mut self, message: MessageId, lane: LaneId) {
        self.tally.merge(message, lane);
    }

    /// Adds events.
    pub(super) fn tell(&mut self, events: impl IntoIterator<Item = Event>) {
        self.told.extend(events);
    }

    /// Writes all collected rows. It must be the last call in the transaction.
    pub async fn write(self, conn: &mut PgConnection, now: Timestamp) -> sqlx::Result<()> {
        let told = self.count(conn, now).await?;
        events::record(conn, told, now).await
    }

    /// Writes all rows except events, which it returns. Only alerts and events may follow in the transaction.
    pub(super) async fn count(self, conn: &mut PgConnection, now: Timestamp) -> sqlx::Result<Vec<Event>> {
        let Self { tally, missed, mut told } = self;
        tally.write(conn).await?;
        told.extend(slas::missed(conn, &missed, now).await?);
        Ok(told)
    }
}
