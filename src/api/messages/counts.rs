//! Delivery counts of a message, and counts of its receipts.

use chrono::{DateTime, Utc};
use serde::Serialize;
use utoipa::ToSchema;

use bellwire_core::id::MessageId;
use bellwire_store::queue::messages::DeliveryCounts;
use bellwire_store::queue::withdrawals::Withdrawal;

/// Delivery counts of a message. At every moment
/// `targeted = queued + dispatching + retrying + accepted + gone + expired + dead + cancelled + capped`. `targeted` grows until
/// fan-out is complete.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct MessageCounts {
    /// Deliveries created so far.
    targeted: i64,
    /// Deliveries waiting for their first attempt.
    queued: i64,
    /// Deliveries claimed by a worker.
    dispatching: i64,
    /// Deliveries waiting for another attempt.
    retrying: i64,
    /// Deliveries accepted by a push service. That does not prove that the notification was displayed.
    accepted: i64,
    /// Deliveries whose subscription no longer exists.
    gone: i64,
    /// Deliveries whose time to live ended first.
    expired: i64,
    /// Deliveries that failed permanently.
    dead: i64,
    /// Deliveries cancelled, or ended because the subscriber unsubscribed.
    cancelled: i64,
    /// Deliveries suppressed by a frequency cap.
    capped: i64,
    /// Recipients excluded by the message's sunset rule. They are not part of `targeted`.
    sunset: i64,
    /// Accepted deliveries without a receipt so far. This and the following members are null if the pushes request no receipts.
    awaiting_ack: Option<i64>,
    /// Accepted deliveries with at least one receipt.
    acknowledged: Option<i64>,
    /// Accepted deliveries that expired without a receipt.
    unconfirmed: Option<i64>,
    /// Deliveries reported as displayed. A lower bound: see `closed`.
    displayed: Option<i64>,
    /// Number of clicks.
    clicked: Option<i64>,
    /// Number of closes. Firefox reports none, nor does Safari for notifications that it displays without the service worker.
    closed: Option<i64>,
    /// Results of the withdrawal. Null: the message was not withdrawn.
    withdrawal: Option<WithdrawalCounts>,
}

impl MessageCounts {
    /// Builds the counts. `known`: the pushes request receipts. `expired`: the time to live has ended, so no further receipts
    /// are expected.
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
            withdrawal: None,
        }
    }

    /// Adds the results of the withdrawal, if there is one.
    pub(super) fn with_withdrawal(self, withdrawal: Option<Withdrawal>) -> Self {
        Self { withdrawal: withdrawal.map(WithdrawalCounts::from), ..self }
    }
}

/// Results of a withdrawal, as far as browsers reported them. They are parts of `accepted`.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct WithdrawalCounts {
    /// Time of the request.
    at: DateTime<Utc>,
    /// Message that removes this one from browsers. Null: no browser can have it, or some deliveries have not ended.
    removal: Option<MessageId>,
    /// Time at which every delivery of the withdrawn message had ended. Null: some have not.
    ended_at: Option<DateTime<Utc>>,
    /// Browsers that closed the notification.
    removed: i64,
    /// Browsers that had not displayed it, and will not: replaced at the push service, or overtaken.
    prevented: i64,
    /// Browsers in which it had been clicked or closed before.
    missed: i64,
    /// Browsers that get the removal and have not reported so far.
    unknown: i64,
}

impl From<Withdrawal> for WithdrawalCounts {
    fn from(it: Withdrawal) -> Self {
        let Withdrawal { at, removal, ended_at, targeted, removed, prevented, missed } = it;
        let unknown = (targeted - removed - prevented - missed).max(0);
        Self { at, removal, ended_at, removed, prevented, missed, unknown }
    }
}
