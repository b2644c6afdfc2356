//! Verdicts on outcomes, and the time to live that is left.

use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_rules::classify::{DeadReason, Outcome, ResponseKind};
use bellwire_rules::policy::{
    Layer, NextStep, Places, Policy, Situation, Terms, decide, remaining_ttl_s, shrink_target,
};
use chrono::TimeDelta;
use serde_json::json;
use std::time::Duration;

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
        held_for: Duration::ZERO,
    }
}

fn outcome(kind: ResponseKind) -> Outcome {
    Outcome { kind, status: Some(503), retry_after: None, detail: None }
}

fn asking(kind: ResponseKind, wait_s: u64) -> Outcome {
    Outcome { retry_after: Some(secs(wait_s)), ..outcome(kind) }
}

const DOWN: ResponseKind = ResponseKind::Unavailable { retry_now: false };
const EXHAUSTED: NextStep = NextStep::Dead { reason: DeadReason::RetriesExhausted };

/// By the guide's published timetable.
fn promotional(outcome: &Outcome, situation: &Situation) -> NextStep {
    decide(outcome, &in_force(json!({"maxAttempts": 5})), situation, 0.5)
}

fn retry(after_s: u64) -> NextStep {
    NextStep::Retry { after: secs(after_s), counts: true }
}

