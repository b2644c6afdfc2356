//! The account of a message, and what receipts add to it.

use serde::Serialize;
use utoipa::ToSchema;

use bellwire_store::queue::messages::DeliveryCounts;

/// The account of a message: `targeted = queued + dispatching + retrying + accepted + gone + expired + dead + cancelled
/// + capped` at every moment. It grows until the message is expanded.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MessageCounts {
    /// Deliveries that there are so far.
    targeted: i64,
    /// Waiting for their first attempt.
    queued: i64,
    /// Held by a worker.
    dispatching: i64,
    /// Waiting for another attempt.
    retrying: i64,
    /// Accepted by a push service, which does not prove that a person saw them.
    accepted: i64,
    /// Deliveries whose subscription no longer exists.
    gone: i64,
    /// Deliveries whose time to live ended first.
    expired: i64,
    /// Deliveries that failed for good.
    dead: i64,
    /// Cancelled, or their subscriber unsubscribed.
    cancelled: i64,
    /// Held back by a frequency cap.
    capped: i64,
    /// Left out by the message's sunset rule: not targeted, so no part of that sum.
    sunset: i64,
    /// Accepted deliveries without a receipt so far. Null, like the following members, if its pushes request no receipts.
    awaiting_ack: Option<i64>,
    /// Of the accepted: at least one receipt.
    acknowledged: Option<i64>,
    /// Of the accepted: expired without a receipt.
    unconfirmed: Option<i64>,
    /// Reported as displayed. A lower bound: see `closed`.
    displayed: Option<i64>,
    /// Number of clicks.
    clicked: Option<i64>,
    /// Number of closes, which Firefox does not report, nor Safari for notifications that it displays by itself.
    closed: Option<i64>,
}

impl MessageCounts {
    /// Builds the counts. `known`: its pushes request receipts. `expired`: browsers without a report will not send one any
    /// longer.
    pub(in crate::api) fn new(account: DeliveryCounts, known: bool, expired: bool) -> Self {
        // A push that arrived although its delivery counts as failed is acknowledged, but was never accepted.
        let acknowledged = account.acknowledged.min(account.accepted);
        let silent = account.accepted - acknowledged;
        let (awaiting_ack, unconfirmed) = if expired { (0, silent) } else { (silent, 0) };
        let if_known = |n| known.then_some(n);
        Self {
            targeted: account.targeted,
            queued: account.queued,
            dispatching: account.dispatching,
            retrying: account.retrying,
            accepted: account.accepted,
            gone: account.gone,
            expired: account.expired,
            dead: account.dead,
            cancelled: account.cancelled,
            capped: account.capped,
            sunset: account.sunset,
            awaiting_ack: if_known(awaiting_ack),
            acknowledged: if_known(acknowledged),
            unconfirmed: if_known(unconfirmed),
            displayed: if_known(account.displayed),
            clicked: if_known(account.clicked),
            closed: if_known(account.closed),
        }
    }
}
