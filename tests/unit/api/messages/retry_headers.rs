//! Unit tests of `src/api/messages/retry_headers.rs`, which includes them.

use axum::http::{HeaderName, HeaderValue};

use super::*;

fn headers(given: &[(&'static str, &'static str)]) -> Result<RetryHeaders, Problem> {
    let pair =
        |(name, value): &(&str, &'static str)| (name.parse::<HeaderName>().unwrap(), HeaderValue::from_static(value));
    RetryHeaders::read(&given.iter().map(pair).collect())
}

fn header_at_fault(problem: &Problem) -> &str {
    assert_eq!(problem.status.as_u16(), 400);
    problem.errors[0].header.as_deref().unwrap()
}

#[test]
fn both_spellings_agree_or_conflict() {
    for names in [["Bellwire-Retries", "Bellwire-Retry-Delay"], ["upstash-retries", "upstash-retry-delay"]] {
        let read = headers(&[(names[0], " 3 "), (names[1], "pow(2, retried) * 1000")]).unwrap();
        let policy = json!({"retries": 3, "retryDelay": "pow(2, retried) * 1000"});
        assert_eq!(read.over(None), Some(policy));
    }
    assert!(headers(&[("Bellwire-Retries", "3"), ("Upstash-Retries", "03")]).is_ok());
    for given in [
        [("Bellwire-Retries", "3"), ("Upstash-Retries", "4")],
        [("Bellwire-Retry-Delay", "1"), ("Upstash-Retry-Delay", "2")],
    ] {
        let problem = headers(&given).unwrap_err();
        assert_eq!(header_at_fault(&problem), given[1].0);
        assert!(problem.detail.contains(given[0].0), "{}", problem.detail);
    }
    assert!(headers(&[]).unwrap().is_empty());
}

#[test]
fn invalid_value_names_its_header() {
    for (name, value) in [
        ("Bellwire-Retries", ""),
        ("Bellwire-Retries", "-1"),
        ("Bellwire-Retries", "+1"),
        ("Upstash-Retries", "1.5"),
        ("Upstash-Retries", "three"),
        ("Upstash-Retries", "4294967296"),
        ("Bellwire-Retry-Delay", " "),
        ("Upstash-Retry-Delay", "\t"),
    ] {
        assert_eq!(header_at_fault(&headers(&[(name, value)]).unwrap_err()), name, "{value:?}");
    }
}

#[test]
fn header_overrides_only_the_timetable() {
    let two = headers(&[("Bellwire-Retries", "2")]).unwrap();
    for (body, expected) in [
        (json!({}), json!({"retries": 2})),
        (json!({"retries": 4, "retryDelay": "1000"}), json!({"retries": 2, "retryDelay": "1000"})),
        (json!({"maxAttempts": 9}), json!({"retries": 2})),
        (json!({"preset": "sns-aws-managed"}), json!({"retries": 2})),
        (
            json!({"healthyRetryPolicy": {}, "throttlePolicy": {"maxReceivesPerSecond": 1}, "requestPolicy": {}}),
            json!({"retries": 2, "throttlePolicy": {"maxReceivesPerSecond": 1}, "requestPolicy": {}}),
        ),
    ] {
        let stands = two.over(Some(body)).unwrap();
        assert_eq!(stands, expected);
        let layer = Layer::restore(&stands, &Terms::default()).unwrap().layer;
        assert_eq!(layer.retry.unwrap().retries(), 2);
        assert_eq!(layer.throttle.is_some(), expected.get("throttlePolicy").is_some());
    }
    assert_eq!(RetryHeaders::default().over(None), None);
    assert_eq!(RetryHeaders::default().over(Some(json!({"maxAttempts": 9}))), Some(json!({"maxAttempts": 9})));
}

#[test]
fn header_faults_differ_from_body_faults() {
    let check = |given: &[(&'static str, &'static str)], body: Value| {
        let mut faults = Faults::default();
        let checked = headers(given).unwrap().check(Some(&body), &Terms::default(), &mut faults)?;
        faults.finish().map(|()| checked)
    };
    let problem = check(&[("Upstash-Retries", "6")], json!({})).unwrap_err();
    assert_eq!(header_at_fault(&problem), "Upstash-Retries");
    assert!(problem.detail.contains("maximum, 5"), "{}", problem.detail);
    let problem = check(&[("Bellwire-Retry-Delay", "1000 *")], json!({"maxAttempts": 2})).unwrap_err();
    assert_eq!(header_at_fault(&problem), "Bellwire-Retry-Delay");
    assert!(problem.detail.contains("at character 7"), "{}", problem.detail);
    // The body's expression fails for a retry that the header allows.
    let problem = check(&[("Bellwire-Retries", "4")], json!({"retryDelay": "1000 * (2 - retried)"})).unwrap_err();
    assert_eq!(problem.errors[0].pointer.as_deref(), Some("/policy/retryDelay"));
    // And is fine once the header allows fewer.
    assert!(check(&[("Bellwire-Retries", "3")], json!({"retryDelay": "1000 * (2 - retried)"})).unwrap());
    assert!(!check(&[("Bellwire-Retries", "3")], json!({"maxAttempts": 2})).unwrap());
    assert!(!check(&[], json!({"retries": 99})).unwrap());
}

#[test]
fn another_header_makes_another_request() {
    let digest = |given: &[(&'static str, &'static str)]| headers(given).unwrap().digest(b"{}").as_ref().to_vec();
    let three = digest(&[("Bellwire-Retries", "3")]);
    assert_eq!(three, digest(&[("Upstash-Retries", "3")]));
    for other in [
        digest(&[]),
        digest(&[("Bellwire-Retries", "2")]),
        digest(&[("Bellwire-Retry-Delay", "3")]),
        digest(&[("Bellwire-Retries", "3"), ("Bellwire-Retry-Delay", "3")]),
    ] {
        assert_ne!(three, other);
    }
}
