//! One delivery's story in plain words, told from stored facts alone: which rule, whose policy, what the gateway said, why
//! then, what next.
//!
//! [`tell`] is a pure function of [`Facts`]. Each [`Sentence`] carries the values that it was made from, so that a program
//! need not read the text and a test can hold one against the other. What is not stored is not guessed: the sentence says
//! that it is not known, and within which bounds it lies.

mod ending;
mod part;
mod past;
mod present;
mod retries;
pub mod size_note;
#[cfg(test)]
mod tests;
mod words;

use chrono::{DateTime, Utc};
pub use part::{ByZone, Followed, Part};
use serde::Serialize;
use serde_json::Value;

use crate::policy::calendar::Calendar;
use crate::policy::flow::Rate;
use crate::policy::{Place, Policy};
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::{Ending, ReceiptKind, Tier};
use bellwire_core::habits::Habits;
use bellwire_core::id::{DeadLetterId, MessageId, SubscriptionId};
use bellwire_core::lane::Gateway;
use bellwire_core::message::MessageState;
use bellwire_core::named;
use bellwire_core::subscription::SubscriptionState;
use bellwire_segment::{Sunset, Verdict};

named! {
    /// What a sentence of an explanation says. A name never changes its meaning; new ones may be added.
    #[cfg_attr(feature = "openapi", schema(as = ExplanationCode))]
    pub enum Code {
        /// When the message was accepted, and how long it lives.
        MessageAccepted = "message_accepted",
        /// Which message it replays.
        MessageReplays = "message_replays",
        /// To whom the message is addressed.
        Addressed = "addressed",
        /// By whose policy it is retried.
        PolicyInForce = "policy_in_force",
        /// By which policy it was retried when it died, as its dead letter keeps it.
        PolicyWhenItDied = "policy_when_it_died",
        /// Attempts were made to the subscription whose place this one took.
        AttemptsElsewhere = "attempts_elsewhere",
        /// What the push service answered to a POST, and what that means.
        Answered = "answered",
        /// A POST got no answer.
        NotAnswered = "not_answered",
        /// A retry left when its policy wanted it.
        RetryByPolicy = "retry_by_policy",
        /// A retry left later than its policy explains.
        RetryLater = "retry_later",
        /// A retry left sooner than its policy explains.
        RetrySooner = "retry_sooner",
        /// A retry of which the policy in force knows nothing.
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
        /// What its browser reported.
        Reported = "reported",
        /// What became of its dead letter.
        DeadLetter = "dead_letter",
        /// The message's content was deleted.
        ContentDeleted = "content_deleted",
        /// Its history was deleted.
        HistoryDeleted = "history_deleted",
        /// It waits for the retry that its policy planned.
        WaitsForRetry = "waits_for_retry",
        /// Its message is for later.
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
        /// Its message is not for this subscription.
        NotTargeted = "not_targeted",
        /// Another subscription has taken the place of this one, and has what waited for it.
        HandedOn = "handed_on",
        /// Its subscription or message has ended, and so will it.
        WillEnd = "will_end",
        /// Its lane is held.
        LaneHeld = "lane_held",
        /// Its push service refuses more pushes to its subscription for a while.
        SubscriptionHeld = "subscription_held",
        /// The breaker of its lane is open.
        BreakerOpen = "breaker_open",
        /// The breaker of its lane lets nothing but probes through.
        BreakerHalfOpen = "breaker_half_open",
        /// Flow control lets nothing through.
        FlowPaused = "flow_paused",
        /// Its app is held, since it sent far more than its size explains.
        AppHeld = "app_held",
        /// Flow control limits what goes through.
        FlowLimited = "flow_limited",
        /// No worker lives.
        NoWorker = "no_worker",
        /// When it is POSTed next.
        NextPost = "next_post",
        /// It will expire before it is POSTed again.
        NextExpires = "next_expires",
        /// What it waits for has no time of its own.
        NextOpen = "next_open",
        /// Nothing follows.
        NextNothing = "next_nothing",
    }
}

/// A sentence of an explanation.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Sentence {
    /// When it happened or will; null for what is so now, or at no time.
    pub at: Option<DateTime<Utc>>,
    /// What it says, for programs.
    pub code: Code,
    /// The same for people.
    pub text: String,
    /// The values that the text was made from. Members whose names end in `_s` are seconds, in `_ms` milliseconds.
    #[cfg_attr(feature = "openapi", schema(value_type = Object))]
    pub facts: Value,
}

