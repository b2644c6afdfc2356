//! Unit tests of `src/live/reading.rs`, which includes them.

use uuid::Uuid;

use super::*;
use bellwire_core::message::MessageState;

fn now() -> Timestamp {
    "2027-01-15T08:00:00Z".parse().unwrap()
}

fn app(n: u128) -> AppId {
    AppId(Uuid::from_u128(n))
}

fn campaign(n: u128, accepted: i64) -> StreamProgress {
    StreamProgress {
        message: MessageId(Uuid::from_u128(n)),
        app: app(1),
        campaign: None,
        state: MessageState::Sending,
        expanded: false,
        audience_estimate: 100,
        targeted: 50,
        accepted,
        gone: 1,
        expired: 2,
        dead: 3,
        cancelled: 0,
        capped: 0,
    }
}

#[test]
fn moved_campaigns_are_reported_with_the_rest() {
    let mut memory = Memory::default();
    let moved = memory.moved(vec![campaign(1, 10), campaign(2, 20)], now());
    assert_eq!(moved.len(), 2);
    let moved = memory.moved(vec![campaign(1, 10), campaign(2, 21)], now());
    assert_eq!(moved.len(), 1);
    let told: Value = serde_json::from_str(&moved[0].1.json).unwrap();
    assert_eq!((&told["data"]["waiting"], &told["kind"]), (&json!(50 - 21 - 6), &json!("message.progress")));
    assert!(memory.moved(vec![campaign(2, 21)], now()).is_empty());
}

#[test]
fn outcomes_span_minutes_since_last_read() {
    let mut memory = Memory::default();
    let sum = |minute, app, ending: Ending, n| Rollup { minute, app, ending: ending.code(), n };
    let next = now() + TimeDelta::minutes(1);
    let first = vec![sum(now(), app(1), Ending::Accepted, 100)];
    assert!(memory.outcomes(first, now()).is_empty(), "what was before is nobody's second");
    let told = memory.outcomes(
        vec![
            sum(now(), app(1), Ending::Accepted, 130),
            sum(next, app(1), Ending::Accepted, 5),
            sum(next, app(2), Ending::Dead, 2),
        ],
        now(),
    );
    let told: Vec<Value> = told.iter().map(|event| serde_json::from_str(&event.json).unwrap()).collect();
    assert_eq!((&told[0]["data"]["accepted"], &told[0]["app"]), (&json!(35), &json!(app(1))));
    assert_eq!((&told[1]["data"]["dead"], &told[1]["data"]["accepted"]), (&json!(2), &json!(0)));
    let again = vec![sum(next, app(1), Ending::Accepted, 5), sum(next, app(2), Ending::Dead, 2)];
    assert!(memory.outcomes(again, now()).is_empty(), "a minute that has left the window takes nothing back");
}
