//! Delivery policies: times of retries, and the end of a failing delivery.
//!
//! A policy has one of three published forms: those of the web-push retry guide, Amazon SNS and QStash. It is set at up to five
//! levels. The JSON of each level becomes a [`Layer`], and the layers become one [`Policy`]. Its retry times are a pure
//! function [`Policy::delay`] of the retries so far and randomness. [`decide`] combines it with an outcome and the remaining
//! time.

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
#[cfg(feature = "openapi")]
mod openapi;
mod phased;
mod qstash;
mod run;
mod tiers;
mod window;

use std::time::Duration;

use serde::Serialize;
use serde_json::{Map, Value, json};

pub use decide::{NextStep, Situation, decide, remaining_ttl_s, shrink_target};
pub use fields::PolicyError;
pub use guide::Guide;
pub use layer::{Layer, Parsed, Places, PolicyLevel, SetBy, Terms, Throttle};
pub use layer::{Request, SILENT_OF_RETRIES};
#[cfg(feature = "openapi")]
pub use openapi::DeliveryPolicy;
pub use phased::DEPRECATED;
pub use phased::{Backoff, Phased, Preset};
pub use qstash::{RETRIES_MAX, Scripted};
pub use tiers::{TierDefaults, TierSettings};

use bellwire_core::delivery::Tier;

/// Timeout of the response to a POST, counted from the time at which the POST has a stream.
pub const ATTEMPT_DEADLINE: Duration = Duration::from_secs(10);

/// Position of a retry in its timetable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum RetryPhase {
    /// Without delay, right after the previous attempt.
    Immediate,
    /// At the shortest delay, before the backoff.
    PreBackoff,
    /// At growing delays.
    Backoff,
    /// At the longest delay, after the backoff.
    PostBackoff,
}

/// Delay of one retry, drawn uniformly from `shortest` to `longest`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RetryDelay {
    /// Position in the timetable.
    pub phase: RetryPhase,
    /// Delay without any jitter.
    pub nominal: Duration,
    /// Shortest possible delay with jitter.
    pub shortest: Duration,
    /// Longest possible delay with jitter.
    pub longest: Duration,
}

impl RetryDelay {
    /// Returns the delay for a random number in [0, 1).
    fn draw(&self, randomness: f64) -> Duration {
        self.shortest + self.longest.saturating_sub(self.shortest).mul_f64(randomness.clamp(0.0, 1.0))
    }
}

/// Timetable of retries in one of the forms, with checked values.
#[derive(Debug, Clone, PartialEq)]
pub enum Retry {
    /// Form of the web-push retry guide.
    Guide(Guide),
    /// Form of Amazon SNS.
    Phased(Phased),
    /// Form of Upstash's QStash.
    Scripted(Scripted),
}

impl Retry {
    /// Returns the maximum number of retries after the first POST.
    pub fn retries(&self) -> u32 {
        match self {
            Retry::Guide(guide) => guide.max_attempts,
            Retry::Phased(phased) => phased.retries(),
            Retry::Scripted(scripted) => scripted.retries(),
        }
    }

    /// Returns the retry after `retries_so_far` retries. `None` if that was the last.
    pub fn step(&self, retries_so_far: u32) -> Option<RetryDelay> {
        match self {
            Retry::Guide(guide) => guide.step(retries_so_far),
            Retry::Phased(phased) => phased.step(retries_so_far),
            Retry::Scripted(scripted) => scripted.step(retries_so_far),
        }
    }

    /// Explains how [`step`](Self::step) computes the delay, for people. Empty without such a retry.
    pub fn arithmetic(&self, retries_so_far: u32) -> String {
        match self {
            Retry::Guide(guide) => guide.arithmetic(retries_so_far),
            Retry::Phased(phased) => phased.arithmetic(retries_so_far),
            Retry::Scripted(scripted) => scripted.arithmetic(retries_so_far),
        }
    }

    /// Returns the retry after a response; `throttled` tells whether the response was throttling. Only the preset
    /// `sns-aws-managed` has another timetable for it.
    pub fn step_after(&self, throttled: bool, retries_so_far: u32) -> Option<RetryDelay> {
        match self {
            Retry::Phased(phased) if throttled => phased.when_throttled().step(retries_so_far),
            _ => self.step(retries_so_far),
        }
    }

    /// Returns the timetable after throttling responses. `None`: the same one.
    pub fn when_throttled(&self) -> Option<Retry> {
        match self {
            Retry::Phased(phased) => Some(Retry::Phased(phased.when_throttled())).filter(|other| other != self),
            Retry::Guide(_) | Retry::Scripted(_) => None,
        }
    }

    /// Returns the delay before the next retry. `None`: no retry is left. `randomness` is in [0, 1).
    pub fn delay(&self, retries_so_far: u32, randomness: f64) -> Option<Duration> {
        Some(self.step(retries_so_far)?.draw(randomness))
    }

    /// Writes the JSON members of this timetable, defaults included.
    fn write(&self, members: &mut Map<String, Value>) {
        match self {
            Retry::Guide(guide) => guide.write(members),
            Retry::Phased(phased) => phased.write(members),
            Retry::Scripted(scripted) => scripted.write(members),
        }
    }
}

/// Combined policy of a delivery: complete and valid.
#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    /// Timetable of the retries.
    pub retry: Retry,
    /// Rate limit of deliveries to one subscription. `None`: unlimited.
    pub throttle: Option<Throttle>,
    /// Content type of raw payloads. `None`: not set.
    pub request: Option<Request>,
    /// Settings of the breaker and of retry tokens, which a tier may override.
    pub settings: TierSettings,
}

impl Policy {
    /// Returns the default policy of a tier.
    pub fn tier_default(tier: Tier) -> Self {
        let defaults = TierDefaults::of(tier);
        Self { retry: Retry::Guide(defaults.guide), throttle: None, request: None, settings: TierSettings::DEFAULT }
    }

    /// Combines the policies for a delivery of `tier`. Each member comes from the first level that sets it.
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

    /// Returns the delay before the next retry, for a random number in [0, 1). `None` after the last retry.
    pub fn delay(&self, retries_so_far: u32, randomness: f64) -> Option<Duration> {
        self.retry.delay(retries_so_far, randomness)
    }

    /// Returns the policy as JSON with its published names, including defaults, for a dead letter. If its members come from
    /// several levels, it may contain members of several forms.
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
