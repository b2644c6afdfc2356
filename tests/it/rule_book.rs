//! `docs/delivery.md` and `docs/policies.md` match the code: every cell of their tables is tested.

use std::collections::BTreeMap;

use axum::http::{HeaderMap, HeaderName, HeaderValue};
use bellwire_core::clock::Timestamp;
use bellwire_core::delivery::Tier;
use bellwire_core::lane::Gateway;
use bellwire_rules::classify::{DeadReason, Failure, PostResult, ResponseKind, classify, retry_after};
use bellwire_rules::policy::preview::preview;
use bellwire_rules::policy::{Layer, Places, Policy, Terms, TierDefaults};
use bellwire_simulator::policies::{STEPS_MAX, Scenario, SimulationReport, run};
use serde_json::{Value, json};

const BOOK: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/delivery.md"));
const POLICIES: &str = include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/policies.md"));

fn now() -> Timestamp {
    "2026-11-20T12:00:00Z".parse().unwrap()
}

/// The rows of `delivery.md` below the heading that begins with this cell, as their cells.
fn table(first: &str) -> Vec<Vec<String>> {
    table_of(BOOK, first)
}

/// The rows of a page below the heading that begins with this cell, as their cells.
fn table_of(page: &str, first: &str) -> Vec<Vec<String>> {
    let lines = page.lines().skip_while(|line| !line.starts_with(&format!("| {first} |"))).skip(2);
    let rows = lines.take_while(|line| line.starts_with('|'));
    let rows: Vec<Vec<String>> =
        rows.map(|row| row.trim_matches('|').split(" | ").map(|cell| cell.trim().to_owned()).collect()).collect();
    assert!(!rows.is_empty(), "there is no table of {first}");
    rows
}

/// Text between backticks.
fn quoted(cell: &str) -> Vec<&str> {
    cell.split('`').skip(1).step_by(2).collect()
}

