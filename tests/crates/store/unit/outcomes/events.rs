//! Unit tests of `crates/bellwire-store/src/outcomes/events.rs`, which includes them.

use serde_json::json;
use uuid::Uuid;

use super::*;

#[test]
fn body_names_its_event_type() {
    let (lane, vapid_key, message) = (LaneId(1), VapidKeyId(Uuid::nil()), MessageId(Uuid::nil()));
    for body in [
        EventData::DeadLetterCreated(DeadLetterCreated {
            reason: "gone".to_owned(),
            dead_letter: DeadLetterId(Uuid::nil()),
        }),
        EventData::SubscriptionGone(SubscriptionGone { lane, gateway: Gateway::Fcm, vapid_key }),
        EventData::SlaMissed(SlaMissed { tier: Tier::Transactional, sla_seconds: 30, message }),
    ] {
        assert_eq!(serde_json::to_value(&body).unwrap()["kind"], body.kind().name());
    }
    let body = EventData::SlaMissed(SlaMissed { tier: Tier::Transactional, sla_seconds: 30, message });
    let data = json!({"tier": "transactional", "sla_seconds": 30, "message": message});
    assert_eq!(serde_json::to_value(&body).unwrap(), json!({"kind": "sla.missed", "data": data}));
}
