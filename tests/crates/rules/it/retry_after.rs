//! Values of `Retry-After` and of the headers like it: what each means, and which of several counts.

use std::time::Duration;

use bellwire_core::clock::Timestamp;
use bellwire_rules::classify::retry_after::{HEADERS, LONGEST, from_headers, parse};
use http::{HeaderMap, HeaderName, HeaderValue};

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
        ("Thursday, 27-Jun-24 12:16:24 GMT", 10 * S),
        ("Monday, 27-Jun-24 12:16:24 GMT", 10 * S), // it was a Thursday
        ("Sunday, 06-Nov-94 08:49:37 GMT", 0),
        ("Thu Jun 27 12:16:24 2024", 10 * S),
        ("Mon Jun 27 12:16:24 2024", 10 * S),
        ("Sun Nov  6 08:49:37 1994", 0),
    ] {
        assert_eq!(ns(value), Some(expected_ns), "{value:?}");
    }
}

#[test]
fn malformed_or_excessive_values_are_ignored() {
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
        "Thursday, 27-Jun-73 12:16:24 GMT", // 2073, not 1973
        "Thursday, 27-Jun-24 12:16:24",
        "Thursday, 27-Jun-24 12:16:24 CET",
        "Thursday, 27-Jun-2024 12:16:24 GMT",
        "Thursday, 30-Feb-24 12:16:24 GMT",
        "Jun 27 12:16:24 2024",
        "Thu Jun 31 12:16:24 2024",
        "Thu Jun 27 12:16:24 GMT 2024",
        "Thu, Jun 27 12:16:24 2024",
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
    const ALPHABET: &[u8] = b"09.smhun \xc2\xb5\xce\xbc,-+GMT:aJ\x00";
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
fn first_valid_header_in_order_wins() {
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
