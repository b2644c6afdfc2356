//! When and where somebody agreed to be sent something: how it is said of a subscription, and shown.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use super::extract::is_plain_text;
use super::problem::Faults;
use bellwire_core::request_time;
use bellwire_core::subscription::{CONSENT_SOURCE_CHARS_MAX, Consent};

/// When and where somebody agreed to be sent something.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ConsentView {
    /// When; null: not known.
    at: Option<DateTime<Utc>>,
    /// Where, in the words of whoever asked; `browser`: it registered, and said no more; null: not known.
    source: Option<String>,
}

impl ConsentView {
    /// Shows it, as far as it is known.
    pub(super) fn of(consent: Consent) -> Option<Self> {
        consent.is_known().then_some(Self { at: consent.at, source: consent.source })
    }
}

/// A consent that was given.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewConsent {
    /// When, not in the future; by default now. For servers: a browser gives it as it registers. An earlier one than is known changes
    /// nothing.
    #[schema(value_type = Option<DateTime<Utc>>)]
    at: Option<Value>,
    /// Where, such as the page or the words that asked. A browser's is kept where none is known.
    #[schema(value_type = Option<String>)]
    source: Option<Value>,
}

impl NewConsent {
    /// Returns the parts that hold; the others are noted in `faults`.
    pub(super) fn read(given: Value, by_server: bool, now: DateTime<Utc>, faults: &mut Faults) -> Option<Consent> {
        let Ok(Self { at, source }) = serde_json::from_value(given) else {
            faults.refuse("/consent", "must be an object with `at` and `source` alone");
            return None;
        };
        faults.require(by_server || at.is_none(), "/consent/at", "is for servers to say");
        let at = match at.filter(|_| by_server).map(|at| at.as_str().and_then(request_time::parse)) {
            Some(Some(at)) if at <= now => Some(at),
            None => Some(now),
            Some(unfit) => {
                let rule = "must be a time of RFC 3339 that does not lie in the future";
                faults.refuse("/consent/at", rule);
                unfit.is_some().then_some(now)
            }
        };
        let source = source.map(|source| source.as_str().unwrap_or_default().to_owned());
        Some(Consent { at, source: check_source(source, "/consent/source", faults) })
    }
}

/// Returns the source of a consent, a member at `at`, if it can be kept.
pub(super) fn check_source(source: Option<String>, at: &str, faults: &mut Faults) -> Option<String> {
    let fits = |source: &String| is_plain_text(source, CONSENT_SOURCE_CHARS_MAX);
    faults.require(source.as_ref().is_none_or(fits), at, "must be 1 to 200 characters without control characters");
    source.filter(fits)
}