fn in_words(kind: ResponseKind) -> String {
    match kind {
        ResponseKind::Accepted { .. } => "accepted".to_owned(),
        ResponseKind::Throttled => "subscription waits".to_owned(),
        ResponseKind::SenderThrottled => "lane holds".to_owned(),
        ResponseKind::Unavailable { retry_now: false } => "again".to_owned(),
        ResponseKind::Unavailable { retry_now: true } => "at once".to_owned(),
        ResponseKind::CutOff => "again, free".to_owned(),
        ResponseKind::Unprocessed => "free".to_owned(),
        ResponseKind::TooLarge => "smaller".to_owned(),
        ResponseKind::Gone => "gone".to_owned(),
        ResponseKind::Refused { reason } => format!("dead `{}`", reason.name()),
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
    let answer = PostResult::Response { status, headers: &headers, body: body.as_bytes() };
    in_words(classify(gateway, &answer, now()).kind)
}

#[test]
fn responses_match_the_guide_at_each_gateway() {
    let rows = table("answer");
    let numbers = |cell: &str| quoted(cell).iter().filter_map(|text| text.parse::<u16>().ok()).collect::<Vec<_>>();
    let named: Vec<u16> =
        rows.iter().map(|row| numbers(&row[0])).filter(|numbers| numbers.len() == 1).flatten().collect();
    let (mut tried, mut exceptions) = (0, 0);
    for row in &rows {
        let [answer, usual, except] = row.as_slice() else { panic!("{row:?}") };
        let except: BTreeMap<&str, &str> = except.split("; ").filter_map(|cell| cell.split_once(": ")).collect();
        let is_gateway = |name: &&str| Gateway::ALL.iter().any(|gateway| gateway.name() == *name);
        assert!(except.keys().all(is_gateway), "{row:?}");
        exceptions += except.len();
        let numbers = numbers(answer);
        let mut with: Vec<_> =
            quoted(answer).into_iter().filter(|text| text.parse::<u16>().is_err()).map(Some).collect();
        if with.is_empty() {
            with.push(None);
        }
        let (first, last) = (numbers[0], *numbers.last().unwrap());
        for status in (first..=last).filter(|status| !answer.starts_with("any other") || !named.contains(status)) {
            for (gateway, with) in
                Gateway::ALL.into_iter().flat_map(|gateway| with.iter().map(move |it| (gateway, *it)))
            {
                let told = except.get(gateway.name()).copied().unwrap_or(usual);
                assert_eq!(meaning(gateway, status, with), told, "{answer} at {}", gateway.name());
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
    assert!(exceptions >= 8, "exceptions are not found: {exceptions}");
}

#[test]
fn guide_lists_every_failure_and_reason() {
    let told: Vec<_> = table("failure").into_iter().map(|row| (row[0].clone(), row[1].clone())).collect();
    let known = Failure::ALL.map(|failure| {
        let kind = classify(Gateway::Fcm, &PostResult::Failure(failure), now()).kind;
        (format!("`{}`", failure.name()), in_words(kind))
    });
    assert_eq!(told, known);
    let reasons = table("reason");
    let mut reasons: Vec<&str> = reasons.iter().flat_map(|row| quoted(&row[0])).collect();
    let mut known = DeadReason::ALL.map(DeadReason::name);
    reasons.sort_unstable();
    known.sort_unstable();
    assert_eq!(reasons, known);
}

#[test]
fn retry_after_forms_match_the_guide() {
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
        let policy = Policy::tier_default(tier).to_json();
        let figure = |name: &str| policy[name].as_u64().unwrap_or_else(|| panic!("{name}: {policy}"));
        let urgency = serde_json::to_value(defaults.urgency).unwrap();
        vec![
            format!("`{}`", tier.name()),
            figure("maxAttempts").to_string(),
            figure("immediateRetries").to_string(),
            format!("{} s", figure("baseDelayMs") / 1_000),
            format!("{} s", figure("maxDelayMs") / 1_000),
            format!("{} s", defaults.ttl_s),
            format!("`{}`", urgency.as_str().unwrap()),
        ]
    });
    assert_eq!(rows, known);
}

fn parsed(policy: Value) -> Result<Policy, String> {
    let layer = Layer::parse(&policy, &Terms::default()).map_err(|error| format!("{error:?}"))?.layer;
    Ok(Policy::in_force(Tier::Promotional, &Places { message: Some(&layer), ..Places::default() }))
}

#[test]
fn forms_end_where_the_guide_says() {
    let hourly = json!({"baseDelayMs": 3_600_000, "maxDelayMs": 3_600_000, "maxAttempts": 100});
    let cut_short = preview(&parsed(hourly).unwrap(), None).cut_short.unwrap();
    assert_eq!(cut_short.after_s, 24.0 * 3_600.0, "the guide says 24 hours");
    let minutes = |n: u32| json!({"healthyRetryPolicy": {"minDelayTarget": 60, "maxDelayTarget": 60, "numRetries": n}});
    assert!(parsed(minutes(60)).is_ok() && parsed(minutes(61)).is_err(), "the guide says 3,600 s");
}

/// A built-in scenario, changed by `change`, with the defaults of its tier and the seed of the guide.
fn simulated(name: &str, change: impl FnOnce(&mut Value)) -> SimulationReport {
    let mut scenario = serde_json::from_str(Scenario::built_in(name).unwrap()).unwrap();
    change(&mut scenario);
    let scenario = Scenario::parse(&scenario.to_string()).unwrap();
    run(&scenario, &Policy::tier_default(Tier::Promotional), 1, STEPS_MAX).unwrap()
}

/// A number as the guides write it.
fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(|group| std::str::from_utf8(group).unwrap()).collect();
    groups.join(",")
}

/// A time as the guides write it.
fn span(seconds: f64) -> String {
    if seconds < 300.0 { format!("{seconds:.0} s") } else { format!("{:.1} min", seconds / 60.0) }
}

#[test]
fn herd_table_has_the_simulators_figures() {
    let rows = table_of(POLICIES, "| POSTs in vain");
    let variants = [
        (true, true, true),
        (false, true, true),
        (true, false, true),
        (true, true, false),
        (true, false, false),
        (false, false, false),
    ];
    let known = variants.map(|(jitter, breaker, adaptive)| {
        let report = simulated("herd", |scenario| {
            (scenario["jitter"], scenario["breaker"]) = (jitter.into(), breaker.into());
            scenario["workers"] = json!({"adaptive": adaptive});
        });
        let (times, recovery) = (report.to_acceptance.unwrap(), report.recovery.unwrap());
        vec![
            grouped(report.posts_in_vain),
            grouped(report.dead.values().sum()),
            grouped(recovery.peak_per_s.into()),
            format!("{}, {}", span(times.p50_s), span(times.p99_s)),
        ]
    });
    let told: Vec<_> = rows.iter().map(|row| row[1..].to_vec()).collect();
    assert_eq!(told, known);
}
