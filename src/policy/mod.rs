//! Delivery policies: when a failed delivery is tried again, and when it is given up.
//!
//! A policy is written in one of three published forms — the web-push retry guide's, Amazon SNS's, QStash's — at five
//! places. Each place's JSON becomes a [`Layer`]; the layers become one [`Policy`] in force. Whatever the form, it is
//! one pure function of (retries so far, randomness) to a delay or the end: [`Policy::delay`]. [`decide`] weighs it
//! against an outcome and the time that is left.

pub mod breaker;
pub mod hold;
pub mod retry_after;

mod decide;
mod fields;
mod guide;
mod layer;
mod tiers;
mod window;

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value};

pub use decide::{Attempt, Verdict, decide, remaining_ttl_s, shrink_target};
pub use guide::Guide;
pub use layer::{Layer, Parsed, Place, Places, PolicyError, Terms};
pub use tiers::{Settings, TierDefaults};

use crate::delivery::Tier;

/// Where in its timetable a retry stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, utoipa::ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// Without delay, right after the attempt before.
    Immediate,
    /// At the shortest delay, before the delays begin to grow.
    PreBackoff,
    /// At growing delays.
    Backoff,
    /// At the longest delay.
    PostBackoff,
}

/// What a policy says about one retry. The delay is drawn evenly from `shortest` to `longest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Where in the timetable it stands.
    pub phase: Phase,
    /// The delay before jitter.
    pub nominal: Duration,
    /// The shortest delay that jitter makes of it.
    pub shortest: Duration,
    /// The longest.
    pub longest: Duration,
}

/// A timetable of retries, in the form it was written in. Values have been checked.
#[derive(Debug, Clone, PartialEq)]
pub enum Retry {
    /// The web-push retry guide's form.
    Guide(Guide),
}

impl Retry {
    /// How many retries follow the first POST, at most.
    pub fn retries(&self) -> u32 {
        match self {
            Retry::Guide(guide) => guide.max_attempts,
        }
    }

    /// The retry that follows after `retries_so_far` of them; none if that was the last.
    pub fn step(&self, retries_so_far: u32) -> Option<Step> {
        match self {
            Retry::Guide(guide) => guide.step(retries_so_far),
        }
    }

    /// The delay before the next retry; none if there is none. `randomness` lies in [0, 1).
    pub fn delay(&self, retries_so_far: u32, randomness: f64) -> Option<Duration> {
        let Step { shortest, longest, .. } = self.step(retries_so_far)?;
        Some(shortest + longest.saturating_sub(shortest).mul_f64(randomness.clamp(0.0, 1.0)))
    }

    /// The JSON members that this timetable was made from, with defaults filled in.
    fn write(&self, members: &mut Map<String, Value>) {
        match self {
            Retry::Guide(guide) => guide.write(members),
        }
    }
}

/// A policy in force: complete, checked, compiled.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// When to try again.
    pub retry: Retry,
    /// Figures of the breaker and of retry tokens, overridable per tier.
    pub settings: Settings,
}

impl Policy {
    /// What holds when nobody says otherwise.
    pub fn tier_default(tier: Tier) -> Self {
        let defaults = TierDefaults::of(tier);
        Self { retry: Retry::Guide(defaults.guide), settings: Settings::DEFAULT }
    }

    /// What holds for a delivery of `tier`: for each member the first place that sets it.
    pub fn in_force(tier: Tier, places: &Places<'_>) -> Self {
        places.in_order().rev().flatten().fold(Self::tier_default(tier), Self::overridden)
    }

    fn overridden(self, layer: &Layer) -> Self {
        Self { retry: layer.retry.clone().unwrap_or(self.retry), settings: layer.settings.over(self.settings) }
    }

    /// The delay before the next retry; none if the policy has no further one. `randomness` lies in [0, 1).
    pub fn delay(&self, retries_so_far: u32, randomness: f64) -> Option<Duration> {
        self.retry.delay(retries_so_far, randomness)
    }

    /// The policy as JSON in its published form, defaults filled in: what a dead letter keeps.
    pub fn to_json(&self) -> Value {
        let mut members = Map::new();
        self.retry.write(&mut members);
        Value::Object(members)
    }
}
