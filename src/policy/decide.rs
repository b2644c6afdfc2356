//! One outcome, one policy, the time that is left: exactly one verdict.

use std::time::Duration;

use chrono::TimeDelta;

use super::{Policy, Retry};
use crate::classify::{DeadReason, Kind, Outcome};
use crate::model::clock::Timestamp;

/// Retries of a policy in the guide's form end this long after acceptance, however long the message lives.
pub(super) const GUIDE_WINDOW: Duration = Duration::from_secs(86_400);
/// A request that the gateway did not take is sent again after a wait drawn from this range.
const UNPROCESSED_WAIT: (Duration, Duration) = (Duration::from_millis(50), Duration::from_millis(500));
/// A wave of retries without jitter of their own starts over this long for each of them.
const START_APART: Duration = Duration::from_millis(10);
/// What a payload is shrunk to first: Mozilla's bridge to phones takes this.
const SHRINK_FIRST_OCTETS: usize = 2_744;
/// Nothing is shrunk further: no gateway takes so little, so size is not what it has against the delivery.
const SHRINK_LAST_OCTETS: usize = 512;

/// Where a delivery stands when an answer arrives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Situation {
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
}

/// What becomes of a delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The gateway took it.
    Accepted,
    /// It is tried again.
    Retry {
        /// The wait, from now.
        after: Duration,
        /// Whether it uses up an attempt of the policy.
        counts: bool,
    },
    /// It is made smaller and sent again at once, which uses up an attempt.
    Shrink,
    /// The subscription is pruned, with everything that is pending for it.
    Gone,
    /// Its life is over, or will be before it could be tried again.
    Expired,
    /// Given up: a dead letter.
    Dead {
        /// Why.
        reason: DeadReason,
    },
}

/// Decides what an outcome means for a delivery. `randomness` lies in [0, 1).
///
/// The time to live comes first: a retry that would fall due at or after expiry makes the delivery expire now, so
/// `ttl: 0` gets exactly one POST.
pub(crate) fn decide(outcome: &Outcome, policy: &Policy, situation: &Situation, randomness: f64) -> Verdict {
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
        Kind::Throttled | Kind::ChannelThrottled | Kind::Unavailable { .. } | Kind::CutOff => {
            retried(outcome, policy, situation, randomness)
        }
    }
}

