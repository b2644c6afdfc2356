//! Explains one delivery in plain words, from stored data only: policy, responses, times and next step.
//!
//! [`tell`] is a pure function of [`Facts`]. Each [`Sentence`] has its values, so that programs need not parse the text, and
//! tests can compare both. Missing data are not guessed: the sentence then states that they are unknown, with known bounds.

mod ending;
mod part;
mod past;
mod phrases;
mod present;
mod retries;
pub mod size_note;
#[cfg(test)]
#[path = "../../../tests/crates/rules/unit/explain.rs"]
mod tests;

use chrono::{DateTime, Utc};
pub use part::{ByZone, ExplainedPart, FollowedCampaign};
use serde::Serialize;
use serde_json::Value;

use crate::policy::calendar::Calendar;
use crate::policy::flow::Rate;
use crate::policy::{Policy, PolicyLevel};
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::{Ending, ReceiptKind, Tier};
use bellwire_core::engagement_stats::Habits;
use bellwire_core::id::{DeadLetterId, MessageId, SubscriptionId};
use bellwire_core::lane::Gateway;
use bellwire_core::message::MessageState;
use bellwire_core::named;
use bellwire_core::subscription::SubscriptionState;
use bellwire_segment::{FilterVerdict, Sunset};

named! {
    /// Code of a sentence. Names never change their meaning; new ones may be added.
    #[cfg_attr(feature = "openapi", schema(as = ExplanationCode))]
    pub enum Code {
        /// Acceptance of the message, and its time to live.
        MessageAccepted = "message_accepted",
        /// The message replays another one.
        MessageReplays = "message_replays",
        /// The message was withdrawn.
        MessageWithdrawn = "message_withdrawn",
        /// The message removes another one from browsers.
        MessageRemoves = "message_removes",
        /// Recipients of the message.
        Addressed = "addressed",
        /// Delivery policy for its retries.
        PolicyInForce = "policy_in_force",
        /// Delivery policy for its retries when it failed, from its dead letter.
        PolicyWhenItDied = "policy_when_it_died",
        /// Attempts were made to the subscription that this one replaced.
        AttemptsElsewhere = "attempts_elsewhere",
        /// Response of the push service to a POST, and its meaning.
        Answered = "answered",
        /// A POST got no response.
        NotAnswered = "not_answered",
        /// A retry was sent at the time planned by its policy.
        RetryByPolicy = "retry_by_policy",
        /// A retry was sent later than its policy explains.
        RetryLater = "retry_later",
        /// A retry was sent earlier than its policy explains.
        RetrySooner = "retry_sooner",
        /// A retry that the policy in force does not contain.
        RetryUnknown = "retry_unknown",
        /// The payload was reduced and sent again at once.
        RetrySmaller = "retry_smaller",
        /// The delivery ended as accepted.
        EndedAccepted = "ended_accepted",
        /// The delivery ended as accepted, because a receipt arrived.
        EndedByReceipt = "ended_by_receipt",
        /// The delivery ended as gone.
        EndedGone = "ended_gone",
        /// The delivery ended as expired.
        EndedExpired = "ended_expired",
        /// The delivery ended as dead.
        EndedDead = "ended_dead",
        /// The delivery ended as cancelled.
        EndedCancelled = "ended_cancelled",
        /// The delivery ended as capped.
        EndedCapped = "ended_capped",
        /// Receipt from its browser.
        Reported = "reported",
        /// State of its dead letter.
        DeadLetter = "dead_letter",
        /// The message's content was deleted.
        ContentDeleted = "content_deleted",
        /// Retention deleted the attempts of the delivery.
        HistoryDeleted = "history_deleted",
        /// The delivery waits for the retry planned by its policy.
        WaitsForRetry = "waits_for_retry",
        /// The message is scheduled for later.
        WaitsScheduled = "waits_scheduled",
        /// The delivery is due and waits for a worker.
        WaitsForTurn = "waits_for_turn",
        /// The delivery waits because its message is paused.
        WaitsPaused = "waits_paused",
        /// The delivery waits for the end of quiet hours or for an off-peak window.
        WaitsForHours = "waits_for_hours",
        /// The delivery waits for its subscription's throttle.
        WaitsForThrottle = "waits_for_throttle",
        /// The delivery was deferred for a reason that is not stored.
        WaitsPutOff = "waits_put_off",
        /// A worker has claimed the delivery.
        HeldByWorker = "held_by_worker",
        /// A worker had claimed the delivery, and its lease has expired.
        LeaseRanOut = "lease_ran_out",
        /// The fan-out of its message has not reached the subscription.
        NotFannedOut = "not_fanned_out",
        /// The message is not for this subscription.
        NotTargeted = "not_targeted",
        /// Another subscription has replaced this one, and has its waiting deliveries.
        HandedOn = "handed_on",
        /// The subscription or message has ended, so the delivery will end, too.
        WillEnd = "will_end",
        /// The lane is held.
        LaneHeld = "lane_held",
        /// The push service refuses pushes to the subscription for a while.
        SubscriptionHeld = "subscription_held",
        /// The breaker of its lane is open.
        BreakerOpen = "breaker_open",
        /// The breaker of its lane is half open: only probes are sent.
        BreakerHalfOpen = "breaker_half_open",
        /// Flow control is paused.
        FlowPaused = "flow_paused",
        /// The app is held because it sent far more than its size explains.
        AppHeld = "app_held",
        /// Flow control limits the rate or parallelism.
        FlowLimited = "flow_limited",
        /// No worker is running.
        NoWorker = "no_worker",
        /// Time of the next POST.
        NextPost = "next_post",
        /// The delivery will expire before the next POST.
        NextExpires = "next_expires",
        /// The obstacle has no known end.
        NextOpen = "next_open",
        /// No further step follows.
        NextNothing = "next_nothing",
    }
}

