//! What was: the message, its policy, every attempt, and how it ended.

use std::time::Duration;

use chrono::TimeDelta;
use http::HeaderMap;
use serde_json::{Value, json};

use super::words::{self, count, range, rfc3339, seconds, span};
use super::{Attempt, Code, Facts, Letter, Story};
use crate::classify::{Answer, DeadReason, Failure, Kind, classify};
use crate::model::clock::Timestamp;
use crate::model::delivery::{Ending, ReceiptKind};
use crate::model::lane::Gateway;
use crate::policy::{Layer, Place, RETRIES_MAX, Retry, Step, Terms};
use crate::webpush::shrink;

/// What is due may be claimed this much later.
const CLAIM_SLACK_S: f64 = 1.0;

pub(super) fn tell(facts: &Facts, story: &mut Story) {
    message(facts, story);
    let timetable = policy(facts, story);
    attempts(facts, &timetable, story);
    ending(facts, &timetable, story);
    letter(facts, story);
    reports(facts, story);
}

fn message(facts: &Facts, story: &mut Story) {
    let message = &facts.message;
    let (tier, accepted_at, expires_at) = (message.tier.name(), message.accepted_at, message.expires_at);
    let life = match message.ttl_s {
        0 => "its time to live is 0 s: it gets exactly one POST".to_owned(),
        ttl_s => format!(
            "its time to live of {} {} at {}",
            span(f64::from(ttl_s)),
            if expires_at <= facts.now { "ended" } else { "ends" },
            story.time(expires_at)
        ),
    };
    let text = format!("Message {} of tier {tier} was accepted at {}; {life}.", message.id, story.time(accepted_at));
    let told = json!({"message": message.id, "tier": tier, "accepted_at": rfc3339(accepted_at), "ttl_s": message.ttl_s,
                      "expires_at": rfc3339(expires_at)});
    story.say(Some(accepted_at), Code::MessageAccepted, text, told);
    if let Some(first) = message.replay_of {
        let text = format!("It replays message {first}; a browser that showed that one drops this one.");
        story.say(None, Code::MessageReplays, text, json!({"replay_of": first}));
    }
    let (to, whom) = addressed(facts);
    story.say(None, Code::Addressed, format!("It is addressed to {to}."), whom);
    if message.content_deleted {
        let text = "Its content was deleted: every delivery had ended, and no open dead letter needed it.";
        story.say(None, Code::ContentDeleted, text.into(), json!({}));
    }
}

fn addressed(facts: &Facts) -> (String, Value) {
    let audience = &facts.message.audience;
    let listed = |name: &str| audience[name].as_array().map(Vec::len);
    let named = |n: usize, what| count(u32::try_from(n).unwrap_or(u32::MAX), what);
    match &facts.message.topic {
        Some(topic) => match facts.subscription.as_ref().and_then(|subscription| subscription.joined_at) {
            Some(at) => {
                let text = format!("topic {topic}, which this subscription joined at {}", words::time(at, facts.now));
                (text, json!({"topic": topic, "joined_at": rfc3339(at)}))
            }
            None => {
                let text = format!("topic {topic}, which this subscription is not a member of now");
                (text, json!({"topic": topic, "joined_at": null}))
            }
        },
        None if audience["all"] == true => ("everybody".to_owned(), json!({"all": true})),
        None => match (listed("subscriptions"), listed("users")) {
            (Some(n), _) => (format!("{} by id", named(n, "subscription")), json!({"subscriptions": n})),
            (None, Some(n)) => (format!("{} by id", named(n, "user")), json!({"users": n})),
            (None, None) => (format!("{audience}"), json!({"to": audience})),
        },
    }
}

/// The retries that are told of, and whose word they are.
struct Timetable {
    retry: Retry,
    /// Whether it is known to be what held, since it was kept.
    is_kept: bool,
}

impl Timetable {
    /// The retry that follows after so many of them, by what the answer before it meant.
    fn step(&self, retries_so_far: u32, throttled: bool) -> Option<Step> {
        if throttled { self.retry.throttled_step(retries_so_far) } else { self.retry.step(retries_so_far) }
    }

