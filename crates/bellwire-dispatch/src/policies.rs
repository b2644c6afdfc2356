//! The delivery policies of one opened message: parsed once, weighed against each other once for every different policy
//! among its recipients.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tracing::warn;

use bellwire_core::delivery::Tier;
use bellwire_core::id::MessageId;
use bellwire_rules::policy::{Layer, Places, Policy, PolicyLevel, Terms, TierSettings};

/// Policies of recipients that are remembered. Most subscriptions have none, and those that do share a few; with more
/// than these a policy is simply parsed again.
const VARIANTS_MAX: usize = 64;

/// The policies that may count for a message, but for those of its recipients.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct StoredPolicies<'a> {
    pub message: Option<&'a Value>,
    /// Policy of its topic, if it was sent to one.
    pub topic: Option<&'a Value>,
    pub tier: Option<&'a Value>,
    pub max_retries: u32,
}

/// Policies for the deliveries of one message.
pub(super) struct Policies {
    id: MessageId,
    tier: Tier,
    server: TierSettings,
    max_retries: u32,
    message: Option<Layer>,
    topic: Option<Layer>,
    app_tier: Option<Layer>,
    common: Arc<Policy>,
    /// In force for recipients with a policy of their own, by that policy.
    variants: Mutex<HashMap<Value, Arc<Policy>>>,
}

impl Policies {
    /// Parses what was stored for a message. The server's figures hold where the tier sets none.
    pub(super) fn new(id: MessageId, tier: Tier, stored: StoredPolicies<'_>, server: &TierSettings) -> Self {
        let restore = |place, value: Option<&Value>| restored(id, place, value?, stored.max_retries);
        let mut policies = Self {
            id,
            tier,
            server: *server,
            max_retries: stored.max_retries,
            message: restore(PolicyLevel::Message, stored.message),
            topic: restore(PolicyLevel::Topic, stored.topic),
            app_tier: restore(PolicyLevel::Tier, stored.tier),
            common: Arc::new(Policy::tier_default(tier)),
            variants: Mutex::default(),
        };
        policies.common = Arc::new(policies.in_force(None));
        policies
    }

    /// Returns the policy for recipients without their own.
    pub(super) fn common(&self) -> &Arc<Policy> {
        &self.common
    }

    /// Returns the policy for a recipient whose stored policy is `subscription`.
    pub(super) fn of(&self, subscription: Option<&Value>) -> Arc<Policy> {
        let silenced = self.topic.as_ref().is_some_and(|topic| topic.disable_subscription_overrides);
        let Some(stored) = subscription.filter(|_| !silenced) else { return self.common.clone() };
        if let Some(known) = self.variants.lock().get(stored) {
            return known.clone();
        }
        let layer = restored(self.id, PolicyLevel::Subscription, stored, self.max_retries);
        let policy = layer.map_or_else(|| self.common.clone(), |layer| Arc::new(self.in_force(Some(&layer))));
        let mut variants = self.variants.lock();
        if variants.len() >= VARIANTS_MAX {
            variants.clear();
        }
        variants.insert(stored.clone(), policy.clone());
        policy
    }

    fn in_force(&self, subscription: Option<&Layer>) -> Policy {
        let places = Places {
            message: self.message.as_ref(),
            subscription,
            topic: self.topic.as_ref(),
            tier: self.app_tier.as_ref(),
            server: self.server,
        };
        Policy::in_force(self.tier, &places)
    }
}

/// Reads a stored policy. One that cannot be read, because the rules changed or it was written by hand, counts as absent: the
/// policy of the next place is better than no delivery.
fn restored(message: MessageId, place: PolicyLevel, stored: &Value, max_retries: u32) -> Option<Layer> {
    match Layer::restore(stored, &Terms { place, max_retries }) {
        Ok(parsed) => Some(parsed.layer),
        Err(errors) => {
            warn!(message_id = %message, place = place.name(), error = %errors[0], "a stored policy cannot be read and is skipped");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use uuid::Uuid;

    use super::*;

    fn policies(message: Value, topic: Value, tier: Value) -> Policies {
        let [message, topic, tier] =
            [&message, &topic, &tier].map(|value| Some(value).filter(|value| !value.is_null()));
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
}
