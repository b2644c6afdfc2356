//! Times that requests contain. Postgres, and RFC 3339 without signs, represent the years 1 to 9999.

use chrono::{DateTime, Datelike as _};
use serde::{Deserialize as _, Deserializer};

use super::clock::Timestamp;

const RULE: &str = "must be a time of RFC 3339 from the year 1 to 9999, such as 2026-12-01T09:00:00Z";

/// Returns the time if the years 1 to 9999 (UTC) contain it.
pub fn bounded(at: Timestamp) -> Option<Timestamp> {
    (1..=9_999).contains(&at.year()).then_some(at)
}

/// Parses RFC 3339 within these years.
pub fn parse(text: &str) -> Option<Timestamp> {
    bounded(DateTime::parse_from_rfc3339(text).ok()?.to_utc())
}

/// Deserializes a required member.
pub fn required<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
    bounded(Timestamp::deserialize(deserializer)?).ok_or_else(|| serde::de::Error::custom(RULE))
}

/// Deserializes a member or parameter that may be absent or null. Every time in a request body or query string is read here.
pub fn optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let at = Option::<Timestamp>::deserialize(deserializer)?;
    at.map(|at| bounded(at).ok_or_else(|| serde::de::Error::custom(RULE))).transpose()
}
