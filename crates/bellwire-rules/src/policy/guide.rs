//! Form of the web-push retry guide: exponential backoff with a cap and a band of jitter.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::fields::Fields;
use super::{RetryDelay, RetryPhase};

/// Maximum delay in milliseconds: one day.
const DELAY_MAX_MS: u32 = 86_400_000;
/// Maximum number of retries.
const ATTEMPTS_MAX: u32 = 100;

pub(super) const MEMBERS: [&str; 5] = ["baseDelayMs", "maxDelayMs", "maxAttempts", "jitterPercent", "immediateRetries"];

/// Policy with the delay `d = min(max, base · 2^n)`, drawn uniformly from d(1−j) to d(1+j), never above the maximum.
///
/// Like all three forms, it counts retries, not POSTs: 5 attempts are at most 6 POSTs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guide {
    /// Delay before the first backoff retry in milliseconds, 1 to 86,400,000.
    pub base_delay_ms: u32,
    /// Longest delay, in milliseconds: `base_delay_ms` to 86,400,000.
    pub max_delay_ms: u32,
    /// Maximum retries: 0 to 100.
    pub max_attempts: u32,
    /// Jitter as a share of the delay, plus or minus: 0 to 1.
    pub jitter_share: f64,
    /// Number of initial retries without delay: 0 to `max_attempts`.
    pub immediate_retries: u32,
}

impl Guide {
    /// Name of the `preset` with all values of the guide: these defaults and, for a tier, the [breaker's
    /// settings](super::Settings::GUIDE).
    pub const PRESET: &str = "guide";

    /// Default values of the guide.
    pub const DEFAULT: Guide =
        Guide { base_delay_ms: 2_000, max_delay_ms: 60_000, max_attempts: 5, jitter_share: 0.2, immediate_retries: 0 };

    /// Reads and checks the members of this form. `None` after a fault.
    pub(super) fn read(fields: &mut Fields<'_>) -> Option<Self> {
        let mistakes = fields.mistakes();
        let base = fields.integer("baseDelayMs", Self::DEFAULT.base_delay_ms);
        let max = fields.integer("maxDelayMs", Self::DEFAULT.max_delay_ms);
        let attempts = fields.integer("maxAttempts", Self::DEFAULT.max_attempts);
        let immediate = fields.integer("immediateRetries", Self::DEFAULT.immediate_retries);
        let jitter_share = fields.number("jitterPercent", Self::DEFAULT.jitter_share);

        fields.within("baseDelayMs", base, 1, DELAY_MAX_MS);
        fields.within("maxDelayMs", max, 1, DELAY_MAX_MS);
        fields.within("maxAttempts", attempts, 0, ATTEMPTS_MAX);
        if base.value > max.value {
            let name = if base.is_default { "maxDelayMs" } else { "baseDelayMs" };
            fields.refuse(name, format!("baseDelayMs, {base}, must not exceed maxDelayMs, {max}"));
        }
        if immediate.value > attempts.value {
            fields.refuse("immediateRetries", format!("{immediate} must not exceed maxAttempts, {attempts}"));
        }
        if !(0.0..=1.0).contains(&jitter_share) {
            fields.refuse("jitterPercent", format!("must be from 0 to 1; it is {jitter_share}"));
        }
        (fields.mistakes() == mistakes).then_some(Self {
            base_delay_ms: base.value,
            max_delay_ms: max.value,
            max_attempts: attempts.value,
            jitter_share,
            immediate_retries: immediate.value,
        })
    }

    /// Returns the retry after `retries_so_far` retries. `None` after the last.
    pub fn step(&self, retries_so_far: u32) -> Option<RetryDelay> {
        if retries_so_far >= self.max_attempts {
            return None;
        }
        let Some(attempt) = retries_so_far.checked_sub(self.immediate_retries) else {
            let zero = Duration::ZERO;
            return Some(RetryDelay { phase: RetryPhase::Immediate, nominal: zero, shortest: zero, longest: zero });
        };
        let nominal = Duration::from_millis(u64::from(self.base_delay_ms) << attempt.min(31))
            .min(Duration::from_millis(self.max_delay_ms.into()));
        Some(RetryDelay {
            phase: RetryPhase::Backoff,
            nominal,
            shortest: nominal.mul_f64(1.0 - self.jitter_share),
            longest: nominal.mul_f64(1.0 + self.jitter_share).min(Duration::from_millis(self.max_delay_ms.into())),
        })
    }

    pub(super) fn arithmetic(&self, retries_so_far: u32) -> String {
        match retries_so_far.checked_sub(self.immediate_retries) {
            None => format!("immediateRetries = {}", self.immediate_retries),
            Some(n) => format!("min({}, {} · 2^{n}) ms", self.max_delay_ms, self.base_delay_ms),
        }
    }

    pub(super) fn write(&self, members: &mut Map<String, Value>) {
        members.insert("baseDelayMs".into(), json!(self.base_delay_ms));
        members.insert("maxDelayMs".into(), json!(self.max_delay_ms));
        members.insert("maxAttempts".into(), json!(self.max_attempts));
        members.insert("jitterPercent".into(), json!(self.jitter_share));
        members.insert("immediateRetries".into(), json!(self.immediate_retries));
    }
}
