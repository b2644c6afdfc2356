//! SNS's figures, constraints and warnings.

use bellwire_core::delivery::Tier;
use bellwire_rules::policy::{
    Backoff, Layer, Parsed, Phased, Places, Policy, PolicyError, Preset, Retry, RetryPhase, Terms,
};
use serde_json::{Value, json};
use std::time::Duration;

fn parse(written: Value) -> Result<Parsed, Vec<PolicyError>> {
    Layer::parse(&json!({ "healthyRetryPolicy": written }), &Terms::default())
}

fn phased(written: Value) -> Phased {
    match parse(written.clone()).unwrap_or_else(|errors| panic!("{written}: {errors:?}")).layer.retry {
        Some(Retry::Phased(phased)) => phased,
        other => panic!("not SNS's form: {other:?}"),
    }
}

fn delays_s(phased: &Phased) -> Vec<f64> {
    (0..).map_while(|n| phased.step(n)).map(|step| step.nominal.as_secs_f64()).collect()
}

fn total_s(phased: &Phased) -> f64 {
    delays_s(phased).iter().sum()
}

#[track_caller]
fn assert_near(actual: f64, expected: f64) {
    assert!((actual - expected).abs() < 0.005, "{actual} is not {expected}");
}

#[test]
fn the_documentations_example_totals_as_documented() {
    let example = json!({
        "healthyRetryPolicy": {"minDelayTarget": 1, "maxDelayTarget": 60, "numRetries": 50, "numNoDelayRetries": 3,
            "numMinDelayRetries": 2, "numMaxDelayRetries": 35, "backoffFunction": "exponential"},
        "throttlePolicy": {"maxReceivesPerSecond": 10},
    });
    let Parsed { layer, warnings } = Layer::parse(&example, &Terms::default()).unwrap();
    let Some(Retry::Phased(phased)) = layer.retry else { panic!("SNS's form") };
    assert_eq!((phased.retries(), layer.throttle.unwrap().max_receives_per_second, warnings.len()), (50, 10, 0));
    assert_near(total_s(&phased), 2_228.96);
    let delays = delays_s(&phased);
    assert_eq!(delays[..6], [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    assert_eq!(delays[14..], [60.0; 36]);
    let phases: Vec<_> = (0..50).map(|n| phased.step(n).unwrap().phase).collect();
    for (phase, count) in [
        (RetryPhase::Immediate, 3),
        (RetryPhase::PreBackoff, 2),
        (RetryPhase::Backoff, 10),
        (RetryPhase::PostBackoff, 35),
    ] {
        assert_eq!(phases.iter().filter(|p| **p == phase).count(), count);
    }
}

#[test]
fn the_documentations_figure_has_its_values() {
    for (function, sixth, sum) in [
        (Backoff::Linear, 146.67, 1_325.0),
        (Backoff::Arithmetic, 90.0, 985.0),
        (Backoff::Geometric, 44.91, 722.63),
        (Backoff::Exponential, 20.47, 555.51),
    ] {
        let figure = phased(json!({"minDelayTarget": 5, "maxDelayTarget": 260, "numRetries": 10,
            "backoffFunction": function.name()}));
        let delays = delays_s(&figure);
        assert_eq!((delays[0], delays[9]), (5.0, 260.0));
        assert_near(delays[5], sixth);
        assert_near(total_s(&figure), sum);
    }
}

#[test]
fn the_presets_total_as_published() {
    let [aws, customer] = Preset::ALL.map(Phased::preset);
    assert_eq!((aws.retries(), customer.retries()), (100_015, 50));
    assert_near(total_s(&aws), 2_000_049.67);
    assert_near(total_s(&customer), 24_089.61);
    assert!(total_s(&aws) > 23.0 * 86_400.0 && total_s(&customer) > 6.0 * 3_600.0);
    assert_eq!(delays_s(&aws)[..6], [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
    assert_eq!(delays_s(&customer)[..3], [10.0, 10.0, 10.0]);
    assert_eq!(aws.when_throttled(), customer);
    assert_eq!(customer.when_throttled(), customer);
}

#[test]
fn presets_are_named_and_stand_alone() {
    let parse = |value: Value| Layer::parse(&value, &Terms::default());
    for preset in Preset::ALL {
        let layer = parse(json!({"preset": preset.name()})).unwrap().layer;
        assert_eq!(layer.retry, Some(Retry::Phased(Phased::preset(preset))));
    }
    for value in [
        json!({"preset": "sns"}),
        json!({"preset": 1}),
        json!({"preset": "sns-aws-managed", "healthyRetryPolicy": {"numRetries": 1}}),
    ] {
        assert_eq!(parse(value).unwrap_err()[0].pointer, "/preset");
    }
}

#[test]
fn geometric_backoff_from_zero_continues_from_one() {
    let delays = |max| (0..4).map(|i| Backoff::Geometric.delay_s(i, 4, 0.0, max)).collect::<Vec<_>>();
    let from_one = delays(27.0);
    for (delay, expected) in from_one.iter().zip([0.0, 3.0, 9.0, 27.0]) {
        assert_near(*delay, expected);
    }
    assert_eq!(delays(0.0), [0.0; 4]);
}

#[test]
fn jitter_takes_off_at_most_a_fifth() {
    let retry = Retry::Phased(phased(json!({"minDelayTarget": 10, "maxDelayTarget": 100, "numRetries": 8})));
    for n in 0..8 {
        let nominal_s = retry.step(n).unwrap().nominal.as_secs_f64();
        for tenth in 0..=10 {
            let delay_s = retry.delay(n, f64::from(tenth) / 10.0).unwrap().as_secs_f64();
            assert!(delay_s >= 0.8 * nominal_s - 1e-6 && delay_s <= nominal_s + 1e-6);
        }
    }
    assert_eq!(retry.delay(0, 0.0), Some(Duration::from_secs(8)));
    assert_eq!(retry.delay(8, 0.0), None);
}

#[test]
fn omitted_members_take_snss_defaults() {
    let defaults = phased(json!({}));
    assert_eq!(delays_s(&defaults), [20.0; 3]);
    let layer = parse(json!({})).unwrap().layer;
    let in_force = Policy::in_force(Tier::Promotional, &Places { message: Some(&layer), ..Places::default() });
    assert_eq!(in_force.to_json()["healthyRetryPolicy"]["backoffFunction"], Backoff::Linear.name());
    assert_eq!(delays_s(&phased(json!({"numRetries": 0}))), [0.0; 0]);
    assert_eq!(delays_s(&phased(json!({"minDelayTarget": 7, "numRetries": 1}))), [7.0]);
}

#[test]
fn each_constraint_is_refused_with_a_pointer() {
    for (written, member, word) in [
        (json!({"minDelayTarget": 30}), "/minDelayTarget", "20 (the default)"),
        (json!({"maxDelayTarget": 10}), "/maxDelayTarget", "20 (the default)"),
        (json!({"minDelayTarget": 9, "maxDelayTarget": 8}), "/minDelayTarget", "maxDelayTarget, 8"),
        (json!({"maxDelayTarget": 3_601}), "/maxDelayTarget", "to 3600"),
        (json!({"minDelayTarget": -1}), "/minDelayTarget", "integer"),
        (json!({"minDelayTarget": 0.5}), "/minDelayTarget", "integer"),
        (json!({"minDelayTarget": "1"}), "/minDelayTarget", "integer"),
        (json!({"maxDelayTarget": -1}), "/maxDelayTarget", "integer"),
        (json!({"maxDelayTarget": 20.5}), "/maxDelayTarget", "integer"),
        (json!({"maxDelayTarget": 19}), "/maxDelayTarget", "minDelayTarget, 20 (the default), must not exceed"),
        (json!({"numRetries": 101}), "/numRetries", "to 100"),
        (json!({"numRetries": -1}), "/numRetries", "integer"),
        (json!({"numNoDelayRetries": -1}), "/numNoDelayRetries", "integer"),
        (json!({"numMinDelayRetries": -1}), "/numMinDelayRetries", "integer"),
        (json!({"numMaxDelayRetries": -1}), "/numMaxDelayRetries", "integer"),
        (json!({"numMinDelayRetries": 1.5}), "/numMinDelayRetries", "integer"),
        (json!({"numMinDelayRetries": 4}), "/numMinDelayRetries", "3 (the default)"),
        (json!({"numMaxDelayRetries": 4}), "/numMaxDelayRetries", "3 (the default)"),
        (
            json!({"numRetries": 2, "numMaxDelayRetries": 3}),
            "/numRetries",
            "sum to 3; the sum must not exceed numRetries, 2",
        ),
        (json!({"backoffFunction": "Linear"}), "/backoffFunction", "one of"),
        (json!({"numRetries": 4_294_967_296u64}), "/numRetries", "integer"),
        (
            json!({"numNoDelayRetries": 4}),
            "/numNoDelayRetries",
            "sum to 4; the sum must not exceed numRetries, 3 (the default)",
        ),
        (
            json!({"numMaxDelayRetries": 4_294_967_295u32, "numMinDelayRetries": 4_294_967_295u32}),
            "/numMinDelayRetries",
            "sum to 8589934590",
        ),
        (
            json!({"numRetries": 5, "numNoDelayRetries": 2, "numMinDelayRetries": 2, "numMaxDelayRetries": 2}),
            "/numRetries",
            "sum to 6",
        ),
        (json!({"backoffFunction": "cubic"}), "/backoffFunction", "linear, arithmetic, geometric, exponential"),
        (json!({"backoffFunction": 1}), "/backoffFunction", "one of"),
        (json!({"retries": 1}), "/retries", "unknown"),
        (json!([]), "", "object"),
    ] {
        let errors = parse(written.clone()).unwrap_err();
        let pointer = format!("/healthyRetryPolicy{member}");
        assert!(errors.iter().any(|e| e.pointer == pointer && e.detail.contains(word)), "{written}: {errors:?}");
    }
    let sum =
        phased(json!({"numRetries": 6, "numNoDelayRetries": 2, "numMinDelayRetries": 2, "numMaxDelayRetries": 2}));
    assert_eq!(delays_s(&sum), [0.0, 0.0, 20.0, 20.0, 20.0, 20.0]);
}

#[test]
fn the_extremes_of_every_constraint_are_taken() {
    for (written, retries) in [
        (json!({"minDelayTarget": 1, "maxDelayTarget": 1, "numRetries": 100}), 100),
        (json!({"minDelayTarget": 3600, "maxDelayTarget": 3600, "numRetries": 1}), 1),
        (json!({"maxDelayTarget": 3600, "numRetries": 1}), 1), // a single one waits for the shorter delay
        (json!({"numRetries": 0}), 0),
        (json!({"numRetries": 100, "numNoDelayRetries": 100}), 100),
        (json!({"minDelayTarget": 1, "numRetries": 100, "numMinDelayRetries": 100}), 100),
        (json!({"numRetries": 3, "numNoDelayRetries": 1, "numMinDelayRetries": 1, "numMaxDelayRetries": 1}), 3),
    ] {
        let parsed = parse(written.clone()).unwrap_or_else(|errors| panic!("{written}: {errors:?}"));
        assert_eq!((parsed.layer.retry.unwrap().retries(), parsed.warnings.len()), (retries, 0), "{written}");
    }
}

#[test]
fn retries_may_total_one_hour() {
    let hour = json!({"minDelayTarget": 60, "maxDelayTarget": 60, "numRetries": 60});
    assert_near(total_s(&phased(hour)), 3_600.0);
    // Fractions that sum to a whole hour: 100 retries rising evenly from 1 to 71 s.
    assert_near(total_s(&phased(json!({"minDelayTarget": 1, "maxDelayTarget": 71, "numRetries": 100}))), 3_600.0);
    let longer = json!({"minDelayTarget": 1, "maxDelayTarget": 60, "numRetries": 61, "numMinDelayRetries": 1, "numMaxDelayRetries": 60});
    let errors = parse(longer).unwrap_err();
    assert_eq!(errors[0].pointer, "/healthyRetryPolicy");
    assert!(errors[0].detail.contains("3601.00 s in total"), "{errors:?}");
}

#[test]
fn values_of_older_editions_get_a_warning() {
    let warnings = |value: Value| -> Vec<String> {
        let parsed = Layer::parse(&value, &Terms::default()).unwrap();
        parsed.warnings.into_iter().map(|warning| warning.pointer).collect()
    };
    assert_eq!(warnings(json!({"healthyRetryPolicy": {"minDelayTarget": 0}})), ["/healthyRetryPolicy/minDelayTarget"]);
    assert_eq!(
        warnings(json!({"healthyRetryPolicy": {}, "sicklyRetryPolicy": null, "guaranteed": false})),
        ["/sicklyRetryPolicy", "/guaranteed"]
    );
    assert_eq!(warnings(json!({"sicklyRetryPolicy": {"numRetries": 1000}})), ["/sicklyRetryPolicy"]);
}
