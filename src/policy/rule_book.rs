//! `docs/delivery.md` says what the code does: every cell of its tables is tried.

use http::{HeaderMap, HeaderName, HeaderValue};

use super::tiers::TierDefaults;
use super::{decide, phased};
use crate::classify::retry_after;
use crate::classify::{Answer, DeadReason, Failure, Kind, classify};
use crate::model::clock::Timestamp;
use crate::model::delivery::Tier;
use crate::model::lane::Gateway;

const BOOK: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/delivery.md"));

fn now() -> Timestamp {
    "2026-11-20T12:00:00Z".parse().unwrap()
}

/// The rows below the heading that begins with this cell, as their cells.
fn table(first: &str) -> Vec<Vec<String>> {
    let lines = BOOK.lines().skip_while(|line| !line.starts_with(&format!("| {first} |"))).skip(2);
    let rows = lines.take_while(|line| line.starts_with('|'));
    let rows: Vec<Vec<String>> =
        rows.map(|row| row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()).collect();
    assert!(!rows.is_empty(), "there is no table of {first}");
    rows
}

/// What stands between backticks.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

fn in_words(kind: Kind) -> String {
    match kind {
        Kind::Accepted { .. } => "accepted".to_owned(),
        Kind::Throttled => "lane holds".to_owned(),
        Kind::ChannelThrottled => "waits alone".to_owned(),
        Kind::Unavailable { retry_now: false } => "again".to_owned(),
        Kind::Unavailable { retry_now: true } => "at once".to_owned(),
        Kind::CutOff => "again, free".to_owned(),
        Kind::Unprocessed => "free".to_owned(),
        Kind::TooLarge => "smaller".to_owned(),
        Kind::Gone => "gone".to_owned(),
        Kind::Refused { reason } => format!("dead `{}`", reason.name()),
    }
}

fn meaning(gateway: Gateway, status: u16, with: Option<&str>) -> String {
    let (mut headers, mut body) = (HeaderMap::new(), "");
    match with {
        Some(json) if json.starts_with('{') => body = json,
        Some(header) => {
            let (name, value) = header.split_once(": ").expect("a header");
            headers.insert(name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap());
        }
        None => {}
    }
    let answer = Answer::Response { status, headers: &headers, body: body.as_bytes() };
    in_words(classify(gateway, &answer, now()).kind)
}

#[test]
fn every_answer_means_what_the_guide_says_at_every_gateway() {
    let rows = table("answer");
    let numbers = |cell: &str| quoted(cell).iter().filter_map(|text| text.parse::<u16>().ok()).collect::<Vec<_>>();
    let named: Vec<u16> =
        rows.iter().map(|row| numbers(&row[0])).filter(|numbers| numbers.len() == 1).flatten().collect();
    let mut tried = 0;
    for row in &rows {
        assert_eq!(row.len(), 1 + Gateway::ALL.len(), "{row:?}");
        let numbers = numbers(&row[0]);
        let with = quoted(&row[0]).into_iter().find(|text| text.parse::<u16>().is_err());
        let (first, last) = (numbers[0], *numbers.last().unwrap());
        for status in (first..=last).filter(|status| !row[0].starts_with("any other") || !named.contains(status)) {
            for (gateway, told) in Gateway::ALL.into_iter().zip(&row[1..]) {
                assert_eq!(meaning(gateway, status, with), *told, "{} at {}", row[0], gateway.name());
                tried += 1;
            }
        }
    }
    let described = |status: &u16| {
        rows.iter().any(|row| {
            let numbers = numbers(&row[0]);
            (numbers[0]..=*numbers.last().unwrap()).contains(status)
        })
    };
    assert!((100..=999).all(|status| described(&status)) && tried > 4_000, "{tried}");
    let heading = BOOK.lines().find(|line| line.starts_with("| answer |")).unwrap();
    assert_eq!(heading, format!("| answer | {} |", Gateway::ALL.map(Gateway::name).join(" | ")));
}

#[test]
fn every_failure_and_every_reason_is_in_the_guide() {
    let failures = [
        Failure::Resolve,
        Failure::InvalidHost,
        Failure::Forbidden,
        Failure::Connect,
        Failure::Proxy,
        Failure::Tls,
        Failure::Unprocessed,
        Failure::Withdrawn,
        Failure::Reset,
        Failure::Protocol,
        Failure::Deadline,
    ];
    let told: Vec<_> = table("failure").into_iter().map(|row| (row[0].clone(), row[1].clone())).collect();
    let known = failures.map(|failure| {
        let kind = classify(Gateway::Fcm, &Answer::Failure(failure), now()).kind;
        (format!("`{}`", failure.name()), in_words(kind))
    });
    assert_eq!(told, known);
    let why = BOOK.split("**Why it is dead.**").nth(1).unwrap().split("\n\n").next().unwrap();
    assert_eq!(quoted(why), DeadReason::ALL.map(DeadReason::name));
}

#[test]
fn every_form_of_retry_after_is_read_as_the_guide_says() {
    for row in table("value") {
        let wait = retry_after::parse(quoted(&row[0])[0].as_bytes(), now());
        let told = wait.map_or_else(|| "not heeded".to_owned(), |wait| format!("{} s", wait.as_secs_f64()));
        assert_eq!(told, row[1], "{}", row[0]);
    }
}

#[test]
fn every_tier_does_what_the_guide_says() {
    let rows = table("tier");
    let known = Tier::ALL.map(|tier| {
        let defaults = TierDefaults::of(tier);
        let guide = defaults.guide;
        let urgency = serde_json::to_value(defaults.urgency).unwrap();
        vec![
            format!("`{}`", tier.name()),
            guide.max_attempts.to_string(),
            guide.immediate_retries.to_string(),
            format!("{} s", guide.base_delay_ms / 1_000),
            format!("{} s", guide.max_delay_ms / 1_000),
            format!("{} s", defaults.ttl_s),
            format!("`{}`", urgency.as_str().unwrap()),
        ]
    });
    assert_eq!(rows, known);
    assert_eq!(decide::GUIDE_WINDOW.as_secs(), 24 * 3_600, "the guide says 24 hours");
    assert_eq!(phased::TOTAL_MAX_S, 3_600.0, "the guide says 3,600 s");
}
