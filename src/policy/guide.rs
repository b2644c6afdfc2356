//! The web-push retry guide's form: exponential backoff with a cap and a band of jitter.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::fields::Fields;
use super::{Phase, Step};

/// The longest delay that may be asked for, in milliseconds: one day.
const DELAY_MAX_MS: u32 = 86_400_000;
/// The most retries that may be asked for.
const ATTEMPTS_MAX: u32 = 100;

/// The names of this form's members.
pub(super) const MEMBERS: [&str; 5] = ["baseDelayMs", "maxDelayMs", "maxAttempts", "jitterPercent", "immediateRetries"];

/// `d = min(max, base · 2^n)`, drawn evenly from d(1−j) to d(1+j), never above the cap.
///
/// Like all three forms it counts retries, not POSTs: 5 attempts are at most 6 POSTs.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Guide {
    pub(super) base_delay_ms: u32,
    pub(super) max_delay_ms: u32,
    pub(super) max_attempts: u32,
    pub(super) jitter_share: f64,
    pub(super) immediate_retries: u32,
}

impl Guide {
    /// The name that a policy's `preset` gives to all that the guide publishes: these defaults, and at a tier the
    /// [breaker's figures](super::Settings::GUIDE).
    pub const PRESET: &str = "guide";

    /// The guide's own defaults, for members that a policy leaves out.
    pub const DEFAULT: Guide =
        Guide { base_delay_ms: 2_000, max_delay_ms: 60_000, max_attempts: 5, jitter_share: 0.2, immediate_retries: 0 };

    /// Reads and checks the members of this form. None if a mistake was noted.
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

