//! Scenario of a simulation: arrivals, workers, and behaviour of the gateway. Written as JSON, checked and bounded.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_path_to_error::Segment;

use bellwire_core::delivery::Tier;
use bellwire_core::lane::Gateway;
use bellwire_core::named;
use bellwire_rules::policy::TierDefaults;

/// Maximum of each time in a scenario, in seconds: 28 days, the maximum time to live.
const TIME_MAX_S: f64 = 2_419_200.0;
/// Maximum length of a scenario in octets.
const TEXT_MAX: usize = 65_536;

/// Error in a scenario.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{pointer}: {detail}")]
pub struct ScenarioError {
    /// JSON pointer to the faulty member (RFC 6901).
    pub pointer: String,
    /// Description of the error.
    pub detail: String,
}

/// A scenario. Every member has a default.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Scenario {
    /// Description of the scenario for readers.
    pub about: String,
    /// The tier of all deliveries: decides the default policy and TTL, and whether deferred work is spread out.
    pub tier: Tier,
    /// Time to live in seconds, 0 to 2,419,200; by default that of the tier.
    pub ttl_s: Option<u32>,
    /// Due times of the deliveries.
    pub arrival: Arrival,
    /// Sending side of the simulation.
    pub workers: Workers,
    /// Receiving side of the simulation.
    pub gateway: Described,
    /// Whether breakers are active.
    pub breaker: bool,
    /// Whether delays are drawn from their range and deferred work is spread out; if not, delays are nominal.
    pub jitter: bool,
}

impl Default for Scenario {
    fn default() -> Self {
        Self {
            about: String::new(),
            tier: Tier::Promotional,
            ttl_s: None,
            arrival: Arrival::default(),
            workers: Workers::default(),
            gateway: Described::default(),
            breaker: true,
            jitter: true,
        }
    }
}

/// Due times of the deliveries, evenly distributed from the start.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Arrival {
    /// Number of deliveries, 1 to 5,000,000.
    pub deliveries: u32,
    /// Duration of the arrivals in seconds, 0 (all at once) to 2,419,200.
    pub over_s: f64,
}

impl Default for Arrival {
    fn default() -> Self {
        Self { deliveries: 100_000, over_s: 60.0 }
    }
}

/// Sending side of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Workers {
    /// Number of processes, 1 to 16. They share holds and breakers at once.
    pub replicas: u32,
    /// Maximum POSTs in flight of all replicas together, 1 to 4,096.
    pub concurrency: u32,
    /// Whether the number in flight adapts to the responses, as in the server; otherwise it is fixed.
    pub adaptive: bool,
}

impl Default for Workers {
    fn default() -> Self {
        Self { replicas: 1, concurrency: 256, adaptive: true }
    }
}

/// Receiving side of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Described {
    /// Gateway whose form the responses have.
    pub kind: Gateway,
    /// Accepted POSTs per second, 1 to 1,000,000, with bursts of one second; unbounded by default.
    pub capacity_per_s: Option<u32>,
    /// Response to POSTs beyond the capacity.
    pub overload: Reply,
    /// Latency of the responses.
    pub latency: Latency,
    /// Faults, at most 16. The rates of simultaneous faults add up to at most 1.
    pub faults: Vec<FaultPeriod>,
}

impl Default for Described {
    fn default() -> Self {
        let overload = Reply { status: Some(429), retry_after_s: None, failure: None, after_ms: None };
        Self { kind: Gateway::Fcm, capacity_per_s: None, overload, latency: Latency::default(), faults: Vec::new() }
    }
}

/// Latency of responses: a log-normal distribution, given by two quantiles.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Latency {
    /// Median in milliseconds, 1 to 60,000.
    pub p50_ms: u32,
    /// 99th percentile in milliseconds, from `p50_ms` (constant latency) to 60,000.
    pub p99_ms: u32,
}

impl Default for Latency {
    fn default() -> Self {
        Self { p50_ms: 50, p99_ms: 250 }
    }
}

/// A period in which a share of the POSTs gets a different response. A share of 1 is an outage.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultPeriod {
    /// Start in seconds; 0 by default.
    #[serde(default)]
    pub from_s: f64,
    /// Duration in seconds; for ever by default.
    pub for_s: Option<f64>,
    /// Share of the POSTs, above 0 and at most 1; 1 by default.
    #[serde(default = "all")]
    pub rate: f64,
    /// Whether the share applies to deliveries with all of their POSTs instead of single POSTs, as when a part of the
    /// gateway is down.
    #[serde(default)]
    pub sticky: bool,
    /// Response during the fault.
    pub answer: Reply,
}

