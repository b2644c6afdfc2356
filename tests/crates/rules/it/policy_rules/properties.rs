//! Properties of every policy, tried on generated inputs.

use proptest::prelude::*;
use serde_json::{Value, json};

use bellwire_core::delivery::Tier;
use bellwire_rules::policy::expression::Expression;
use bellwire_rules::policy::{Backoff, Layer, Places, Policy, PolicyLevel, Retry, Terms};

/// Sums and products of fractions may miss the exact value by a little.
const SLACK_S: f64 = 1e-6;

fn targets() -> impl Strategy<Value = (u32, u32)> {
    (0..=3_600u32).prop_flat_map(|max| (0..=max, Just(max)))
}

/// Written policies of SNS's form, within the bounds of each member; not all keep to the total.
fn sns() -> impl Strategy<Value = Value> {
    let counts = (0..=30u32, 0..=30u32, 0..=30u32, 0..=10u32);
    (targets(), counts, prop::sample::select(&Backoff::ALL[..])).prop_map(|((min, max), (none, pre, post, k), function)| {
        json!({"healthyRetryPolicy": {"minDelayTarget": min, "maxDelayTarget": max, "numRetries": none + pre + post + k,
            "numNoDelayRetries": none, "numMinDelayRetries": pre, "numMaxDelayRetries": post,
            "backoffFunction": function.name()}})
    })
}

fn guide() -> impl Strategy<Value = Value> {
    let delays = (1..=86_400_000u32).prop_flat_map(|max| (1..=max, Just(max)));
    let retries = (0..=100u32).prop_flat_map(|most| (0..=most, Just(most)));
    (delays, retries, 0.0..=1.0f64).prop_map(|((base, max), (immediate, attempts), jitter)| {
        json!({"baseDelayMs": base, "maxDelayMs": max, "maxAttempts": attempts, "jitterPercent": jitter,
            "immediateRetries": immediate})
    })
}

fn qstash() -> impl Strategy<Value = Value> {
    let delay = prop_oneof![
        Just(None),
        (0..1_000_000u32).prop_map(|ms| Some(format!("{ms} * (1 + retried)"))),
        (1..9u32).prop_map(|base| Some(format!("pow({base}, retried) * 1000"))),
    ];
    (0..=40u32, delay).prop_map(|(retries, delay)| match delay {
        None => json!({ "retries": retries }),
        Some(delay) => json!({"retries": retries, "retryDelay": delay}),
    })
}

