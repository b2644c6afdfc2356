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

/// One POST, or the reason for its absence. The result is in the [`Fate`] of the attempt.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// 0 for the first POST of the delivery.
    pub number: u32,
    /// Time of the response.
    pub at: Timestamp,
    /// HTTP status; `None` without an answer or a POST.
    pub status: Option<u16>,
    /// From the start of the POST to the answer; `None` without a POST.
    pub took_ms: Option<u32>,
    /// Why, for everything but an acceptance: at most 500 octets, without NUL.
    pub reason: Option<Box<str>>,
}

/// Time from which a delivery that stays in the queue may be claimed again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimableAt {
    /// At a fixed time.
    At(Timestamp),
    /// At this time, which its subscription's throttle has given it as its turn.
    Turn(Timestamp),
    /// At this time, when its lane should be open again. The policy wanted it sent now, by which it is known: should the
    /// lane open sooner, [`recall`](crate::queue::recall) finds it.
    Reopening(Timestamp),
    /// At the resume of its message.
    Parked,
}

impl ClaimableAt {
    /// The column `due_at`, but for what is parked, which is due at infinity.
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

/// Final ending of a delivery: an [`Ending`] with its stored details.
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
    /// [`Ending::Dead`], for this reason.
    Dead(Box<Death>),
}

impl End {
    /// As it is counted and logged.
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

/// State of a delivery after its turn.
#[derive(Debug, Clone)]
pub enum Fate {
    /// Over, by this attempt.
    Ended(Attempt, End),
    /// It has to be attempted again.
    Retry {
        /// The attempt that failed.
        failed: Attempt,
        /// Attempts made, this one included.
        retries: u32,
        /// Planned time of the next attempt.
        due: Timestamp,
    },
    /// It did not have its turn: no attempt was made, none is counted.
    Deferred(ClaimableAt),
    /// Only in a batch: the POST is under way. It becomes a row that is leased under the batch's lease.
    InFlight {
        /// Attempts made so far.
        retries: u32,
        /// End of that lease.
        lease_until: Timestamp,
    },
}

/// Why a delivery died, for its dead letter.
#[derive(Debug, Clone)]
pub struct Death {
    /// The dead letter's id.
    pub id: DeadLetterId,
    /// Reason of the death.
    pub reason: DeadReason,
    /// Text of the gateway.
    pub detail: Option<Box<str>>,
    /// The policy in force.
    pub policy: Option<serde_json::Value>,
}

/// Within which time an app wants a delivery accepted.
#[derive(Debug, Clone, Copy)]
pub struct Sla {
    /// Length in seconds.
    pub seconds: u32,
    /// Start of that time: the acceptance of the message.
    pub since: Timestamp,
}

/// Values of a delivery's message for metrics over time.
#[derive(Debug, Clone, Copy)]
pub struct MessageOrigin {
    /// Time at which it could be sent. The time to acceptance begins then.
    pub free_at: Timestamp,
    /// Whether its pushes carry the token that receipts come with.
    pub enveloped: bool,
    /// Whether it has figures over time of its own.
    pub charted: bool,
    /// Endings that the app's webhooks receive.
    pub heard: WebhookKinds,
}

/// Settled delivery.
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
    /// The life of its subscription that it is for.
    pub life: i32,
    /// Whether its subscription is known to be proven: see [`refusals`](crate::audience::refusals).
    pub proven: bool,
    /// Values for metrics over time.
    pub origin: MessageOrigin,
    /// Promise of its tier, if any.
    pub sla: Option<Sla>,
}

