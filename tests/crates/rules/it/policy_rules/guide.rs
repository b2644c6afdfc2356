//! The guide's form: its figures, bounds and defaults.

use bellwire_rules::policy::{Guide, Layer, Retry, Terms};
use serde_json::{Value, json};
use std::time::Duration;

fn parsed(value: Value) -> Result<Guide, Vec<(String, String)>> {
    match Layer::parse(&value, &Terms::default()) {
        Ok(parsed) => match parsed.layer.retry {
            Some(Retry::Guide(guide)) => Ok(guide),
            other => panic!("not the guide's form: {other:?}"),
        },
        Err(errors) => Err(errors.into_iter().map(|e| (e.pointer, e.detail)).collect()),
    }
}

fn nominal_ms(guide: Guide) -> Vec<u128> {
    (0..).map_while(|n| guide.step(n)).map(|step| step.nominal.as_millis()).collect()
}

#[test]
fn guide_assertions_hold_with_the_cap() {
    let guide = parsed(json!({"baseDelayMs": 2000, "maxDelayMs": 60000, "maxAttempts": 8, "jitterPercent": 0.2}));
    let retry = Retry::Guide(guide.unwrap());
    for randomness in [0.0, 0.25, 0.5, 0.999_999] {
        let delays: Vec<_> = (0..8).map(|n| retry.delay(n, randomness).unwrap()).collect();
        assert!(delays[4] <= Duration::from_secs(60));
        assert!(delays[5..].iter().all(|delay| *delay <= Duration::from_secs(60)));
        assert!(delays.windows(2).all(|pair| pair[0] <= pair[1]), "{delays:?}");
    }
    assert_eq!(nominal_ms(guide_of(&retry)), [2000, 4000, 8000, 16000, 32000, 60000, 60000, 60000]);
    assert_eq!(retry.delay(8, 0.5), None);
}

fn guide_of(retry: &Retry) -> Guide {
    match retry {
        Retry::Guide(guide) => *guide,
        other => panic!("not the guide's form: {other:?}"),
    }
}

#[test]
fn jitter_stays_below_the_cap() {
    for jitter in [0.0, 0.2, 0.5, 1.0] {
        let guide = Guide { jitter_share: jitter, max_attempts: 10, ..Guide::DEFAULT };
        let retry = Retry::Guide(guide);
        for n in 0..10 {
            let nominal = guide.step(n).unwrap().nominal.as_secs_f64();
            for tenth in 0..10 {
                let delay = retry.delay(n, f64::from(tenth) / 10.0).unwrap().as_secs_f64();
                assert!(delay >= nominal * (1.0 - jitter) - 1e-9);
                assert!(delay <= (nominal * (1.0 + jitter)).min(60.0) + 1e-9);
            }
        }
    }
    let last = Retry::Guide(Guide { max_attempts: 10, ..Guide::DEFAULT });
    assert_eq!(last.delay(9, 0.0), Some(Duration::from_secs(48)));
    assert_eq!(last.delay(9, 1.0), Some(Duration::from_secs(60)));
}

#[test]
fn immediate_retries_come_first_and_count() {
    let guide = parsed(json!({"baseDelayMs": 1000, "maxAttempts": 5, "immediateRetries": 2})).unwrap();
    assert_eq!(nominal_ms(guide), [0, 0, 1000, 2000, 4000]);
    let only = parsed(json!({"maxAttempts": 1, "immediateRetries": 1})).unwrap();
    assert_eq!(nominal_ms(only), [0]);
}

#[test]
fn omitted_members_take_the_guides_defaults() {
    assert_eq!(parsed(json!({"maxAttempts": 5})).unwrap(), Guide::DEFAULT);
}

#[test]
fn the_extremes_of_every_bound_are_taken() {
    let guide = parsed(json!({
        "baseDelayMs": 86_400_000, "maxDelayMs": 86_400_000, "maxAttempts": 100, "jitterPercent": 1, "immediateRetries": 0,
    }))
    .unwrap();
    assert_eq!(Retry::Guide(guide).delay(99, 1.0), Some(Duration::from_secs(86_400)));
    assert_eq!(nominal_ms(parsed(json!({"baseDelayMs": 1, "maxDelayMs": 1})).unwrap()), [1; 5]);
    assert_eq!(nominal_ms(parsed(json!({"maxAttempts": 0})).unwrap()), [0u128; 0]);
}

#[test]
fn every_bound_is_refused_with_a_pointer() {
    for (value, pointer, word) in [
        (json!({"baseDelayMs": 0}), "/baseDelayMs", "from 1"),
        (json!({"baseDelayMs": 86_400_001, "maxDelayMs": 86_400_001}), "/baseDelayMs", "to 86400000"),
        (json!({"baseDelayMs": 60_001}), "/baseDelayMs", "60000 (the default)"),
        (json!({"maxDelayMs": 1_999}), "/maxDelayMs", "2000 (the default)"),
        (json!({"maxAttempts": 101}), "/maxAttempts", "it is 101"),
        (json!({"maxAttempts": -1}), "/maxAttempts", "integer"),
        (json!({"maxAttempts": 2.5}), "/maxAttempts", "integer"),
        (json!({"maxAttempts": 4_294_967_296u64}), "/maxAttempts", "integer"),
        (json!({"jitterPercent": 1.01}), "/jitterPercent", "from 0 to 1"),
        (json!({"jitterPercent": -0.1}), "/jitterPercent", "from 0 to 1"),
        (json!({"jitterPercent": "20%"}), "/jitterPercent", "number"),
        (json!({"immediateRetries": 6}), "/immediateRetries", "5 (the default)"),
        (json!({"maxAttempts": 3, "backoff": 2}), "/backoff", "unknown"),
        (json!({"maxAttempts": 3, "a/b~c": 2}), "/a~1b~0c", "unknown"),
    ] {
        let errors = parsed(value.clone()).unwrap_err();
        assert!(errors.iter().any(|(at, why)| at == pointer && why.contains(word)), "{value}: {errors:?}");
    }
}
