//! Settlements: results of deliveries from dispatch, for the rest of the ledger. A [`Settlement`] cannot express impossible
//! results, such as an ending without an attempt, or an attempt with another result than its delivery.

use std::any::Any;
use std::sync::Arc;

use chrono::TimeDelta;
use uuid::Uuid;

use super::log::LogEntry;
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::{Ending, Tier};
use bellwire_core::hook::WebhookKinds;
use bellwire_core::id::{AppId, DeadLetterId, LaneId, MessageId, SubscriptionId};
use bellwire_rules::classify::DeadReason;
use bellwire_rules::policy::hold::HoldReason;
use bellwire_vault::retry_token::Queued;

/// One POST, or an ending without one. Its result is in the [`Fate`].
#[derive(Debug, Clone)]
pub struct Attempt {
    /// Number of the POST, from 0.
    pub number: u32,
    /// Time of the response.
    pub at: Timestamp,
    /// HTTP status. `None`: no response, or no POST.
    pub status: Option<u16>,
    /// Time from the start of the POST to the response, in milliseconds. `None`: no POST.
    pub took_ms: Option<u32>,
    /// Reason, except for an acceptance: at most 500 bytes, without NUL.
    pub reason: Option<Box<str>>,
}

/// Time from which a deferred delivery may be claimed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimableAt {
    /// Fixed time.
    At(Timestamp),
    /// Slot that its subscription's throttle has assigned.
    Turn(Timestamp),
    /// Expected time at which its lane reopens. The stored planned time is now. If the lane reopens earlier,
    /// [`recall`](crate::queue::recall) finds the delivery by that.
    Reopening(Timestamp),
    /// Time at which the message is resumed.
    Parked,
}

impl ClaimableAt {
    /// Returns the value of `due_at`: infinity for a parked delivery.
    pub(super) fn time(self, now: Timestamp) -> Timestamp {
        match self {
            ClaimableAt::At(at) | ClaimableAt::Turn(at) | ClaimableAt::Reopening(at) => at,
            ClaimableAt::Parked => now,
        }
    }

    pub(super) fn is_turn(self) -> bool {
        matches!(self, ClaimableAt::Turn(_))
    }
}

/// Ending of a delivery: an [`Ending`] with its stored details.
#[derive(Debug, Clone)]
pub enum End {
    /// Same as [`Ending::Accepted`].
    Accepted,
    /// Same as [`Ending::Gone`].
    Gone,
    /// Same as [`Ending::Expired`].
    Expired,
    /// Same as [`Ending::Cancelled`].
    Cancelled,
    /// Same as [`Ending::Capped`].
    Capped,
    /// [`Ending::Dead`], with details.
    Dead(Box<Death>),
}

impl End {
    /// Returns the ending without details.
    pub fn ending(&self) -> Ending {
        match self {
            End::Accepted => Ending::Accepted,
            End::Gone => Ending::Gone,
            End::Expired => Ending::Expired,
            End::Cancelled => Ending::Cancelled,
            End::Capped => Ending::Capped,
            End::Dead(_) => Ending::Dead,
        }
    }
}

/// Result of processing a claimed delivery.
#[derive(Debug, Clone)]
pub enum Fate {
    /// Ended, by this attempt.
    Ended(Attempt, End),
    /// Must be attempted again.
    Retry {
        /// Failed attempt.
        failed: Attempt,
        /// Attempts made, this one included.
        retries: u32,
        /// Planned time of the next attempt.
        due: Timestamp,
    },
    /// Deferred: no attempt was made or is counted.
    Deferred(ClaimableAt),
    /// Only in a batch: the POST is in flight. The delivery becomes a queue row under the batch's lease.
    InFlight {
        /// Attempts made so far.
        retries: u32,
        /// End of the lease.
        lease_until: Timestamp,
    },
}

/// Details of a failure, for its dead letter.
#[derive(Debug, Clone)]
pub struct Death {
    /// The dead letter's id.
    pub id: DeadLetterId,
    /// Reason of the failure.
    pub reason: DeadReason,
    /// Error text of the push service.
    pub detail: Option<Box<str>>,
    /// Delivery policy in force.
    pub policy: Option<serde_json::Value>,
}

/// SLA of a delivery: time within which it should be accepted.
#[derive(Debug, Clone, Copy)]
pub struct Sla {
    /// Time limit in seconds.
    pub seconds: u32,
    /// Start of the time: the acceptance of the message.
    pub since: Timestamp,
}

