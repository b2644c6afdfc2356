//! Delivery policies of one message: parsed once, and combined once for every different policy among its recipients.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use serde_json::Value;
use tracing::warn;

use bellwire_core::delivery::Tier;
use bellwire_core::id::MessageId;
use bellwire_rules::policy::{Layer, Places, Policy, PolicyLevel, Terms, TierSettings};

/// Maximum cached policies of recipients. Most subscriptions have none, and others share a few; beyond the limit policies are
/// parsed again.
const VARIANTS_MAX: usize = 64;

/// Stored policies that apply to a message, except those of its recipients.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct StoredPolicies<'a> {
    pub message: Option<&'a Value>,
    /// Policy of its topic. `None`: no topic, or no policy.
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
    /// Combined policies, by the recipient's own policy.
    variants: Mutex<HashMap<Value, Arc<Policy>>>,
}

impl Policies {
    /// Parses the stored policies of a message. `server` has the settings for a tier without any.
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

/// Parses a stored policy. If that fails, because the rules changed or the row was changed outside Bellwire, it counts as
/// absent: the policy of the next level is better than no delivery.
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
#[path = "../../../tests/crates/dispatch/unit/policies.rs"]
mod tests;
