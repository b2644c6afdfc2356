//! Current state of a delivery: why it waits, its obstacles, and the next step.

use chrono::TimeDelta;
use serde_json::{Value, json};

use super::phrases::{count, rfc3339, seconds, span};
use super::retries::{Fit, Planned};
use super::{Code, Facts, Judged, SingleRow, Story, Subscription, WaitingDelivery, part};
use crate::policy::flow::Rate;
use bellwire_core::clock::Timestamp;
use bellwire_core::engagement_stats::Habits;
use bellwire_core::id::SubscriptionId;
use bellwire_core::message::MessageState;
use bellwire_core::subscription::SubscriptionState;
use bellwire_segment::{FilterVerdict, Sunset};

pub(super) fn tell(facts: &Facts, story: &mut Story) {
    let due = match &facts.waiting {
        None => return nowhere(facts, story),
        Some(WaitingDelivery::InBatch { recipients, lease_until }) => {
            let batch = format!("in a batch of {}", count(*recipients, "delivery"));
            let facts_of_batch = json!({"recipients": recipients, "lease_until": rfc3339(*lease_until)});
            return held(facts, *lease_until, &batch, facts_of_batch, story);
        }
        Some(WaitingDelivery::Alone(row)) if row.is_held(facts.now) => {
            let lease_until = row.due_at.unwrap_or(facts.now);
            let told = json!({"leases": row.leases, "lease_until": rfc3339(lease_until)});
            let held_by = format!("(leased {} so far)", count(row.leases, "time"));
            return held(facts, lease_until, &held_by, told, story);
        }
        Some(WaitingDelivery::Alone(row)) => {
            match certain_end(facts) {
                Some(end) => will_end(&end, story),
                None => alone(facts, row, story),
            }
            row.due_at
        }
        Some(WaitingDelivery::BehindCursor { due_at }) => {
            let whose = match facts.message.audience["segment"].is_string() {
                true => "it is taken if it belongs to the message's segment then",
                false if facts.judged.is_some() => "whether the message is for it is decided then",
                false => "it is among the recipients still to be taken",
            };
            let text = format!("The fan-out of its message has not come to this subscription: {whose}.");
            story.say(None, Code::NotFannedOut, text, json!({}));
            behind_cursor(facts, *due_at, story);
            *due_at
        }
    };
    obstacles(facts, story);
    next(facts, due, story);
}

/// Describes a delivery that a worker has leased, or had until the lease expired.
fn held(facts: &Facts, lease_until: Timestamp, how: &str, told: Value, story: &mut Story) {
    let until = story.time(lease_until);
    let end = certain_end(facts);
    let is_paused = facts.message.state == MessageState::Paused;
    if facts.now < lease_until {
        let text = format!("A worker holds it {how}; its lease lasts until {until}, unless renewed.");
        story.say(None, Code::HeldByWorker, text, told);
        let text = match end {
            Some(End::As { why, ending }) => {
                format!("Next: unless it has POSTed it already, the worker ends it as {ending}. {why}.")
            }
            _ if is_paused => {
                "Next: the worker parks it until its message is resumed, unless it has POSTed it already.".to_owned()
            }
            _ => "Next: the worker POSTs it, unless it has, and settles it by the answer; should the worker die, another one \
                  takes it over after the lease."
                .to_owned(),
        };
        return story.say(Some(lease_until), Code::NextOpen, text, json!({}));
    }
    let text = format!("A worker held it {how}, and its lease ran out at {until}: that worker is gone.");
    story.say(Some(lease_until), Code::LeaseRanOut, text, told);
    match end {
        Some(end) => will_end(&end, story),
        None if is_paused => paused(story),
        None => {}
    }
    obstacles(facts, story);
    next(facts, Some(facts.now), story);
}