#[test]
fn every_kind_has_its_verdict() {
    let reason = DeadReason::BadRequest;
    for (kind, verdict) in [
        (ResponseKind::Accepted { ttl_granted_s: None }, NextStep::Accepted),
        (ResponseKind::Throttled, retry(2)),
        (ResponseKind::SenderThrottled, retry(2)),
        (DOWN, retry(2)),
        (ResponseKind::Unavailable { retry_now: true }, retry(0)),
        (ResponseKind::CutOff, NextStep::Retry { after: secs(2), counts: false }),
        (ResponseKind::Unprocessed, NextStep::Retry { after: Duration::from_millis(275), counts: false }),
        (ResponseKind::TooLarge, NextStep::Shrink),
        (ResponseKind::Gone, NextStep::Gone),
        (ResponseKind::Refused { reason }, NextStep::Dead { reason }),
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
    let kind = ResponseKind::Unavailable { retry_now: true };
    assert_eq!(promotional(&outcome(kind), &attempt(1, 1, HOUR)), retry(4));
    assert_eq!(promotional(&asking(kind, 7), &attempt(0, 1, HOUR)), retry(7));
}

#[test]
fn guide_form_takes_the_later_delay() {
    assert_eq!(promotional(&asking(ResponseKind::Throttled, 120), &attempt(0, 1, HOUR)), retry(120));
    assert_eq!(promotional(&asking(ResponseKind::Throttled, 0), &attempt(0, 1, HOUR)), retry(2));
}

fn in_force(layer: serde_json::Value) -> Policy {
    let layer = Layer::parse(&layer, &Terms::default()).unwrap().layer;
    Policy::in_force(Tier::Promotional, &Places { message: Some(&layer), ..Places::default() })
}

#[test]
fn header_replaces_qstash_delay_not_sns() {
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
    assert_eq!(decide(&asking(DOWN, HOUR), &qstash, &attempt(0, 1, HOUR), 0.5), NextStep::Expired);
}

#[test]
fn retry_wave_without_jitter_is_spread() {
    let constant = in_force(json!({"retries": 3, "retryDelay": "1000"}));
    let wave = |wave| Situation { wave, ..attempt(0, 1, HOUR) };
    let ms = |policy: &Policy, outcome: &Outcome, situation: &Situation, randomness| match decide(
        outcome, policy, situation, randomness,
    ) {
        NextStep::Retry { after, .. } => after.as_millis(),
        other => panic!("{other:?}"),
    };
    let down = outcome(DOWN);
    assert_eq!([0.0, 0.5].map(|randomness| ms(&constant, &down, &wave(200), randomness)), [1_000, 2_000]);
    assert_eq!(ms(&constant, &down, &wave(0), 0.5), 1_000, "alone, it is no wave");
    let jittered = in_force(json!({"maxAttempts": 5}));
    assert_eq!(ms(&jittered, &down, &wave(200), 0.5), 2_000, "jitter has spread it");
    assert_eq!(
        ms(&jittered, &asking(ResponseKind::Throttled, 30), &wave(200), 0.5),
        31_000,
        "all are told the same time"
    );
    let immediate = in_force(json!({"maxAttempts": 5, "immediateRetries": 1}));
    assert_eq!(ms(&immediate, &down, &wave(200), 0.5), 0);
}

#[test]
fn no_retry_while_subscription_is_held() {
    let held = |ttl_s| Situation { held_for: secs(30), ..attempt(0, 1, ttl_s) };
    assert_eq!(promotional(&outcome(ResponseKind::Throttled), &held(HOUR)), retry(30));
    assert_eq!(promotional(&asking(ResponseKind::Throttled, 60), &held(HOUR)), retry(60));
    assert_eq!(promotional(&outcome(ResponseKind::Throttled), &held(31)), NextStep::Expired);
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
    assert_eq!(decide(&outcome(ResponseKind::Throttled), &policy, &late(0), 1.0), retry(10));
    assert_eq!(decide(&outcome(DOWN), &policy, &late(49), 1.0), retry(20));
    assert_eq!(decide(&outcome(ResponseKind::SenderThrottled), &policy, &late(49), 1.0), retry(600));
    assert_eq!(decide(&outcome(ResponseKind::Throttled), &policy, &late(50), 1.0), EXHAUSTED);
    assert_eq!(decide(&outcome(DOWN), &policy, &late(50), 1.0), retry(20));
}

#[test]
fn retry_due_after_expiry_expires_at_once() {
    for (after_s, ttl_s, verdict) in [
        (57, MINUTE, retry(2)),
        (58, MINUTE, NextStep::Expired), // due exactly at expiry
        (60, MINUTE, NextStep::Expired),
        (500, MINUTE, NextStep::Expired),
        (0, 0, NextStep::Expired), // ttl 0 gets exactly one POST
    ] {
        assert_eq!(promotional(&outcome(DOWN), &attempt(0, after_s, ttl_s)), verdict, "{after_s} of {ttl_s}");
    }
    assert_eq!(promotional(&asking(DOWN, HOUR), &attempt(0, 1, HOUR)), NextStep::Expired);
    assert_eq!(promotional(&outcome(DOWN), &attempt(5, 61, MINUTE)), NextStep::Expired);
    assert_eq!(promotional(&outcome(ResponseKind::Unprocessed), &attempt(0, 0, 0)), NextStep::Expired);
    assert_eq!(promotional(&outcome(ResponseKind::TooLarge), &attempt(0, 0, 0)), NextStep::Expired);
}

#[test]
fn what_is_final_stays_final_after_expiry() {
    let late = attempt(0, 500, MINUTE);
    assert_eq!(promotional(&outcome(ResponseKind::Gone), &late), NextStep::Gone);
    assert_eq!(promotional(&outcome(ResponseKind::Accepted { ttl_granted_s: None }), &late), NextStep::Accepted);
    let reason = DeadReason::Unauthorized;
    assert_eq!(promotional(&outcome(ResponseKind::Refused { reason }), &late), NextStep::Dead { reason });
}

#[test]
fn guide_retries_end_within_24_hours() {
    let day = 24 * HOUR;
    assert_eq!(promotional(&outcome(DOWN), &attempt(0, day - 3, 3 * day)), retry(2));
    assert_eq!(promotional(&outcome(DOWN), &attempt(0, day - 2, 3 * day)), EXHAUSTED);
    assert_eq!(promotional(&asking(DOWN, 23 * HOUR), &attempt(0, 2 * HOUR, 3 * day)), EXHAUSTED);
}

#[test]
fn shrinking_needs_content_attempt_and_time() {
    let large = outcome(ResponseKind::TooLarge);
    let dead = NextStep::Dead { reason: DeadReason::PayloadTooLarge };
    assert_eq!(promotional(&large, &Situation { can_shrink: false, ..attempt(0, 1, HOUR) }), dead);
    assert_eq!(promotional(&large, &attempt(4, 1, HOUR)), NextStep::Shrink);
    assert_eq!(promotional(&large, &attempt(5, 1, HOUR)), dead);
    assert_eq!(promotional(&large, &attempt(0, HOUR, HOUR)), NextStep::Expired);
}

#[test]
fn oversized_payload_loses_padding_then_shrinks() {
    for (sent, without_padding, target) in [
        (3_993, 3_900, Some(3_900)),
        (3_900, 3_900, Some(2_744)),
        (2_745, 2_745, Some(2_744)),
        (2_560, 2_500, Some(2_500)),
        (2_744, 2_744, Some(2_058)),
        (2_300, 2_300, Some(1_725)),
        (2_000, 3_000, Some(1_500)), // the template's longest rendering, which this one was not
        (640, 600, Some(600)),
        (640, 640, Some(480)),
        (512, 400, Some(400)), // padding is removed in any case
        (300, 300, Some(225)),
        (3, 3, None),
        (0, 0, None),
    ] {
        assert_eq!(shrink_target(sent, without_padding), target, "{sent} {without_padding}");
    }
    let steps = std::iter::successors(Some(3_993), |sent| shrink_target(*sent, *sent));
    assert_eq!(steps.take(9).collect::<Vec<_>>(), [3_993, 2_744, 2_058, 1_542, 1_155, 864, 648, 486, 363]);
}

#[test]
fn payload_past_guide_window_is_not_dispatched() {
    let (dispatched, ttl_s) = (start(), 3_600);
    let expires = dispatched + secs(3_600);
    assert_eq!(remaining_ttl_s(dispatched + secs(4_000), expires, ttl_s), None);
    assert_eq!(promotional(&outcome(DOWN), &attempt(0, 4_000, 3_600)), NextStep::Expired);
    assert_eq!(remaining_ttl_s(dispatched + secs(3_599), expires, ttl_s), Some(1));
}

#[test]
fn remaining_ttl_rounds_up_and_stays_positive() {
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
