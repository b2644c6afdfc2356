//! Allowed members of each policy level, and the precedence of levels.

use bellwire_core::delivery::{Tier, Urgency};
use bellwire_rules::policy::{
    Guide, Layer, Parsed, Places, Policy, PolicyError, PolicyLevel, Retry, SetBy, Terms, Throttle, TierDefaults,
    TierSettings,
};
use serde_json::{Value, json};
use std::time::Duration;

fn parse_at(place: PolicyLevel, value: &Value) -> Result<Parsed, Vec<PolicyError>> {
    Layer::parse(value, &Terms { place, ..Terms::default() })
}

fn layer(place: PolicyLevel, value: Value) -> Layer {
    parse_at(place, &value).unwrap_or_else(|errors| panic!("{value}: {errors:?}")).layer
}

fn guide(max_attempts: u32) -> Layer {
    layer(PolicyLevel::Message, json!({ "maxAttempts": max_attempts }))
}

fn retries(places: Places<'_>) -> u32 {
    Policy::in_force(Tier::Promotional, &places).retry.retries()
}

#[test]
fn an_empty_policy_sets_nothing() {
    for value in
        [json!({}), json!({"healthyRetryPolicy": null}), json!({"throttlePolicy": {}}), json!({"requestPolicy": {}})]
    {
        assert_eq!(layer(PolicyLevel::Message, value), Layer::default());
    }
    for value in [json!(null), json!([]), json!("x"), json!(3)] {
        let errors = parse_at(PolicyLevel::Message, &value).unwrap_err();
        assert_eq!((errors[0].pointer.as_str(), errors[0].detail.as_str()), ("", "must be an object"));
    }
}

#[test]
fn the_first_place_that_sets_a_member_wins() {
    let [one, two, three, four] = [1, 2, 3, 4].map(guide);
    let mut places = Places {
        message: Some(&one),
        subscription: Some(&two),
        topic: Some(&three),
        tier: Some(&four),
        server: TierSettings::DEFAULT,
    };
    assert_eq!(retries(places), 1);
    places.message = None;
    assert_eq!(retries(places), 2);
    places.subscription = None;
    assert_eq!(retries(places), 3);
    places.topic = None;
    assert_eq!(retries(places), 4);
    places.tier = None;
    assert_eq!(retries(places), 10);
}

#[test]
fn members_are_inherited_one_by_one() {
    let topic = layer(
        PolicyLevel::Topic,
        json!({"healthyRetryPolicy": {"numRetries": 9}, "requestPolicy": {"headerContentType": "application/json"}}),
    );
    let subscription = layer(PolicyLevel::Subscription, json!({"throttlePolicy": {"maxReceivesPerSecond": 10}}));
    let message = guide(2);
    let places =
        Places { message: Some(&message), subscription: Some(&subscription), topic: Some(&topic), ..Places::default() };
    let policy = Policy::in_force(Tier::Promotional, &places);
    assert_eq!(policy.retry.retries(), 2);
    assert_eq!(policy.throttle, Some(Throttle { max_receives_per_second: 10 }));
    assert_eq!(policy.request.unwrap().header_content_type.as_ref(), "application/json");
}

#[test]
fn a_topic_may_silence_its_subscriptions() {
    let topic = layer(PolicyLevel::Topic, json!({"disableSubscriptionOverrides": true}));
    let (message, subscription, tier) = (guide(1), guide(2), guide(4));
    let mut places =
        Places { subscription: Some(&subscription), topic: Some(&topic), tier: Some(&tier), ..Places::default() };
    assert_eq!(retries(places), 4);
    places.message = Some(&message);
    assert_eq!(retries(places), 1);
    for (place, value) in [
        (PolicyLevel::Subscription, json!({"disableSubscriptionOverrides": true})),
        (PolicyLevel::Topic, json!({"disableSubscriptionOverrides": 1})),
    ] {
        assert_eq!(parse_at(place, &value).unwrap_err()[0].pointer, "/disableSubscriptionOverrides");
    }
}

#[test]
fn forms_are_not_mixed() {
    for value in [
        json!({"retries": 3, "maxAttempts": 3}),
        json!({"retries": 3, "throttlePolicy": {"maxReceivesPerSecond": 1}}),
        json!({"baseDelayMs": 1000, "healthyRetryPolicy": {}}),
        json!({"baseDelayMs": 1000, "preset": null}),
    ] {
        let errors = parse_at(PolicyLevel::Message, &value).unwrap_err();
        assert!(errors[0].pointer.is_empty() && errors[0].detail.contains("mixes the forms"), "{errors:?}");
    }
}