/// Values of a delivery's message that metrics need.
#[derive(Debug, Clone, Copy)]
pub struct MessageOrigin {
    /// Earliest time at which it could be sent. Latency is measured from here.
    pub free_at: Timestamp,
    /// Whether its pushes have Bellwire's envelope, with the token for receipts.
    pub enveloped: bool,
    /// Whether the message has metrics of its own.
    pub charted: bool,
    /// Endings that the app's webhooks subscribe to.
    pub heard: WebhookKinds,
}

/// A delivery whose processing has a result.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// Recipient of the delivery.
    pub subscription: SubscriptionId,
    /// Message of the delivery.
    pub message: MessageId,
    /// App of the message.
    pub app: AppId,
    /// Lane of the subscription.
    pub lane: LaneId,
    /// Tier of the message.
    pub tier: Tier,
    /// Life of the subscription at the time of the message. A later life does not get the delivery.
    pub life: i32,
    /// Whether its subscription is proven: see [`refusals`](crate::audience::refusals).
    pub proven: bool,
    /// Values for metrics.
    pub origin: MessageOrigin,
    /// SLA of its tier, if any.
    pub sla: Option<Sla>,
}

/// Trace span of a delivery's processing, which ends when it is dropped. One pointer wide, because there are many settlements.
#[derive(Debug)]
struct TurnSpan(#[expect(dead_code, reason = "held for its drop")] Box<dyn Any + Send + Sync>);

/// Result of one delivery.
#[derive(Debug, Clone)]
pub struct Settlement {
    delivery: Delivery,
    /// Attempts that were followed by another one at once.
    earlier: Box<[Attempt]>,
    fate: Fate,
    /// Hold of the subscription, if one starts or ends. Boxed, because few settlements have one.
    hold: Option<Box<HoldReason>>,
    /// Trace span. It ends when the settlement is dropped, after it was written or abandoned.
    _span: Option<Arc<TurnSpan>>,
}

impl Settlement {
    /// Creates a settlement with at most one attempt.
    pub fn new(delivery: Delivery, fate: Fate) -> Self {
        Self { delivery, earlier: Box::default(), fate, hold: None, _span: None }
    }

    /// Creates a settlement with `earlier` attempts, each followed by another one at once. After an attempt, a delivery cannot
    /// be deferred, so that becomes a retry. If its message is paused, the next claim parks it.
    pub fn after(mut earlier: Vec<Attempt>, delivery: Delivery, fate: Fate, now: Timestamp) -> Self {
        let fate = match fate {
            Fate::Deferred(due) if let Some(failed) = earlier.pop() => {
                let due = match due {
                    ClaimableAt::At(due) | ClaimableAt::Turn(due) => due,
                    // It is not claimed before its lane opens.
                    ClaimableAt::Reopening(_) | ClaimableAt::Parked => now,
                };
                Fate::Retry { retries: failed.number + 1, failed, due }
            }
            fate => fate,
        };
        Self { delivery, earlier: earlier.into(), fate, hold: None, _span: None }
    }

    /// Adds a hold of the subscription that the responses started or ended.
    pub fn holding(self, hold: Option<HoldReason>) -> Self {
        Self { hold: hold.map(Box::new), ..self }
    }

    pub fn hold(&self) -> Option<HoldReason> {
        self.hold.as_deref().copied()
    }

    /// Attaches a trace span, which ends when the settlement is dropped.
    pub fn traced(self, span: Box<dyn Any + Send + Sync>) -> Self {
        Self { _span: Some(Arc::new(TurnSpan(span))), ..self }
    }

    /// Returns a retry at once instead of an ending as gone: the next claim moves the delivery to the successor. An ending
    /// without a POST uses up no retry.
    pub(super) fn to_successor(&self, now: Timestamp) -> Self {
        let Self { delivery, earlier, fate, hold, _span } = self.clone();
        let fate = match fate {
            Fate::Ended(last, End::Gone) if last.took_ms.is_some() => {
                Fate::Retry { retries: last.number + 1, failed: last, due: now }
            }
            Fate::Ended(_, End::Gone) => Fate::Deferred(ClaimableAt::At(now)),
            fate => fate,
        };
        Self { hold, _span, ..Self::after(earlier.into(), delivery, fate, now) }
    }

    pub fn delivery(&self) -> &Delivery {
        &self.delivery
    }

    pub fn fate(&self) -> &Fate {
        &self.fate
    }

    /// Returns the ending. `None`: the delivery has not ended.
    pub fn end(&self) -> Option<&End> {
        if let Fate::Ended(_, end) = &self.fate { Some(end) } else { None }
    }

    /// Whether a response of the push service ended it as gone, and not an earlier end of the subscription.
    pub fn is_called_gone(&self) -> bool {
        matches!(&self.fate, Fate::Ended(Attempt { status: Some(_), .. }, End::Gone))
    }

    /// Defers the delivery instead of ending it. Its last attempt is neither counted nor logged.
    pub fn defer(&mut self, due: ClaimableAt, now: Timestamp) {
        let earlier = std::mem::take(&mut self.earlier).into_vec();
        let Self { earlier, fate, .. } = Self::after(earlier, self.delivery.clone(), Fate::Deferred(due), now);
        (self.earlier, self.fate) = (earlier, fate);
    }

    /// Returns the name of the result, for metrics and logs.
    pub fn outcome(&self) -> &'static str {
        match &self.fate {
            Fate::Ended(_, end) => end.ending().name(),
            Fate::Retry { .. } => Ending::Retry.name(),
            Fate::Deferred(_) => "deferred",
            Fate::InFlight { .. } => "in_flight",
        }
    }

    /// Returns all attempts in order, each with its result.
    pub fn attempts(&self) -> impl Iterator<Item = (&Attempt, Ending)> {
        let last = match &self.fate {
            Fate::Ended(last, end) => Some((last, end.ending())),
            Fate::Retry { failed, .. } => Some((failed, Ending::Retry)),
            Fate::Deferred(_) | Fate::InFlight { .. } => None,
        };
        self.earlier.iter().map(|attempt| (attempt, Ending::Retry)).chain(last)
    }

    pub(super) fn logged(&self) -> impl Iterator<Item = LogEntry<'_>> {
        self.attempts().map(|(attempt, ending)| LogEntry {
            message: self.delivery.message,
            subscription: self.delivery.subscription,
            number: stored(attempt.number),
            at: attempt.at,
            ending: ending.code(),
            status: attempt.status.map(stored_status),
            took_ms: attempt.took_ms.map(stored),
            reason: attempt.reason.as_deref(),
        })
    }

    /// Returns the SLA in seconds if the delivery missed it: it was accepted later, or ended without an acceptance.
    pub fn sla_missed_s(&self) -> Option<u32> {
        let (Fate::Ended(last, end), Some(sla)) = (&self.fate, self.delivery.sla) else { return None };
        let is_late = matches!(end, End::Accepted) && last.at - sla.since > TimeDelta::seconds(sla.seconds.into());
        (is_late || end.ending().misses_sla()).then_some(sla.seconds)
    }

    /// Returns its ending if webhooks subscribe to it.
    pub fn heard_ending(&self) -> Option<Ending> {
        self.end().map(End::ending).filter(|ending| self.delivery.origin.heard.has(*ending))
    }

    /// Returns its message if that has metrics of its own.
    pub fn charted(&self) -> Option<MessageId> {
        self.delivery.origin.charted.then_some(self.delivery.message)
    }

    /// Returns the values signed by the retry token of its queue row.
    pub(super) fn queued(&self, retries: u32, scheduled_at: Timestamp) -> Queued {
        let Delivery { message, subscription, .. } = self.delivery;
        Queued { message, subscription, retries, scheduled_at }
    }

    pub(super) fn failed_at(&self) -> Option<Timestamp> {
        if let Fate::Retry { failed, .. } = &self.fate { Some(failed.at) } else { None }
    }
}

/// A settled queue row, with the lease it was claimed under.
#[derive(Debug, Clone)]
pub struct RowSettlement {
    /// Lease that fences the write.
    pub lease: Uuid,
    /// Result of the row's delivery.
    pub settlement: Settlement,
}

impl RowSettlement {
    /// Returns a retry for the [successor](Settlement::to_successor).
    pub(super) fn to_successor(&self, now: Timestamp) -> Self {
        Self { lease: self.lease, settlement: self.settlement.to_successor(now) }
    }
}

/// Whether a settlement passed its fence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fenced {
    Written,
    Out,
}

/// Converts to Postgres's `integer`. Larger values become the maximum.
pub(super) fn stored(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

pub(super) fn stored_status(status: u16) -> i16 {
    i16::try_from(status).unwrap_or(i16::MAX)
}

#[cfg(test)]
#[path = "../../../../../tests/crates/store/unit/outcomes/ledger/settlement.rs"]
mod tests;