    /// The same timetable, as it is after such an answer.
    fn arithmetic(&self, retries_so_far: u32, throttled: bool) -> String {
        let other = if throttled { self.retry.when_throttled() } else { None };
        other.as_ref().unwrap_or(&self.retry).arithmetic(retries_so_far)
    }
}

/// Tells whose policy it is. A dead letter keeps the one that was in force; otherwise only the present one is known.
fn policy(facts: &Facts, story: &mut Story) -> Timetable {
    let kept = facts.letter.as_ref().and_then(|letter| Some((letter, kept_retry(letter.policy.as_ref()?)?)));
    if let Some((letter, retry)) = kept {
        let retries = retry.retries();
        let text = format!("When it died, its policy allowed {}.", count(retries, "retry"));
        story.say(None, Code::PolicyWhenItDied, text, json!({"retries": retries, "policy": letter.policy}));
        return Timetable { retry, is_kept: true };
    }
    let retry = facts.policy.policy.retry.clone();
    let retries = retry.retries();
    let (tier, place) = (facts.message.tier.name(), facts.policy.retry_set_by);
    let whose = match place {
        Some(Place::Message) => "the message's own policy".to_owned(),
        Some(Place::Subscription) => "the policy of its subscription".to_owned(),
        Some(Place::Topic) => "the policy of the message's topic".to_owned(),
        Some(Place::Tier) => format!("the app's policy for tier {tier}"),
        None => format!("the built-in policy of tier {tier}"),
    };
    let text = format!("By what is in force now, it is retried by {whose}: {} at most.", count(retries, "retry"));
    let set_by = place.map_or("default", Place::name);
    let told = json!({"set_by": set_by, "retries": retries, "policy": facts.policy.policy.to_json()});
    story.say(None, Code::PolicyInForce, text, told);
    Timetable { retry, is_kept: false }
}

/// The retries of a policy that a dead letter keeps: what else it says is in another form, maybe.
fn kept_retry(policy: &Value) -> Option<Retry> {
    let mut policy = policy.clone();
    let members = policy.as_object_mut()?;
    members.remove("throttlePolicy");
    members.remove("requestPolicy");
    let terms = Terms { max_retries: RETRIES_MAX, ..Terms::default() };
    Layer::restore(&policy, &terms).ok()?.layer.retry
}

fn attempts(facts: &Facts, timetable: &Timetable, story: &mut Story) {
    let first = facts.attempts.first().map(|first| first.number);
    let made = match &facts.waiting {
        Some(super::Waiting::Alone(row)) => first.unwrap_or(row.retries),
        _ => first.unwrap_or(0),
    };
    if made > 0 {
        let successor = facts.subscription.as_ref().is_some_and(|subscription| subscription.is_successor);
        let text = match successor {
            true => format!("{} made to the subscription whose place this one took.", were(made)),
            false => format!("{} made of which nothing is known here.", were(made)),
        };
        story.say(None, Code::AttemptsElsewhere, text, json!({"attempts": made, "is_successor": successor}));
    }
    let mut before: Option<&Attempt> = None;
    for attempt in &facts.attempts {
        if let (Some(posted_at), Some(before)) = (attempt.posted_at(), before) {
            retry(facts, timetable, before, attempt, posted_at, story);
        }
        if let (Some(posted_at), Some(took_ms)) = (attempt.posted_at(), attempt.took_ms) {
            answer(facts, attempt, posted_at, took_ms, story);
        }
        before = Some(attempt);
    }
}

fn were(attempts: u32) -> String {
    format!("{} {}", count(attempts, "attempt"), if attempts == 1 { "was" } else { "were" })
}

impl Attempt {
    fn posted_at(&self) -> Option<Timestamp> {
        Some(self.at - TimeDelta::milliseconds(self.took_ms?.into()))
    }

