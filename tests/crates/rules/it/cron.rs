//! Times of cron expressions, in particular on days with clock changes.

use bellwire_core::clock::Timestamp;
use bellwire_rules::campaign::schedule::Recurrence;
use chrono::{DateTime, TimeDelta};

fn at(text: &str) -> Timestamp {
    DateTime::parse_from_rfc3339(text).unwrap_or_else(|error| panic!("{text}: {error}")).to_utc()
}

fn cron(expression: &str, zone: &str) -> Recurrence {
    Recurrence::parse(expression, zone.parse().unwrap()).unwrap_or_else(|why| panic!("{expression}: {why}"))
}

fn vienna(expression: &str) -> Recurrence {
    cron(expression, "Europe/Vienna")
}

/// Checks the runs of an expression on one local day: `next` and `last` both find these times and no others.
fn check(zone: &str, expression: &str, day: &str, offsets: [&str; 2], expected: &[&str]) {
    let recurrence = cron(expression, zone);
    let begin = at(&format!("{day}T00:00:00{}", offsets[0]));
    let end = at(&format!("{day}T23:59:59{}", offsets[1]));
    let expected: Vec<Timestamp> = expected.iter().map(|time| at(&format!("{day}T{time}"))).collect();
    let runs = std::iter::successors(recurrence.next(begin - TimeDelta::seconds(1)), |at| recurrence.next(*at));
    let runs: Vec<Timestamp> = runs.take_while(|at| *at <= end).collect();
    assert_eq!(runs, expected, "{zone} {expression} {day}");
    for minute in 0..=(end - begin).num_minutes() {
        let now = begin + TimeDelta::minutes(minute);
        let last = expected.iter().rev().find(|at| **at <= now).copied();
        assert_eq!(recurrence.last(begin - TimeDelta::seconds(1), now), last, "{zone} {expression} at {now}");
    }
}

