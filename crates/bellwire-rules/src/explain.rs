//! Story of one delivery in plain words, from stored facts alone: rule, policy, response, time and next step.
//!
//! [`tell`] is a pure function of [`Facts`]. Each [`Sentence`] carries its values, so that a program need not read the text, and
//! a test can compare both. Facts that are not stored are not guessed: the sentence then states that they are unknown, and their
//! bounds.

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
    /// Code of an explanation's sentence. A name never changes its meaning. New ones may be added.
    #[cfg_attr(feature = "openapi", schema(as = ExplanationCode))]
    pub enum Code {
        /// Acceptance of the message, and its time to live.
        MessageAccepted = "message_accepted",
        /// Message that it replays.
        MessageReplays = "message_replays",
        /// Recipients of the message.
        Addressed = "addressed",
        /// Policy of its retries.
        PolicyInForce = "policy_in_force",
        /// Policy of its retries when it died, as its dead letter stores it.
        PolicyWhenItDied = "policy_when_it_died",
        /// Attempts were made to the subscription whose place this one took.
        AttemptsElsewhere = "attempts_elsewhere",
        /// Response of the push service to a POST, and its meaning.
        Answered = "answered",
        /// A POST got no answer.
        NotAnswered = "not_answered",
        /// A retry left when its policy wanted it.
        RetryByPolicy = "retry_by_policy",
        /// A retry left later than its policy explains.
        RetryLater = "retry_later",
        /// A retry left sooner than its policy explains.
        RetrySooner = "retry_sooner",
        /// A retry that the policy in force does not contain.
        RetryUnknown = "retry_unknown",
        /// It was made smaller, and followed at once.
        RetrySmaller = "retry_smaller",
        /// It ended as accepted.
        EndedAccepted = "ended_accepted",
        /// It ended as accepted, since its browser reported it.
        EndedByReceipt = "ended_by_receipt",
        /// It ended as gone.
        EndedGone = "ended_gone",
        /// It ended as expired.
        EndedExpired = "ended_expired",
        /// It ended as dead.
        EndedDead = "ended_dead",
        /// It ended as cancelled.
        EndedCancelled = "ended_cancelled",
        /// It ended as capped.
        EndedCapped = "ended_capped",
        /// Report of its browser.
        Reported = "reported",
        /// Handling of its dead letter.
        DeadLetter = "dead_letter",
        /// The message's content was deleted.
        ContentDeleted = "content_deleted",
        /// The history has been deleted.
        HistoryDeleted = "history_deleted",
        /// It waits for the retry that its policy planned.
        WaitsForRetry = "waits_for_retry",
        /// The message is scheduled for later.
        WaitsScheduled = "waits_scheduled",
        /// It is due and waits for its turn.
        WaitsForTurn = "waits_for_turn",
        /// It waits since its message is paused.
        WaitsPaused = "waits_paused",
        /// It waits for the end of quiet hours or for an off-peak window.
        WaitsForHours = "waits_for_hours",
        /// It waits for its subscription's throttle.
        WaitsForThrottle = "waits_for_throttle",
        /// It was deferred, and what deferred it is not stored.
        WaitsPutOff = "waits_put_off",
        /// A worker holds it.
        HeldByWorker = "held_by_worker",
        /// A worker held it, and its lease ran out.
        LeaseRanOut = "lease_ran_out",
        /// The fan-out of its message has not come to it.
        NotFannedOut = "not_fanned_out",
        /// The message is not for this subscription.
        NotTargeted = "not_targeted",
        /// Another subscription has taken the place of this one, and has what waited for it.
        HandedOn = "handed_on",
        /// The subscription or message has ended, so the delivery will end, too.
        WillEnd = "will_end",
        /// The lane is currently held.
        LaneHeld = "lane_held",
        /// The push service refuses pushes to the subscription for a while.
        SubscriptionHeld = "subscription_held",
        /// The breaker of its lane is open.
        BreakerOpen = "breaker_open",
        /// The breaker of its lane lets nothing but probes through.
        BreakerHalfOpen = "breaker_half_open",
        /// Flow control lets nothing through.
        FlowPaused = "flow_paused",
        /// The app is held because it sent far more than its size explains.
        AppHeld = "app_held",
        /// Flow control limits what goes through.
        FlowLimited = "flow_limited",
        /// No worker is alive.
        NoWorker = "no_worker",
        /// Time of the next POST.
        NextPost = "next_post",
        /// It will expire before it is POSTed again.
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
    /// The same for people.
    pub text: String,
    /// The values that the text was made from. Members whose names end in `_s` are seconds, in `_ms` milliseconds.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub facts: Value,
}

