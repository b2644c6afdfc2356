//! Form of QStash: a number of retries, and an expression for the delays or the published backoff.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::expression::Expression;
use super::fields::Fields;
use super::{RetryDelay, RetryPhase};

pub(super) const MEMBERS: [&str; 2] = ["retries", "retryDelay"];
const DELAY_MAX_S: f64 = 86_400.0;
/// Maximum retries that an app may allow. It bounds the table of delays.
pub const RETRIES_MAX: u32 = 1_000;

/// Delays of all retries, evaluated when the policy was set. There is no jitter.
#[derive(Debug, Clone, PartialEq)]
pub struct Scripted {
    delays: Arc<[Duration]>,
    /// Source of the expression. `None`: the published backoff.
    source: Option<Arc<str>>,
}

impl Scripted {
    /// Reads and checks the members of this form. `None`: a fault was added. More retries than the maximum are a fault, unless
    /// the policy is `stored` from a time with a higher maximum: they are then reduced.
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

    pub(super) fn step(&self, retries_so_far: u32) -> Option<RetryDelay> {
        let nominal = *self.delays.get(usize::try_from(retries_so_far).ok()?)?;
        Some(RetryDelay { phase: RetryPhase::Backoff, nominal, shortest: nominal, longest: nominal })
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
            members.insert("retryDelay".into(), json!(**source));
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