#[test]
fn clock_changes_run_each_listed_time_once() {
    for (zone, expression, day, offsets, expected) in [
        (
            "Europe/Vienna",
            "30 2,14 * * *",
            "2027-03-28",
            ["+01:00", "+02:00"],
            &["03:00:00+02:00", "14:30:00+02:00"][..],
        ),
        ("Europe/Vienna", "30 2,14 * * *", "2027-10-31", ["+02:00", "+01:00"], &["02:30:00+02:00", "14:30:00+01:00"]),
        ("Europe/Vienna", "0,30 2 * * *", "2027-03-28", ["+01:00", "+02:00"], &["03:00:00+02:00"]),
        ("Europe/Vienna", "0,30 2 * * *", "2027-10-31", ["+02:00", "+01:00"], &["02:00:00+02:00", "02:30:00+02:00"]),
        (
            "Europe/Vienna",
            "*/30 1-3 * * *",
            "2027-03-28",
            ["+01:00", "+02:00"],
            &["01:00:00+01:00", "01:30:00+01:00", "03:00:00+02:00", "03:30:00+02:00"],
        ),
        (
            "Europe/Vienna",
            "*/30 1-3 * * *",
            "2027-10-31",
            ["+02:00", "+01:00"],
            &[
                "01:00:00+02:00",
                "01:30:00+02:00",
                "02:00:00+02:00",
                "02:30:00+02:00",
                "03:00:00+01:00",
                "03:30:00+01:00",
            ],
        ),
        (
            "Europe/Vienna",
            "0 0-5/2 * * *",
            "2027-03-28",
            ["+01:00", "+02:00"],
            &["00:00:00+01:00", "03:00:00+02:00", "04:00:00+02:00"],
        ),
        (
            "Europe/Vienna",
            "0 */2 31 10 *",
            "2027-10-31",
            ["+02:00", "+01:00"],
            &[
                "00:00:00+02:00",
                "02:00:00+02:00",
                "04:00:00+01:00",
                "06:00:00+01:00",
                "08:00:00+01:00",
                "10:00:00+01:00",
                "12:00:00+01:00",
                "14:00:00+01:00",
                "16:00:00+01:00",
                "18:00:00+01:00",
                "20:00:00+01:00",
                "22:00:00+01:00",
            ],
        ),
        (
            "Australia/Lord_Howe",
            "0,15 2,3 * * *",
            "2027-10-03",
            ["+10:30", "+11:00"],
            &["02:30:00+11:00", "03:00:00+11:00", "03:15:00+11:00"],
        ),
        (
            "Australia/Lord_Howe",
            "30,45 1,5 * * *",
            "2027-04-04",
            ["+11:00", "+10:30"],
            &["01:30:00+11:00", "01:45:00+11:00", "05:30:00+10:30", "05:45:00+10:30"],
        ),
        (
            "Africa/Cairo",
            "0,30 0,12 * * *",
            "2027-04-30",
            ["+02:00", "+03:00"],
            &["01:00:00+03:00", "12:00:00+03:00", "12:30:00+03:00"],
        ),
        ("Africa/Cairo", "30 22,23 * * *", "2027-10-28", ["+03:00", "+02:00"], &["22:30:00+03:00", "23:30:00+03:00"]),
        ("America/Havana", "0 0,1 * * *", "2027-03-14", ["-05:00", "-04:00"], &["01:00:00-04:00"]),
        (
            "America/Havana",
            "15,45 0,1 * * *",
            "2027-11-07",
            ["-04:00", "-05:00"],
            &["00:15:00-04:00", "00:45:00-04:00", "01:15:00-05:00", "01:45:00-05:00"],
        ),
        (
            "America/Santiago",
            "30 0,9 * * SUN",
            "2027-09-05",
            ["-04:00", "-03:00"],
            &["01:00:00-03:00", "09:30:00-03:00"],
        ),
        (
            "America/Santiago",
            "0,30 23 * * *",
            "2027-04-03",
            ["-03:00", "-04:00"],
            &["23:00:00-03:00", "23:30:00-03:00"],
        ),
        (
            "Australia/Melbourne",
            "30 1,2 4 4 *",
            "2027-04-04",
            ["+11:00", "+10:00"],
            &["01:30:00+11:00", "02:30:00+11:00"],
        ),
        ("Australia/Melbourne", "30 2 4 4 *", "2027-04-04", ["+11:00", "+10:00"], &["02:30:00+11:00"]),
        ("Australia/Melbourne", "0-30/10 2 * * *", "2027-10-03", ["+10:00", "+11:00"], &["03:00:00+11:00"]),
        ("America/New_York", "0 2-4 * * *", "2027-03-14", ["-05:00", "-04:00"], &["03:00:00-04:00", "04:00:00-04:00"]),
        ("America/New_York", "30 1-2 * * *", "2027-11-07", ["-04:00", "-05:00"], &["01:30:00-04:00", "02:30:00-05:00"]),
    ] {
        check(zone, expression, day, offsets, expected);
    }
}

#[test]
fn clock_changes_keep_regular_intervals() {
    let changes = [
        ("Australia/Lord_Howe", "2027-04-03T15:00:00Z", "2027-10-02T15:30:00Z"),
        ("Africa/Cairo", "2027-10-28T21:00:00Z", "2027-04-29T22:00:00Z"),
        ("America/Havana", "2027-11-07T05:00:00Z", "2027-03-14T05:00:00Z"),
        ("America/Santiago", "2027-04-04T03:00:00Z", "2027-09-05T04:00:00Z"),
        ("Australia/Melbourne", "2027-04-03T16:00:00Z", "2027-10-02T16:00:00Z"),
        ("Europe/Vienna", "2027-10-31T01:00:00Z", "2027-03-28T01:00:00Z"),
        ("America/New_York", "2027-11-07T06:00:00Z", "2027-03-14T07:00:00Z"),
    ];
    for (zone, back, forward) in changes {
        for (expression, minutes) in
            [("0 * * * *", 60), ("30 * * * *", 60), ("0 0-23 * * *", 60), ("*/15 * * * *", 15), ("5,35 * * * *", 30)]
        {
            // Clocks of Lord Howe change by half an hour: hours of the clock cannot stay hours there.
            if zone == "Australia/Lord_Howe" && minutes == 60 {
                continue;
            }
            let recurrence = cron(expression, zone);
            for change in [back, forward] {
                let begin = at(change) - TimeDelta::hours(4);
                let runs = std::iter::successors(recurrence.next(begin), |at| recurrence.next(*at));
                let runs: Vec<Timestamp> = runs.take(480 / minutes).collect();
                let gaps: Vec<i64> = runs.windows(2).map(|pair| (pair[1] - pair[0]).num_minutes()).collect();
                assert!(gaps.iter().all(|gap| *gap == minutes as i64), "{zone} {expression} {change}: {gaps:?}");
                for pair in runs.windows(2) {
                    assert_eq!(recurrence.last(begin, pair[1] - TimeDelta::seconds(1)), Some(pair[0]), "{zone}");
                }
            }
        }
    }
}

