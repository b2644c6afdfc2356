//! Past of a delivery: the message, its policy, each attempt, [its ending](super::ending), and later events.

use serde_json::{Value, json};

use super::ending::{self, refused};
use super::phrases::{self, count, rfc3339, seconds, span};
use super::retries::{Fit, Planned, Timetable, policy};
use super::size_note;
use super::{Code, ExplainedAttempt, Facts, Letter, Story};
use crate::classify::{Failure, ResponseKind};
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::{Ending, ReceiptKind};

/// Normal delay between due time and claim, in seconds.
const CLAIM_SLACK_S: f64 = 1.0;

pub(super) fn tell(facts: &Facts, story: &mut Story) {
    message(facts, story);
    let timetable = policy(facts, story);
    attempts(facts, &timetable, story);
    ending::tell(facts, &timetable, story);
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
    let was = if accepted_at > facts.now { "is scheduled for" } else { "was accepted at" };
    let text = format!("Message {} of tier {tier} {was} {}; {life}.", message.id, story.time(accepted_at));
    let told = json!({"message": message.id, "tier": tier, "accepted_at": rfc3339(accepted_at), "ttl_s": message.ttl_s,
                      "expires_at": rfc3339(expires_at)});
    story.say(Some(accepted_at), Code::MessageAccepted, text, told);
    if let Some(first) = message.replay_of {
        let text = format!("It replays message {first}; a browser that showed that one drops this one.");
        story.say(None, Code::MessageReplays, text, json!({"replay_of": first}));
    }
    withdrawal(facts, story);
    if message.withdraws.is_none() {
        let (to, whom) = addressed(facts);
        story.say(None, Code::Addressed, format!("It is addressed to {to}."), whom);
    }
    if message.content_deleted {
        let text = "Its content was deleted: every delivery had ended, and no open dead letter needed it.";
        story.say(None, Code::ContentDeleted, text.into(), json!({}));
    }
}

/// Tells that the message was withdrawn, or that it removes another one.
fn withdrawal(facts: &Facts, story: &mut Story) {
    let message = &facts.message;
    if let Some(at) = message.withdrawn_at {
        let how = match message.removal {
            Some(removal) => format!("message {removal} removes it from browsers"),
            None => "no browser needs a removal, or its last pushes have not ended".into(),
        };
        let text = format!("It was withdrawn at {}: {how}.", story.time(at));
        story.say(Some(at), Code::MessageWithdrawn, text, json!({"at": rfc3339(at), "removal": message.removal}));
    }
    if let Some(withdraws) = message.withdraws {
        let text = format!("It removes message {withdraws} from the browsers that may have it.");
        story.say(None, Code::MessageRemoves, text, json!({"withdraws": withdraws}));
    }
}

fn addressed(facts: &Facts) -> (String, Value) {
    let audience = &facts.message.audience;
    let listed = |name: &str| audience[name].as_array().map(Vec::len);
    let named = |n: usize, what| count(u32::try_from(n).unwrap_or(u32::MAX), what);
    match &facts.message.topic {
        Some(topic) => match facts.subscription.as_ref().and_then(|subscription| subscription.joined_at) {
            Some(at) => {
                let text = format!("topic {topic}, which this subscription joined at {}", phrases::time(at, facts.now));
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

fn attempts(facts: &Facts, timetable: &Timetable, story: &mut Story) {
    let first = facts.attempts.first().map(|first| first.number);
    let made = match &facts.waiting {
        Some(super::WaitingDelivery::Alone(row)) => first.unwrap_or(row.retries),
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
    let mut before: Option<&ExplainedAttempt> = None;
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

fn answer(facts: &Facts, attempt: &ExplainedAttempt, posted_at: Timestamp, took_ms: u32, story: &mut Story) {
    let (n, gateway, words) = (attempt.number + 1, facts.gateway_name(), attempt.words());
    let left_out = attempt.left_out().map(|names| format!(", without {names}, since {gateway} takes less"));
    let left_out = left_out.unwrap_or_default();
    let posted = format!("POST {n} left at {}{left_out}", story.time(posted_at));
    let Some(status) = attempt.status else {
        let name = words.unwrap_or("not known");
        let why = words.and_then(Failure::from_name).map_or("why is not known", failed);
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

/// Returns the meaning of a response. The stored ending of the attempt takes precedence over its status.
fn meaning(attempt: &ExplainedAttempt, kind: ResponseKind) -> &'static str {
    match (attempt.ending, kind) {
        (Ending::Accepted, _) => "it took the push",
        (Ending::Gone, _) => "the subscription no longer exists",
        (Ending::Dead, ResponseKind::Refused { reason }) => refused(reason),
        (_, ResponseKind::TooLarge) => "the payload is larger than it takes",
        (_, ResponseKind::Throttled) => {
            "it takes nothing more for this subscription for a while, and all deliveries to it wait"
        }
        (_, ResponseKind::SenderThrottled) => {
            "it takes nothing more for a while, from this sender unless a header named the subscription"
        }
        (Ending::Retry, ResponseKind::Accepted { .. }) => {
            "a header of its response states that it did not accept the push"
        }
        (_, ResponseKind::Unavailable { retry_now: true }) => "it could not cope, and invites another try at once",
        _ => "it could not cope, which counts as a failure for the breaker",
    }
}

fn failed(failure: Failure) -> &'static str {
    match failure {
        Failure::Resolve => "its host has no address at present",
        Failure::InvalidHost => "its host does not exist and never will",
        Failure::Forbidden => "its host is not one that may be talked to",
        Failure::Connect => "no TCP connection came about",
        Failure::Proxy => "the proxy of this server's own network let no connection through",
        Failure::Tls => "no TLS session came about",
        Failure::Unprocessed => "it reported that it had not processed the request",
        Failure::Withdrawn => "it was no longer sent",
        Failure::Reset => "the connection broke after the request may have been read",
        Failure::Protocol => "it broke the protocol",
        Failure::Deadline => "no complete answer came before the deadline",
    }
}

fn retry(
    facts: &Facts, timetable: &Timetable, before: &ExplainedAttempt, attempt: &ExplainedAttempt, posted_at: Timestamp,
    story: &mut Story,
) {
    let n = attempt.number;
    let retries = timetable.retry.retries();
    let waited_s = seconds(posted_at - before.at).max(0.0);
    if let Some(dropped) = before.reason.as_deref().filter(|_| before.status == Some(413)).and_then(size_note::dropped)
    {
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
                 its breaker open, or quiet hours, a throttle, flow control or a pause deferred it, or a wave of retries was \
                 spread."
            ),
        ),
        Fit::Sooner => (
            Code::RetrySooner,
            format!(
                "{left}, though {rule}. What made it sooner is not stored: the push service set the time or invited a retry, \
                 it was retried by request, or the policy was different then."
            ),
        ),
    };
    story.say(Some(posted_at), code, text, planned.facts(n, retries, waited_s));
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
        let what = report.kind.name();
        let told = match report.kind {
            ReceiptKind::Displayed | ReceiptKind::Clicked | ReceiptKind::Closed => format!("it was {what}"),
            ReceiptKind::Removed => "it closed the withdrawn notification".into(),
            ReceiptKind::Prevented => "it had not shown the withdrawn notification, and will not".into(),
            ReceiptKind::Missed => "the withdrawn notification had been clicked or closed before".into(),
        };
        let text = format!("Its browser reported at {} that {told}.", story.time(report.at));
        story.say(Some(report.at), Code::Reported, text, json!({"kind": what, "reported_at": rfc3339(report.at)}));
    }
}