/// Span of the turn of a delivery, which ends when it is dropped. One pointer wide in a [`Settlement`], of which there are many.
#[derive(Debug)]
struct TurnSpan(#[expect(dead_code, reason = "held for its drop")] Box<dyn Any + Send + Sync>);

/// Result of one delivery.
#[derive(Debug, Clone)]
pub struct Settlement {
    delivery: Delivery,
    /// Attempts of this turn that another one followed at once.
    earlier: Box<[Attempt]>,
    fate: Fate,
    /// Boxed, since few have one, and there are many settlements.
    hold: Option<Box<HoldReason>>,
    /// Span of its turn, if traced. It ends when this is dropped, after the settlement was written or abandoned.
    _span: Option<Arc<TurnSpan>>,
}

impl Settlement {
    /// Of a delivery with one attempt in this turn, or none.
    pub fn new(delivery: Delivery, fate: Fate) -> Self {
        Self { delivery, earlier: Box::default(), fate, hold: None, _span: None }
    }

    /// Returns the settlement of a delivery with `earlier` attempts in this turn, each followed by another one at once. With any
    /// of them, a delivery cannot be deferred like one without a turn: it has to be attempted again. If its message is paused,
    /// the next claim parks it.
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

    /// The same settlement, of a delivery whose responses started or ended a hold of its subscription.
    pub fn holding(self, hold: Option<HoldReason>) -> Self {
        Self { hold: hold.map(Box::new), ..self }
    }

    pub fn hold(&self) -> Option<HoldReason> {
        self.hold.as_deref().copied()
    }

    /// Keeps the span of the delivery's turn until the settlement is written, where dropping it ends the span.
    pub fn traced(self, span: Box<dyn Any + Send + Sync>) -> Self {
        Self { _span: Some(Arc::new(TurnSpan(span))), ..self }
    }

    /// The same delivery, retried at once instead of ended as gone: a claim then hands the delivery on to the successor of its
    /// subscription. An ending without a POST uses up no retry.
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

    /// Returns its ending, if it ended.
    pub fn end(&self) -> Option<&End> {
        if let Fate::Ended(_, end) = &self.fate { Some(end) } else { None }
    }

    /// Returns whether a response of the push service, and not the end of the subscription before, ended it as gone.
    pub fn is_called_gone(&self) -> bool {
        matches!(&self.fate, Fate::Ended(Attempt { status: Some(_), .. }, End::Gone))
    }

    /// Makes it wait instead of ending it. Its last attempt is neither counted nor logged.
    pub fn defer(&mut self, due: ClaimableAt, now: Timestamp) {
        let earlier = std::mem::take(&mut self.earlier).into_vec();
        let Self { earlier, fate, .. } = Self::after(earlier, self.delivery.clone(), Fate::Deferred(due), now);
        (self.earlier, self.fate) = (earlier, fate);
    }

    /// Returns the name of its turn's result.
    pub fn outcome(&self) -> &'static str {
        match &self.fate {
            Fate::Ended(_, end) => end.ending().name(),
            Fate::Retry { .. } => Ending::Retry.name(),
            Fate::Deferred(_) => "deferred",
            Fate::InFlight { .. } => "in_flight",
        }
    }

    /// Attempts of this turn in order, each with its result.
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

    /// If it was accepted later than its app wants, or never will be: within how many seconds that should have been.
    pub fn sla_missed_s(&self) -> Option<u32> {
        let (Fate::Ended(last, end), Some(sla)) = (&self.fate, self.delivery.sla) else { return None };
        let is_late = matches!(end, End::Accepted) && last.at - sla.since > TimeDelta::seconds(sla.seconds.into());
        (is_late || end.ending().misses_sla()).then_some(sla.seconds)
    }

    /// Returns its ending, if webhooks receive it.
    pub fn heard_ending(&self) -> Option<Ending> {
        self.end().map(End::ending).filter(|ending| self.delivery.origin.heard.has(*ending))
    }

    /// Returns its message, if that has metrics of its own.
    pub fn charted(&self) -> Option<MessageId> {
        self.delivery.origin.charted.then_some(self.delivery.message)
    }

    /// Returns the values that the token of its queue row signs.
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
    /// The same row, retried at the [successor](Settlement::to_successor).
    pub(super) fn to_successor(&self, now: Timestamp) -> Self {
        Self { lease: self.lease, settlement: self.settlement.to_successor(now) }
    }
}

/// Whether the fence let a settling through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fenced {
    Written,
    Out,
}

/// A number as Postgres's `integer` holds it; what does not fit is as good as the largest.
pub(super) fn stored(number: u32) -> i32 {
    i32::try_from(number).unwrap_or(i32::MAX)
}

pub(super) fn stored_status(status: u16) -> i16 {
    i16::try_from(status).unwrap_or(i16::MAX)
}

#[cfg(test)]
#[path = "../../../../../tests/crates/store/unit/outcomes/ledger/settlement.rs"]
mod tests;