#[derive(Debug, Clone)]
pub struct ExplainedMessage {
    pub id: MessageId,
    pub tier: Tier,
    pub state: MessageState,
    /// `to`, as it was given; ids of users are null once it has ended.
    pub audience: Value,
    /// Time to live in seconds.
    pub ttl_s: u32,
    pub accepted_at: Timestamp,
    pub expires_at: Timestamp,
    pub replay_of: Option<MessageId>,
    pub content_deleted: bool,
    /// Whether what was attempted of it is past its retention.
    pub history_deleted: bool,
    /// Whether its pushes carry the token that receipts come with.
    pub enveloped: bool,
    pub topic: Option<String>,
}

impl ExplainedMessage {
    /// Returns the end of its time to live while it waits. `None` for a `ttl` of 0, which gets its only POST at any time.
    fn ends_at(&self) -> Option<Timestamp> {
        (self.ttl_s > 0).then_some(self.expires_at)
    }
}

#[derive(Debug, Clone)]
pub struct Subscription {
    pub state: SubscriptionState,
    /// Messages accepted before are not for it.
    pub since: Timestamp,
    pub ended_at: Option<Timestamp>,
    /// Time zone, if its browser reported one.
    pub timezone: Option<String>,
    pub joined_at: Option<Timestamp>,
    pub replaced_by: Option<SubscriptionId>,
    /// Whether it took the place of another one.
    pub is_successor: bool,
    /// Whether what waits is for an earlier life of it, or for an earlier user.
    pub is_past: bool,
}

/// One POST and its outcome, or an ending without a POST.
#[derive(Debug, Clone)]
pub struct ExplainedAttempt {
    /// 0: the first POST.
    pub number: u32,
    /// Time of the response.
    pub at: Timestamp,
    pub ending: Ending,
    /// HTTP status; none: no answer, or no POST.
    pub status: Option<u16>,
    /// From the start of the POST to the answer; none: no POST.
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
    /// Place that set its retries. `None`: the built-in default of the tier.
    pub retry_set_by: Option<PolicyLevel>,
}

#[derive(Debug, Clone)]
pub enum WaitingDelivery {
    Alone(SingleRow),
    /// Among others, in a worker's hands until the lease ends.
    InBatch {
        recipients: u32,
        lease_until: Timestamp,
    },
    BehindCursor {
        /// Time of the next claim. `None`: its message is paused.
        due_at: Option<Timestamp>,
    },
}

/// Stored row of a single waiting delivery.
#[derive(Debug, Clone)]
pub struct SingleRow {
    pub retries: u32,
    /// Time from which it may be claimed, or end of its lease. `None`: its message is paused.
    pub due_at: Option<Timestamp>,
    pub scheduled_at: Timestamp,
    /// Time at which the previous attempt failed.
    pub failed_at: Option<Timestamp>,
    /// Whether a worker has or had a lease on it.
    pub leased: bool,
    /// Number of leases since its last attempt.
    pub leases: u32,
    /// Whether `due_at` is a turn that its subscription's throttle gave it.
    pub has_turn: bool,
}

#[derive(Debug, Clone)]
pub struct Letter {
    pub id: DeadLetterId,
    /// Why the delivery died, or `gone` or `expired`.
    pub reason: String,
    pub retries: u32,
    pub policy: Option<Value>,
    /// `open`, `replayed`, `discarded` or `closed`.
    pub state: String,
    pub at: Timestamp,
    pub settled_at: Option<Timestamp>,
    pub replay: Option<MessageId>,
}

