//! One outcome, one policy, the time that is left: exactly one verdict.

use std::time::Duration;

use chrono::TimeDelta;

use super::{Policy, Retry};
use crate::classify::{DeadReason, Kind, Outcome};
use bellwire_core::clock::Timestamp;

/// Retries of a policy in the guide's form end this long after acceptance, however long the message lives.
pub(super) const GUIDE_WINDOW: Duration = Duration::from_secs(86_400);
/// A request that the gateway did not take is sent again after a wait drawn from this range.
const UNPROCESSED_WAIT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));
/// A wave of retries without jitter of their own starts over this long for each of them.
const START_APART: Duration = Duration::from_millis(10);
/// What a payload is shrunk to first: Mozilla's bridge to phones takes this.
const SHRINK_FIRST_OCTETS: usize = 2_744;

/// Where a delivery stands when an answer arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Situation {
    /// Retries made so far that count; 0: this was the first POST.
    pub retries: u32,
    /// The present.
    pub now: Timestamp,
    /// When the clock of its life began: at acceptance by the API or `send_at`, whichever is later.
    pub accepted_at: Timestamp,
    /// When its life ends: `accepted_at` plus the TTL. Equal to it for `ttl: 0`.
    pub expires_at: Timestamp,
    /// Whether a smaller payload can be sent: [`shrink_target`] names a size, and there is a version of it.
    pub can_shrink: bool,
    /// How many others of its lane are under way, that may be due with it again; 0 for what is urgent, which never waits.
    pub wave: u32,
    /// How long its subscription is held from now on: no retry is due before.
    pub held_for: Duration,
}

/// What becomes of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The push service accepted it.
    Accepted,
    /// It is sent again.
    Retry {
        /// Time from now until the retry.
        after: Duration,
        /// Whether the retry uses up one of the policy's retries.
        counts: bool,
    },
    /// It is made smaller and sent again at once, which uses up an attempt.
    Shrink,
    /// The subscription is pruned, with everything that is pending for it.
    Gone,
    /// Its life is over, or will be before it could be tried again.
    Expired,
    /// It is given up and leaves a dead letter.
    Dead {
        /// Cause of the dead letter.
        reason: DeadReason,
    },
}

/// Decides what an outcome means for a delivery. `randomness` lies in [0, 1).
///
/// The time to live comes first: a retry that would fall due at or after expiry makes the delivery expire now, so
/// `ttl: 0` gets exactly one POST.
pub fn decide(outcome: &Outcome, policy: &Policy, situation: &Situation, randomness: f64) -> Verdict {
    match outcome.kind {
        Kind::Accepted { .. } => Verdict::Accepted,
        Kind::Gone => Verdict::Gone,
        Kind::Refused { reason } => Verdict::Dead { reason },
        Kind::TooLarge => too_large(policy, situation),
        Kind::Unprocessed => {
            let (shortest, longest) = UNPROCESSED_WAIT;
            let after = shortest + (longest - shortest).mul_f64(randomness.clamp(0.0, 1.0));
            if outlives(situation, after) { Verdict::Retry { after, counts: false } } else { Verdict::Expired }
        }
        Kind::Throttled | Kind::SenderThrottled | Kind::Unavailable { .. } | Kind::CutOff => {
            retried(outcome, policy, situation, randomness)
        }
    }
}

fn retried(outcome: &Outcome, policy: &Policy, situation: &Situation, randomness: f64) -> Verdict {
    if !outlives(situation, Duration::ZERO) {
        return Verdict::Expired;
    }
    let step = policy.retry.step_after(outcome.kind.is_throttling(), situation.retries);
    let Some(step) = step else {
        return Verdict::Dead { reason: DeadReason::RetriesExhausted };
    };
    let delay = step.draw(randomness);
    // Only the first retry follows the gateway's invitation: a gateway that repeats it is not hammered.
    let invited = outcome.kind == Kind::Unavailable { retry_now: true } && situation.retries == 0;
    let delay = if invited { Duration::ZERO } else { delay };
    let after = match (outcome.retry_after, &policy.retry) {
        (None, _) => delay,
        (Some(wanted), Retry::Scripted(_)) => wanted,
        (Some(wanted), Retry::Guide(_) | Retry::Phased(_)) => wanted.max(delay),
    };
    // What jitter has not spread would leave at once. What is to follow without delay follows its own answer.
    let leaves_at_once = !after.is_zero() && (step.shortest == step.longest || after != delay);
    let later = after + (START_APART * situation.wave).mul_f64(randomness.clamp(0.0, 1.0));
    let after = if leaves_at_once && outlives(situation, later) { later } else { after };
    let after = after.max(situation.held_for);
    if !outlives(situation, after) {
        Verdict::Expired
    } else if matches!(policy.retry, Retry::Guide(_)) && situation.accepted_at + GUIDE_WINDOW <= situation.now + after {
        Verdict::Dead { reason: DeadReason::RetriesExhausted }
    } else {
        Verdict::Retry { after, counts: outcome.kind != Kind::CutOff }
    }
}

fn too_large(policy: &Policy, situation: &Situation) -> Verdict {
    let dead = Verdict::Dead { reason: DeadReason::PayloadTooLarge };
    match policy.delay(situation.retries, 0.0) {
        Some(_) if situation.can_shrink && outlives(situation, Duration::ZERO) => Verdict::Shrink,
        Some(_) if situation.can_shrink => Verdict::Expired,
        _ => dead,
    }
}

/// Whether something due after this wait is due before expiry.
fn outlives(situation: &Situation, wait: Duration) -> bool {
    situation.now + wait < situation.expires_at
}

/// The seconds to live that a POST at `now` carries; none if its life is over and it must not be sent.
///
/// Rounded up, at least 1, at most the message's own `ttl_s`. A `ttl_s` of 0 gets its one POST, whenever it is made,
/// with 0.
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

/// The plaintext octets that a payload refused as too large is tried with next: what it has without padding; then 2,744;
/// then three quarters each time, for a gateway that takes less. Each size is smaller than the one before, so none is tried
/// twice. `None`: nothing is left.
pub fn shrink_target(sent_octets: usize, without_padding: usize) -> Option<usize> {
    let target = match sent_octets {
        sent if without_padding < sent => without_padding,
        sent if SHRINK_FIRST_OCTETS < sent => SHRINK_FIRST_OCTETS,
        sent => sent / 4 * 3,
    };
    (target > 0).then_some(target)
}
