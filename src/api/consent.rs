//! When and where somebody agreed to be sent something: how it is said of a subscription, and shown.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::extract::is_plain_text;
use super::problem::Faults;
use crate::model::subscription::{CONSENT_SOURCE_CHARS_MAX, Consent};

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
    at: Option<DateTime<Utc>>,
    /// Where, such as the page or the words that asked. A browser's is kept where none is known.
    source: Option<String>,
}

impl NewConsent {
    /// Checks it.
    pub(super) fn check(self, by_server: bool, now: DateTime<Utc>, faults: &mut Faults) -> Consent {
        faults.require(by_server || self.at.is_none(), "/consent/at", "is for servers to say");
        faults.require(self.at.is_none_or(|at| at <= now), "/consent/at", "must not lie in the future");
        check_source(self.source.as_deref(), "/consent/source", faults);
        Consent { at: Some(self.at.unwrap_or(now)), source: self.source }
    }
}

/// Checks where somebody agreed, which stands at `at`.
pub(super) fn check_source(source: Option<&str>, at: &str, faults: &mut Faults) {
    let fits = source.is_none_or(|source| is_plain_text(source, CONSENT_SOURCE_CHARS_MAX));
    faults.require(fits, at, "must be 1 to 200 characters without control characters");
}
