//! Retries of a policy: the level that set them, the planned time of each retry, and the response before it.

use std::time::Duration;

use chrono::TimeDelta;
use http::HeaderMap;
use serde_json::{Value, json};

use super::phrases::{count, range, span};
use super::size_note;
use super::{Code, ExplainedAttempt, Facts, Story};
use crate::classify::{Failure, PostResult, ResponseKind, classify};
use crate::policy::{Layer, PolicyLevel, RETRIES_MAX, Retry, RetryDelay, Terms};
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Ending;
use bellwire_core::lane::Gateway;

/// Timetable of retries, and the level that set it.
pub(super) struct Timetable {
    pub(super) retry: Retry,
    /// Whether the policy was stored with the dead letter, and so is certainly the one used.
    pub(super) is_kept: bool,
}

impl Timetable {
    /// Explains the delay after a number of retries, and after a throttling response if `throttled`.
    fn arithmetic(&self, retries_so_far: u32, throttled: bool) -> String {
        let other = if throttled { self.retry.when_throttled() } else { None };
        other.as_ref().unwrap_or(&self.retry).arithmetic(retries_so_far)
    }
}

/// Adds a sentence about the policy. A dead letter stores the policy that was in force. Otherwise only the current policy is
/// known.
pub(super) fn policy(facts: &Facts, story: &mut Story) -> Timetable {
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
        Some(PolicyLevel::Message) => "the message's own policy".to_owned(),
        Some(PolicyLevel::Subscription) => "the policy of its subscription".to_owned(),
        Some(PolicyLevel::Topic) => "the policy of the message's topic".to_owned(),
        Some(PolicyLevel::Tier) => format!("the app's policy for tier {tier}"),
        None => format!("the built-in policy of tier {tier}"),
    };
    let text = format!("By what is in force now, it is retried by {whose}: {} at most.", count(retries, "retry"));
    let set_by = place.map_or("default", PolicyLevel::name);
    let told = json!({"set_by": set_by, "retries": retries, "policy": facts.policy.policy.to_json()});
    story.say(None, Code::PolicyInForce, text, told);
    Timetable { retry, is_kept: false }
}

/// Parses the retries of a policy in a dead letter. `throttlePolicy` and `requestPolicy` are ignored, because they may have
/// another form than the retries.
fn kept_retry(policy: &Value) -> Option<Retry> {
    let mut policy = policy.clone();
    let members = policy.as_object_mut()?;
    members.remove("throttlePolicy");
    members.remove("requestPolicy");
    let terms = Terms { max_retries: RETRIES_MAX, ..Terms::default() };
    Layer::restore(&policy, &terms).ok()?.layer.retry
}

impl ExplainedAttempt {
    pub(super) fn posted_at(&self) -> Option<Timestamp> {
        Some(self.at - TimeDelta::milliseconds(self.took_ms?.into()))
    }

    /// Returns the parts omitted in advance for a push service with a lower limit, separated by commas.
    pub(super) fn left_out(&self) -> Option<&str> {
        Some(size_note::beforehand(self.reason.as_deref()?)?.0)
    }

    /// Returns the error text of the push service, or the name of the failure.
    pub(super) fn words(&self) -> Option<&str> {
        let told = self.reason.as_deref()?;
        let words = size_note::beforehand(told).map_or(told, |(_, words)| words);
        Some(words).filter(|words| !words.is_empty())
    }

    /// Returns the meaning of its response, as far as stored status and text show it.
    pub(super) fn kind(&self, gateway: Option<Gateway>) -> ResponseKind {
        let gateway = gateway.unwrap_or(Gateway::Other);
        let kind = |answer: &PostResult<'_>| classify(gateway, answer, self.at).kind;
        let words = self.words().unwrap_or_default();
        match self.status {
            Some(status) => kind(&PostResult::Response { status, headers: &HeaderMap::new(), body: words.as_bytes() }),
            None => Failure::from_name(words)
                .map_or(ResponseKind::Unavailable { retry_now: false }, |it| kind(&PostResult::Failure(it))),
        }
    }

    /// Whether the response was throttling, for which some policies have another timetable.
    pub(super) fn is_throttling(&self, gateway: Option<Gateway>) -> bool {
        let said_in_headers = self.ending == Ending::Retry && matches!(self.status, Some(200..=299));
        said_in_headers || self.kind(gateway).is_throttling()
    }
}

/// Planned delay of one retry.
pub(super) struct Planned {
    step: RetryDelay,
    arithmetic: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fit {
    Within,
    Later,
    Sooner,
}

impl Planned {
    /// Returns the planned delay of retry `n`, counted from 1. `None`: the policy has no such retry.
    pub(super) fn new(timetable: &Timetable, n: u32, throttled: bool) -> Option<Self> {
        let so_far = n.checked_sub(1)?;
        let step = timetable.retry.step_after(throttled, so_far)?;
        Some(Self { step, arithmetic: timetable.arithmetic(so_far, throttled) })
    }

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

    pub(super) fn spans_s(&self) -> [f64; 3] {
        [self.step.nominal, self.step.shortest, self.step.longest].map(|span: Duration| span.as_secs_f64())
    }
}
