//! Parses and formats durations.

use std::time::Duration;

/// Parses an integer with a unit: `30s`, `5m`, `2h`, `7d`.
pub fn parse(text: &str) -> Option<Duration> {
    let unit_at = text.find(|c: char| !c.is_ascii_digit())?;
    let seconds_per_unit = match &text[unit_at..] {
        "s" => 1,
        "m" => 60,
        "h" => 3_600,
        "d" => 86_400,
        _ => return None,
    };
    text[..unit_at].parse::<u64>().ok()?.checked_mul(seconds_per_unit).map(Duration::from_secs)
}

/// Formats whole seconds in the largest unit that divides them. Fractions of a second are dropped.
pub fn written(duration: Duration) -> String {
    const UNITS: [(u64, char); 3] = [(86_400, 'd'), (3_600, 'h'), (60, 'm')];
    let seconds = duration.as_secs();
    let (length, unit) =
        UNITS.into_iter().find(|(length, _)| seconds > 0 && seconds.is_multiple_of(*length)).unwrap_or((1, 's'));
    format!("{}{unit}", seconds / length)
}

/// Parses one or more numbers with units, as Go formats durations: `1h2m3.5s`. The input is bytes, because µ is not ASCII and
/// may be U+00B5 or U+03BC.
pub fn parse_go(mut value: &[u8]) -> Option<Duration> {
    const UNITS: [(&[u8], u64); 8] = [
        (b"ns", 1),
        (b"us", 1_000),
        ("\u{b5}s".as_bytes(), 1_000),
        ("\u{3bc}s".as_bytes(), 1_000),
        (b"ms", 1_000_000), // before "m"
        (b"s", 1_000_000_000),
        (b"m", 60_000_000_000),
        (b"h", 3_600_000_000_000),
    ];
    let mut total_ns: u64 = 0;
    while !value.is_empty() {
        let (whole, rest) = digits(value);
        let (fraction, rest) = rest.strip_prefix(b".").map_or((&b""[..], rest), digits);
        if whole.is_empty() && fraction.is_empty() {
            return None;
        }
        let (unit_ns, rest) = UNITS.iter().find_map(|(unit, ns)| Some((*ns, rest.strip_prefix(*unit)?)))?;
        total_ns = total_ns.checked_add(decimal(whole)?.checked_mul(unit_ns)?)?;
        total_ns = total_ns.checked_add(fraction_ns(fraction, unit_ns))?;
        value = rest;
    }
    Some(Duration::from_nanos(total_ns))
}

fn digits(value: &[u8]) -> (&[u8], &[u8]) {
    value.split_at(value.iter().take_while(|b| b.is_ascii_digit()).count())
}

fn decimal(digits: &[u8]) -> Option<u64> {
    digits.iter().try_fold(0u64, |n, digit| n.checked_mul(10)?.checked_add(u64::from(digit - b'0')))
}

/// Returns `0.digits` of a unit in nanoseconds, rounded down.
fn fraction_ns(digits: &[u8], unit_ns: u64) -> u64 {
    let mut scale = 1.0;
    let share: f64 = digits
        .iter()
        .map(|digit| {
            scale /= 10.0;
            f64::from(digit - b'0') * scale
        })
        .sum();
    // A share is below 1 and a unit below 2^42 ns, so neither conversion loses more than a nanosecond.
    (share * unit_ns as f64 + 1e-6) as u64
}

#[cfg(test)]
#[path = "../../../tests/crates/core/unit/duration.rs"]
mod tests;
