//! Unit tests of `crates/bellwire-store/src/outcomes/dead_letters.rs`, which includes them.

use serde_json::json;
use uuid::Uuid;

use super::*;

#[test]
fn filter_matches_exactly_its_members() {
    let all = json!({
        "reason": "gone", "detail": "no such subscription", "status": 410, "state": "closed", "message": MessageId(Uuid::nil()),
        "subscription": SubscriptionId(Uuid::nil()), "topic": "news", "tier": "promotional", "gateway": "fcm",
        "since": "2027-01-01T00:00:00Z", "until": "2027-01-02T00:00:00Z", "retries": 3
    });
    let filter: DeadLetterFilter = serde_json::from_value(all.clone()).unwrap();
    assert_eq!(serde_json::to_value(&filter).unwrap(), all);
    let mut names: Vec<_> = all.as_object().unwrap().keys().map(String::as_str).collect();
    let mut given = DeadLetterFilter::NAMES.to_vec();
    names.sort_unstable();
    given.sort_unstable();
    assert_eq!(names, given);
    for bad in [json!({"id": "dl_x"}), json!({"reason": "bad"}), json!({"status": 99}), json!({"state": "shut"})] {
        assert!(serde_json::from_value::<DeadLetterFilter>(bad.clone()).is_err(), "{bad}");
    }
}
