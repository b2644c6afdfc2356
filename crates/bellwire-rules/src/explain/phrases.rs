//! Formats numbers, times and time spans for people.

use chrono::{SecondsFormat, TimeDelta};

use bellwire_core::clock::Timestamp;

/// Formats a time as in the API's JSON.
pub(super) fn rfc3339(at: Timestamp) -> String {
    at.to_rfc3339_opts(SecondsFormat::AutoSi, true)
}

pub(super) fn time(at: Timestamp, now: Timestamp) -> String {
    let apart = match at - now {
        apart if apart > TimeDelta::zero() => format!("in {}", span(seconds(apart))),
        apart if apart < TimeDelta::zero() => format!("{} ago", span(seconds(-apart))),
        _ => "now".to_owned(),
    };
    format!("{} ({apart})", rfc3339(at))
}

/// Returns a time span in seconds, rounded to milliseconds.
pub(super) fn seconds(span: TimeDelta) -> f64 {
    span.num_milliseconds() as f64 / 1e3
}

/// Formats a time span in seconds, in one or two units.
pub(super) fn span(seconds: f64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")];
    if seconds < 60.0 {
        return match (seconds * 1e3).round() {
            ms if ms >= 1_000.0 || ms == 0.0 => format!("{} s", (seconds * 10.0).round() / 10.0),
            ms => format!("{ms} ms"),
        };
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "above 0, and a float saturates")]
    let whole = seconds.round() as u64;
    let first = UNITS.iter().position(|(length, _)| whole >= *length).unwrap_or(UNITS.len() - 1);
    let (length, unit) = UNITS[first];
    let rest = UNITS.get(first + 1).map(|(smaller, name)| (whole % length / smaller, name)).filter(|(n, _)| *n > 0);
    match rest {
        Some((n, name)) => format!("{} {unit} {n} {name}", whole / length),
        None => format!("{} {unit}", whole / length),
    }
}

pub(super) fn count(n: u32, singular: &str) -> String {
    match n {
        1 => format!("1 {singular}"),
        n => format!(
            "{n} {}",
            if singular.ends_with('y') {
                singular.trim_end_matches('y').to_owned() + "ies"
            } else {
                format!("{singular}s")
            }
        ),
    }
}

/// Formats a range of two time spans, or a single one if they are equal.
pub(super) fn range(shortest: f64, longest: f64) -> String {
    let (from, to) = (span(shortest), span(longest));
    if from == to { from } else { format!("{from} to {to}") }
}

#[cfg(test)]
#[path = "../../../../tests/crates/rules/unit/explain/phrases.rs"]
mod tests;
