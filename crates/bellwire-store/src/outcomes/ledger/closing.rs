//! Shared rows that follow from endings, written last in a transaction.

use sqlx::PgConnection;

use super::take::QueuedDelivery;
use crate::outcomes::events::{self, Event};
use crate::outcomes::slas;
use crate::outcomes::tally::Tally;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Ending;
use bellwire_core::id::{LaneId, MessageId};

/// Rows that a transaction writes at its end, because they come last in [the order of locks](crate): counts, missed SLAs,
/// and events.
#[derive(Debug, Default)]
pub struct Closing {
    tally: Tally,
    /// Deliveries that ended without a timely acceptance, with their lanes.
    missed: Vec<(MessageId, LaneId)>,
    told: Vec<Event>,
}

impl Closing {
    /// Begins with what is counted already.
    pub(super) fn of(tally: Tally) -> Self {
        Self { tally, ..Self::default() }
    }

    /// Adds a delivery that ended without another POST. Whether that missed its SLA is looked up.
    pub(super) fn ended_unsent(&mut self, row: &QueuedDelivery, ending: Ending) {
        self.tally.count(row.message, row.lane, ending);
        if ending.misses_sla() {
            self.missed.push((row.message, row.lane));
        }
    }

    /// Adds a delivery that was enqueued just now, and is to be counted as targeted.
    pub fn enqueued(&mut self, message: MessageId, lane: LaneId) {
        self.tally.target(message, lane);
    }

    /// Adds a delivery that was to be enqueued, but already waited, because a delivery for another subscription had moved to this
    /// one. Both are one from now on.
    pub fn merged(&mut self, message: MessageId, lane: LaneId) {
        self.tally.merge(message, lane);
    }

    /// Adds events for webhooks.
    pub(super) fn tell(&mut self, events: impl IntoIterator<Item = Event>) {
        self.told.extend(events);
    }

    /// Writes it. Nothing may follow in the transaction.
    pub async fn write(self, conn: &mut PgConnection, now: Timestamp) -> sqlx::Result<()> {
        let told = self.count(conn, now).await?;
        events::record(conn, told, now).await
    }

    /// Writes all but the events, which it returns. Nothing but alerts and those may follow.
    pub(super) async fn count(self, conn: &mut PgConnection, now: Timestamp) -> sqlx::Result<Vec<Event>> {
        let Self { tally, missed, mut told } = self;
        tally.write(conn).await?;
        told.extend(slas::missed(conn, &missed, now).await?);
        Ok(told)
    }
}
