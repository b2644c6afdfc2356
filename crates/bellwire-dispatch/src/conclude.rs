//! Turns verdicts into settlements of deliveries. No I/O.

use std::sync::Arc;

use super::job::Job;
use bellwire_core::clock::Timestamp;
use bellwire_core::id::DeadLetterId;
use bellwire_rules::classify::{DeadReason, Outcome};
use bellwire_rules::explain::size_note::{tell, tell_beforehand};
use bellwire_rules::policy::payload_limit::PayloadRefusal;
use bellwire_rules::policy::{NextStep, shrink_target};
use bellwire_store::outcomes::ledger::{Attempt, ClaimableAt, Death, End, Fate};
use bellwire_webpush::shrink::Shrunk;

/// Maximum stored bytes of an attempt's reason.
const REASON_MAX: usize = 500;

pub(super) enum Conclusion {
    Settle(Fate),
    /// The lane is closed until this time. No attempt was made.
    Defer(Timestamp),
    Again,
    /// The batch was closed before the POST: the delivery is a queue row now, and belongs to another claim.
    Void,
}

impl Conclusion {
    /// Returns a deferral without an attempt.
    pub(super) fn deferred(due: ClaimableAt) -> Self {
        Self::Settle(Fate::Deferred(due))
    }
}

pub(super) struct Judged {
    pub verdict: NextStep,
    pub outcome: Outcome,
    /// Time from the start of the POST to the response, in milliseconds.
    pub took_ms: u32,
    /// Plaintext bytes that were sent, including padding.
    pub sent: usize,
    /// Time of the response.
    pub now: Timestamp,
    /// Whether another subscription has replaced the delivery's own.
    pub is_replaced: bool,
}

/// Returns what follows from a POST with a verdict. `new_id` creates the id of a dead letter. A delivery to be sent again with
/// a smaller payload is shrunk here, which uses an attempt.
pub(super) fn conclude(job: &mut Job, judged: Judged, new_id: impl FnOnce() -> DeadLetterId) -> Conclusion {
    let Judged { verdict, outcome, took_ms, sent, now, is_replaced } = judged;
    let attempt = Attempt {
        number: job.retries,
        at: now,
        status: outcome.status,
        took_ms: Some(took_ms),
        reason: with_what_is_missing(job, outcome.detail),
    };
    let retries = job.retries + 1;
    let retry = |failed, due| Fate::Retry { failed, retries, due };
    Conclusion::Settle(match verdict {
        NextStep::Accepted => Fate::Ended(attempt, End::Accepted),
        // The endpoint is gone since another one has taken its place: the delivery goes there.
        NextStep::Gone if is_replaced => retry(attempt, now),
        NextStep::Gone => Fate::Ended(attempt, End::Gone),
        NextStep::Expired => Fate::Ended(attempt, End::Expired),
        NextStep::Dead { reason } => dead(job, reason, attempt, sent, new_id()),
        NextStep::Retry { after, counts: true } => retry(attempt, now + after),
        // The gateway never took it: no attempt was made, and none is logged.
        NextStep::Retry { after, counts: false } => Fate::Deferred(ClaimableAt::At(now + after)),
        NextStep::Shrink => match smaller(job, sent) {
            Some((limit, shrunk)) => {
                make_smaller(job, sent, attempt, limit, shrunk);
                return Conclusion::Again;
            }
            None => dead(job, DeadReason::PayloadTooLarge, attempt, sent, new_id()),
        },
    })
}

/// Whether a delivery that was too large with `sent` bytes can be reduced.
pub(super) fn can_shrink(job: &Job, sent: usize) -> bool {
    smaller(job, sent).is_some()
}

/// Prepares a delivery to be sent again with a smaller payload.
fn make_smaller(job: &mut Job, sent: usize, mut attempt: Attempt, limit: usize, shrunk: Option<Arc<Shrunk>>) {
    let told = shrunk.as_ref().map_or_else(|| tell(sent, &[]), |shrunk| tell(sent, &shrunk.dropped));
    attempt.reason = Some(told.into());
    job.attempts.push(attempt);
    job.shrunk = shrunk;
    job.limit = Some(limit);
    job.refused = Some(PayloadRefusal { octets: octets(sent), tried: octets(limit) });
    job.retries += 1;
}

/// Returns the maximum bytes and the content of a smaller payload. A raw payload can only lose its padding. `None`: it cannot
/// be reduced.
fn smaller(job: &Job, sent: usize) -> Option<(usize, Option<Arc<Shrunk>>)> {
    let without_padding = job.template().max_len();
    let limit = shrink_target(sent, without_padding)?;
    match without_padding <= limit {
        true => Some((limit, job.shrunk.clone())),
        false => Some((limit, Some(job.written().shrink(limit)?))),
    }
}

/// Returns the text to store: the push service's text, after the list of omitted parts if the payload was reduced in advance.
fn with_what_is_missing(job: &Job, detail: Option<Box<str>>) -> Option<Box<str>> {
    let shrunk = job.shrunk.as_ref().filter(|_| job.refused.is_none());
    let told = shrunk.and_then(|shrunk| tell_beforehand(&shrunk.dropped, detail.as_deref(), REASON_MAX));
    told.map(String::into_boxed_str).or(detail)
}

/// Returns a failure after an attempt, with the push service's text as reason. For a payload that was too large, the reason
/// also states why it could not be reduced.
fn dead(job: &Job, reason: DeadReason, attempt: Attempt, sent: usize, id: DeadLetterId) -> Fate {
    let detail = match reason {
        DeadReason::PayloadTooLarge => {
            let why =
                if can_shrink(job, sent) { "no retry is left to send it smaller" } else { "it cannot be made smaller" };
            let words = attempt.reason.as_deref().map(|words| format!("; {words}")).unwrap_or_default();
            let mut detail = format!("too large at {sent} octets, and {why}{words}");
            detail.truncate(detail.floor_char_boundary(REASON_MAX));
            Some(detail.into())
        }
        _ => attempt.reason.clone(),
    };
    let policy = Some(job.policy.to_json());
    Fate::Ended(attempt, End::Dead(Box::new(Death { id, reason, detail, policy })))
}

/// Returns a failure without a POST. `detail` is truncated to the stored length.
pub(super) fn dead_unsent(
    job: &Job, reason: DeadReason, detail: Option<String>, now: Timestamp, id: DeadLetterId,
) -> Conclusion {
    let detail = detail.map(|mut detail| {
        detail.truncate(detail.floor_char_boundary(REASON_MAX));
        detail.into_boxed_str()
    });
    let death = Death { id, reason, detail, policy: Some(job.policy.to_json()) };
    ended_unsent(job.retries, End::Dead(Box::new(death)), reason.name(), now)
}

pub(super) fn ended_unsent(retries: u32, end: End, why: &str, now: Timestamp) -> Conclusion {
    Conclusion::Settle(Fate::Ended(unsent_attempt(retries, why, now), end))
}

/// Returns the log entry of an ending without a POST.
pub(super) fn unsent_attempt(number: u32, why: &str, now: Timestamp) -> Attempt {
    Attempt { number, at: now, status: None, took_ms: None, reason: Some(why.into()) }
}

/// Converts a payload's length to the integer type of limits.
pub(super) fn octets(len: usize) -> u32 {
    u32::try_from(len).unwrap_or(u32::MAX)
}
