//! Timetables of policies.

use bellwire_core::delivery::Tier;
use bellwire_rules::policy::preview::{Timetable, preview};
use bellwire_rules::policy::{Layer, Places, Policy, RetryPhase, Terms};
use serde_json::{Value, json};

fn timetable(value: Value) -> Timetable {
    let layer = Layer::parse(&value, &Terms::default()).unwrap().layer;
    preview(&Policy::in_force(Tier::Promotional, &Places { message: Some(&layer), ..Places::default() }), None)
}

#[test]
fn timetable_ends_with_window_or_ttl() {
    let hourly = |ttl_s| {
        let policy = json!({"baseDelayMs": 3_600_000, "maxDelayMs": 3_600_000, "maxAttempts": 100});
        let layer = Layer::parse(&policy, &Terms::default()).unwrap().layer;
        let places = Places { message: Some(&layer), ..Places::default() };
        preview(&Policy::in_force(Tier::Promotional, &places), ttl_s)
    };
    for (ttl_s, posts, by) in [
        (None, 24, "guide_window"),
        (Some(259_200), 24, "guide_window"),
        (Some(86_400), 24, "ttl"),
        (Some(3_601), 2, "ttl"),
        (Some(3_600), 1, "ttl"), // due exactly at expiry
        (Some(0), 1, "ttl"),
    ] {
        let table = hourly(ttl_s);
        let cut = table.cut_short.unwrap();
        assert_eq!((table.posts, table.retries, cut.by, cut.retries_allowed), (posts, posts - 1, by, 100), "{ttl_s:?}");
        assert_eq!(table.rows.iter().map(|row| row.last - row.first + 1).sum::<u32>(), table.retries);
    }
    let text = hourly(Some(86_400)).to_string();
    let end = "23 retries, 24 POSTs before jitter, over 82800.00 s (66240.00–82800.00 s with jitter)\n\
               Cut short: the policy allows 100 retries, but the time to live ends after 86400 s.\n";
    assert!(text.ends_with(end), "{text}");
    let sns = timetable(json!({"preset": "sns-aws-managed"}));
    assert_eq!((sns.cut_short, sns.retries), (None, 100_015), "no window of its own");
}

#[test]
fn retries_exclude_the_first_post_in_every_form() {
    let example = json!({"minDelayTarget": 1, "maxDelayTarget": 60, "numRetries": 50, "numNoDelayRetries": 3,
        "numMinDelayRetries": 2, "numMaxDelayRetries": 35, "backoffFunction": "exponential"});
    for (value, form, retries, posts) in [
        (json!({"healthyRetryPolicy": example}), "sns", 50, 51),
        (json!({"retries": 3}), "qstash", 3, 4),
        (json!({"maxAttempts": 5}), "guide", 5, 6),
        (json!({"maxAttempts": 0}), "guide", 0, 1),
    ] {
        let table = timetable(value);
        assert_eq!((table.form, table.retries, table.posts), (form, retries, posts));
        assert_eq!(table.rows.iter().map(|row| row.last - row.first + 1).sum::<u32>(), retries);
    }
}

#[test]
fn totals_and_rows_agree_with_the_policy() {
    let table = timetable(json!({"baseDelayMs": 1000, "maxDelayMs": 4000, "maxAttempts": 6, "immediateRetries": 2}));
    let rows: Vec<_> = table.rows.iter().map(|row| (row.first, row.last, row.phase, row.elapsed_s)).collect();
    let expected = [
        (1, 2, RetryPhase::Immediate, 0.0),
        (3, 3, RetryPhase::Backoff, 1.0),
        (4, 4, RetryPhase::Backoff, 3.0),
        (5, 6, RetryPhase::Backoff, 11.0),
    ];
    assert_eq!(rows, expected);
    assert_eq!(table.window_s, 11.0);
    assert!((table.shortest_window_s - 8.8).abs() < 1e-6 && (table.longest_window_s - 11.6).abs() < 1e-6);
}

#[test]
fn the_longest_preset_fits_on_a_page() {
    let table = timetable(json!({"preset": "sns-aws-managed"}));
    assert_eq!((table.retries, table.posts), (100_015, 100_016));
    assert!((table.window_s - 2_000_049.67).abs() < 0.005);
    assert_eq!(table.rows.len(), 1 + 1 + 10 + 1);
    let text = table.to_string();
    assert!(text.contains("16–100015  post-backoff         20.00"), "{text}");
    assert!(
        text.ends_with(
            "100015 retries, 100016 POSTs at most, over 2000049.67 s (1600039.73–2000049.67 s with jitter)\n"
        ),
        "{text}"
    );
}

#[test]
fn it_serializes_by_names_that_tell_the_unit() {
    let json = serde_json::to_value(timetable(json!({"retries": 1, "retryDelay": "1500"}))).unwrap();
    assert_eq!(
        json["rows"][0],
        json!({"first": 1, "last": 1, "phase": "backoff", "delay_s": 1.5, "shortest_s": 1.5,
        "longest_s": 1.5, "elapsed_s": 1.5})
    );
    assert_eq!((&json["posts"], &json["window_s"]), (&json!(2), &json!(1.5)));
}
