//! The size that a gateway takes.

use bellwire_core::clock::Timestamp;
use bellwire_rules::policy::payload_limit::{Learned, PayloadLimit, PayloadRefusal};
use std::time::Duration;

fn at(s: u64) -> Timestamp {
    Timestamp::from_timestamp(1_800_000_000, 0).unwrap() + Duration::from_secs(s)
}

fn learned() -> PayloadLimit {
    let mut limit = PayloadLimit::default();
    let told = Some(Learned { max: Some(2_744), at: at(0) });
    assert_eq!(limit.accepted(at(0), 2_310, after(3_993)), told, "what was tried, if not what was sent");
    limit
}

fn after(refused: u32) -> Option<PayloadRefusal> {
    Some(PayloadRefusal { octets: refused, tried: 2_744 })
}

#[test]
fn size_accepted_after_413_holds_a_day() {
    let mut limit = learned();
    assert_eq!(limit.believed(at(86_399)), Some(2_744));
    assert_eq!(limit.accepted(at(10), 2_744, None), None, "nothing new");
    assert_eq!(limit.accepted(at(10), 2_744, after(3_993)), None, "nothing new");
    assert_eq!(limit.believed(at(86_400)), None);
    assert!(limit.accepted(at(90_000), 2_744, after(3_993)).is_some());
}

#[test]
fn an_acceptance_alone_teaches_nothing() {
    let mut limit = PayloadLimit::default();
    assert_eq!(limit.accepted(at(0), 500, None), None);
    assert_eq!((limit.refused(at(1), 3_993), limit.believed(at(1))), (None, None));
}

#[test]
fn larger_accepted_payload_disproves_the_limit() {
    let mut limit = learned();
    assert_eq!(limit.accepted(at(1), 2_745, None), Some(Learned { max: None, at: at(1) }));
    assert_eq!(limit.believed(at(1)), None);
    assert_eq!(limit.accepted(at(2), 2_744, after(3_993)), None, "a larger one was taken a second ago");
    assert!(limit.accepted(at(62), 2_744, after(3_993)).is_some());
}

#[test]
fn repeated_413_lowers_the_limit_stepwise() {
    let mut limit = learned();
    assert_eq!(limit.refused(at(1), 3_993), None);
    let mut steps = Vec::new();
    while let Some(Learned { max: Some(max), .. }) = limit.refused(at(1), limit.believed(at(1)).unwrap()) {
        steps.push(max);
        if steps.len() == 3 {
            break;
        }
    }
    assert_eq!(steps, [2_058, 1_542, 1_155]);
    let smaller = PayloadRefusal { octets: 1_542, tried: 1_155 };
    assert_eq!(limit.accepted(at(2), 1_155, Some(smaller)), None, "what is believed is borne out");
}

#[test]
fn unpadded_acceptance_raises_a_low_limit() {
    let mut limit = learned();
    assert_eq!(limit.refused(at(1), 2_432).and_then(|learned| learned.max), Some(1_824));
    let without_padding = PayloadRefusal { octets: 2_432, tried: 2_350 };
    let told = limit.accepted(at(2), 2_349, Some(without_padding)).and_then(|learned| learned.max);
    assert_eq!(told, Some(2_350));
}

#[test]
fn replicas_follow_the_later_word() {
    let mut other = PayloadLimit::default();
    other.adopt(Learned { max: Some(3_000), at: at(5) });
    other.adopt(Learned { max: Some(2_000), at: at(4) });
    assert_eq!(other.believed(at(6)), Some(3_000));
    other.adopt(Learned { max: None, at: at(6) });
    assert_eq!(other.believed(at(6)), None);
}
