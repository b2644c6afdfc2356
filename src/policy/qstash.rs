//! QStash's form: a number of retries, and an expression for the delays or the published backoff.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::expression::Expression;
use super::fields::Fields;
use super::{Phase, Step};

/// The names of this form's members.
pub(super) const MEMBERS: [&str; 2] = ["retries", "retryDelay"];
/// No delay is longer: one day.
const DELAY_MAX_S: f64 = 86_400.0;
/// The most retries that any app may allow; bounds the table of delays.
pub(crate) const RETRIES_MAX: u32 = 1_000;

/// Delays worked out when the policy was submitted, one for each retry. No jitter.
#[derive(Debug, Clone, PartialEq)]
pub struct Scripted {
    delays: Arc<[Duration]>,
    /// The expression; none for the published backoff.
    source: Option<Arc<str>>,
}

impl Scripted {
    /// Reads and checks the members of this form. None if a mistake was noted. More retries than the maximum are a
    /// mistake, unless they were `stored` when it was higher: then the maximum takes their place.
    pub(super) fn read(fields: &mut Fields<'_>, max_retries: u32, stored: bool) -> Option<Self> {
        let mistakes = fields.mistakes();
        let most = max_retries.min(RETRIES_MAX);
        let given = fields.integer("retries", most).value;
        if given > most && !stored {
            fields.refuse("retries", format!("{given} is more than the app's maximum, {most}"));
        }
        let retries = given.min(most);
        let source = match fields.raw("retryDelay") {
            Some(Value::String(text)) => Some(text.as_str()),
            Some(_) => {
                fields.refuse("retryDelay", "must be a string: an expression of milliseconds over 'retried'");
                None
            }
            None => None,
        };
        if fields.mistakes() > mistakes {
            return None;
        }
        match delays(source, retries) {
            Ok(delays) => Some(Self { delays, source: source.map(Arc::from) }),
            Err(detail) => {
                fields.refuse("retryDelay", detail);
                None
            }
        }
    }

    pub(super) fn retries(&self) -> u32 {
        u32::try_from(self.delays.len()).expect("the table has at most 1,000 rows")
    }

    pub(super) fn step(&self, retries_so_far: u32) -> Option<Step> {
        let nominal = *self.delays.get(usize::try_from(retries_so_far).ok()?)?;
        Some(Step { phase: Phase::Backoff, nominal, shortest: nominal, longest: nominal })
    }

    pub(super) fn arithmetic(&self, retries_so_far: u32) -> String {
        match &self.source {
            Some(source) => format!("`{source}` ms with retried = {retries_so_far}"),
            None => format!("min(86400, e^(2.5 · {})) s", retries_so_far + 1),
        }
    }

    pub(super) fn write(&self, members: &mut Map<String, Value>) {
        members.insert("retries".into(), json!(self.retries()));
        if let Some(source) = &self.source {
            members.insert("retryDelay".into(), json!(source));
        }
    }
}

