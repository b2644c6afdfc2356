//! Delivery policies: when a failed delivery is tried again, and when it is given up.
//!
//! A policy is written in one of three published forms — the web-push retry guide's, Amazon SNS's, QStash's — at five
//! places. Each place's JSON becomes a [`Layer`]; the layers become one [`Policy`] in force. Whatever the form, it is
//! one pure function of (retries so far, randomness) to a delay or the end: [`Policy::delay`]. [`decide`] weighs it
//! against an outcome and the time that is left.

pub mod breaker;
pub mod calendar;
pub mod caps;
pub mod chart;
pub mod engagement;
pub mod expression;
pub mod flow;
pub mod hold;
pub mod lane;
pub mod lane_state;
pub mod limit;
pub mod mass_gone;
pub mod payload_limit;
pub mod precedence;
pub mod preview;
pub mod reliability;
pub mod runaway;

mod decide;
mod fields;
mod guide;
mod layer;
mod phased;
mod qstash;
mod run;
mod tiers;
mod window;

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};

pub use decide::{Situation, Verdict, decide, remaining_ttl_s, shrink_target};
pub use guide::Guide;
pub use layer::{Layer, Parsed, Place, Places, PolicyError, SetBy, Terms, Throttle};
pub use layer::{Request, SILENT_OF_RETRIES};
pub use phased::DEPRECATED;
pub use phased::{Backoff, Phased, Preset};
pub use qstash::{RETRIES_MAX, Scripted};
pub use tiers::{Settings, TierDefaults};

use bellwire_core::delivery::Tier;

/// Time for the answer to a POST, from when it has a stream.
pub const ATTEMPT_DEADLINE: Duration = Duration::from_secs(10);

/// Where in its timetable a retry stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
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

impl Step {
    /// The delay that a draw gives; `randomness` lies in [0, 1).
    fn draw(&self, randomness: f64) -> Duration {
        self.shortest + self.longest.saturating_sub(self.shortest).mul_f64(randomness.clamp(0.0, 1.0))
    }
}

/// A timetable of retries, in the form it was written in. Values have been checked.
#[derive(Debug, Clone, PartialEq)]
pub enum Retry {
    /// The web-push retry guide's form.
    Guide(Guide),
    /// Amazon SNS's form.
    Phased(Phased),
    /// QStash's form.
    Scripted(Scripted),
}

impl Retry {
    /// How many retries follow the first POST, at most.
    pub fn retries(&self) -> u32 {
        match self {
            Retry::Guide(guide) => guide.max_attempts,
            Retry::Phased(phased) => phased.retries(),
            Retry::Scripted(scripted) => scripted.retries(),
        }
    }

    /// The retry that follows after `retries_so_far` of them; none if that was the last.
    pub fn step(&self, retries_so_far: u32) -> Option<Step> {
        match self {
            Retry::Guide(guide) => guide.step(retries_so_far),
            Retry::Phased(phased) => phased.step(retries_so_far),
            Retry::Scripted(scripted) => scripted.step(retries_so_far),
        }
    }

    /// How [`step`](Self::step) comes to its delay, for people to follow. Empty if there is no such retry.
    pub fn arithmetic(&self, retries_so_far: u32) -> String {
        match self {
            Retry::Guide(guide) => guide.arithmetic(retries_so_far),
            Retry::Phased(phased) => phased.arithmetic(retries_so_far),
            Retry::Scripted(scripted) => scripted.arithmetic(retries_so_far),
        }
    }

    /// The same after a response that throttled, or not: the preset `sns-aws-managed` has another timetable for the former.
    pub fn step_after(&self, throttled: bool, retries_so_far: u32) -> Option<Step> {
        match self {
            Retry::Phased(phased) if throttled => phased.when_throttled().step(retries_so_far),
            _ => self.step(retries_so_far),
        }
    }

    /// The timetable after throttling answers, if it is another one.
    pub fn when_throttled(&self) -> Option<Retry> {
        match self {
            Retry::Phased(phased) => Some(Retry::Phased(phased.when_throttled())).filter(|other| other != self),
            Retry::Guide(_) | Retry::Scripted(_) => None,
        }
    }

    /// The delay before the next retry; none if there is none. `randomness` lies in [0, 1).
    pub fn delay(&self, retries_so_far: u32, randomness: f64) -> Option<Duration> {
        Some(self.step(retries_so_far)?.draw(randomness))
    }

    /// The JSON members that this timetable was made from, with defaults filled in.
    fn write(&self, members: &mut Map<String, Value>) {
        match self {
            Retry::Guide(guide) => guide.write(members),
            Retry::Phased(phased) => phased.write(members),
            Retry::Scripted(scripted) => scripted.write(members),
        }
    }
}

/// A policy in force: complete, checked, compiled.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// When to try again.
    pub retry: Retry,
    /// How many deliveries a second one subscription gets, if that is limited.
    pub throttle: Option<Throttle>,
    /// How raw payloads are labelled, if somebody said so.
    pub request: Option<Request>,
    /// Figures of the breaker and of retry tokens, overridable per tier.
    pub settings: Settings,
}

impl Policy {
    /// What holds when nobody says otherwise.
    pub fn tier_default(tier: Tier) -> Self {
        let defaults = TierDefaults::of(tier);
        Self { retry: Retry::Guide(defaults.guide), throttle: None, request: None, settings: Settings::DEFAULT }
    }

    /// What holds for a delivery of `tier`: for each member the first place that sets it.
    pub fn in_force(tier: Tier, places: &Places<'_>) -> Self {
        let tuned = Self::tier_default(tier);
        let retry = if places.server.published_retries { Retry::Guide(Guide::DEFAULT) } else { tuned.retry };
        let default = Self { retry, settings: places.server, ..tuned };
        places.in_order().rev().fold(default, |policy, (_, layer)| policy.overridden(layer))
    }

    fn overridden(self, layer: &Layer) -> Self {
        Self {
            retry: layer.retry.clone().unwrap_or(self.retry),
            throttle: layer.throttle.or(self.throttle),
            request: layer.request.clone().or(self.request),
            settings: layer.settings.over(self.settings),
        }
    }

    /// The delay before the next retry; none if the policy has no further one. `randomness` lies in [0, 1).
    pub fn delay(&self, retries_so_far: u32, randomness: f64) -> Option<Duration> {
        self.retry.delay(retries_so_far, randomness)
    }

    /// The policy as JSON by its published names, defaults filled in: what a dead letter keeps. When its members stem
    /// from several places it may show members of several forms side by side.
    pub fn to_json(&self) -> Value {
        let mut members = Map::new();
        self.retry.write(&mut members);
        if let Some(Throttle { max_receives_per_second }) = self.throttle {
            members.insert("throttlePolicy".into(), json!({ "maxReceivesPerSecond": max_receives_per_second }));
        }
        if let Some(Request { header_content_type }) = &self.request {
            members.insert("requestPolicy".into(), json!({ "headerContentType": header_content_type }));
        }
        Value::Object(members)
    }
}
