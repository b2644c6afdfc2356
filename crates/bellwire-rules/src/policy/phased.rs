//! Form of Amazon SNS: four phases of retries, and its two fixed policies.
//!
//! Immediate (no delay) → pre-backoff (every `minDelayTarget`) → backoff (from `minDelayTarget` to `maxDelayTarget`) →
//! post-backoff (every `maxDelayTarget`).

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::fields::Fields;
use super::{PolicyError, RetryDelay, RetryPhase};
use bellwire_core::named;

/// Top-level members of this form; see also [`RETRY_MEMBERS`].
pub(super) const MEMBERS: [&str; 6] =
    ["healthyRetryPolicy", "throttlePolicy", "requestPolicy", "preset", "sicklyRetryPolicy", "guaranteed"];
/// Members that Amazon deprecated: accepted with a warning, and ignored.
pub const DEPRECATED: [&str; 2] = ["sicklyRetryPolicy", "guaranteed"];
const RETRY_MEMBERS: [&str; 7] = [
    "minDelayTarget",
    "maxDelayTarget",
    "numRetries",
    "numNoDelayRetries",
    "numMinDelayRetries",
    "numMaxDelayRetries",
    "backoffFunction",
];
const POINTER: &str = "/healthyRetryPolicy";
/// Upper bound of `maxDelayTarget` in seconds.
const DELAY_MAX_S: u32 = 3_600;
const RETRIES_MAX: u32 = 100;
/// Maximum total time of one policy's retries in seconds, without jitter.
pub(super) const TOTAL_MAX_S: f64 = 3_600.0;
/// Tolerance of rounding errors in sums, in seconds.
const TOTAL_TOLERANCE_S: f64 = 1e-6;
/// Jitter shortens a delay by at most this share.
const JITTER_SHARE: f64 = 0.2;

named! {
    /// Growth of delays from the shortest to the longest in the backoff phase.
    pub enum Backoff {
        /// By equal steps.
        Linear = "linear",
        /// By steps that grow by equal amounts.
        Arithmetic = "arithmetic",
        /// By equal factors.
        Geometric = "geometric",
        /// By steps that double.
        Exponential = "exponential",
    }
}

impl Backoff {
    /// Returns the delay in seconds of retry `i` of `k` in the backoff phase, 0 ≤ i < k. It rises from `min_s` to `max_s`, and is
    /// `min_s` if there is only one.
    pub fn delay_s(self, i: u32, k: u32, min_s: f64, max_s: f64) -> f64 {
        if i == 0 || k <= 1 {
            return min_s;
        }
        if i == k - 1 {
            return max_s;
        }
        let (i, k) = (f64::from(i), f64::from(k));
        let share = match self {
            Backoff::Linear => i / (k - 1.0),
            Backoff::Arithmetic => i * (i + 1.0) / (k * (k - 1.0)),
            Backoff::Exponential => (i.exp2() - 1.0) / ((k - 1.0).exp2() - 1.0),
            Backoff::Geometric => {
                // No factor leads away from zero: terms after the first start from one second.
                let from = if min_s == 0.0 { 1.0 } else { min_s };
                return (from * (max_s / from).powf(i / (k - 1.0))).min(max_s);
            }
        };
        min_s + (max_s - min_s) * share
    }
}

named! {
    /// Fixed policies by name, exempt from the bounds of other policies.
    pub enum Preset {
        /// SNS's timetable for its own endpoints: 100,015 retries in over 23 days. After throttling responses it is
        /// [`CustomerManaged`](Preset::CustomerManaged).
        AwsManaged = "sns-aws-managed",
        /// SNS's timetable for mobile push: 50 retries in over 6 hours.
        CustomerManaged = "sns-customer-managed",
    }
}

/// A timetable of four phases.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phased {
    preset: Option<Preset>,
    min_delay_s: u32,
    max_delay_s: u32,
    immediate: u32,
    pre_backoff: u32,
    backoff: u32,
    post_backoff: u32,
    function: Backoff,
}

impl Phased {
    /// Returns the timetable of a preset.
    pub fn preset(preset: Preset) -> Self {
        let (min_delay_s, max_delay_s, immediate, post_backoff) = match preset {
            Preset::AwsManaged => (1, 20, 3, 100_000),
            Preset::CustomerManaged => (10, 600, 0, 38),
        };
        Self {
            preset: Some(preset),
            min_delay_s,
            max_delay_s,
            immediate,
            pre_backoff: 2,
            backoff: 10,
            post_backoff,
            function: Backoff::Exponential,
        }
    }

    /// Reads `preset` or `healthyRetryPolicy`. `None`: neither is given, or a fault was added.
    pub(super) fn read(fields: &mut Fields<'_>, warnings: &mut Vec<PolicyError>) -> Option<Self> {
        for name in DEPRECATED.into_iter().filter(|name| fields.has(name)) {
            let detail = "deprecated by Amazon SNS; accepted and ignored".into();
            warnings.push(PolicyError { pointer: format!("/{name}"), detail });
        }
        match (fields.raw("preset"), fields.raw("healthyRetryPolicy")) {
            (None, None) => None,
            (None, Some(written)) => {
                fields.inside(written, POINTER, &RETRY_MEMBERS, |f| Self::read_written(f, warnings))
            }
            (Some(_), Some(_)) => {
                fields.refuse("preset", "a preset is complete: give either it or healthyRetryPolicy");
                None
            }
            (Some(named), None) => {
                let preset = Preset::ALL.into_iter().find(|preset| named == preset.name());
                if preset.is_none() {
                    let known = Preset::ALL.map(Preset::name).join(", ");
                    fields.refuse("preset", format!("must be one of {known}, {}", super::Guide::PRESET));
                }
                preset.map(Self::preset)
            }
        }
    }