    /// What its answer meant, as far as it can be read out of what is kept of it: the status, and the words where they are
    /// short enough.
    fn kind(&self, gateway: Option<Gateway>) -> Kind {
        let gateway = gateway.unwrap_or(Gateway::Other);
        let kind = |answer: &Answer<'_>| classify(gateway, answer, self.at).kind;
        let words = self.reason.as_deref().unwrap_or_default();
        match self.status {
            Some(status) => kind(&Answer::Response { status, headers: &HeaderMap::new(), body: words.as_bytes() }),
            None => failure(words).map_or(Kind::Unavailable { retry_now: false }, |it| kind(&Answer::Failure(it))),
        }
    }

    /// Whether the answer asked for patience, which some policies have another timetable for.
    fn is_throttling(&self, gateway: Option<Gateway>) -> bool {
        let said_in_headers = self.ending == Ending::Retry && matches!(self.status, Some(200..=299));
        said_in_headers || self.kind(gateway) == Kind::Throttled
    }
}

/// The failure that an attempt's reason names, behind what the payload lacked, if anything.
fn failure(reason: &str) -> Option<Failure> {
    let name = reason.rsplit("; ").next().unwrap_or(reason);
    Failure::ALL.into_iter().find(|failure| failure.name() == name)
}

fn answer(facts: &Facts, attempt: &Attempt, posted_at: Timestamp, took_ms: u32, story: &mut Story) {
    let (n, gateway, words) = (attempt.number + 1, facts.gateway_name(), attempt.reason.as_deref());
    let posted = format!("POST {n} left at {}", story.time(posted_at));
    let Some(status) = attempt.status else {
        let name = words.unwrap_or("not known");
        let why = words.and_then(failure).map_or("why is not known", failed);
        let text = format!("{posted} and got no answer from {gateway} within {took_ms} ms ({name}): {why}.");
        let told = json!({"post": n, "posted_at": rfc3339(posted_at), "took_ms": took_ms, "gateway": gateway, "failure": words});
        return story.say(Some(attempt.at), Code::NotAnswered, text, told);
    };
    let said = words.map(|words| format!(", in its words “{words}”")).unwrap_or_default();
    let meaning = meaning(attempt, attempt.kind(facts.gateway));
    let text = format!("{posted}; {gateway} answered {status} after {took_ms} ms{said}: {meaning}.");
    let told = json!({"post": n, "posted_at": rfc3339(posted_at), "took_ms": took_ms, "gateway": gateway, "status": status,
                      "words": words, "ending": attempt.ending});
    story.say(Some(attempt.at), Code::Answered, text, told);
}

/// What the answer table says of an answer. What came of it stands above what its status alone would mean.
fn meaning(attempt: &Attempt, kind: Kind) -> &'static str {
    match (attempt.ending, kind) {
        (Ending::Accepted, _) => "it took the push",
        (Ending::Gone, _) => "the subscription does not exist any more",
        (Ending::Dead, Kind::Refused { reason }) => refused(reason),
        (_, Kind::TooLarge) => "the payload is larger than it takes",
        (_, Kind::Throttled) => "it takes nothing more for a while, and everything in this lane waits",
        (Ending::Retry, Kind::Accepted { .. }) => "it said in a header that it did not take the push",
        (_, Kind::Unavailable { retry_now: true }) => "it could not cope, and invites another try at once",
        _ => "it could not cope, which counts as a failure for the breaker",
    }
}

fn refused(reason: DeadReason) -> &'static str {
    match reason {
        DeadReason::BadRequest => "it finds the request itself wrong, so no retry would help",
        DeadReason::Unauthorized => "it refuses the VAPID key or its signature",
        DeadReason::Redirected => "redirects are never followed",
        DeadReason::NonRetryable => "it forbids another try",
        DeadReason::EndpointForbidden => "its host may not be talked to",
        _ => "what it calls wrong it takes no better later",
    }
}

