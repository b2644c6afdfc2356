//! What one place says: its JSON, parsed and checked. Several layers make one [`Policy`](super::Policy).

use std::time::Duration;

use serde::Serialize;
use serde_json::Value;

use super::fields::Fields;
use super::{Guide, Retry, Settings, guide};

/// A mistake in a policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, utoipa::ToSchema, thiserror::Error)]
#[error("{pointer}: {detail}")]
pub struct PolicyError {
    /// Where it is, within the policy (RFC 6901).
    pub pointer: String,
    /// What is wrong, for the caller to read.
    pub detail: String,
}

/// Where a policy is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Place {
    /// On one message.
    Message,
    /// On one subscription.
    Subscription,
    /// On a topic: holds for messages addressed to it.
    Topic,
    /// On a tier of an app.
    Tier,
}

/// What a policy is checked against.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Where it is given.
    pub place: Place,
    /// The app's maximum of `retries` in QStash's form, also its default. Taken as 1,000 if larger.
    pub max_retries: u32,
}

impl Default for Terms {
    fn default() -> Self {
        Self { place: Place::Message, max_retries: 5 }
    }
}

/// What one place sets. Members that are none leave the word to the next place.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Layer {
    /// When to try again.
    pub retry: Option<Retry>,
    /// A topic's word that its subscriptions' policies do not count.
    pub disable_subscription_overrides: bool,
    pub(super) settings: SettingsLayer,
}

/// Figures of the server that a tier overrides.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct SettingsLayer {
    circuit_failure_threshold: Option<f64>,
    circuit_open: Option<Duration>,
    retry_token_ttl: Option<Duration>,
}

impl SettingsLayer {
    pub fn over(self, base: Settings) -> Settings {
        Settings {
            circuit_failure_threshold: self.circuit_failure_threshold.unwrap_or(base.circuit_failure_threshold),
            circuit_open: self.circuit_open.unwrap_or(base.circuit_open),
            retry_token_ttl: self.retry_token_ttl.unwrap_or(base.retry_token_ttl),
        }
    }
}

/// A policy that was accepted.
#[derive(Debug, Clone, PartialEq)]
pub struct Parsed {
    /// What it sets.
    pub layer: Layer,
    /// What the caller should know all the same: deprecated members, values that only an older edition allowed.
    pub warnings: Vec<PolicyError>,
}

/// The places that may set a policy for one delivery.
#[derive(Debug, Clone, Copy, Default)]
pub struct Places<'a> {
    /// The message's own.
    pub message: Option<&'a Layer>,
    /// The subscription's.
    pub subscription: Option<&'a Layer>,
    /// The topic's, if the message was addressed to it.
    pub topic: Option<&'a Layer>,
    /// The app's for this tier.
    pub tier: Option<&'a Layer>,
}

impl<'a> Places<'a> {
    /// The places in the order of their word; the first that sets a member wins.
    pub(super) fn in_order(&self) -> impl DoubleEndedIterator<Item = Option<&'a Layer>> + use<'a> {
        let overrides = !self.topic.is_some_and(|topic| topic.disable_subscription_overrides);
        [self.message, self.subscription.filter(|_| overrides), self.topic, self.tier].into_iter()
    }
}

const SETTINGS: [&str; 3] = ["circuitFailureThreshold", "circuitOpenMs", "retryTokenTtlSec"];
const DISABLE: &str = "disableSubscriptionOverrides";

impl Layer {
    /// Parses and checks one place's JSON. All mistakes are told at once.
    pub fn parse(value: &Value, terms: &Terms) -> Result<Parsed, Vec<PolicyError>> {
        let mut errors = Vec::new();
        let mut layer = Layer::default();
        let mut allowed = Vec::new();
        allowed.extend(guide::MEMBERS);
        if terms.place == Place::Tier {
            allowed.extend(SETTINGS);
        }
        if terms.place == Place::Topic {
            allowed.push(DISABLE);
        }
        if let Some(mut fields) = Fields::of(value, "", &allowed, &mut errors) {
            if guide::MEMBERS.iter().any(|name| fields.raw(name).is_some()) {
                layer.retry = Guide::read(&mut fields).map(Retry::Guide);
            }
            layer.settings = settings(&mut fields);
            layer.disable_subscription_overrides = disables(&mut fields);
        }
        if errors.is_empty() { Ok(Parsed { layer, warnings: Vec::new() }) } else { Err(errors) }
    }
}

fn disables(fields: &mut Fields<'_>) -> bool {
    match fields.raw(DISABLE) {
        None => false,
        Some(Value::Bool(disables)) => *disables,
        Some(_) => {
            fields.refuse(DISABLE, "must be true or false");
            false
        }
    }
}

/// The server's figures; absent ones stay none.
fn settings(fields: &mut Fields<'_>) -> SettingsLayer {
    let [threshold, open, token] = SETTINGS;
    let mut layer = SettingsLayer::default();
    if fields.raw(threshold).is_some() {
        let share = fields.number(threshold, 1.0);
        if !(share > 0.0 && share <= 1.0) {
            fields.refuse(threshold, format!("must be above 0 and at most 1; it is {share}"));
        }
        layer.circuit_failure_threshold = Some(share);
    }
    if fields.raw(open).is_some() {
        let given = fields.integer(open, 1_000);
        fields.within(open, given, 1_000, 600_000);
        layer.circuit_open = Some(Duration::from_millis(given.value.into()));
    }
    if fields.raw(token).is_some() {
        let given = fields.integer(token, 1);
        fields.within(token, given, 1, 86_400);
        layer.retry_token_ttl = Some(Duration::from_secs(given.value.into()));
    }
    layer
}
