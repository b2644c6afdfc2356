//! Decides the next step of a delivery from an outcome, a policy and the remaining time.

use std::time::Duration;

use chrono::TimeDelta;

use super::{Policy, Retry};
use crate::classify::{DeadReason, Outcome, ResponseKind};
use bellwire_core::clock::Timestamp;

/// Time after acceptance at which retries of a policy in the guide's form end, even if the message lives longer.
pub(super) const GUIDE_WINDOW: Duration = Duration::from_secs(86_400);
/// Range of the random delay before repeating a request that the push service did not process.
const UNPROCESSED_WAIT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));
/// Time per retry over which simultaneous retries without their own jitter are spread.
const START_APART: Duration = Duration::from_millis(10);
/// First size in bytes of a reduced payload, which Mozilla's bridge to phones accepts.
const SHRINK_FIRST_OCTETS: usize = 2_744;

/// State of a delivery when a response arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Situation {
    /// Retries so far. 0: this was the first POST.
    pub retries: u32,
    /// Time of the decision.
    pub now: Timestamp,
    /// Start of its time to live: acceptance by the API, or `send_at` if later.
    pub accepted_at: Timestamp,
    /// End of its time to live. Equal to `accepted_at` for a `ttl` of 0.
    pub expires_at: Timestamp,
    /// Whether a smaller payload can be sent: [`shrink_target`] returns a size, and a variant of that size exists.
    pub can_shrink: bool,
    /// Number of its lane's deliveries in flight that may become due at the same time. 0 for urgent deliveries, which never
    /// wait.
    pub wave: u32,
    /// Time from now until the hold of its subscription ends. No retry is due earlier.
    pub held_for: Duration,
}

/// Next step of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// The push service accepted it.
    Accepted,
    /// The delivery is retried.
    Retry {
        /// Time from now until the retry.
        after: Duration,
        /// Whether the retry uses up one of the policy's retries.
        counts: bool,
    },
    /// The payload is reduced and sent again at once, which uses an attempt.
    Shrink,
    /// The subscription is pruned, with all its pending deliveries.
    Gone,
    /// The time to live has ended, or will end before the next retry.
    Expired,
    /// The delivery ends with a dead letter.
    Dead {
        /// Reason for the dead letter.
        reason: DeadReason,
    },
}

/// Decides what follows from an outcome of a delivery. `randomness` is in [0, 1).
///
/// The time to live comes first. A retry that would be due at or after the expiry makes the delivery expire now, so a `ttl` of
/// 0 gets exactly one POST.
pub fn decide(outcome: &Outcome, policy: &Policy, situation: &Situation, randomness: f64) -> NextStep {
    match outcome.kind {
        ResponseKind::Accepted { .. } => NextStep::Accepted,
        ResponseKind::Gone => NextStep::Gone,
        ResponseKind::Refused { reason } => NextStep::Dead { reason },
        ResponseKind::TooLarge => too_large(policy, situation),
        ResponseKind::Unprocessed => {
            let (shortest, longest) = UNPROCESSED_WAIT;
            let after = shortest + (longest - shortest).mul_f64(randomness.clamp(0.0, 1.0));
            if outlives(situation, after) { NextStep::Retry { after, counts: false } } else { NextStep::Expired }
        }
        ResponseKind::Throttled
        | ResponseKind::SenderThrottled
        | ResponseKind::Unavailable { .. }
        | ResponseKind::CutOff => retried(outcome, policy, situation, randomness),
    }
}

fn retried(outcome: &Outcome, policy: &Policy, situation: &Situation, randomness: f64) -> NextStep {
    if !outlives(situation, Duration::ZERO) {
        return NextStep::Expired;
    }
    let step = policy.retry.step_after(outcome.kind.is_throttling(), situation.retries);
    let Some(step) = step else {
        return NextStep::Dead { reason: DeadReason::RetriesExhausted };
    };
    let delay = step.draw(randomness);
    // Only the first retry follows the gateway's invitation, so a gateway that repeats it is not flooded.
    let invited = outcome.kind == ResponseKind::Unavailable { retry_now: true } && situation.retries == 0;
    let delay = if invited { Duration::ZERO } else { delay };
    let after = match (outcome.retry_after, &policy.retry) {
        (None, _) => delay,
        (Some(wanted), Retry::Scripted(_)) => wanted,
        (Some(wanted), Retry::Guide(_) | Retry::Phased(_)) => wanted.max(delay),
    };
    // Retries without jitter would be sent all at once. A retry without delay follows its own response.
    let leaves_at_once = !after.is_zero() && (step.shortest == step.longest || after != delay);
    let later = after + (START_APART * situation.wave).mul_f64(randomness.clamp(0.0, 1.0));
    let after = if leaves_at_once && outlives(situation, later) { later } else { after };
    let after = after.max(situation.held_for);
    if !outlives(situation, after) {
        NextStep::Expired
    } else if matches!(policy.retry, Retry::Guide(_)) && situation.accepted_at + GUIDE_WINDOW <= situation.now + after {
        NextStep::Dead { reason: DeadReason::RetriesExhausted }
    } else {
        NextStep::Retry { after, counts: outcome.kind != ResponseKind::CutOff }
    }
}

fn too_large(policy: &Policy, situation: &Situation) -> NextStep {
    let dead = NextStep::Dead { reason: DeadReason::PayloadTooLarge };
    match policy.delay(situation.retries, 0.0) {
        Some(_) if situation.can_shrink && outlives(situation, Duration::ZERO) => NextStep::Shrink,
        Some(_) if situation.can_shrink => NextStep::Expired,
        _ => dead,
    }
}

/// Whether a retry after this wait is due before expiry.
fn outlives(situation: &Situation, wait: Duration) -> bool {
    situation.now + wait < situation.expires_at
}

/// Returns the `TTL` header in seconds of a POST at `now`. `None`: the time to live has ended, and nothing must be sent.
///
/// The TTL is rounded up, at least 1 and at most the message's `ttl_s`. A message with a `ttl_s` of 0 gets its only POST, at
/// any time, with 0.
pub fn remaining_ttl_s(now: Timestamp, expires_at: Timestamp, ttl_s: u32) -> Option<u32> {
    if ttl_s == 0 {
        return Some(0);
    }
    let left = expires_at - now;
    if left <= TimeDelta::zero() {
        return None;
    }
    let whole = left.num_seconds() + i64::from(left.subsec_nanos() > 0);
    Some(u32::try_from(whole).unwrap_or(u32::MAX).min(ttl_s))
}

/// Returns the plaintext size in bytes of the next attempt after a payload was refused as too large. First its size without
/// padding, then 2,744, then three quarters each time, for push services with a lower limit. Each size is smaller than the
/// previous one. `None`: the payload cannot be reduced further.
pub fn shrink_target(sent_octets: usize, without_padding: usize) -> Option<usize> {
    let target = match sent_octets {
        sent if without_padding < sent => without_padding,
        sent if SHRINK_FIRST_OCTETS < sent => SHRINK_FIRST_OCTETS,
        sent => sent / 4 * 3,
    };
    (target > 0).then_some(target)
}
