//! Parses the `Retry-After` family of headers: the time after which a push service accepts a retry.

use std::time::Duration;

use chrono::{DateTime, Datelike as _, NaiveDateTime};
use http::HeaderMap;

use bellwire_core::clock::Timestamp;
use bellwire_core::duration;

/// Headers with a time, in order of precedence. The first valid one counts.
pub const HEADERS: [&str; 4] =
    ["retry-after", "x-ratelimit-reset", "x-ratelimit-reset-requests", "x-ratelimit-reset-tokens"];
/// Maximum wait: one day. A header with a longer one is ignored.
pub const LONGEST: Duration = Duration::from_secs(86_400);
/// Maximum bytes of a header value. Longer ones are invalid.
const VALUE_MAX: usize = 64;

/// Returns the requested wait from `now`, 0 to 86,400 s. `None`: no valid header.
pub fn from_headers(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    HEADERS.into_iter().flat_map(|name| headers.get_all(name)).find_map(|value| parse(value.as_bytes(), now))
}

/// Parses one header value: seconds (RFC 9110 section 10.2.3), a date, or a duration such as `6m5s`. Malformed values, and
/// those over a day, are `None`.
pub fn parse(value: &[u8], now: Timestamp) -> Option<Duration> {
    let value = value.trim_ascii();
    if value.is_empty() || value.len() > VALUE_MAX {
        return None;
    }
    let wait = if value.iter().all(u8::is_ascii_digit) {
        Duration::from_secs(std::str::from_utf8(value).ok()?.parse().ok()?)
    } else {
        duration::parse_go(value).or_else(|| until_date(value, now))?
    };
    (wait <= LONGEST).then_some(wait)
}

/// Parses a date in one of the three forms of RFC 9110 section 5.6.7. Zero if it is past. The weekday is ignored, because
/// senders get it wrong.
fn until_date(value: &[u8], now: Timestamp) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?;
    let is_weekday = |word: &str| word.bytes().all(|b| b.is_ascii_alphabetic());
    let then = match text.split_once(',') {
        Some((weekday, _)) if !is_weekday(weekday) => return None,
        Some((_, date)) => internet_date(date.trim_start()).or_else(|| rfc850_date(date.trim_start(), now))?,
        None => internet_date(text).or_else(|| asctime_date(text.split_once(' ').filter(|it| is_weekday(it.0))?.1))?,
    };
    Some((then - now).to_std().unwrap_or(Duration::ZERO))
}

/// Parses a date such as `20 Nov 2026 12:02:00 GMT`.
fn internet_date(date: &str) -> Option<Timestamp> {
    DateTime::parse_from_rfc2822(date).ok().map(|date| date.to_utc())
}

/// Parses a date such as `20-Nov-26 12:02:00 GMT`. The two digits mean the year within fifty years of now.
fn rfc850_date(date: &str, now: Timestamp) -> Option<Timestamp> {
    let date = NaiveDateTime::parse_from_str(date, "%d-%b-%y %H:%M:%S GMT").ok()?;
    let year = now.year() - now.year().rem_euclid(100) + date.year().rem_euclid(100);
    let year = match year - now.year() {
        51.. => year - 100,
        ..=-50 => year + 100,
        _ => year,
    };
    date.with_year(year).map(|date| date.and_utc())
}

/// Parses a date such as `Nov 20 12:02:00 2026`.
fn asctime_date(date: &str) -> Option<Timestamp> {
    NaiveDateTime::parse_from_str(date, "%b %e %H:%M:%S %Y").ok().map(|date| date.and_utc())
}