#[test]
fn what_was_stored_reads_as_it_was_meant() {
    let restore = |value: Value| Layer::restore(&value, &Terms::default()).map(|parsed| parsed.layer);
    // A header's timetable beside the throttle of a body in SNS's form.
    let headers = json!({"retries": 3, "retryDelay": "1000", "throttlePolicy": {"maxReceivesPerSecond": 2}});
    let restored = restore(headers).unwrap();
    assert_eq!((restored.retry.unwrap().retries(), restored.throttle.unwrap().max_receives_per_second), (3, 2));
    // The app's maximum fell since.
    assert_eq!(restore(json!({"retries": 900})).unwrap().retry.unwrap().retries(), 5);
    for broken in [
        json!({"retries": 3, "healthyRetryPolicy": {}}),
        json!({"retries": 3, "preset": "sns-aws-managed"}),
        json!({"maxAttempts": 3, "throttlePolicy": {"maxReceivesPerSecond": 2}}),
        json!({"retries": "3"}),
        json!("x"),
    ] {
        assert!(restore(broken.clone()).is_err(), "{broken}");
    }
}

#[test]
fn whose_word_a_member_is_can_be_told() {
    let throttle = |n| layer(PolicyLevel::Message, json!({"throttlePolicy": {"maxReceivesPerSecond": n}}));
    let (message, subscription, tier) = (guide(1), throttle(2), throttle(4));
    let topic = layer(
        PolicyLevel::Topic,
        json!({"requestPolicy": {"headerContentType": "text/plain"}, "disableSubscriptionOverrides": true}),
    );
    let mut places = Places {
        message: Some(&message),
        subscription: Some(&subscription),
        topic: Some(&topic),
        tier: Some(&tier),
        server: TierSettings::DEFAULT,
    };
    let [by_message, by_topic, by_tier] = [PolicyLevel::Message, PolicyLevel::Topic, PolicyLevel::Tier].map(Some);
    assert_eq!(places.set_by(), SetBy { retry: by_message, throttle: by_tier, request: by_topic });
    places.topic = None;
    let by_subscription = Some(PolicyLevel::Subscription);
    assert_eq!(places.set_by(), SetBy { retry: by_message, throttle: by_subscription, request: None });
    assert_eq!(Places::default().set_by(), SetBy { retry: None, throttle: None, request: None });
}

/// The pointer of the first error of a message with this media type.
fn media_type_fault(media_type: &str) -> String {
    let policy = json!({"requestPolicy": {"headerContentType": media_type}});
    parse_at(PolicyLevel::Message, &policy).unwrap_err().remove(0).pointer
}

#[test]
fn a_throttle_and_a_media_type_are_checked() {
    for (place, value, pointer) in [
        (
            PolicyLevel::Message,
            json!({"throttlePolicy": {"maxReceivesPerSecond": 0}}),
            "/throttlePolicy/maxReceivesPerSecond",
        ),
        (
            PolicyLevel::Message,
            json!({"throttlePolicy": {"maxReceivesPerSecond": 1.5}}),
            "/throttlePolicy/maxReceivesPerSecond",
        ),
        (
            PolicyLevel::Message,
            json!({"throttlePolicy": {"maxReceivesPerSecond": 4_294_967_296u64}}),
            "/throttlePolicy/maxReceivesPerSecond",
        ),
        (PolicyLevel::Message, json!({"throttlePolicy": {"rate": 1}}), "/throttlePolicy/rate"),
        (PolicyLevel::Message, json!({"throttlePolicy": 10}), "/throttlePolicy"),
        (
            PolicyLevel::Message,
            json!({"requestPolicy": {"headerContentType": "plain"}}),
            "/requestPolicy/headerContentType",
        ),
        (PolicyLevel::Message, json!({"requestPolicy": {"headerContentType": 1}}), "/requestPolicy/headerContentType"),
        (
            PolicyLevel::Topic,
            json!({"requestPolicy": {"headerContentType": "text/html"}}),
            "/requestPolicy/headerContentType",
        ),
    ] {
        assert_eq!(parse_at(place, &value).unwrap_err()[0].pointer, pointer, "{value}");
    }
    for rate in [1, u32::MAX] {
        let throttle = layer(PolicyLevel::Topic, json!({"throttlePolicy": {"maxReceivesPerSecond": rate}})).throttle;
        assert_eq!(throttle, Some(Throttle { max_receives_per_second: rate }));
    }
    for (place, media_type) in [
        (PolicyLevel::Message, "text/html"),
        (PolicyLevel::Message, "application/vnd.example+json; v=1; note=\"a b\""),
        (PolicyLevel::Message, "text/csv;note=\"a;b=c\" ; header=present"),
        (PolicyLevel::Topic, "Text/Plain; charset=UTF-8"),
        (PolicyLevel::Topic, "application/json"),
    ] {
        let request = layer(place, json!({"requestPolicy": {"headerContentType": media_type}})).request;
        assert_eq!(request.unwrap().header_content_type.as_ref(), media_type);
    }
    for bad in [
        "",
        "/",
        "text/",
        "text/plain;",
        "text/plain; x",
        "text/pla in",
        "a/b\r\nX: y",
        "a/b; c=\"d",
        "a/b; c=\"\"\"",
        "a/b; c=\"\\\"",
        "a/b; c=d e",
        "a/b; =d",
        " a/b",
        "a/b c",
    ] {
        assert_eq!(media_type_fault(bad), "/requestPolicy/headerContentType", "{bad:?}");
    }
    assert_eq!(media_type_fault(&format!("a/{}", "b".repeat(255))), "/requestPolicy/headerContentType");
}