/// A sentence of an explanation.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Sentence {
    /// Time of the event. Null for a current state, or without a time.
    pub at: Option<DateTime<Utc>>,
    /// Code of the sentence, for programs.
    pub code: Code,
    /// Sentence, as text to display.
    pub text: String,
    /// Values in the sentence. Members whose names end in `_s` are seconds, in `_ms` milliseconds.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub facts: Value,
}

#[derive(Debug, Clone)]
pub struct ExplainedMessage {
    pub id: MessageId,
    pub tier: Tier,
    pub state: MessageState,
    /// `to` of the request. User ids are null after every delivery has ended.
    pub audience: Value,
    /// Time to live in seconds.
    pub ttl_s: u32,
    pub accepted_at: Timestamp,
    pub expires_at: Timestamp,
    pub replay_of: Option<MessageId>,
    /// Message that it removes from browsers. `None`: an ordinary message.
    pub withdraws: Option<MessageId>,
    pub withdrawn_at: Option<Timestamp>,
    /// Message that removes it from browsers.
    pub removal: Option<MessageId>,
    pub content_deleted: bool,
    /// Whether retention has deleted its attempts.
    pub history_deleted: bool,
    /// Whether its pushes have the token for receipts.
    pub enveloped: bool,
    pub topic: Option<String>,
}

impl ExplainedMessage {
    /// Returns the end of its time to live while it waits. `None` for a time to live of 0: its only POST may be at any time.
    fn ends_at(&self) -> Option<Timestamp> {
        (self.ttl_s > 0).then_some(self.expires_at)
    }
}

#[derive(Debug, Clone)]
pub struct Subscription {
    pub state: SubscriptionState,
    /// Time from which accepted messages are for this subscription.
    pub since: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// IANA time zone. `None`: not reported by its browser.
    pub timezone: Option<String>,
    pub joined_at: Option<Timestamp>,
    pub replaced_by: Option<SubscriptionId>,
    /// Whether it replaced another subscription.
    pub is_successor: bool,
    /// Whether the waiting delivery is for an earlier life, or for a former user.
    pub is_past: bool,
}

/// One POST and its outcome, or an ending without a POST.
#[derive(Debug, Clone)]
pub struct ExplainedAttempt {
    /// Number of the POST, from 0.
    pub number: u32,
    /// Time of the response.
    pub at: Timestamp,
    pub ending: Ending,
    /// HTTP status. `None`: no response, or no POST.
    pub status: Option<u16>,
    /// Time from the start of the POST to the response, in milliseconds. `None`: no POST.
    pub took_ms: Option<u32>,
    pub reason: Option<String>,
}

#[derive(Debug, Clone)]
pub struct ReceiptReport {
    pub kind: ReceiptKind,
    pub at: Timestamp,
}

#[derive(Debug, Clone)]
pub struct InForce {
    pub policy: Policy,
    /// Level that set its retries. `None`: the built-in default of the tier.
    pub retry_set_by: Option<PolicyLevel>,
}

#[derive(Debug, Clone)]
pub enum WaitingDelivery {
    Alone(SingleRow),
    /// In a batch that a worker has leased until this time.
    InBatch {
        recipients: u32,
        lease_until: Timestamp,
    },
    BehindCursor {
        /// Due time of the fan-out cursor. `None`: its message is paused.
        due_at: Option<Timestamp>,
    },
}

/// Stored row of a single waiting delivery.
#[derive(Debug, Clone)]
pub struct SingleRow {
    pub retries: u32,
    /// Due time, or end of its lease. `None`: its message is paused.
    pub due_at: Option<Timestamp>,
    pub scheduled_at: Timestamp,
    /// Time at which the previous attempt failed.
    pub failed_at: Option<Timestamp>,
    /// Whether it is or was leased.
    pub leased: bool,
    /// Number of leases since its last attempt.
    pub leases: u32,
    /// Whether `due_at` is a slot assigned by its subscription's throttle.
    pub has_turn: bool,
}

#[derive(Debug, Clone)]
pub struct Letter {
    pub id: DeadLetterId,
    /// Reason of the failure, or `gone` or `expired`.
    pub reason: String,
    pub retries: i32,
    pub policy: Option<Value>,
    /// State: `open`, `replayed`, `discarded` or `closed`.
    pub state: String,
    pub at: Timestamp,
    pub settled_at: Option<Timestamp>,
    pub replay: Option<MessageId>,
}

