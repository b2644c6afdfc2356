//! QStash's form: its figures, bounds and defaults.

use bellwire_rules::policy::{Layer, Retry, Terms};
use serde_json::{Value, json};

fn delays_s(value: Value, max_retries: u32) -> Result<Vec<f64>, Vec<(String, String)>> {
    let terms = Terms { max_retries, ..Terms::default() };
    match Layer::parse(&value, &terms) {
        Ok(parsed) => {
            let retry = parsed.layer.retry.expect("a timetable was given");
            assert!(matches!(retry, Retry::Scripted(_)));
            let delays: Vec<_> = (0..).map_while(|n| retry.delay(n, 0.3)).map(|d| d.as_secs_f64()).collect();
            assert_eq!(delays.len(), retry.retries() as usize);
            Ok(delays)
        }
        Err(errors) => Err(errors.into_iter().map(|e| (e.pointer, e.detail)).collect()),
    }
}

#[test]
fn the_published_backoff_has_the_published_six_delays() {
    let delays = delays_s(json!({"retries": 6}), 6).unwrap();
    for (delay, expected) in delays.iter().zip([12.18, 148.41, 1_808.04, 22_026.47, 86_400.0, 86_400.0]) {
        assert!((delay - expected).abs() < 0.005, "{delay} {expected}");
    }
    assert_eq!(delays.len(), 6);
}

#[test]
fn omitted_retries_mean_the_app_maximum() {
    assert_eq!(delays_s(json!({"retryDelay": "1000"}), 5).unwrap(), [1.0; 5]);
    assert_eq!(delays_s(json!({"retryDelay": "1000"}), 7).unwrap(), [1.0; 7]);
    assert_eq!(delays_s(json!({"retryDelay": "1000"}), 5_000).unwrap(), [1.0; 1_000]);
    assert_eq!(delays_s(json!({"retries": 0}), 5).unwrap(), [0.0; 0]);
    assert_eq!(delays_s(json!({"retries": 0, "retryDelay": "-1"}), 5).unwrap(), [0.0; 0]);
    assert_eq!(delays_s(json!({"retries": 3, "retryDelay": "retried * 0.5"}), 5).unwrap(), [0.0, 0.0005, 0.001]);
}

#[test]
fn the_published_expressions_are_policies() {
    for (expression, delays) in [
        ("1000", [1.0, 1.0, 1.0, 1.0, 1.0]),
        ("1000 * (1 + retried)", [1.0, 2.0, 3.0, 4.0, 5.0]),
        ("pow(2, retried) * 1000", [1.0, 2.0, 4.0, 8.0, 16.0]),
        ("max(1000, pow(2, retried) * 100)", [1.0, 1.0, 1.0, 1.0, 1.6]),
    ] {
        assert_eq!(delays_s(json!({"retries": 5, "retryDelay": expression}), 5).unwrap(), delays, "{expression}");
    }
}

#[test]
fn no_delay_exceeds_a_day() {
    let delays = delays_s(json!({"retries": 40, "retryDelay": "pow(10, retried)"}), 1_000).unwrap();
    assert_eq!((delays[7], delays[8], delays[39]), (10_000.0, 86_400.0, 86_400.0));
}

#[test]
fn impossible_timetable_is_refused_with_pointer() {
    for (value, pointer, word) in [
        (json!({"retries": 6}), "/retries", "maximum, 5"),
        (json!({"retries": -1}), "/retries", "integer"),
        (json!({"retries": "3"}), "/retries", "integer"),
        (json!({"retryDelay": 1000}), "/retryDelay", "string"),
        (json!({"retryDelay": "1000 *"}), "/retryDelay", "at character 7"),
        (json!({"retryDelay": "retry * 2"}), "/retryDelay", "unknown name 'retry'"),
        (json!({"retries": 4, "retryDelay": "1000 * (2 - retried)"}), "/retryDelay", "negative when retried is 3"),
        (json!({"retryDelay": "1000 / retried"}), "/retryDelay", "finite number when retried is 0"),
        (json!({"retryDelay": "sqrt(1 - retried)"}), "/retryDelay", "finite number when retried is 2"),
        (json!({"retryDelay": "exp(1000 * retried)"}), "/retryDelay", "finite number when retried is 1"),
    ] {
        let errors = delays_s(value.clone(), 5).unwrap_err();
        assert!(errors.iter().any(|(at, why)| at == pointer && why.contains(word)), "{value}: {errors:?}");
    }
    // Only the values that would be used count.
    assert_eq!(delays_s(json!({"retries": 3, "retryDelay": "1000 * (2 - retried)"}), 5).unwrap(), [2.0, 1.0, 0.0]);
}
