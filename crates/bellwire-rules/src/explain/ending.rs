//! Sentences about the ending of a delivery and its reason.

use serde_json::{Value, json};

use super::phrases::{count, range, rfc3339};
use super::retries::{Planned, Timetable};
use super::{Code, Facts, Story};
use crate::classify::DeadReason;
use crate::policy::caps::{CapRefusal, MUTED};
use bellwire_core::delivery::Ending;

pub(super) fn tell(facts: &Facts, timetable: &Timetable, story: &mut Story) {
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
                "It ended as accepted at {when}: {gateway} has it. Whether it was displayed, only the browser can report."
            );
            (Code::EndedAccepted, text, json!({"gateway": gateway}))
        }
        Ending::Gone => {
            let why = match unsent {
                Some(_) => "its subscription no longer existed",
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
            let (why, told) = capped(unsent, story);
            (Code::EndedCapped, format!("It ended as capped at {when}: {why}."), told)
        }
        Ending::Retry => return,
    };
    let mut told = told;
    told["ended_at"] = json!(rfc3339(at));
    story.say(Some(at), code, text, told);
}

fn capped(unsent: Option<&str>, story: &Story) -> (String, Value) {
    match unsent.and_then(|reason| reason.parse().ok()) {
        Some(CapRefusal::Full { cap, free_at }) => {
            let why =
                format!("its person had had {}, and may have no more until {}", cap.describe(), story.time(free_at));
            (why, json!({"cap": cap.to_json(), "free_at": rfc3339(free_at)}))
        }
        Some(CapRefusal::AsElsewhere) => {
            let why =
                "a frequency cap had held it back in another browser of the same user, and all of them get it or none";
            (why.to_owned(), json!({"cap": null, "free_at": null}))
        }
        None if unsent == Some(MUTED) => {
            ("the subscriber wants only transactional messages".to_owned(), json!({"cap": null, "free_at": null}))
        }
        None => ("a frequency cap held it back".to_owned(), json!({"cap": null, "free_at": null})),
    }
}

fn cancelled(reason: &str) -> &'static str {
    match reason {
        "message cancelled" => "its message was cancelled while it waited",
        "delivery cancelled" => "this delivery was cancelled by request",
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
    let kept_retries = || facts.letter.as_ref().map_or(0, |letter| letter.retries.unsigned_abs());
    let made = facts.attempts.last().map_or_else(kept_retries, |a| a.number);
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
                    format!("after {made} its policy allowed no more; the policy of that time is no longer known")
                }
                DeadReason::RetriesExhausted => {
                    format!("after {} the 24 hours of the guide's form were over", count(made, "retry"))
                }
                DeadReason::PayloadTooLarge => "nothing was left to make it smaller by".to_owned(),
                DeadReason::LeaseExhausted => {
                    "it was claimed five times without an end, because its workers crashed".to_owned()
                }
                DeadReason::Tampered => "its row was changed by hand".to_owned(),
                DeadReason::Replayed => "it had been sent already, and its row was restored by hand".to_owned(),
                DeadReason::Unrenderable => {
                    "its template could not be rendered for this recipient; its dead letter contains the error"
                        .to_owned()
                }
                DeadReason::TooLong => "what came of its template for this recipient was too long".to_owned(),
                DeadReason::Unsealable => "its keys or payload could not be opened or encrypted".to_owned(),
                refusal => refused(refusal).to_owned(),
            },
        ),
    };
    let text = format!("It ended as dead at {when} ({name}): {why}.");
    (Code::EndedDead, text, json!({"reason": reason.map(DeadReason::name), "retries_made": made, "retries": retries}))
}

/// Returns the meaning of a push service's refusal, in words.
pub(super) fn refused(reason: DeadReason) -> &'static str {
    match reason {
        DeadReason::BadRequest => "it finds the request itself wrong, so no retry would help",
        DeadReason::Unauthorized => "it refuses the VAPID key or its signature",
        DeadReason::Redirected => "redirects are never followed",
        DeadReason::NonRetryable => "it forbids another try",
        DeadReason::EndpointForbidden => "its host may not be talked to",
        _ => "what it calls wrong it takes no better later",
    }
}