fn delays(source: Option<&str>, retries: u32) -> Result<Arc<[Duration]>, String> {
    let expression = source.map(Expression::parse).transpose().map_err(|error| error.to_string())?;
    let delay_s = |retried: u32| match &expression {
        Some(expression) => expression.value(retried) / 1_000.0,
        None => (2.5 * f64::from(retried + 1)).exp().min(DELAY_MAX_S),
    };
    (0..retries)
        .map(|retried| match delay_s(retried) {
            s if !s.is_finite() => Err(format!("is not a finite number when retried is {retried}")),
            s if s < 0.0 => Err(format!("is negative when retried is {retried}: {} ms", s * 1_000.0)),
            s => Ok(Duration::from_secs_f64(s.min(DELAY_MAX_S))),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::{Layer, Retry, Terms};

    fn delays_s(value: Value, max_retries: u32) -> Result<Vec<f64>, Vec<(String, String)>> {
        let terms = Terms { max_retries, ..Terms::default() };
        match Layer::parse(&value, &terms) {
            Ok(parsed) => {
                let retry = parsed.layer.retry.expect("a timetable was given");
                assert!(matches!(retry, Retry::Scripted(_)));
                let delays: Vec<_> = (0..).map_while(|n| retry.delay(n, 0.3)).map(|d| d.as_secs_f64()).collect();
                assert_eq!(delays.len(), retry.retries() as usize);
                Ok(delays)
            }
            Err(errors) => Err(errors.into_iter().map(|e| (e.pointer, e.detail)).collect()),
        }
    }

    #[test]
    fn the_published_backoff_has_the_published_six_delays() {
        let delays = delays_s(json!({"retries": 6}), 6).unwrap();
        for (delay, expected) in delays.iter().zip([12.18, 148.41, 1_808.04, 22_026.47, 86_400.0, 86_400.0]) {
            assert!((delay - expected).abs() < 0.005, "{delay} {expected}");
        }
        assert_eq!(delays.len(), 6);
    }

    #[test]
    fn omitted_retries_are_the_apps_maximum_and_none_are_none() {
        assert_eq!(delays_s(json!({"retryDelay": "1000"}), 5).unwrap(), [1.0; 5]);
        assert_eq!(delays_s(json!({"retryDelay": "1000"}), 7).unwrap(), [1.0; 7]);
        assert_eq!(delays_s(json!({"retryDelay": "1000"}), 5_000).unwrap(), [1.0; 1_000]);
        assert_eq!(delays_s(json!({"retries": 0}), 5).unwrap(), [0.0; 0]);
        assert_eq!(delays_s(json!({"retries": 0, "retryDelay": "-1"}), 5).unwrap(), [0.0; 0]);
        assert_eq!(delays_s(json!({"retries": 3, "retryDelay": "retried * 0.5"}), 5).unwrap(), [0.0, 0.0005, 0.001]);
    }

    #[test]
    fn the_published_expressions_are_policies() {
        for (expression, delays) in [
            ("1000", [1.0, 1.0, 1.0, 1.0, 1.0]),
            ("1000 * (1 + retried)", [1.0, 2.0, 3.0, 4.0, 5.0]),
            ("pow(2, retried) * 1000", [1.0, 2.0, 4.0, 8.0, 16.0]),
            ("max(1000, pow(2, retried) * 100)", [1.0, 1.0, 1.0, 1.0, 1.6]),
        ] {
            assert_eq!(delays_s(json!({"retries": 5, "retryDelay": expression}), 5).unwrap(), delays, "{expression}");
        }
    }

    #[test]
    fn no_delay_exceeds_a_day() {
        let delays = delays_s(json!({"retries": 40, "retryDelay": "pow(10, retried)"}), 1_000).unwrap();
        assert_eq!((delays[7], delays[8], delays[39]), (10_000.0, 86_400.0, 86_400.0));
    }

    #[test]
    fn what_cannot_be_a_timetable_is_refused_with_a_pointer() {
        for (value, pointer, word) in [
            (json!({"retries": 6}), "/retries", "maximum, 5"),
            (json!({"retries": -1}), "/retries", "integer"),
            (json!({"retries": "3"}), "/retries", "integer"),
            (json!({"retryDelay": 1000}), "/retryDelay", "string"),
            (json!({"retryDelay": "1000 *"}), "/retryDelay", "at character 7"),
            (json!({"retryDelay": "retry * 2"}), "/retryDelay", "unknown name 'retry'"),
            (json!({"retries": 4, "retryDelay": "1000 * (2 - retried)"}), "/retryDelay", "negative when retried is 3"),
            (json!({"retryDelay": "1000 / retried"}), "/retryDelay", "finite number when retried is 0"),
            (json!({"retryDelay": "sqrt(1 - retried)"}), "/retryDelay", "finite number when retried is 2"),
            (json!({"retryDelay": "exp(1000 * retried)"}), "/retryDelay", "finite number when retried is 1"),
        ] {
            let errors = delays_s(value.clone(), 5).unwrap_err();
            assert!(errors.iter().any(|(at, why)| at == pointer && why.contains(word)), "{value}: {errors:?}");
        }
        // Only the values that would be used count.
        assert_eq!(delays_s(json!({"retries": 3, "retryDelay": "1000 * (2 - retried)"}), 5).unwrap(), [2.0, 1.0, 0.0]);
    }
}