#[test]
fn half_hour_changes_run_every_hour_once() {
    let hours = |day: &str, offsets: [&str; 2], first: &[&str], later: &str| {
        let rest = (3..24).map(|hour| format!("{hour:02}:00:00{later}"));
        let all: Vec<String> = first.iter().map(|time| (*time).to_owned()).chain(rest).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        check("Australia/Lord_Howe", "0 * * * *", day, offsets, &all);
    };
    let back = ["00:00:00+11:00", "01:00:00+11:00", "02:00:00+10:30"];
    hours("2027-04-04", ["+11:00", "+10:30"], &back, "+10:30");
    let forward = ["00:00:00+10:30", "01:00:00+10:30", "02:30:00+11:00"];
    hours("2027-10-03", ["+10:30", "+11:00"], &forward, "+11:00");
}

#[test]
fn wall_clock_times_survive_clock_changes() {
    let nine = vienna("0 9 * * *");
    assert_eq!(nine.next(at("2027-03-27T08:00:00Z")), Some(at("2027-03-28T07:00:00Z")));
    assert_eq!(nine.next(at("2027-03-28T07:00:00Z")), Some(at("2027-03-29T07:00:00Z")));
    assert_eq!(vienna("0 9 * * MON").next(at("2026-11-20T12:00:00Z")), Some(at("2026-11-23T08:00:00Z")));
}

#[test]
fn last_finds_the_latest_missed_time() {
    let hourly = vienna("0 * * * *");
    let last = |since: &str, now: &str| hourly.last(at(since), at(now));
    assert_eq!(last("2026-11-20T03:00:00Z", "2026-11-20T12:34:56Z"), Some(at("2026-11-20T12:00:00Z")));
    assert_eq!(last("2026-11-20T12:00:00Z", "2026-11-20T12:34:56Z"), None);
    assert_eq!(last("2026-11-20T11:00:00Z", "2026-11-20T12:00:00Z"), Some(at("2026-11-20T12:00:00Z")));
}

#[test]
fn intervals_below_five_minutes_are_refused() {
    for often in ["* * * * *", "*/4 * * * *", "0,1 9 * * *", "58,2 * * * *", "58,2 22,23 1 * *", "59,0 * * * SUN"] {
        let refused = Recurrence::parse(often, "Europe/Vienna".parse().unwrap());
        assert_eq!(refused, Err("must leave at least 5 minutes between two runs".to_owned()), "{often}");
    }
    for fine in ["*/5 * * * *", "0 * * * *", "58,3 * * * *", "2,58 9 * * *", "0 9 * * MON", "0 0 29 2 *"] {
        vienna(fine);
    }
}

#[test]
fn invalid_expressions_are_refused() {
    let utc = "UTC".parse().unwrap();
    for wrong in ["", "* * *", "60 * * * *", "0 0 9 * * *", "@sometimes", &"*".repeat(201)] {
        assert!(Recurrence::parse(wrong, utc).is_err(), "{wrong}");
    }
    let never = Recurrence::parse("0 0 30 2 *", utc);
    assert!(never.is_err() || never.unwrap().next(at("2026-11-20T12:00:00Z")).is_none());
}