fn failed(failure: Failure) -> &'static str {
    match failure {
        Failure::Resolve => "its host has no address at present",
        Failure::InvalidHost => "its host does not exist and never will",
        Failure::Forbidden => "its host is not one that may be talked to",
        Failure::Connect => "no TCP connection came about",
        Failure::Tls => "no TLS session came about",
        Failure::Unprocessed => "it said that it had not taken the request",
        Failure::Withdrawn => "it was not sent any more",
        Failure::Reset => "the connection broke after the request may have been read",
        Failure::Protocol => "it broke the protocol",
        Failure::Deadline => "no complete answer came before the deadline",
    }
}

/// Why a retry left when it did.
fn retry(
    facts: &Facts,
    timetable: &Timetable,
    before: &Attempt,
    attempt: &Attempt,
    posted_at: Timestamp,
    story: &mut Story,
) {
    let n = attempt.number;
    let retries = timetable.retry.retries();
    let waited_s = seconds(posted_at - before.at).max(0.0);
    if let Some(dropped) = before.reason.as_deref().filter(|_| before.status == Some(413)).and_then(shrink::dropped) {
        let without = if dropped.is_empty() { "padding".to_owned() } else { dropped.join(", ") };
        let text =
            format!("Retry {n} of {retries} followed after {}, made smaller: without {without}.", span(waited_s));
        let told = json!({"retry": n, "retries": retries, "waited_s": waited_s, "without": without});
        return story.say(Some(posted_at), Code::RetrySmaller, text, told);
    }
    let planned = Planned::new(timetable, n, before.is_throttling(facts.gateway));
    let left = format!("Retry {n} of {retries} left {} after the failure before it", span(waited_s));
    let Some(planned) = planned else {
        let text = format!("{left}; the policy in force now has no such retry, so by what rule is not known.");
        let told = json!({"retry": n, "retries": retries, "waited_s": waited_s});
        return story.say(Some(posted_at), Code::RetryUnknown, text, told);
    };
    let rule = planned.words();
    let (code, text) = match planned.compare(waited_s, CLAIM_SLACK_S) {
        Fit::Within => (Code::RetryByPolicy, format!("{left}: {rule}.")),
        Fit::Later => (
            Code::RetryLater,
            format!(
                "{left}, though {rule}. What made it later is not stored: the push service asked for it, its lane was held or \
                 its breaker open, or quiet hours, a throttle, flow control or a pause deferred it."
            ),
        ),
        Fit::Sooner => (
            Code::RetrySooner,
            format!(
                "{left}, though {rule}. What made it sooner is not stored: the push service set the time or invited a retry, \
                 somebody hurried it, or the policy was another one then."
            ),
        ),
    };
    story.say(Some(posted_at), code, text, planned.facts(n, retries, waited_s));
}

/// What a policy says about one retry.
pub(super) struct Planned {
    step: Step,
    arithmetic: String,
}

/// How a wait compares with what was planned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    Within,
    Later,
    Sooner,
}

impl Planned {
    /// Retry `n`, counted from 1.
    fn new(timetable: &Timetable, n: u32, throttled: bool) -> Option<Self> {
        let so_far = n.checked_sub(1)?;
        let step = timetable.step(so_far, throttled)?;
        Some(Self { step, arithmetic: timetable.arithmetic(so_far, throttled) })
    }

    /// By what is in force now.
    pub(super) fn now(facts: &Facts, n: u32) -> Option<Self> {
        let timetable = Timetable { retry: facts.policy.policy.retry.clone(), is_kept: false };
        let throttled = facts.attempts.last().is_some_and(|last| last.is_throttling(facts.gateway));
        Self::new(&timetable, n, throttled)
    }

    pub(super) fn words(&self) -> String {
        let [nominal, shortest, longest] = self.spans_s();
        let gives = format!("the policy gives {}, by {}", span(nominal), self.arithmetic);
        let jitter = match shortest < longest {
            true => format!(", which jitter makes {}", range(shortest, longest)),
            false => String::new(),
        };
        gives + &jitter
    }

    /// How `wait_s` compares; it may be longer by `slack_s`.
    pub(super) fn compare(&self, wait_s: f64, slack_s: f64) -> Fit {
        const MS: f64 = 1e-3; // waits are stored to the millisecond
        let [_, shortest, longest] = self.spans_s();
        match wait_s {
            wait if wait < shortest - MS => Fit::Sooner,
            wait if wait > longest + slack_s + MS => Fit::Later,
            _ => Fit::Within,
        }
    }