/// State of a lane's way to an origin.
#[derive(Debug, Clone)]
pub struct OriginState {
    /// End of the hold.
    pub held_until: Option<Timestamp>,
    /// Why, if not because of throttling: `operator`, `key_refused`, `mass_gone`.
    pub reason: Option<String>,
    /// `closed`, `open` or `half_open`.
    pub breaker: String,
    /// Whether it stands so for one replica alone.
    pub breaker_of_one: bool,
    pub open_until: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub struct FlowLimit {
    /// Whether the flow control is of the lane alone, not of the app.
    pub of_lane: bool,
    /// At most so many in a period.
    pub rate: Option<Rate>,
    /// At most so many at a time.
    pub parallelism: Option<u32>,
    /// Whether it is paused.
    pub paused: bool,
    /// Start of a hold of the app as a runaway, which holds the delivery.
    pub held_at: Option<Timestamp>,
}

/// Result of a message's filter for a subscription now.
#[derive(Debug, Clone)]
pub struct Judged {
    /// Whether the message would be for it.
    pub verdict: FilterVerdict,
    pub habits: Habits,
    /// The hour of the day at which their person gets messages at own hours, as it was known when the first of these was due. None: too
    /// little was known.
    pub own_hour: Option<u8>,
    /// Sunset rule of the message.
    pub sunset: Option<Sunset>,
}

/// Everything that is stored and concerns one delivery, read in one snapshot.
#[derive(Debug, Clone)]
pub struct Facts {
    pub now: Timestamp,
    pub message: ExplainedMessage,
    /// The subscription, unless its row was deleted.
    pub subscription: Option<Subscription>,
    /// The push service, unless the subscription's row was deleted.
    pub gateway: Option<Gateway>,
    pub policy: InForce,
    /// Times at which deliveries of its tier may be sent.
    pub calendar: Calendar,
    /// Attempts in order.
    pub attempts: Vec<ExplainedAttempt>,
    /// Reports of its browser in order.
    pub reports: Vec<ReceiptReport>,
    /// State of the wait. `None`: it ended, or does not exist.
    pub waiting: Option<WaitingDelivery>,
    /// The last letter that it left.
    pub letter: Option<Letter>,
    pub origins: Vec<OriginState>,
    /// Time before which nothing is sent to its subscription, which was throttled.
    pub subscription_held_until: Option<Timestamp>,
    pub flows: Vec<FlowLimit>,
    /// Whether any worker lives.
    pub worker_lives: bool,
    /// Current result of the message's filter. `None`: it has no filter.
    pub judged: Option<Judged>,
    /// Part of the message in its campaign. `None`: it belongs to no campaign, or the campaign was deleted.
    pub part: Option<ExplainedPart>,
}

impl Facts {
    /// Returns its ending. `None`: it waits, is in flight, or does not exist.
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
    /// Whether a worker holds it.
    fn is_held(&self, now: Timestamp) -> bool {
        self.leased && self.due_at.is_some_and(|until| now < until)
    }
}

/// Sentences in the making.
struct Story {
    now: Timestamp,
    sentences: Vec<Sentence>,
}

impl Story {
    fn say(&mut self, at: Option<Timestamp>, code: Code, text: String, facts: Value) {
        self.sentences.push(Sentence { at, code, text, facts });
    }

    /// A time, and how far it is from now.
    fn time(&self, at: Timestamp) -> String {
        phrases::time(at, self.now)
    }
}

/// Returns the story in order: the message and its policy, the attempts, the state of the delivery, the next step.
pub fn tell(facts: &Facts) -> Vec<Sentence> {
    let mut story = Story { now: facts.now, sentences: Vec::new() };
    past::tell(facts, &mut story);
    present::tell(facts, &mut story);
    story.sentences
}