    fn read_written(fields: &mut Fields<'_>, warnings: &mut Vec<PolicyError>) -> Option<Self> {
        let mistakes = fields.mistakes();
        let min = fields.integer("minDelayTarget", 20);
        let max = fields.integer("maxDelayTarget", 20);
        let retries = fields.integer("numRetries", 3);
        let phases = ["numNoDelayRetries", "numMinDelayRetries", "numMaxDelayRetries"];
        let [immediate, pre, post] = phases.map(|name| fields.integer(name, 0));
        let function = fields.word("backoffFunction", Backoff::Linear, &Backoff::ALL, Backoff::name);

        fields.within("maxDelayTarget", max, 0, DELAY_MAX_S);
        fields.within("numRetries", retries, 0, RETRIES_MAX);
        if min.value > max.value {
            let name = if min.is_default { "maxDelayTarget" } else { "minDelayTarget" };
            fields.refuse(name, format!("minDelayTarget, {min}, must not exceed maxDelayTarget, {max}"));
        }
        let fixed: u64 = [immediate, pre, post].iter().map(|count| u64::from(count.value)).sum();
        if fixed > u64::from(retries.value) {
            let given = phases.into_iter().find(|name| fields.raw(name).is_some()).filter(|_| retries.is_default);
            let detail = format!("{} sum to {fixed}; the sum must not exceed numRetries, {retries}", phases.join(", "));
            fields.refuse(given.unwrap_or("numRetries"), detail);
        }
        if fields.mistakes() > mistakes {
            return None;
        }
        if min.value == 0 {
            let detail = "0 stems from an older edition of the SNS documentation; newer ones allow 1 or more".into();
            warnings.push(PolicyError { pointer: format!("{POINTER}/minDelayTarget"), detail });
        }
        let phased = Self {
            preset: None,
            min_delay_s: min.value,
            max_delay_s: max.value,
            immediate: immediate.value,
            pre_backoff: pre.value,
            backoff: retries.value - immediate.value - pre.value - post.value,
            post_backoff: post.value,
            function,
        };
        let total_s: f64 = (0..phased.retries()).filter_map(|n| phased.nominal_s(n)).map(|(_, s)| s).sum();
        if total_s > TOTAL_MAX_S + TOTAL_TOLERANCE_S {
            fields.refuse("", format!("the retries take {total_s:.2} s in total; at most 3600 s are allowed"));
            return None;
        }
        Some(phased)
    }

    /// Returns the timetable after throttling responses (429, and 406 from WNS).
    pub fn when_throttled(&self) -> Self {
        match self.preset {
            Some(Preset::AwsManaged) => Self::preset(Preset::CustomerManaged),
            _ => *self,
        }
    }

    /// Returns the number of retries.
    pub fn retries(&self) -> u32 {
        self.immediate + self.pre_backoff + self.backoff + self.post_backoff
    }

    fn nominal_s(&self, retries_so_far: u32) -> Option<(RetryPhase, f64)> {
        let (min_s, max_s) = (f64::from(self.min_delay_s), f64::from(self.max_delay_s));
        let mut i = retries_so_far;
        for (phase, count) in [
            (RetryPhase::Immediate, self.immediate),
            (RetryPhase::PreBackoff, self.pre_backoff),
            (RetryPhase::Backoff, self.backoff),
            (RetryPhase::PostBackoff, self.post_backoff),
        ] {
            if i < count {
                let delay_s = match phase {
                    RetryPhase::Immediate => 0.0,
                    RetryPhase::PreBackoff => min_s,
                    RetryPhase::Backoff => self.function.delay_s(i, count, min_s, max_s),
                    RetryPhase::PostBackoff => max_s,
                };
                return Some((phase, delay_s));
            }
            i -= count;
        }
        None
    }

    /// Returns the retry after `retries_so_far` retries. `None` after the last.
    pub fn step(&self, retries_so_far: u32) -> Option<RetryDelay> {
        let (phase, delay_s) = self.nominal_s(retries_so_far)?;
        let nominal = Duration::from_secs_f64(delay_s);
        Some(RetryDelay { phase, nominal, shortest: nominal.mul_f64(1.0 - JITTER_SHARE), longest: nominal })
    }

    pub(super) fn arithmetic(&self, retries_so_far: u32) -> String {
        match self.nominal_s(retries_so_far) {
            None => String::new(),
            Some((RetryPhase::Immediate, _)) => format!("numNoDelayRetries = {}", self.immediate),
            Some((RetryPhase::PreBackoff, _)) => format!("minDelayTarget = {} s", self.min_delay_s),
            Some((RetryPhase::PostBackoff, _)) => format!("maxDelayTarget = {} s", self.max_delay_s),
            Some((RetryPhase::Backoff, _)) => {
                let step = retries_so_far - self.immediate - self.pre_backoff + 1;
                let (function, from, to) = (self.function.name(), self.min_delay_s, self.max_delay_s);
                format!("{function} backoff from {from} to {to} s, step {step} of {}", self.backoff)
            }
        }
    }

    pub(super) fn write(&self, members: &mut Map<String, Value>) {
        if let Some(preset) = self.preset {
            members.insert("preset".into(), json!(preset.name()));
            return;
        }
        let written = json!({
            "minDelayTarget": self.min_delay_s,
            "maxDelayTarget": self.max_delay_s,
            "numRetries": self.retries(),
            "numNoDelayRetries": self.immediate,
            "numMinDelayRetries": self.pre_backoff,
            "numMaxDelayRetries": self.post_backoff,
            "backoffFunction": self.function.name(),
        });
        members.insert("healthyRetryPolicy".into(), written);
    }
}
