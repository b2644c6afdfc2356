//! When a gateway wants to be asked again: the `Retry-After` family of headers.

use std::time::Duration;

use chrono::DateTime;
use http::HeaderMap;

use crate::model::clock::Timestamp;
use crate::model::duration;

/// Headers that may tell, the first valid one wins.
const HEADERS: [&str; 4] =
    ["retry-after", "x-ratelimit-reset", "x-ratelimit-reset-requests", "x-ratelimit-reset-tokens"];
/// A longer wait is ignored, as if the header were absent: one day.
const LONGEST: Duration = Duration::from_secs(86_400);
/// No valid value is longer than this, in octets.
const VALUE_MAX: usize = 64;

/// The wait that the headers ask for, from `now`: 0 to 86,400 s, or none if no header is valid.
pub(crate) fn from_headers(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    HEADERS.into_iter().flat_map(|name| headers.get_all(name)).find_map(|value| parse(value.as_bytes(), now))
}

/// One header's value: seconds (RFC 9110 section 10.2.3), an RFC 1123 date, or a duration such as `6m5s`. Malformed
/// values, and those over a day, are none.
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

/// A date of RFC 1123; zero if it is past. The weekday is not looked at: senders get it wrong.
fn until_date(value: &[u8], now: Timestamp) -> Option<Duration> {
    let text = std::str::from_utf8(value).ok()?;
    let date = match text.split_once(',') {
        Some((weekday, date)) if weekday.bytes().all(|b| b.is_ascii_alphabetic()) => date.trim_start(),
        Some(_) => return None,
        None => text,
    };
    let then = DateTime::parse_from_rfc2822(date).ok()?;
    Some((then.to_utc() - now).to_std().unwrap_or(Duration::ZERO))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};

    fn now() -> Timestamp {
        "2024-06-27T12:16:14Z".parse().unwrap()
    }

    fn ns(value: &str) -> Option<u64> {
        parse(value.as_bytes(), now()).map(|wait| u64::try_from(wait.as_nanos()).unwrap())
    }

    #[test]
    fn every_form_of_the_published_examples_is_read() {
        const S: u64 = 1_000_000_000;
        for (value, expected_ns) in [
            ("0", 0),
            ("10", 10 * S),
            (" 10 ", 10 * S),
            ("86400", 86_400 * S),
            ("6m5s", 365 * S),
            ("1h2m3s", 3_723 * S),
            ("24h", 86_400 * S),
            ("1.5h", 5_400 * S),
            (".5s", S / 2),
            ("2.s", 2 * S),
            ("1ns", 1),
            ("7us", 7_000),
            ("7\u{b5}s", 7_000),
            ("7\u{3bc}s", 7_000),
            ("250ms", S / 4),
            ("1m250ms", 60 * S + S / 4),
            ("0s", 0),
            ("0.1s", S / 10),
            ("5s6m", 365 * S),
            ("Sun, 27 Jun 2024 12:16:24 GMT", 10 * S), // it was a Thursday
            ("Thu, 27 Jun 2024 12:16:24 GMT", 10 * S),
            ("27 Jun 2024 12:16:24 GMT", 10 * S),
            ("Thu, 27 Jun 2024 12:16:24 +0000", 10 * S),
            ("Thu, 27 Jun 2024 12:16:14 GMT", 0),
            ("Fri, 28 Jun 2024 12:16:14 GMT", 86_400 * S),
            ("Sun, 06 Nov 1994 08:49:37 GMT", 0), // past
        ] {
            assert_eq!(ns(value), Some(expected_ns), "{value:?}");
        }
    }

    #[test]
    fn malformed_values_and_more_than_a_day_are_as_if_absent() {
        for value in [
            "",
            " ",
            "-1",
            "+5",
            "1.5",
            "86401",
            "24h1ns",
            "1e3",
            "0x10",
            "5 s",
            "5d",
            "s",
            ".s",
            "5",
            "soon",
            "m5s",
            "99999999999999999999",
            "99999999999999999999h",
            "18446744073709551615ns18446744073709551615ns",
            "1719490584", // a moment in Unix time, not a wait
            "Fri, 28 Jun 2024 12:16:15 GMT",
            "Thu, 32 Jun 2024 12:16:24 GMT",
            "Thu, 27 Jun 2024",
            "1, 27 Jun 2024 12:16:24 GMT",
            "Thursday, 27-Jun-24 12:16:24 GMT",
            "Thu, 27 Jun 99999 12:16:24 GMT",
            ", ",
            "\u{b5}s",
            "5\u{b5}",
        ] {
            let expected = if value == "5" { Some(5_000_000_000) } else { None };
            assert_eq!(ns(value), expected, "{value:?}");
        }
        assert_eq!(parse(b"5\xb5s", now()), None);
        assert_eq!(parse(&[0xff; 64], now()), None);
        assert_eq!(parse(&[b'0'; 65], now()), None);
        assert_eq!(parse(format!("0.{}s", "9".repeat(60)).as_bytes(), now()), Some(Duration::from_secs(1)));
    }

    #[test]
    fn no_short_value_makes_it_panic() {
        const ALPHABET: &[u8] = b"09.smhun \xc2\xb5\xce\xbc,-+GMT:a\x00";
        let mut seed = 1u64;
        for _ in 0..200_000 {
            let value: Vec<u8> = (0..1 + seed % 12)
                .map(|_| {
                    seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                    ALPHABET[(seed >> 33) as usize % ALPHABET.len()]
                })
                .collect();
            assert!(parse(&value, now()).is_none_or(|wait| wait <= LONGEST), "{value:?}");
        }
    }

    #[test]
    fn the_first_valid_header_in_the_stated_order_wins() {
        let headers = |given: &[(&'static str, &'static str)]| {
            given.iter().map(|(k, v)| (HeaderName::from_static(k), HeaderValue::from_static(v))).collect::<HeaderMap>()
        };
        let [after, reset, requests, tokens] = HEADERS;
        for (given, expected_s) in [
            (&[(tokens, "4"), (requests, "3"), (reset, "2"), (after, "1")][..], Some(1)),
            (&[(tokens, "4"), (requests, "3"), (reset, "2")], Some(2)),
            (&[(tokens, "4"), (requests, "3")], Some(3)),
            (&[(tokens, "4s")], Some(4)),
            (&[(after, "never"), (reset, "2")], Some(2)),
            (&[(after, "90000"), (reset, "1719490584"), (requests, "1m")], Some(60)),
            (&[(after, "0"), (reset, "2")], Some(0)),
            (&[(after, "x")], None),
            (&[], None),
        ] {
            assert_eq!(from_headers(&headers(given), now()), expected_s.map(Duration::from_secs), "{given:?}");
        }
    }
}