fn all() -> f64 {
    1.0
}

impl FaultPeriod {
    /// End in seconds; may be infinite.
    pub fn until_s(&self) -> f64 {
        self.for_s.map_or(f64::INFINITY, |long_s| self.from_s + long_s)
    }

    pub fn is_on(&self, now_s: f64) -> bool {
        self.from_s <= now_s && now_s < self.until_s()
    }
}

/// A response: a status, or a failure.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reply {
    /// The HTTP status, 100 to 599.
    pub status: Option<u16>,
    /// Value of `Retry-After`, 0 to 86,400 seconds.
    pub retry_after_s: Option<u32>,
    /// Failure in place of a status.
    pub failure: Option<Mishap>,
    /// Latency in milliseconds, 0 to 60,000; by default that of the gateway.
    pub after_ms: Option<u32>,
}

/// Failure of a POST without a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mishap {
    /// No response before the deadline of the attempt.
    Timeout,
    /// No connection was possible.
    Refused,
}

named! {
    /// A scenario that is built in.
    pub enum BuiltInScenario {
        /// A million deliveries to a gateway without faults.
        Calm = "calm",
        /// A steady stream while the gateway answers 503 to everything for a minute.
        Outage = "outage",
        /// One in 200 subscriptions is unreachable for ten minutes: too few to trip a breaker.
        Part = "part",
        /// A campaign of 4 s that starts as the gateway fails for a minute.
        Herd = "herd",
        /// A gateway that accepts 500 per second and answers 429 beyond, for a while with `Retry-After`.
        Throttled = "throttled",
        /// Two in a hundred subscriptions are throttled for half a minute.
        Devices = "devices",
        /// Of a hundred POSTs three receive 503, one receives 500, and one receives no response.
        Flaky = "flaky",
        /// Responses take two seconds, and some exceed the deadline.
        Slow = "slow",
    }
}

impl BuiltInScenario {
    fn text(self) -> &'static str {
        match self {
            Self::Calm => include_str!("scenarios/calm.json"),
            Self::Outage => include_str!("scenarios/outage.json"),
            Self::Part => include_str!("scenarios/part.json"),
            Self::Herd => include_str!("scenarios/herd.json"),
            Self::Throttled => include_str!("scenarios/throttled.json"),
            Self::Devices => include_str!("scenarios/devices.json"),
            Self::Flaky => include_str!("scenarios/flaky.json"),
            Self::Slow => include_str!("scenarios/slow.json"),
        }
    }

    pub fn scenario(self) -> Scenario {
        Scenario::parse(self.text()).expect("a test reads each of them")
    }
}