/// Any JSON value, with known and unknown policy members.
fn any_json() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        (0..5_000u32).prop_map(Value::from),
        ".{0,12}".prop_map(Value::from),
        prop::sample::select(vec!["linear", "sns-aws-managed", "text/plain", "retried * 2"]).prop_map(Value::from),
    ];
    let names = "[a-z~/]{0,3}|healthyRetryPolicy|throttlePolicy|requestPolicy|preset|sicklyRetryPolicy|guaranteed|\
        minDelayTarget|maxDelayTarget|numRetries|numNoDelayRetries|backoffFunction|maxReceivesPerSecond|headerContentType|\
        retries|retryDelay|baseDelayMs|maxDelayMs|maxAttempts|jitterPercent|immediateRetries|circuitOpenMs|\
        circuitFailureThreshold|retryTokenTtlSec|disableSubscriptionOverrides";
    leaf.prop_recursive(3, 24, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::btree_map(names, inner, 0..6)
                .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

fn parsed(policy: &Value) -> Option<Retry> {
    Layer::parse(policy, &Terms { max_retries: 1_000, ..Terms::default() }).ok()?.layer.retry
}

fn nominal_s(retry: &Retry) -> Vec<f64> {
    (0..).map_while(|n| retry.step(n)).map(|step| step.nominal.as_secs_f64()).collect()
}

proptest! {
    #[test]
    fn backoff_meets_both_ends_in_order((min, max) in targets(), k in 1..=100u32) {
        let (min, max) = (f64::from(min), f64::from(max));
        let all = Backoff::ALL.map(|function| (0..k).map(|i| function.delay_s(i, k, min, max)).collect::<Vec<_>>());
        for delays in &all {
            prop_assert_eq!(delays[0], min);
            prop_assert!(k == 1 || delays[k as usize - 1] == max);
            prop_assert!(delays.windows(2).all(|pair| pair[0] <= pair[1] + SLACK_S), "{:?}", delays);
            prop_assert!(delays.iter().all(|s| (min..=max).contains(s)), "{:?}", delays);
        }
        let [linear, arithmetic, geometric, exponential] = &all;
        let never_above = |lower: &[f64], upper: &[f64]| lower.iter().zip(upper).all(|(l, u)| *l <= u + SLACK_S);
        prop_assert!(never_above(arithmetic, linear) && never_above(exponential, arithmetic));
        prop_assert!(min == 0.0 || never_above(geometric, linear), "from 0 it goes on as if from 1");
    }

    #[test]
    fn sns_jitter_and_total_are_bounded(
        policy in sns(),
        randomness in 0.0..1.0f64,
    ) {
        // What asks for more than an hour is refused.
        let Some(retry) = parsed(&policy) else { return Ok(()) };
        let nominal = nominal_s(&retry);
        prop_assert!(nominal.iter().sum::<f64>() <= 3_600.0 + SLACK_S);
        prop_assert_eq!(nominal.len(), policy["healthyRetryPolicy"]["numRetries"].as_u64().unwrap() as usize);
        for (n, nominal) in (0..).zip(nominal) {
            let delay = retry.delay(n, randomness).unwrap().as_secs_f64();
            prop_assert!(delay >= 0.8 * nominal - SLACK_S && delay <= nominal + SLACK_S);
        }
    }

    #[test]
    fn guide_jitter_stays_in_its_band(policy in guide(), randomness in 0.0..1.0f64) {
        let retry = parsed(&policy).expect("within every bound");
        let share = policy["jitterPercent"].as_f64().unwrap();
        let cap = policy["maxDelayMs"].as_f64().unwrap() / 1_000.0;
        let nominal = nominal_s(&retry);
        prop_assert!(nominal.windows(2).all(|pair| pair[0] <= pair[1]));
        prop_assert_eq!(nominal.len(), policy["maxAttempts"].as_u64().unwrap() as usize);
        for (n, nominal) in (0..).zip(nominal) {
            let delay = retry.delay(n, randomness).unwrap().as_secs_f64();
            prop_assert!(delay >= nominal * (1.0 - share) - SLACK_S);
            prop_assert!(delay <= (nominal * (1.0 + share)).min(cap) + SLACK_S);
        }
    }

    #[test]
    fn qstash_delays_are_exact_and_bounded(policy in qstash(), randomness in 0.0..1.0f64) {
        let retry = parsed(&policy).expect("within every bound");
        let nominal = nominal_s(&retry);
        prop_assert_eq!(nominal.len(), policy["retries"].as_u64().unwrap() as usize);
        for (n, nominal) in (0..).zip(nominal) {
            prop_assert!((0.0..=86_400.0).contains(&nominal));
            prop_assert_eq!(retry.delay(n, randomness).unwrap().as_secs_f64(), nominal);
        }
    }

    #[test]
    fn written_policy_reads_back_as_itself(policy in prop_oneof![sns(), guide(), qstash()]) {
        let terms = Terms { max_retries: 1_000, ..Terms::default() };
        let in_force = |layer: &Layer| {
            Policy::in_force(Tier::Engagement, &Places { message: Some(layer), ..Places::default() })
        };
        if let Ok(first) = Layer::parse(&policy, &terms) {
            let first = in_force(&first.layer);
            let again = in_force(&Layer::restore(&first.to_json(), &terms).unwrap().layer);
            prop_assert_eq!(first.retry, again.retry);
        }
    }

    #[test]
    fn parser_never_panics_and_points_into_json(policy in any_json()) {
        for place in [PolicyLevel::Message, PolicyLevel::Subscription, PolicyLevel::Topic, PolicyLevel::Tier] {
            let terms = Terms { place, max_retries: 1_000 };
            match Layer::parse(&policy, &terms) {
                Ok(parsed) => prop_assert_eq!(Layer::restore(&policy, &terms), Ok(parsed)),
                Err(errors) => {
                    prop_assert!(!errors.is_empty());
                    for error in errors {
                        // It points at a member that is there, or at the object that lacks one.
                        let parent = error.pointer.rfind('/').map_or("", |end| &error.pointer[..end]);
                        prop_assert!(policy.pointer(parent).is_some(), "{}", error);
                    }
                }
            }
        }
    }

    #[test]
    fn no_text_makes_an_expression_panic(text in prop_oneof![
        any::<String>(),
        "[-+*/(), .0-9a-z_é\u{0}]{0,300}",
        "(-|\\(|1|\\.5|9{1,200}|retried|pow\\(|min\\(|exp\\(|sqrt\\(|,|\\)|\\+|\\*|/| ){0,80}",
    ], retried in any::<u32>()) {
        match Expression::parse(&text) {
            Ok(expression) => {
                prop_assert!(text.len() <= 256);
                expression.value(retried);
            }
            Err(error) => prop_assert!((1..=text.chars().count() + 1).contains(&error.position), "{}", error),
        }
    }
}