    pub(super) fn facts(&self, n: u32, retries: u32, waited_s: f64) -> Value {
        let [nominal, shortest, longest] = self.spans_s();
        json!({"retry": n, "retries": retries, "waited_s": waited_s, "nominal_s": nominal, "shortest_s": shortest,
               "longest_s": longest, "arithmetic": self.arithmetic})
    }

    fn spans_s(&self) -> [f64; 3] {
        [self.step.nominal, self.step.shortest, self.step.longest].map(|span: Duration| span.as_secs_f64())
    }
}

fn ending(facts: &Facts, timetable: &Timetable, story: &mut Story) {
    let Some(ending) = facts.ending() else { return };
    let last = facts.attempts.last();
    let letter = facts.letter.as_ref();
    let Some(at) = last.map(|last| last.at).or(letter.map(|letter| letter.at)) else { return };
    // An ending without a POST says itself why.
    let unsent = last.filter(|last| last.took_ms.is_none()).and_then(|last| last.reason.as_deref());
    let when = story.time(at);
    let (code, text, told) = match ending {
        Ending::Accepted if unsent.is_some() => (
            Code::EndedByReceipt,
            format!("It ended as accepted at {when}: its browser reported it, though no answer to its POST was known."),
            json!({}),
        ),
        Ending::Accepted => {
            let gateway = facts.gateway_name();
            let text = format!(
                "It ended as accepted at {when}: {gateway} has it. Only the browser knows whether anybody saw it."
            );
            (Code::EndedAccepted, text, json!({"gateway": gateway}))
        }
        Ending::Gone => {
            let why = match unsent {
                Some(_) => "its subscription had turned out not to exist any more",
                None => "its subscription was pruned, with everything that waited for it",
            };
            (Code::EndedGone, format!("It ended as gone at {when}: {why}."), json!({"reason": unsent}))
        }
        Ending::Expired => expired(facts, timetable, unsent, &when),
        Ending::Dead => dead(facts, timetable, unsent, &when),
        Ending::Cancelled => {
            let reason = unsent.unwrap_or("not known");
            let text = format!("It ended as cancelled at {when} ({reason}): {}.", cancelled(reason));
            (Code::EndedCancelled, text, json!({"reason": unsent}))
        }
        Ending::Capped => {
            (Code::EndedCapped, format!("It ended as capped at {when}: a frequency cap held it back."), json!({}))
        }
        Ending::Retry => return,
    };
    let mut told = told;
    told["ended_at"] = json!(rfc3339(at));
    story.say(Some(at), code, text, told);
}

fn cancelled(reason: &str) -> &'static str {
    match reason {
        "message cancelled" => "its message was cancelled while it waited",
        "delivery cancelled" => "somebody cancelled this delivery",
        "unsubscribed" => "its subscription was ended",
        "suspended" => "its subscription was suspended, since push services kept refusing it",
        "replaced" => "the subscription that took the place of its own has the message already, or does not exist",
        "another user" => "the message was meant for the user whom the subscription had before",
        "app deleted" => "its app was deleted",
        "stopped" => "its message was cancelled, or its subscription had ended, when its turn came",
        _ => "why is not known",
    }
}

fn expired(facts: &Facts, timetable: &Timetable, unsent: Option<&str>, when: &str) -> (Code, String, Value) {
    let expires_at = facts.message.expires_at;
    let over = format!("its time to live, which ended at {}", rfc3339(expires_at));
    let planned = || {
        let last = facts.attempts.last()?;
        let planned = Planned::new(timetable, last.number + 1, last.is_throttling(facts.gateway))?;
        Some((last.number + 1, planned))
    };
    let mut told = json!({"reason": unsent, "expires_at": rfc3339(expires_at)});
    let why = match unsent {
        Some("held beyond its time to live") => {
            format!("quiet hours or off-peak windows would have held it beyond {over}")
        }
        Some("throttled beyond its time to live") => {
            format!("its subscription's throttle would have held it beyond {over}")
        }
        Some(_) => format!("{over}, was over before its turn came"),
        None => match planned() {
            Some((n, planned)) => {
                let [_, shortest, longest] = planned.spans_s();
                told["retry"] = json!(n);
                told["shortest_s"] = json!(shortest);
                told["longest_s"] = json!(longest);
                let wait = range(shortest, longest);
                format!("retry {n}, due {wait} later or when the push service asked for, would have come after {over}")
            }
            None => format!("another retry would have come after {over}"),
        },
    };
    (Code::EndedExpired, format!("It ended as expired at {when}: {why}."), told)
}