impl Scenario {
    /// Returns the names of the built-in scenarios.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BuiltInScenario::ALL.into_iter().map(BuiltInScenario::name)
    }

    /// Returns the JSON of a built-in scenario.
    pub fn built_in(name: &str) -> Option<&'static str> {
        BuiltInScenario::from_name(name).map(BuiltInScenario::text)
    }

    /// Parses and checks a scenario.
    pub fn parse(text: &str) -> Result<Self, ScenarioError> {
        if text.len() > TEXT_MAX {
            return Err(wrong("", format!("is longer than {TEXT_MAX} octets")));
        }
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let scenario: Self = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
            let segment = |segment: &Segment| match segment {
                Segment::Seq { index } => Some(format!("/{index}")),
                Segment::Map { key } => Some(format!("/{}", key.replace('~', "~0").replace('/', "~1"))),
                Segment::Enum { .. } | Segment::Unknown => None,
            };
            let pointer: String = error.path().iter().filter_map(segment).collect();
            wrong(pointer, error.inner().to_string())
        })?;
        deserializer.end().map_err(|error| wrong("", error.to_string()))?;
        scenario.check()?;
        Ok(scenario)
    }

    /// Scales the scenario down to at most `deliveries`, together with the capacity of the push service.
    #[must_use]
    pub fn with_at_most(mut self, deliveries: u32) -> Self {
        let share = f64::from(deliveries) / f64::from(self.arrival.deliveries);
        if share < 1.0 {
            self.arrival.deliveries = deliveries;
            let less = |capacity_per_s: u32| ((f64::from(capacity_per_s) * share).round() as u32).max(1);
            self.gateway.capacity_per_s = self.gateway.capacity_per_s.map(less);
        }
        self
    }

    /// Returns the time to live in seconds: of the scenario, or else of its tier.
    pub fn ttl_s(&self) -> u32 {
        self.ttl_s.unwrap_or(TierDefaults::of(self.tier).ttl_s)
    }

    /// Returns the end of the last finite outage, in seconds from the start.
    pub(crate) fn recovery_s(&self) -> Option<f64> {
        let outages = self.outages().filter(|fault| fault.until_s().is_finite());
        outages.map(FaultPeriod::until_s).max_by(f64::total_cmp)
    }

    pub fn outages(&self) -> impl Iterator<Item = &FaultPeriod> {
        self.gateway.faults.iter().filter(|fault| fault.rate >= 1.0)
    }

    /// Checks all bounds again, after members of a parsed scenario were changed.
    pub fn check(&self) -> Result<(), ScenarioError> {
        within("/ttl_s", self.ttl_s().into(), 0.0, TIME_MAX_S)?;
        within("/arrival/deliveries", self.arrival.deliveries.into(), 1.0, 5e6)?;
        within("/arrival/over_s", self.arrival.over_s, 0.0, TIME_MAX_S)?;
        within("/workers/replicas", self.workers.replicas.into(), 1.0, 16.0)?;
        within("/workers/concurrency", self.workers.concurrency.into(), 1.0, 4_096.0)?;
        let gateway = &self.gateway;
        within("/gateway/capacity_per_s", gateway.capacity_per_s.unwrap_or(1).into(), 1.0, 1e6)?;
        within("/gateway/latency/p50_ms", gateway.latency.p50_ms.into(), 1.0, 60_000.0)?;
        let p50_ms = gateway.latency.p50_ms.into();
        within("/gateway/latency/p99_ms", gateway.latency.p99_ms.into(), p50_ms, 60_000.0)?;
        gateway.overload.check("/gateway/overload")?;
        within("/gateway/faults", gateway.faults.len() as f64, 0.0, 16.0)?;
        for (n, fault) in gateway.faults.iter().enumerate() {
            let at = format!("/gateway/faults/{n}");
            within(&format!("{at}/from_s"), fault.from_s, 0.0, TIME_MAX_S)?;
            within(&format!("{at}/for_s"), fault.for_s.unwrap_or(1.0), f64::MIN_POSITIVE, TIME_MAX_S)?;
            within(&format!("{at}/rate"), fault.rate, f64::MIN_POSITIVE, 1.0)?;
            fault.answer.check(&format!("{at}/answer"))?;
        }
        Ok(())
    }
}

impl Reply {
    fn check(&self, at: &str) -> Result<(), ScenarioError> {
        if self.status.is_some() == self.failure.is_some() {
            return Err(wrong(at, "needs either status or failure"));
        }
        if self.retry_after_s.is_some() && self.status.is_none() {
            return Err(wrong(format!("{at}/retry_after_s"), "needs a status to come with"));
        }
        within(&format!("{at}/status"), self.status.unwrap_or(100).into(), 100.0, 599.0)?;
        within(&format!("{at}/after_ms"), self.after_ms.unwrap_or(0).into(), 0.0, 60_000.0)?;
        within(&format!("{at}/retry_after_s"), self.retry_after_s.unwrap_or(0).into(), 0.0, 86_400.0)
    }
}

impl Latency {
    /// Returns the latency for two draws from [0, 1), with the Box-Muller transform to a normal distribution.
    pub fn draw(&self, first: f64, second: f64) -> Duration {
        /// Standard deviations from the median to the 99th percentile.
        const P99: f64 = 2.326_347_9;
        let median_s = f64::from(self.p50_ms) / 1_000.0;
        let sigma = (f64::from(self.p99_ms) / f64::from(self.p50_ms)).ln() / P99;
        let normal = (-2.0 * (1.0 - first).ln()).sqrt() * (std::f64::consts::TAU * second).cos();
        // A longer tail is not sensible, and a deadline ends it much earlier.
        Duration::from_secs_f64((median_s * (sigma * normal).exp()).min(3_600.0))
    }
}

fn wrong(pointer: impl Into<String>, detail: impl Into<String>) -> ScenarioError {
    ScenarioError { pointer: pointer.into(), detail: detail.into() }
}

fn within(pointer: &str, value: f64, lowest: f64, highest: f64) -> Result<(), ScenarioError> {
    if (lowest..=highest).contains(&value) {
        return Ok(());
    }
    let bounds = if lowest == f64::MIN_POSITIVE {
        format!("above 0, to {highest}")
    } else {
        format!("from {lowest} to {highest}")
    };
    Err(wrong(pointer, format!("must be {bounds}; it is {value}")))
}

#[cfg(test)]
#[path = "../../../../tests/crates/simulator/unit/policies/scenario.rs"]
mod tests;