#[test]
fn only_a_tier_overrides_server_defaults() {
    let value =
        json!({"circuitFailureThreshold": 0.2, "circuitOpenMs": 60_000, "retryTokenTtlSec": 60, "maxAttempts": 2});
    let tier = layer(PolicyLevel::Tier, value.clone());
    let policy = Policy::in_force(Tier::Engagement, &Places { tier: Some(&tier), ..Places::default() });
    let expected = TierSettings {
        circuit_failure_threshold: 0.2,
        circuit_open: Duration::from_secs(60),
        retry_token_ttl: Duration::from_secs(60),
        published_retries: false,
        ..TierSettings::GUIDE // the rest is the guide's, as the policy is in its form
    };
    assert_eq!((policy.settings, policy.retry.retries()), (expected, 2));
    assert_eq!(Policy::tier_default(Tier::Engagement).settings, TierSettings::DEFAULT);
    assert_eq!(parse_at(PolicyLevel::Message, &value).unwrap_err().len(), 3);
    for (value, pointer) in [
        (json!({"circuitFailureThreshold": 0}), "/circuitFailureThreshold"),
        (json!({"circuitFailureThreshold": 1.1}), "/circuitFailureThreshold"),
        (json!({"circuitOpenMs": 999}), "/circuitOpenMs"),
        (json!({"circuitOpenMs": 600_001}), "/circuitOpenMs"),
        (json!({"circuitOpenMaxMs": 999}), "/circuitOpenMaxMs"),
        (json!({"circuitMinAttempts": 0}), "/circuitMinAttempts"),
        (json!({"circuitConsecutiveFailures": 1_001}), "/circuitConsecutiveFailures"),
        (json!({"retryTokenTtlSec": 0}), "/retryTokenTtlSec"),
    ] {
        assert_eq!(parse_at(PolicyLevel::Tier, &value).unwrap_err()[0].pointer, pointer);
    }
}

/// Effective policy of a tier with this app-level value, on a server with its own defaults.
fn of_tier(value: Value) -> Policy {
    let tier = layer(PolicyLevel::Tier, value);
    Policy::in_force(Tier::Promotional, &Places { tier: Some(&tier), ..Places::default() })
}

#[test]
fn guide_form_supplies_all_omitted_guide_values() {
    let figures = |value: Value| of_tier(value).settings.to_json();
    let published = json!({"circuitFailureThreshold": 0.05, "circuitMinAttempts": 400, "circuitConsecutiveFailures": 5,
        "circuitOpenMs": 30_000, "circuitOpenMaxMs": 30_000, "retryTokenTtlSec": 300});
    for value in [
        json!({"baseDelayMs": 2_000}),
        json!({"preset": "guide"}),
        json!({"preset": "guide", "maxAttempts": 3}),
        json!({"circuitOpenMs": 30_000}),
    ] {
        assert_eq!(figures(value.clone()), published, "{value}");
    }
    assert_eq!(of_tier(json!({"preset": "guide"})).retry, Retry::Guide(Guide::DEFAULT));
    let given = figures(json!({"preset": "guide", "circuitFailureThreshold": 0.5, "circuitOpenMaxMs": 90_000}));
    assert_eq!((&given["circuitFailureThreshold"], &given["circuitOpenMaxMs"]), (&json!(0.5), &json!(90_000)));
    assert_eq!(given["circuitOpenMs"], 30_000);
    // The other forms publish nothing of breakers, and other places have no say in them.
    let ours = TierSettings::DEFAULT.to_json();
    assert_eq!(figures(json!({"retries": 2})), ours);
    assert_eq!(figures(json!({"preset": "sns-customer-managed"})), ours);
    let message = layer(PolicyLevel::Message, json!({"preset": "guide"}));
    let policy = Policy::in_force(Tier::Promotional, &Places { message: Some(&message), ..Places::default() });
    assert_eq!((policy.retry, policy.settings), (Retry::Guide(Guide::DEFAULT), TierSettings::DEFAULT));
    let server = Places { server: TierSettings::GUIDE, ..Places::default() };
    assert_eq!(Policy::in_force(Tier::Engagement, &server).retry, Retry::Guide(Guide::DEFAULT));
    let mixed = parse_at(PolicyLevel::Message, &json!({"preset": "guide", "throttlePolicy": {}})).unwrap_err();
    assert!(mixed.iter().any(|error| error.detail.contains("SNS and guide")), "{mixed:?}");
}