#[derive(Debug, Clone)]
pub struct Message {
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

impl Message {
    /// When its life ends for what waits: never for a `ttl` of 0, which gets its one POST whenever that is made.
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
    /// Its time zone, if its browser told.
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
pub struct Attempt {
    /// 0: the first POST.
    pub number: u32,
    /// When the answer was known.
    pub at: Timestamp,
    pub ending: Ending,
    /// HTTP status; none: no answer, or no POST.
    pub status: Option<u16>,
    /// From the start of the POST to the answer; none: no POST.
    pub took_ms: Option<u32>,
    pub reason: Option<String>,
}

#[derive(Debug, Clone)]
pub struct Report {
    pub kind: ReceiptKind,
    pub at: Timestamp,
}

#[derive(Debug, Clone)]
pub struct InForce {
    pub policy: Policy,
    /// Whose word its retries are; none: the tier's built-in default.
    pub retry_set_by: Option<Place>,
}

#[derive(Debug, Clone)]
pub enum Waiting {
    Alone(Row),
    /// Among others, in a worker's hands until the lease ends.
    InBatch {
        recipients: u32,
        lease_until: Timestamp,
    },
    BehindCursor {
        /// When the next are taken; none: its message is paused.
        due_at: Option<Timestamp>,
    },
}

/// What is stored of a delivery that waits alone.
#[derive(Debug, Clone)]
pub struct Row {
    pub retries: u32,
    /// When it may be claimed, or its lease ends; none: its message is paused.
    pub due_at: Option<Timestamp>,
    pub scheduled_at: Timestamp,
    /// When the attempt before failed.
    pub failed_at: Option<Timestamp>,
    /// Whether a worker has or had a lease on it.
    pub leased: bool,
    /// How often it was leased since its last attempt.
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

/// What is in force on the way of a lane to an origin.
#[derive(Debug, Clone)]
pub struct OriginState {
    /// No POST before.
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
    /// Whether that is said of the lane alone, rather than of the app.
    pub of_lane: bool,
    /// At most so many in a period.
    pub rate: Option<Rate>,
    /// At most so many at a time.
    pub parallelism: Option<u32>,
    /// Nothing.
    pub paused: bool,
    /// Since when it is held, and with it the delivery, as a runaway.
    pub held_at: Option<Timestamp>,
}

/// What a message's filter says of a subscription now.
#[derive(Debug, Clone)]
pub struct Judged {
    /// Whether the message would be for it.
    pub verdict: Verdict,
    pub habits: Habits,
    /// The hour of the day at which their person gets messages at own hours, as it was known when the first of these was due. None: too
    /// little was known.
    pub own_hour: Option<u8>,
    /// Who is left out since they do not click.
    pub sunset: Option<Sunset>,
}

/// Everything that is stored and concerns one delivery, read in one snapshot.
#[derive(Debug, Clone)]
pub struct Facts {
    pub now: Timestamp,
    pub message: Message,
    /// The subscription, unless its row was deleted.
    pub subscription: Option<Subscription>,
    /// The push service, unless the subscription's row was deleted.
    pub gateway: Option<Gateway>,
    pub policy: InForce,
    /// When deliveries of its tier may go.
    pub calendar: Calendar,
    /// What was attempted, in order.
    pub attempts: Vec<Attempt>,
    /// What its browser reported, in order.
    pub reports: Vec<Report>,
    /// Where it waits; none: it has ended, or there is none.
    pub waiting: Option<Waiting>,
    /// The last letter that it left.
    pub letter: Option<Letter>,
    pub origins: Vec<OriginState>,
    /// Time before which nothing is sent to its subscription, which was throttled.
    pub subscription_held_until: Option<Timestamp>,
    pub flows: Vec<FlowLimit>,
    /// Whether any worker lives.
    pub worker_lives: bool,
    /// What the message's filter says now; none: it has none.
    pub judged: Option<Judged>,
    /// What the message is within its campaign; none: it is of none, or that was deleted.
    pub part: Option<Part>,
}

impl Facts {
    /// How it ended; none: it waits, is under way, or there is none.
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

    /// Where the delivery stands: `queued`, `dispatching`, `retrying`, how it ended, or `none`.
    pub fn state(&self) -> &'static str {
        match (&self.waiting, self.ending()) {
            (Some(Waiting::InBatch { .. }), _) => "dispatching",
            (Some(Waiting::Alone(row)), _) if row.is_held(self.now) => "dispatching",
            (Some(Waiting::Alone(row)), _) if row.retries > 0 => "retrying",
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

impl Row {
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
        words::time(at, self.now)
    }
}

/// Tells the story, in order: the message and its policy, what was attempted, where the delivery stands, what comes next.
pub fn tell(facts: &Facts) -> Vec<Sentence> {
    let mut story = Story { now: facts.now, sentences: Vec::new() };
    past::tell(facts, &mut story);
    present::tell(facts, &mut story);
    story.sentences
}