fn retried(outcome: &Outcome, policy: &Policy, situation: &Situation, randomness: f64) -> Verdict {
    if !outlives(situation, Duration::ZERO) {
        return Verdict::Expired;
    }
    let step = match outcome.kind {
        Kind::Throttled | Kind::ChannelThrottled => policy.retry.throttled_step(situation.retries),
        _ => policy.retry.step(situation.retries),
    };
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
pub(crate) fn remaining_ttl_s(now: Timestamp, expires_at: Timestamp, ttl_s: u32) -> Option<u32> {
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
/// then three quarters each time, for a gateway that takes less. None: there is no use in going on. Each size is smaller
/// than the one before, so none is tried twice.
pub(crate) fn shrink_target(sent_octets: usize, without_padding: usize) -> Option<usize> {
    let target = match sent_octets {
        sent if without_padding < sent => without_padding,
        sent if SHRINK_FIRST_OCTETS < sent => SHRINK_FIRST_OCTETS,
        sent => sent / 4 * 3,
    };
    (target >= SHRINK_LAST_OCTETS).then_some(target)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::delivery::Tier;
    use crate::policy::{Layer, Places, Terms};
    use serde_json::json;

    const MINUTE: u64 = 60;
    const HOUR: u64 = 3_600;

    fn start() -> Timestamp {
        "2026-11-20T12:00:00Z".parse().unwrap()
    }

    fn secs(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    fn attempt(retries: u32, after_s: u64, ttl_s: u64) -> Situation {
        let accepted_at = start();
        Situation {
            retries,
            now: accepted_at + secs(after_s),
            accepted_at,
            expires_at: accepted_at + secs(ttl_s),
            can_shrink: true,
            wave: 0,
        }
    }

    fn outcome(kind: Kind) -> Outcome {
        Outcome { kind, status: Some(503), retry_after: None, detail: None }
    }

    fn asking(kind: Kind, wait_s: u64) -> Outcome {
        Outcome { retry_after: Some(secs(wait_s)), ..outcome(kind) }
    }

    const DOWN: Kind = Kind::Unavailable { retry_now: false };
    const EXHAUSTED: Verdict = Verdict::Dead { reason: DeadReason::RetriesExhausted };

    /// By the guide's published timetable.
    fn promotional(outcome: &Outcome, situation: &Situation) -> Verdict {
        decide(outcome, &in_force(json!({"maxAttempts": 5})), situation, 0.5)
    }

    fn retry(after_s: u64) -> Verdict {
        Verdict::Retry { after: secs(after_s), counts: true }
    }

    #[test]
    fn every_kind_has_its_verdict() {
        let reason = DeadReason::BadRequest;
        for (kind, verdict) in [
            (Kind::Accepted { ttl_granted_s: None }, Verdict::Accepted),
            (Kind::Throttled, retry(2)),
            (Kind::ChannelThrottled, retry(2)),
            (DOWN, retry(2)),
            (Kind::Unavailable { retry_now: true }, retry(0)),
            (Kind::CutOff, Verdict::Retry { after: secs(2), counts: false }),
            (Kind::Unprocessed, Verdict::Retry { after: Duration::from_millis(275), counts: false }),
            (Kind::TooLarge, Verdict::Shrink),
            (Kind::Gone, Verdict::Gone),
            (Kind::Refused { reason }, Verdict::Dead { reason }),
        ] {
            assert_eq!(promotional(&outcome(kind), &attempt(0, 1, HOUR)), verdict, "{kind:?}");
        }
    }

    #[test]
    fn retries_follow_the_policy_and_then_end() {
        let down = outcome(DOWN);
        let verdicts: Vec<_> = (0..6).map(|n| promotional(&down, &attempt(n, 1, HOUR))).collect();
        assert_eq!(verdicts, [retry(2), retry(4), retry(8), retry(16), retry(32), EXHAUSTED]);
        let transactional = Policy::tier_default(Tier::Transactional);
        assert_eq!(decide(&down, &transactional, &attempt(0, 1, 600), 0.9), retry(0));
        assert_eq!(decide(&down, &transactional, &attempt(1, 1, 600), 0.5), retry(1));
    }

    #[test]
    fn an_invitation_to_retry_now_is_followed_once() {
        let kind = Kind::Unavailable { retry_now: true };
        assert_eq!(promotional(&outcome(kind), &attempt(1, 1, HOUR)), retry(4));
        assert_eq!(promotional(&asking(kind, 7), &attempt(0, 1, HOUR)), retry(7));
    }

    #[test]
    fn the_later_of_policy_and_header_counts_in_the_guides_form() {
        assert_eq!(promotional(&asking(Kind::Throttled, 120), &attempt(0, 1, HOUR)), retry(120));
        assert_eq!(promotional(&asking(Kind::Throttled, 0), &attempt(0, 1, HOUR)), retry(2));
    }

    fn in_force(layer: serde_json::Value) -> Policy {
        let layer = Layer::parse(&layer, &Terms::default()).unwrap().layer;
        Policy::in_force(Tier::Promotional, &Places { message: Some(&layer), ..Places::default() })
    }

    #[test]
    fn the_header_replaces_the_delay_in_qstashs_form_and_the_later_counts_in_snss() {
        let qstash = in_force(json!({"retries": 3, "retryDelay": "60000"}));
        let sns = in_force(json!({"healthyRetryPolicy": {"minDelayTarget": 60, "maxDelayTarget": 60}}));
        for (wait_s, by_qstash_s, by_sns_s) in [(0, 0, 60), (5, 5, 60), (90, 90, 90)] {
            let outcome = asking(DOWN, wait_s);
            let at = attempt(0, 1, HOUR);
            assert_eq!(decide(&outcome, &qstash, &at, 1.0), retry(by_qstash_s));
            assert_eq!(decide(&outcome, &sns, &at, 1.0), retry(by_sns_s));
        }
        assert_eq!(decide(&outcome(DOWN), &qstash, &attempt(2, 1, HOUR), 0.5), retry(60));
        assert_eq!(decide(&asking(DOWN, 0), &qstash, &attempt(3, 1, HOUR), 0.5), EXHAUSTED);
        assert_eq!(decide(&asking(DOWN, HOUR), &qstash, &attempt(0, 1, HOUR), 0.5), Verdict::Expired);
    }

    #[test]
    fn a_wave_of_retries_without_jitter_of_its_own_is_spread_when_it_starts() {
        let constant = in_force(json!({"retries": 3, "retryDelay": "1000"}));
        let wave = |wave| Situation { wave, ..attempt(0, 1, HOUR) };
        let ms = |policy: &Policy, outcome: &Outcome, situation: &Situation, randomness| match decide(
            outcome, policy, situation, randomness,
        ) {
            Verdict::Retry { after, .. } => after.as_millis(),
            other => panic!("{other:?}"),
        };
        let down = outcome(DOWN);
        assert_eq!([0.0, 0.5].map(|randomness| ms(&constant, &down, &wave(200), randomness)), [1_000, 2_000]);
        assert_eq!(ms(&constant, &down, &wave(0), 0.5), 1_000, "alone, it is no wave");
        let jittered = in_force(json!({"maxAttempts": 5}));
        assert_eq!(ms(&jittered, &down, &wave(200), 0.5), 2_000, "jitter has spread it");
        assert_eq!(ms(&jittered, &asking(Kind::Throttled, 30), &wave(200), 0.5), 31_000, "all are told the same time");
        let immediate = in_force(json!({"maxAttempts": 5, "immediateRetries": 1}));
        assert_eq!(ms(&immediate, &down, &wave(200), 0.5), 0);
    }

    #[test]
    fn only_the_guides_form_ends_after_24_hours() {
        let sns = in_force(json!({"healthyRetryPolicy": {}}));
        assert_eq!(decide(&outcome(DOWN), &sns, &attempt(0, 25 * HOUR, 72 * HOUR), 1.0), retry(20));
    }

    #[test]
    fn throttling_answers_follow_the_other_presets_timetable() {
        let policy = in_force(json!({"preset": "sns-aws-managed"}));
        let late = |n| attempt(n, 1, 72 * HOUR);
        assert_eq!(decide(&outcome(DOWN), &policy, &late(0), 1.0), retry(0));
        assert_eq!(decide(&outcome(Kind::Throttled), &policy, &late(0), 1.0), retry(10));
        assert_eq!(decide(&outcome(DOWN), &policy, &late(49), 1.0), retry(20));
        assert_eq!(decide(&outcome(Kind::ChannelThrottled), &policy, &late(49), 1.0), retry(600));
        assert_eq!(decide(&outcome(Kind::Throttled), &policy, &late(50), 1.0), EXHAUSTED);
        assert_eq!(decide(&outcome(DOWN), &policy, &late(50), 1.0), retry(20));
    }

    #[test]
    fn a_retry_due_at_or_after_expiry_expires_at_once() {
        for (after_s, ttl_s, verdict) in [
            (57, MINUTE, retry(2)),
            (58, MINUTE, Verdict::Expired), // due exactly at expiry
            (60, MINUTE, Verdict::Expired),
            (500, MINUTE, Verdict::Expired),
            (0, 0, Verdict::Expired), // ttl 0 gets exactly one POST
        ] {
            assert_eq!(promotional(&outcome(DOWN), &attempt(0, after_s, ttl_s)), verdict, "{after_s} of {ttl_s}");
        }
        assert_eq!(promotional(&asking(DOWN, HOUR), &attempt(0, 1, HOUR)), Verdict::Expired);
        assert_eq!(promotional(&outcome(DOWN), &attempt(5, 61, MINUTE)), Verdict::Expired);
        assert_eq!(promotional(&outcome(Kind::Unprocessed), &attempt(0, 0, 0)), Verdict::Expired);
        assert_eq!(promotional(&outcome(Kind::TooLarge), &attempt(0, 0, 0)), Verdict::Expired);
    }

    #[test]
    fn what_is_final_stays_final_after_expiry() {
        let late = attempt(0, 500, MINUTE);
        assert_eq!(promotional(&outcome(Kind::Gone), &late), Verdict::Gone);
        assert_eq!(promotional(&outcome(Kind::Accepted { ttl_granted_s: None }), &late), Verdict::Accepted);
        let reason = DeadReason::Unauthorized;
        assert_eq!(promotional(&outcome(Kind::Refused { reason }), &late), Verdict::Dead { reason });
    }

    #[test]
    fn retries_of_the_guides_form_end_within_24_hours() {
        let day = 24 * HOUR;
        assert_eq!(promotional(&outcome(DOWN), &attempt(0, day - 3, 3 * day)), retry(2));
        assert_eq!(promotional(&outcome(DOWN), &attempt(0, day - 2, 3 * day)), EXHAUSTED);
        assert_eq!(promotional(&asking(DOWN, 23 * HOUR), &attempt(0, 2 * HOUR, 3 * day)), EXHAUSTED);
    }

    #[test]
    fn shrinking_needs_something_to_shrink_an_attempt_and_time() {
        let large = outcome(Kind::TooLarge);
        let dead = Verdict::Dead { reason: DeadReason::PayloadTooLarge };
        assert_eq!(promotional(&large, &Situation { can_shrink: false, ..attempt(0, 1, HOUR) }), dead);
        assert_eq!(promotional(&large, &attempt(4, 1, HOUR)), Verdict::Shrink);
        assert_eq!(promotional(&large, &attempt(5, 1, HOUR)), dead);
        assert_eq!(promotional(&large, &attempt(0, HOUR, HOUR)), Verdict::Expired);
    }

    #[test]
    fn what_was_too_large_loses_its_padding_first_and_then_shrinks_step_by_step() {
        for (sent, without_padding, target) in [
            (3_993, 3_900, Some(3_900)),
            (3_900, 3_900, Some(2_744)),
            (2_745, 2_745, Some(2_744)),
            (2_560, 2_500, Some(2_500)),
            (2_744, 2_744, Some(2_058)),
            (2_300, 2_300, Some(1_725)),
            (2_000, 3_000, Some(1_500)), // the template's longest rendering, which this one was not
            (640, 600, Some(600)),
            (640, 640, None),
            (512, 400, None),
            (0, 0, None),
        ] {
            assert_eq!(shrink_target(sent, without_padding), target, "{sent} {without_padding}");
        }
        let steps = std::iter::successors(Some(3_993), |sent| shrink_target(*sent, *sent));
        assert_eq!(steps.collect::<Vec<_>>(), [3_993, 2_744, 2_058, 1_542, 1_155, 864, 648]);
    }

    #[test]
    fn the_guides_payload_past_its_window_is_not_dispatched() {
        let (dispatched, ttl_s) = (start(), 3_600);
        let expires = dispatched + secs(3_600);
        assert_eq!(remaining_ttl_s(dispatched + secs(4_000), expires, ttl_s), None);
        assert_eq!(promotional(&outcome(DOWN), &attempt(0, 4_000, 3_600)), Verdict::Expired);
        assert_eq!(remaining_ttl_s(dispatched + secs(3_599), expires, ttl_s), Some(1));
    }

    #[test]
    fn the_remaining_ttl_is_rounded_up_and_never_zero_unless_asked() {
        let expires = start() + secs(60);
        let at = |ms: i64| expires - TimeDelta::milliseconds(ms);
        for (left_ms, ttl_s, expected) in [
            (60_000, 60, Some(60)),
            (59_001, 60, Some(60)),
            (59_000, 60, Some(59)),
            (1, 60, Some(1)),
            (0, 60, None),
            (-5, 60, None),
            (90_000, 60, Some(60)), // the clock went back
            (-5, 0, Some(0)),
        ] {
            assert_eq!(remaining_ttl_s(at(left_ms), expires, ttl_s), expected, "{left_ms} ms");
        }
    }
}