/// Describes a delivery that does not wait: it has ended, or does not exist.
fn nowhere(facts: &Facts, story: &mut Story) {
    if facts.ending().is_some() {
        let text = match (&facts.letter, facts.message.enveloped && facts.reports.is_empty()) {
            (Some(letter), _) if letter.state == "open" => {
                "Next: nothing automatic; its dead letter waits for an operator."
            }
            (None, true) if facts.now < facts.message.expires_at && facts.state() == "accepted" => {
                "Next: nothing from here; its browser may report that it was displayed, clicked or closed."
            }
            _ => "Next: nothing.",
        };
        return story.say(None, Code::NextNothing, text.into(), json!({}));
    }
    let successor = facts.subscription.as_ref().and_then(|subscription| subscription.replaced_by);
    if let Some(successor) = successor {
        let text = format!("Subscription {successor} has replaced this one, with its waiting deliveries: look there.");
        return story.say(None, Code::HandedOn, text, json!({"subscription": successor}));
    }
    if !facts.attempts.is_empty() {
        let text = "Its last attempt is to be followed by a retry, which is just being written, or was ended by hand.";
        return story.say(None, Code::NextOpen, text.into(), json!({}));
    }
    if facts.message.history_deleted {
        let text = "What was attempted is not known: history as old as its message's is deleted.";
        return story.say(None, Code::HistoryDeleted, text.into(), json!({}));
    }
    let (why, told) = not_targeted(facts, story);
    story.say(None, Code::NotTargeted, format!("The message was not for this subscription: {why}."), told);
}

fn not_targeted(facts: &Facts, story: &Story) -> (String, Value) {
    let accepted_at = facts.message.accepted_at;
    let Some(subscription) = &facts.subscription else { return ("why is not known".to_owned(), json!({})) };
    let Subscription { state, since, ended_at, joined_at, .. } = subscription;
    if *since > accepted_at {
        let text = format!("it registered at {}, after the message was accepted", rfc3339(*since));
        return (text, json!({"since": rfc3339(*since)}));
    }
    if let Some(ended_at) = ended_at {
        let text = format!("it has been {} since {}", state.name(), rfc3339(*ended_at));
        return (text, json!({"state": state, "ended_at": rfc3339(*ended_at)}));
    }
    let by_filter = facts.judged.as_ref().and_then(|judged| passed_over(facts, judged, story));
    match (&facts.message.topic, joined_at) {
        (Some(topic), None) => (format!("it is not a member of topic {topic} now"), json!({"topic": topic})),
        (Some(topic), Some(at)) if *at > accepted_at => {
            let text = format!("it joined topic {topic} at {}, after the message was accepted", rfc3339(*at));
            (text, json!({"topic": topic, "joined_at": rfc3339(*at)}))
        }
        _ if by_filter.is_some() => by_filter.unwrap_or_default(),
        _ if facts.message.audience["segment"].is_string() => {
            let text = "it did not belong to the message's segment when the fan-out came to it";
            (text.to_owned(), json!({"segment": facts.message.audience["segment"]}))
        }
        _ if facts.message.audience["users"].is_array() || facts.message.audience["subscriptions"].is_array() => {
            ("it is not among those whom the message names, or was another user's then".to_owned(), json!({}))
        }
        _ => ("why is not known".to_owned(), json!({})),
    }
}

/// Returns the reason why the message's filter rejected a subscription, other than the author's segment, if it rejects it now,
/// too.
fn passed_over(facts: &Facts, judged: &Judged, story: &Story) -> Option<(String, Value)> {
    match judged.verdict {
        FilterVerdict::Sunset => judged.sunset.as_ref().map(|rule| sunset(rule, &judged.habits, story)),
        FilterVerdict::NotInPortion(_) => Some(part::in_group(facts.part.as_ref().and_then(|part| part.group))),
        FilterVerdict::AtAnotherHour => {
            let text = match judged.own_hour {
                Some(hour) => format!("its person clicks most at {hour}:00 by their clock, and gets the campaign then"),
                None => "its person's own hour is not known, so that they get the campaign when it is due".to_owned(),
            };
            Some((text, json!({"own_hour": judged.own_hour})))
        }
        // Zones and follow-ups are part of a campaign's expression.
        FilterVerdict::NotInSegment => {
            let timezone = facts.subscription.as_ref().and_then(|subscription| subscription.timezone.as_deref());
            facts.part.as_ref().and_then(|part| part::passed_over(part, timezone, story))
        }
        FilterVerdict::Taken => None,
    }
}

fn sunset(rule: &Sunset, habits: &Habits, story: &Story) -> (String, Value) {
    let over = span(habits.unclicked_for().num_seconds() as f64);
    let since = match habits.clicked_at {
        Some(at) => format!("since they last clicked one, at {}", story.time(at)),
        None => "and never clicked one".to_owned(),
    };
    let n = count(habits.unclicked.unsigned_abs().into(), "message");
    let text = format!("the message's sunset rule left it out, since its person was shown {n} over {over} {since}");
    let told = json!({
        "sunset": {"unclicked": rule.unclicked, "unclicked_for_s": rule.unclicked_for_s, "welcome_s": rule.welcome_s},
        "unclicked": habits.unclicked,
        "unclicked_for_s": habits.unclicked_for().num_seconds(),
        "last_clicked_at": habits.clicked_at.map(rfc3339),
    });
    (text, told)
}

