//! Unit tests of `crates/bellwire-dispatch/src/policies.rs`, which includes them.

use serde_json::json;
use uuid::Uuid;

use super::*;

fn policies(message: Value, topic: Value, tier: Value) -> Policies {
    let [message, topic, tier] = [&message, &topic, &tier].map(|value| Some(value).filter(|value| !value.is_null()));
    let stored = StoredPolicies { message, topic, tier, max_retries: 5 };
    Policies::new(MessageId(Uuid::nil()), Tier::Promotional, stored, &TierSettings::DEFAULT)
}

fn retries(n: u32) -> Value {
    json!({ "maxAttempts": n })
}

#[test]
fn recipient_policy_lies_between_message_and_topic() {
    let theirs = retries(7);
    let asked = |policies: &Policies, own| policies.of(own).retry.retries();
    let below = policies(Value::Null, retries(2), retries(3));
    assert_eq!((asked(&below, None), asked(&below, Some(&theirs))), (2, 7));
    let above = policies(retries(1), retries(2), retries(3));
    assert_eq!(asked(&above, Some(&theirs)), 1);
    let silenced = policies(Value::Null, json!({"disableSubscriptionOverrides": true}), retries(3));
    assert_eq!(asked(&silenced, Some(&theirs)), 3);
}

#[test]
fn equal_recipient_policies_are_shared() {
    let policies = policies(Value::Null, Value::Null, retries(3));
    assert!(Arc::ptr_eq(&policies.of(None), policies.common()));
    assert!(Arc::ptr_eq(&policies.of(Some(&retries(7))), &policies.of(Some(&retries(7)))));
    for n in 0..=100 {
        assert_eq!(policies.of(Some(&retries(n))).retry.retries(), n);
    }
    assert!(policies.variants.lock().len() <= VARIANTS_MAX);
}

#[test]
fn unreadable_policy_falls_through() {
    let broken = json!({"maxAttempts": "many"});
    let policies = policies(broken.clone(), broken.clone(), retries(3));
    assert_eq!(policies.common().retry.retries(), 3);
    assert!(Arc::ptr_eq(&policies.of(Some(&broken)), policies.common()));
}

#[test]
fn current_app_maximum_bounds_stored_policies() {
    let policies = policies(json!({"retries": 900}), Value::Null, Value::Null);
    assert_eq!(policies.common().retry.retries(), 5);
}