/// State of a lane at an origin.
#[derive(Debug, Clone)]
pub struct OriginState {
    /// End of the hold. `None`: not held.
    pub held_until: Option<Timestamp>,
    /// Reason, if not throttling: `operator`, `key_refused`, `mass_gone`.
    pub reason: Option<String>,
    /// State of the breaker: `closed`, `open` or `half_open`.
    pub breaker: String,
    /// Whether the breaker state applies to one replica only.
    pub breaker_of_one: bool,
    pub open_until: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub struct FlowLimit {
    /// Whether the flow control belongs to the lane, and not to the app.
    pub of_lane: bool,
    /// Maximum rate.
    pub rate: Option<Rate>,
    /// Maximum POSTs in flight.
    pub parallelism: Option<u32>,
    /// Whether the flow is paused.
    pub paused: bool,
    /// Time since which the runaway guard holds the delivery's tier. `None`: not held.
    pub held_at: Option<Timestamp>,
}

/// Current result of a message's filter for a subscription.
#[derive(Debug, Clone)]
pub struct Judged {
    /// Whether the filter accepts it.
    pub verdict: FilterVerdict,
    pub habits: Habits,
    /// Own hour of the person (0 to 23) when the first message of the run was due. `None`: too little data.
    pub own_hour: Option<u8>,
    /// Sunset rule of the message.
    pub sunset: Option<Sunset>,
}

/// All stored data about one delivery, read in one snapshot.
#[derive(Debug, Clone)]
pub struct Facts {
    pub now: Timestamp,
    pub message: ExplainedMessage,
    /// Subscription. `None`: deleted.
    pub subscription: Option<Subscription>,
    /// Push service. `None`: the subscription was deleted.
    pub gateway: Option<Gateway>,
    pub policy: InForce,
    /// Times at which deliveries of its tier may be sent.
    pub calendar: Calendar,
    /// Attempts in order.
    pub attempts: Vec<ExplainedAttempt>,
    /// Receipts from its browser in order of time.
    pub reports: Vec<ReceiptReport>,
    /// Waiting delivery. `None`: it ended, or does not exist.
    pub waiting: Option<WaitingDelivery>,
    /// Last dead letter of the delivery.
    pub letter: Option<Letter>,
    pub origins: Vec<OriginState>,
    /// End of the hold of its subscription, because of throttling.
    pub subscription_held_until: Option<Timestamp>,
    pub flows: Vec<FlowLimit>,
    /// Whether any worker is running.
    pub worker_lives: bool,
    /// Current result of the message's filter. `None`: it has no filter.
    pub judged: Option<Judged>,
    /// Position of the message in its campaign. `None`: it belongs to no campaign, or the campaign was deleted.
    pub part: Option<ExplainedPart>,
}

impl Facts {
    /// Returns the ending. `None`: the delivery waits, is in flight, or does not exist.
    fn ending(&self) -> Option<Ending> {
        if self.waiting.is_some() {
            return None;
        }
        let logged = self.attempts.last().map(|last| last.ending);
        let buried = || {
            let letter = self.letter.as_ref()?;
            Some(match letter.reason.as_str() {
                "gone" => Ending::Gone,
                "expired" => Ending::Expired,
                _ => Ending::Dead,
            })
        };
        logged.or_else(buried).filter(|ending| *ending != Ending::Retry)
    }

    /// Returns the state of the delivery: `queued`, `dispatching`, `retrying`, its ending, or `none`.
    pub fn state(&self) -> &'static str {
        match (&self.waiting, self.ending()) {
            (Some(WaitingDelivery::InBatch { .. }), _) => "dispatching",
            (Some(WaitingDelivery::Alone(row)), _) if row.is_held(self.now) => "dispatching",
            (Some(WaitingDelivery::Alone(row)), _) if row.retries > 0 => "retrying",
            (Some(_), _) => "queued",
            (None, Some(ending)) => ending.name(),
            (None, None) if self.attempts.is_empty() => "none",
            (None, None) => "retrying",
        }
    }

    fn gateway_name(&self) -> &'static str {
        self.gateway.map_or("the push service", Gateway::name)
    }
}

impl SingleRow {
    /// Whether a worker has a valid lease.
    fn is_held(&self, now: Timestamp) -> bool {
        self.leased && self.due_at.is_some_and(|until| now < until)
    }
}

/// Sentences written so far.
struct Story {
    now: Timestamp,
    sentences: Vec<Sentence>,
}

impl Story {
    fn say(&mut self, at: Option<Timestamp>, code: Code, text: String, facts: Value) {
        self.sentences.push(Sentence { at, code, text, facts });
    }

    /// Formats a time with its distance from now.
    fn time(&self, at: Timestamp) -> String {
        phrases::time(at, self.now)
    }
}

/// Returns the explanation in order: message and policy, attempts, current state, next step.
pub fn tell(facts: &Facts) -> Vec<Sentence> {
    let mut story = Story { now: facts.now, sentences: Vec::new() };
    past::tell(facts, &mut story);
    present::tell(facts, &mut story);
    story.sentences
}