/// Ending of a delivery at its next claim.
enum End {
    As { why: &'static str, ending: &'static str },
    HandedOn(SubscriptionId),
}

/// Returns the ending of the delivery at its next claim, if it is certain.
fn certain_end(facts: &Facts) -> Option<End> {
    use SubscriptionState::{Active, Expired, Gone, Replaced, Suspended, Unsubscribed};
    let ends = |why, ending| Some(End::As { why, ending });
    let subscription = facts.subscription.as_ref();
    match (facts.message.state, subscription.map(|subscription| subscription.state)) {
        (MessageState::Cancelled, _) => ends("Its message was cancelled", "cancelled"),
        _ if subscription.is_some_and(|subscription| subscription.is_past) => {
            ends("It was for an earlier life of its subscription, or for another user", "cancelled")
        }
        (_, Some(Gone | Expired)) => ends("Its subscription no longer exists", "gone"),
        (_, Some(Replaced)) => match subscription.and_then(|subscription| subscription.replaced_by) {
            Some(successor) => Some(End::HandedOn(successor)),
            None => ends("Its subscription was replaced", "cancelled"),
        },
        (_, None | Some(Unsubscribed | Suspended)) => ends("Its subscription has ended or is suspended", "cancelled"),
        (MessageState::Scheduled | MessageState::Sending | MessageState::Paused, Some(Active)) => None,
    }
}

fn will_end(end: &End, story: &mut Story) {
    match end {
        End::As { why, ending } => {
            let text = format!("{why}: when a worker claims it, it ends as {ending} without a POST.");
            story.say(None, Code::WillEnd, text, json!({"ending": ending}));
        }
        End::HandedOn(successor) => {
            let text = format!("Subscription {successor} has taken the place of its own: a worker hands it on.");
            story.say(None, Code::HandedOn, text, json!({"subscription": successor}));
        }
    }
}

/// Describes why a single queue row is not due, or that it is due.
fn alone(facts: &Facts, row: &SingleRow, story: &mut Story) {
    let Some(due_at) = row.due_at.filter(|_| facts.message.state != MessageState::Paused) else {
        return paused(story);
    };
    let due = story.time(due_at);
    if row.leased && due_at <= facts.now {
        let told = json!({"leases": row.leases, "lease_until": rfc3339(due_at)});
        let text = format!(
            "A worker held it (leased {} so far), and its lease ran out at {due}: that worker is gone.",
            count(row.leases, "time")
        );
        return story.say(Some(due_at), Code::LeaseRanOut, text, told);
    }
    if due_at <= facts.now {
        let text = format!("It has been due since {due}, and waits for its turn in its lane.");
        return story.say(Some(due_at), Code::WaitsForTurn, text, json!({"due_at": rfc3339(due_at)}));
    }
    if row.retries == 0 && waits_for_its_time(facts, story) {
        return;
    }
    if row.has_turn {
        let per_second = facts.policy.policy.throttle.map(|throttle| throttle.max_receives_per_second);
        let limit = per_second.map_or("a number that is no longer in force".to_owned(), |n| n.to_string());
        let text =
            format!("Its policy limits what one subscription receives per second to {limit}; its turn is at {due}.");
        let told = json!({"max_receives_per_second": per_second, "due_at": rfc3339(due_at)});
        return story.say(Some(due_at), Code::WaitsForThrottle, text, told);
    }
    if waits_for_hours(facts, due_at, story) {
        return;
    }
    match row.failed_at.filter(|_| row.retries > 0 && due_at == row.scheduled_at) {
        Some(failed_at) => planned_retry(facts, row, failed_at, due_at, story),
        None => {
            let text = format!(
                "It was deferred until {due} without using up a retry. What deferred it is not stored: a hold or a breaker of its \
                 lane, or a push service that did not take the request."
            );
            let told = json!({"due_at": rfc3339(due_at), "scheduled_at": rfc3339(row.scheduled_at)});
            story.say(Some(due_at), Code::WaitsPutOff, text, told);
        }
    }
}

fn paused(story: &mut Story) {
    let text = "It waits since its message is paused; its time to live keeps running.";
    story.say(None, Code::WaitsPaused, text.into(), json!({}));
}

