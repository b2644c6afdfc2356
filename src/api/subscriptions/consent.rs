//! Time and source of a person's consent in requests and responses.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use utoipa::ToSchema;

use crate::api::http::extract::is_plain_text;
use crate::api::http::problem::Faults;
use bellwire_core::request_time;
use bellwire_core::subscription::{CONSENT_SOURCE_CHARS_MAX, Consent};

/// Consent of a person.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ConsentResponse {
    /// Time of the consent. Null: unknown.
    at: Option<DateTime<Utc>>,
    /// Source of the consent, in the words of the site. `browser`: by registration, without details. Null: unknown.
    source: Option<String>,
}

impl ConsentResponse {
    /// Converts a stored consent. `None`: neither time nor source is known.
    pub(in crate::api) fn of(consent: Consent) -> Option<Self> {
        consent.is_known().then_some(Self { at: consent.at, source: consent.source })
    }
}

/// Consent to store.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewConsent {
    /// Time of the consent, not in the future. By default now. Only from servers: a browser's consent has the time of its
    /// registration. A time before the stored one changes nothing.
    #[schema(value_type = Option<DateTime<Utc>>)]
    at: Option<Value>,
    /// Source of the consent, such as the page or the text of the question. A browser's value is stored only if none is stored.
    #[schema(value_type = Option<String>)]
    source: Option<Value>,
}

impl NewConsent {
    /// Returns the valid parts. Adds faults of the others to `faults`.
    pub(in crate::api) fn read(
        given: Value, by_server: bool, now: DateTime<Utc>, faults: &mut Faults,
    ) -> Option<Consent> {
        let Ok(Self { at, source }) = serde_json::from_value(given) else {
            faults.refuse("/consent", "must be an object with only `at` and `source`");
            return None;
        };
        faults.require(by_server || at.is_none(), "/consent/at", "can be set only by servers");
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

/// Returns the source of a consent (the member at `at`) if it is valid.
pub(in crate::api) fn check_source(source: Option<String>, at: &str, faults: &mut Faults) -> Option<String> {
    let fits = |source: &String| is_plain_text(source, CONSENT_SOURCE_CHARS_MAX);
    faults.require(source.as_ref().is_none_or(fits), at, "must be 1 to 200 characters without control characters");
    source.filter(fits)
}