    pub(super) fn step(&self, retries_so_far: u32) -> Option<Step> {
        if retries_so_far >= self.max_attempts {
            return None;
        }
        let Some(attempt) = retries_so_far.checked_sub(self.immediate_retries) else {
            let zero = Duration::ZERO;
            return Some(Step { phase: Phase::Immediate, nominal: zero, shortest: zero, longest: zero });
        };
        let nominal = Duration::from_millis(u64::from(self.base_delay_ms) << attempt.min(31))
            .min(Duration::from_millis(self.max_delay_ms.into()));
        Some(Step {
            phase: Phase::Backoff,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Layer, Retry, Terms};

    fn parsed(value: Value) -> Result<Guide, Vec<(String, String)>> {
        match Layer::parse(&value, &Terms::default()) {
            Ok(parsed) => match parsed.layer.retry {
                Some(Retry::Guide(guide)) => Ok(guide),
                other => panic!("not the guide's form: {other:?}"),
            },
            Err(errors) => Err(errors.into_iter().map(|e| (e.pointer, e.detail)).collect()),
        }
    }

    fn nominal_ms(guide: Guide) -> Vec<u128> {
        (0..).map_while(|n| guide.step(n)).map(|step| step.nominal.as_millis()).collect()
    }

    #[test]
    fn the_guides_own_assertions_hold_with_its_cap_beyond_them() {
        let guide = parsed(json!({"baseDelayMs": 2000, "maxDelayMs": 60000, "maxAttempts": 8, "jitterPercent": 0.2}));
        let retry = Retry::Guide(guide.unwrap());
        for randomness in [0.0, 0.25, 0.5, 0.999_999] {
            let delays: Vec<_> = (0..8).map(|n| retry.delay(n, randomness).unwrap()).collect();
            assert!(delays[4] <= Duration::from_secs(60));
            assert!(delays[5..].iter().all(|delay| *delay <= Duration::from_secs(60)));
            assert!(delays.windows(2).all(|pair| pair[0] <= pair[1]), "{delays:?}");
        }
        assert_eq!(nominal_ms(guide_of(&retry)), [2000, 4000, 8000, 16000, 32000, 60000, 60000, 60000]);
        assert_eq!(retry.delay(8, 0.5), None);
    }

    fn guide_of(retry: &Retry) -> Guide {
        match retry {
            Retry::Guide(guide) => *guide,
            other => panic!("not the guide's form: {other:?}"),
        }
    }

    #[test]
    fn jitter_stays_in_its_band_and_below_the_cap() {
        for jitter in [0.0, 0.2, 0.5, 1.0] {
            let guide = Guide { jitter_share: jitter, max_attempts: 10, ..Guide::DEFAULT };
            let retry = Retry::Guide(guide);
            for n in 0..10 {
                let nominal = guide.step(n).unwrap().nominal.as_secs_f64();
                for tenth in 0..10 {
                    let delay = retry.delay(n, f64::from(tenth) / 10.0).unwrap().as_secs_f64();
                    assert!(delay >= nominal * (1.0 - jitter) - 1e-9);
                    assert!(delay <= (nominal * (1.0 + jitter)).min(60.0) + 1e-9);
                }
            }
        }
        let last = Retry::Guide(Guide { max_attempts: 10, ..Guide::DEFAULT });
        assert_eq!(last.delay(9, 0.0), Some(Duration::from_secs(48)));
        assert_eq!(last.delay(9, 1.0), Some(Duration::from_secs(60)));
    }

    #[test]
    fn immediate_retries_come_first_and_count() {
        let guide = parsed(json!({"baseDelayMs": 1000, "maxAttempts": 5, "immediateRetries": 2})).unwrap();
        assert_eq!(nominal_ms(guide), [0, 0, 1000, 2000, 4000]);
        let only = parsed(json!({"maxAttempts": 1, "immediateRetries": 1})).unwrap();
        assert_eq!(nominal_ms(only), [0]);
    }

    #[test]
    fn omitted_members_take_the_guides_defaults() {
        assert_eq!(parsed(json!({"maxAttempts": 5})).unwrap(), Guide::DEFAULT);
    }

    #[test]
    fn the_extremes_of_every_bound_are_taken() {
        let guide = parsed(json!({
            "baseDelayMs": 86_400_000, "maxDelayMs": 86_400_000, "maxAttempts": 100, "jitterPercent": 1, "immediateRetries": 0,
        }))
        .unwrap();
        assert_eq!(Retry::Guide(guide).delay(99, 1.0), Some(Duration::from_secs(86_400)));
        assert_eq!(nominal_ms(parsed(json!({"baseDelayMs": 1, "maxDelayMs": 1})).unwrap()), [1; 5]);
        assert_eq!(nominal_ms(parsed(json!({"maxAttempts": 0})).unwrap()), [0u128; 0]);
    }

    #[test]
    fn every_bound_is_refused_with_a_pointer() {
        for (value, pointer, word) in [
            (json!({"baseDelayMs": 0}), "/baseDelayMs", "from 1"),
            (json!({"baseDelayMs": 86_400_001, "maxDelayMs": 86_400_001}), "/baseDelayMs", "to 86400000"),
            (json!({"baseDelayMs": 60_001}), "/baseDelayMs", "60000 (the default)"),
            (json!({"maxDelayMs": 1_999}), "/maxDelayMs", "2000 (the default)"),
            (json!({"maxAttempts": 101}), "/maxAttempts", "it is 101"),
            (json!({"maxAttempts": -1}), "/maxAttempts", "integer"),
            (json!({"maxAttempts": 2.5}), "/maxAttempts", "integer"),
            (json!({"maxAttempts": 4_294_967_296u64}), "/maxAttempts", "integer"),
            (json!({"jitterPercent": 1.01}), "/jitterPercent", "from 0 to 1"),
            (json!({"jitterPercent": -0.1}), "/jitterPercent", "from 0 to 1"),
            (json!({"jitterPercent": "20%"}), "/jitterPercent", "number"),
            (json!({"immediateRetries": 6}), "/immediateRetries", "5 (the default)"),
            (json!({"maxAttempts": 3, "backoff": 2}), "/backoff", "unknown"),
            (json!({"maxAttempts": 3, "a/b~c": 2}), "/a~1b~0c", "unknown"),
        ] {
            let errors = parsed(value.clone()).unwrap_err();
            assert!(errors.iter().any(|(at, why)| at == pointer && why.contains(word)), "{value}: {errors:?}");
        }
    }
}