/// Adds that the delivery waits for its allowed hours, if a delivery due now would be deferred to the same time. Returns
/// whether it does.
fn waits_for_hours(facts: &Facts, due_at: Timestamp, story: &mut Story) -> bool {
    let zone = facts.subscription.as_ref().and_then(|subscription| subscription.timezone.as_deref());
    let tier = facts.message.tier;
    let opens_at = facts.calendar.opens_at(tier, zone, facts.now);
    if opens_at <= facts.now || due_at < opens_at {
        return false;
    }
    let known = zone.and_then(crate::policy::calendar::zone).map_or(facts.calendar.zone, |zone| zone).name();
    let text = format!(
        "It waits for the end of quiet hours or for an off-peak window of its app: tier {} may be sent at {} (its recipient's \
         zone counts as {known}, the app's is {}).",
        tier.name(),
        story.time(opens_at),
        facts.calendar.zone.name()
    );
    let told = json!({"tier": tier.name(), "opens_at": rfc3339(opens_at), "zone": known, "app_zone": facts.calendar.zone.name()});
    story.say(Some(opens_at), Code::WaitsForHours, text, told);
    true
}

fn planned_retry(facts: &Facts, row: &SingleRow, failed_at: Timestamp, due_at: Timestamp, story: &mut Story) {
    let (n, retries) = (row.retries, facts.policy.policy.retry.retries());
    let wait_s = seconds(due_at - failed_at);
    let waits = format!(
        "It waits for retry {n} of {retries}, planned for {}: {} after the failure",
        story.time(due_at),
        span(wait_s)
    );
    let Some(planned) = Planned::now(facts, n) else {
        let text = format!("{waits}; the policy in force now has no such retry, so by what rule is not known.");
        let told = json!({"retry": n, "retries": retries, "waited_s": wait_s, "due_at": rfc3339(due_at)});
        return story.say(Some(due_at), Code::WaitsForRetry, text, told);
    };
    let rule = planned.words();
    let text = match planned.compare(wait_s, 0.0) {
        Fit::Within => format!("{waits}; {rule}."),
        Fit::Later => format!(
            "{waits}, though {rule}: the push service asked for a later time, or a wave of retries was spread; which is not \
             stored."
        ),
        Fit::Sooner => format!(
            "{waits}, though {rule}: the push service set the time or invited a retry, or the policy was another one then; \
             which is not stored."
        ),
    };
    let mut told = planned.facts(n, retries, wait_s);
    told["due_at"] = json!(rfc3339(due_at));
    story.say(Some(due_at), Code::WaitsForRetry, text, told);
}

/// Adds that the delivery waits for its scheduled message. Returns whether it does.
fn waits_for_its_time(facts: &Facts, story: &mut Story) -> bool {
    let send_at = facts.message.accepted_at;
    let waits = send_at > facts.now;
    if waits {
        let text = format!("It waits since its message is for later: it is scheduled for {}.", story.time(send_at));
        story.say(Some(send_at), Code::WaitsScheduled, text, json!({"send_at": rfc3339(send_at)}));
    }
    waits
}

fn behind_cursor(facts: &Facts, due_at: Option<Timestamp>, story: &mut Story) {
    if due_at.is_none() || facts.message.state == MessageState::Paused {
        return paused(story);
    }
    if waits_for_its_time(facts, story) {
        return;
    }
    if let Some(opens_at) = facts.calendar.window_from(facts.message.tier, facts.now) {
        waits_for_hours(facts, opens_at, story);
    }
}