#[test]
fn misplaced_members_are_reported_with_their_place() {
    for (place, value, word) in [
        (PolicyLevel::Message, json!({"circuitOpenMs": 5_000}), "tier"),
        (PolicyLevel::Subscription, json!({"retryTokenTtlSec": 5}), "tier"),
        (PolicyLevel::Topic, json!({"circuitMinAttempts": 5}), "tier"),
        (PolicyLevel::Tier, json!({"disableSubscriptionOverrides": true}), "topic"),
    ] {
        let errors = parse_at(place, &value).unwrap_err();
        assert!(errors[0].detail.contains("belongs to") && errors[0].detail.contains(word), "{value}: {errors:?}");
    }
    let throttle = json!({"throttlePolicy": {"maxReceivesPerSecond": 5}});
    let warnings = Layer::parse(&throttle, &Terms::default()).unwrap().warnings;
    assert!(warnings.len() == 1 && warnings[0].detail.contains("no retry settings"), "{warnings:?}");
    let both = json!({"throttlePolicy": {"maxReceivesPerSecond": 5}, "healthyRetryPolicy": {}});
    assert!(Layer::parse(&both, &Terms::default()).unwrap().warnings.is_empty());
}

#[test]
fn the_tier_table_holds() {
    for (tier, ttl_s, urgency, delays) in [
        (Tier::Transactional, 600, Urgency::High, &[0, 1, 2, 4, 8, 16, 32, 60][..]),
        (Tier::Promotional, 86_400, Urgency::Normal, &[2, 4, 8, 16, 32, 64, 128, 256, 512, 600]),
        (Tier::Engagement, 259_200, Urgency::Low, &[60, 120, 240, 480, 960]),
    ] {
        let defaults = TierDefaults::of(tier);
        assert_eq!((defaults.ttl_s, defaults.urgency), (ttl_s, urgency));
        let policy = Policy::tier_default(tier);
        let nominal: Vec<_> = (0..).map_while(|n| policy.retry.step(n)).map(|step| step.nominal.as_secs()).collect();
        assert_eq!(nominal, delays, "{tier:?}");
    }
    let ours = TierSettings {
        circuit_failure_threshold: 0.25,
        circuit_open_max: Duration::from_secs(60),
        published_retries: false,
        ..TierSettings::GUIDE
    };
    assert_eq!(Policy::tier_default(Tier::Engagement).settings, ours);
    let json = Policy::tier_default(Tier::Engagement).to_json();
    assert_eq!((&json["maxDelayMs"], &json["jitterPercent"]), (&json!(3_600_000), &json!(0.2)));
}

#[test]
fn a_policy_written_out_reads_back_as_itself() {
    for value in [
        json!({"baseDelayMs": 5, "maxDelayMs": 7, "maxAttempts": 9, "jitterPercent": 0.5, "immediateRetries": 1}),
        json!({"retries": 3, "retryDelay": "pow(2, retried) * 1000"}),
        json!({"retries": 2}),
        json!({"preset": "sns-customer-managed", "throttlePolicy": {"maxReceivesPerSecond": 4}}),
        json!({"healthyRetryPolicy": {"minDelayTarget": 1, "maxDelayTarget": 60, "numRetries": 50, "numNoDelayRetries": 3,
            "numMinDelayRetries": 2, "numMaxDelayRetries": 35, "backoffFunction": "exponential"},
            "requestPolicy": {"headerContentType": "application/json"}}),
    ] {
        let layer = layer(PolicyLevel::Message, value.clone());
        let policy = Policy::in_force(Tier::Promotional, &Places { message: Some(&layer), ..Places::default() });
        assert_eq!(policy.to_json(), value);
    }
}

#[test]
fn server_defaults_apply_where_tiers_are_silent() {
    let server = TierSettings { circuit_open: Duration::from_secs(3), ..TierSettings::DEFAULT };
    let tier = layer(PolicyLevel::Tier, json!({"circuitMinAttempts": 50}));
    let in_force = |places: Places<'_>| Policy::in_force(Tier::Promotional, &places).settings;
    assert_eq!(in_force(Places { server, ..Places::default() }), server);
    let both = in_force(Places { server, tier: Some(&tier), ..Places::default() });
    assert_eq!((both.circuit_open, both.circuit_attempts_min), (server.circuit_open, 50));
}
