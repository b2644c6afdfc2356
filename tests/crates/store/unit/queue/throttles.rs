//! Unit tests of `crates/bellwire-store/src/queue/throttles.rs`, which includes them.

use chrono::{DateTime, TimeDelta};
use uuid::Uuid;

use super::*;

#[test]
fn turns_follow_until_too_late() {
    let now: Timestamp = DateTime::from_timestamp(1_800_000_000, 0).unwrap();
    let second = Duration::from_secs(1);
    let subscription = SubscriptionId(Uuid::nil());
    let patient = TurnRequest { subscription, interval: second, expires_at: None };
    let brief = TurnRequest { expires_at: Some(now + second * 2), ..patient };
    let mut next_at = now - TimeDelta::hours(1); // what was not used is not saved up
    let turns = [patient, brief, brief, patient].map(|wanted| turn(&mut next_at, &wanted, now));
    assert_eq!(turns, [Some(now), Some(now + second), None, Some(now + second * 2)]);
    assert_eq!(next_at, now + second * 3);
}