/// Adds the obstacles of all deliveries in its lane now.
fn obstacles(facts: &Facts, story: &mut Story) {
    if let Some(until) = facts.subscription_held_until.filter(|until| facts.now < *until) {
        let text = format!(
            "Its push service refuses more pushes to this subscription: none is sent to it before {}.",
            story.time(until)
        );
        story.say(Some(until), Code::SubscriptionHeld, text, json!({"held_until": rfc3339(until)}));
    }
    for origin in &facts.origins {
        if let Some(until) = origin.held_until.filter(|until| facts.now < *until) {
            let reason = origin.reason.as_deref().unwrap_or("throttled");
            let why = match reason {
                "operator" => "an operator holds it",
                "key_refused" => "its push service refuses the VAPID key",
                "mass_gone" => "its push service suddenly calls many subscriptions gone, which has to be confirmed",
                _ => "its push service takes nothing more for a while",
            };
            let text = format!("Its lane sends nothing before {} ({reason}): {why}.", story.time(until));
            story.say(Some(until), Code::LaneHeld, text, json!({"held_until": rfc3339(until), "reason": reason}));
        }
        let whose = if origin.breaker_of_one { ", for one replica that reaches no push service," } else { "" };
        match (origin.breaker.as_str(), origin.open_until) {
            ("open", Some(until)) if facts.now < until => {
                let text =
                    format!("The breaker of its lane{whose} is open: nothing is sent before {}.", story.time(until));
                let told = json!({"open_until": rfc3339(until), "of_one_replica": origin.breaker_of_one});
                story.say(Some(until), Code::BreakerOpen, text, told);
            }
            ("open" | "half_open", _) => {
                let text =
                    format!("The breaker of its lane{whose} is half open: only probes are sent until one succeeds.");
                story.say(None, Code::BreakerHalfOpen, text, json!({"of_one_replica": origin.breaker_of_one}));
            }
            _ => {}
        }
    }
    for flow in &facts.flows {
        let whose = if flow.of_lane { "its lane" } else { "its app" };
        if flow.paused {
            let text = format!("Flow control of {whose} is paused: nothing is let through.");
            story.say(None, Code::FlowPaused, text, json!({"of_lane": flow.of_lane}));
        }
        if let Some(held_at) = flow.held_at {
            let since = story.time(held_at);
            let text = format!(
                "Its app has been held since {since}: it sent far more than its size explains, and an operator has to release it."
            );
            story.say(None, Code::AppHeld, text, json!({"held_at": rfc3339(held_at)}));
        }
        let rate = flow.rate.map(|Rate { n, period }| format!("{n} per {}", span(period.as_secs_f64())));
        let parallelism = flow.parallelism.map(|n| format!("{n} at a time"));
        let limits: Vec<String> = rate.into_iter().chain(parallelism).collect();
        if !limits.is_empty() {
            let text = format!("Flow control lets through of {whose} at most {}.", limits.join(", and "));
            let told = json!({"of_lane": flow.of_lane, "rate": flow.rate.map(|rate| rate.n),
                              "period_s": flow.rate.map(|rate| rate.period.as_secs_f64()), "parallelism": flow.parallelism});
            story.say(None, Code::FlowLimited, text, told);
        }
    }
    if !facts.worker_lives {
        let text = "No worker lives: nothing is sent until a process with the role worker starts.";
        story.say(None, Code::NoWorker, text.into(), json!({}));
    }
}

/// Adds the time of the next POST, if known.
fn next(facts: &Facts, due_at: Option<Timestamp>, story: &mut Story) {
    if story.sentences.iter().any(|told| matches!(told.code, Code::WillEnd | Code::HandedOn)) {
        return;
    }
    let ends_at = facts.message.ends_at();
    let unless = ends_at.map(|at| format!(" Its time to live ends at {}; then it expires.", story.time(at)));
    // A wait for an operator has no end time.
    let awaited = story.sentences.iter().find_map(|told| match told.code {
        Code::WaitsPaused => Some("the message is resumed"),
        Code::FlowPaused => Some("flow control is resumed"),
        Code::AppHeld => Some("the app is released"),
        Code::NoWorker => Some("a worker starts"),
        _ => None,
    });
    if let Some(awaited) = awaited {
        let text = format!("Next: nothing, until {awaited}.{}", unless.unwrap_or_default());
        return story.say(ends_at, Code::NextOpen, text, json!({"expires_at": ends_at.map(rfc3339)}));
    }
    // What the lane waits for may end sooner or later; the latest of what has a time says when it can be at the earliest.
    let held = facts.origins.iter().filter_map(|origin| {
        let open_until = origin.open_until.filter(|_| origin.breaker == "open" && !origin.breaker_of_one);
        origin.held_until.max(open_until)
    });
    let earliest = held.chain(due_at).chain(facts.subscription_held_until).fold(facts.now, |latest, at| latest.max(at));
    if ends_at.is_some_and(|ends_at| ends_at <= earliest) {
        let ended = ends_at.unwrap_or(earliest);
        let text =
            format!("Next: it expires, since its time to live ends at {}, before it may be sent.", story.time(ended));
        return story.say(ends_at, Code::NextExpires, text, json!({"expires_at": rfc3339(ended)}));
    }
    let when = match earliest - facts.now > TimeDelta::zero() {
        true => format!("at {} at the earliest", story.time(earliest)),
        false => "as soon as it has its turn".to_owned(),
    };
    let text = format!("Next: it is POSTed {when}.{}", unless.unwrap_or_default());
    let told = json!({"earliest": rfc3339(earliest), "expires_at": ends_at.map(rfc3339)});
    story.say(Some(earliest), Code::NextPost, text, told);
}