fn dead(facts: &Facts, timetable: &Timetable, unsent: Option<&str>, when: &str) -> (Code, String, Value) {
    let kept = facts.letter.as_ref().map(|letter| letter.reason.as_str());
    let reason = kept.or(unsent).and_then(DeadReason::from_name);
    let retries = timetable.retry.retries();
    let made =
        facts.attempts.last().map_or_else(|| facts.letter.as_ref().map_or(0, |letter| letter.retries), |a| a.number);
    let (name, why) = match reason {
        None => ("not known", "why is not known".to_owned()),
        Some(reason) => (
            reason.name(),
            match reason {
                DeadReason::RetriesExhausted if made >= retries => {
                    let whose = if timetable.is_kept { "its policy allowed" } else { "the policy in force now allows" };
                    format!("it had used up what {whose}, {}", count(retries, "retry"))
                }
                DeadReason::RetriesExhausted if !timetable.is_kept => {
                    let made = count(made, "retry");
                    format!("after {made} its policy allowed no more; which policy that was is not known any more")
                }
                DeadReason::RetriesExhausted => {
                    format!("after {} the 24 hours of the guide's form were over", count(made, "retry"))
                }
                DeadReason::PayloadTooLarge => "nothing was left to make it smaller by".to_owned(),
                DeadReason::LeaseExhausted => {
                    "it was claimed five times without an ending: whoever handled it crashed".to_owned()
                }
                DeadReason::Tampered => "its row was changed by hand".to_owned(),
                DeadReason::Replayed => "it had been sent already, and somebody put its row back".to_owned(),
                DeadReason::Unsealable => "its keys or payload could not be opened or encrypted".to_owned(),
                refusal => refused(refusal).to_owned(),
            },
        ),
    };
    let text = format!("It ended as dead at {when} ({name}): {why}.");
    (Code::EndedDead, text, json!({"reason": reason.map(DeadReason::name), "retries_made": made, "retries": retries}))
}

fn letter(facts: &Facts, story: &mut Story) {
    let Some(letter) = facts.letter.as_ref().filter(|_| facts.waiting.is_none()) else { return };
    let Letter { id, state, settled_at, replay, .. } = letter;
    let settled = settled_at.map_or("a time that is not known".to_owned(), |at| story.time(at));
    let text = match (state.as_str(), replay) {
        ("replayed", Some(message)) => format!("Its dead letter {id} was replayed at {settled}, by message {message}."),
        ("discarded", _) => format!("Its dead letter {id} was discarded at {settled}."),
        ("open", _) => format!("Its dead letter {id} is open: it can be replayed or discarded."),
        _ => format!("Its dead letter {id} is {state}: it is kept for the record."),
    };
    let told = json!({"dead_letter": id, "state": state, "settled_at": settled_at.map(rfc3339), "replay": replay});
    story.say(*settled_at, Code::DeadLetter, text, told);
}

fn reports(facts: &Facts, story: &mut Story) {
    for report in &facts.reports {
        let what = match report.kind {
            ReceiptKind::Displayed => "displayed",
            ReceiptKind::Clicked => "clicked",
            ReceiptKind::Closed => "closed",
        };
        let text = format!("Its browser reported at {} that it was {what}.", story.time(report.at));
        story.say(Some(report.at), Code::Reported, text, json!({"kind": what, "reported_at": rfc3339(report.at)}));
    }
}
