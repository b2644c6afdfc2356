//! Unit tests of `src/api/series/query.rs`, which includes them.

use super::*;

fn read(text: &str) -> Result<Query, Problem> {
    let now = "2026-11-20T12:00:30Z".parse().unwrap();
    Query::read(text, false, MetricsKept::DEFAULT, now)
}

fn steps(query: &Query) -> Vec<RollupStep> {
    query.pieces.iter().map(|piece| piece.step).collect()
}

#[test]
fn a_list_is_written_in_either_way() {
    let repeated = "since=2026-11-19T00:00:00Z&until=2026-11-20T00:00:00Z&step=1h\
                    &measures=accepted&measures=gone&by=gateway&tier=1&tier=promotional";
    let with_commas = "since=2026-11-19T01:00:00%2B01:00&until=2026-11-20T00:00:00Z&step=1h\
                       &measures=accepted,gone&by=gateway&tier=transactional,promotional";
    let query = read(repeated).unwrap();
    assert_eq!(query, read(with_commas).unwrap());
    assert_eq!((steps(&query), query.buckets(), query.measures.len()), (vec![RollupStep::Hour], 24, 2));
    assert_eq!(query.filters.tiers, [Tier::Transactional, Tier::Promotional]);
}

#[test]
fn range_uses_whole_buckets_of_longest_rows() {
    use RollupStep::{Day, Hour, Minute};
    type Case<'a> = (&'a str, &'a str, &'a str, &'a [RollupStep], &'a str, i64);
    let cases: [Case<'_>; 10] = [
        ("2026-11-01T00:00:00Z", "2026-11-20T00:00:00Z", "&step=1d", &[Day], "2026-11-01T00:00:00Z", 19),
        ("2026-11-01T10:00:00Z", "2026-11-20T12:34:56Z", "&step=1d", &[Day], "2026-11-01T00:00:00Z", 20),
        ("2026-11-01T10:30:00Z", "2026-11-01T13:00:00Z", "&step=2h", &[Hour], "2026-11-01T10:00:00Z", 2),
        ("2026-11-20T10:31:00Z", "2026-11-20T10:40:00Z", "&step=5m", &[Minute], "2026-11-20T10:30:00Z", 2),
        ("2026-11-01T00:00:00Z", "2026-11-20T00:00:00Z", "", &[Day], "2026-11-01T00:00:00Z", 1),
        ("2026-11-01T01:00:00Z", "2026-11-20T00:00:00Z", "", &[Hour, Day], "2026-11-01T01:00:00Z", 1),
        ("2026-11-01T01:00:30Z", "2026-11-20T00:00:00Z", "", &[Hour, Day], "2026-11-01T01:00:00Z", 1),
        ("2026-11-20T01:00:30Z", "2026-11-20T02:00:00Z", "", &[Hour], "2026-11-20T01:00:00Z", 1),
        ("2026-11-20T01:01:30Z", "2026-11-20T02:00:00Z", "", &[Minute], "2026-11-20T01:01:00Z", 1),
        ("2024-11-01T01:00:30Z", "2026-11-20T02:00:00Z", "", &[Day, Hour], "2024-11-01T00:00:00Z", 1),
    ];
    for (start, end, step, expected, from, buckets) in cases {
        let query = read(&format!("since={start}&until={end}&measures=accepted{step}")).unwrap();
        let shown = (steps(&query), query.from, query.buckets());
        assert_eq!(shown, (expected.to_vec(), from.parse().unwrap(), buckets), "{start} to {end}{step}");
    }
}

#[test]
fn range_defaults_to_last_hour() {
    for (text, from, until) in [
        ("measures=accepted&step=1m", "2026-11-20T11:00:00Z", "2026-11-20T12:01:00Z"),
        ("measures=accepted&step=1m&until=2026-11-20T08:00:00Z", "2026-11-20T07:00:00Z", "2026-11-20T08:00:00Z"),
        ("measures=accepted&step=1m&since=2026-11-20T10:00:00Z", "2026-11-20T10:00:00Z", "2026-11-20T12:01:00Z"),
    ] {
        let query = read(text).unwrap();
        assert_eq!((query.from, query.until), (from.parse().unwrap(), until.parse().unwrap()), "{text}");
    }
}

#[test]
fn wrong_parameter_is_named() {
    let range = "since=2026-11-19T00:00:00Z&until=2026-11-20T00:00:00Z";
    for (text, parameter) in [
        ("since=yesterday".to_owned(), "since"),
        ("since=2026-11-21T00:00:00Z&measures=accepted".to_owned(), "until"),
        ("since=2026-11-19T00:00:00Z&until=2026-11-19T00:00:00Z".to_owned(), "until"),
        (format!("{range}&until=2026-11-21T00:00:00Z&measures=accepted"), "until"),
        (range.to_owned(), "measures"),
        (format!("{range}&measures=happiness"), "measures"),
        (format!("{range}&measures=accepted&step=7m"), "step"),
        (format!("{range}&measures=accepted&by=browser"), "by"),
        (format!("{range}&measures=accepted&by=outcome"), "by"),
        (format!("{range}&measures=ended,attempts&by=outcome"), "by"),
        (format!("{range}&measures=subscriptions_won&by=tier"), "by"),
        (format!("{range}&measures=subscriptions_won&tier=1"), "tier"),
        (format!("{range}&measures=accepted&status=2xx"), "status"),
        (format!("{range}&measures=attempts&status=200"), "status"),
        (format!("{range}&measures=accepted&gateway=gcm"), "gateway"),
        (format!("{range}&measures=accepted&lane=x"), "lane"),
        (format!("{range}&measures=accepted&message=x"), "message"),
        (format!("{range}&measures=accepted&by=message"), "message"),
        (format!("{range}&measures=accepted&app=%00"), "app"),
        (format!("{range}&measures={}", "accepted,".repeat(101)), "measures"),
        ("since=2026-11-01T00:00:00Z&until=2026-11-20T00:00:00Z&measures=gone&step=1m".into(), "since"),
        ("since=2026-11-18T13:00:00Z&until=2026-11-20T12:00:00Z&measures=gone&step=1m".into(), "step"),
        ("since=2001-01-01T00:00:00Z&until=2026-11-20T12:00:00Z&measures=gone".into(), "since"),
    ] {
        let problem = read(&text).expect_err(&text);
        assert_eq!(problem.errors[0].parameter.as_deref(), Some(parameter), "{text}: {}", problem.detail);
    }
    let now = "2026-11-20T12:00:30Z".parse().unwrap();
    let text = format!("{range}&measures=accepted&by=app");
    let problem = Query::read(&text, true, MetricsKept::DEFAULT, now).expect_err(&text);
    assert_eq!(problem.errors[0].parameter.as_deref(), Some("by"));
}
