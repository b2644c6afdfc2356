//! Times in requests. They are limited to the years 1 to 9999, the range of RFC 3339 and Postgres.

use chrono::{DateTime, Datelike as _};
use serde::{Deserialize as _, Deserializer};

use super::clock::Timestamp;

const RULE: &str = "must be a time of RFC 3339 from the year 1 to 9999, such as 2026-12-01T09:00:00Z";

/// Returns the time if it is within the years 1 to 9999 (UTC).
pub fn bounded(at: Timestamp) -> Option<Timestamp> {
    (1..=9_999).contains(&at.year()).then_some(at)
}

/// Parses an RFC 3339 time within these years.
pub fn parse(text: &str) -> Option<Timestamp> {
    bounded(DateTime::parse_from_rfc3339(text).ok()?.to_utc())
}

/// Deserializes a required member.
pub fn required<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Timestamp, D::Error> {
    bounded(Timestamp::deserialize(deserializer)?).ok_or_else(|| serde::de::Error::custom(RULE))
}

/// Deserialises a member or parameter that may be absent or null. All times in request bodies and query strings use it.
pub fn optional<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Timestamp>, D::Error> {
    let at = Option::<Timestamp>::deserialize(deserializer)?;
    at.map(|at| bounded(at).ok_or_else(|| serde::de::Error::custom(RULE))).transpose()
}
