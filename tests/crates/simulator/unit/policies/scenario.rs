//! Unit tests of `crates/bellwire-simulator/src/policies/scenario.rs`, which includes them.

use super::*;

#[test]
fn built_in_scenarios_are_sound_and_described() {
    for name in Scenario::names() {
        let scenario = Scenario::parse(Scenario::built_in(name).unwrap()).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(!scenario.about.is_empty(), "{name}");
        let again = serde_json::to_string(&scenario).unwrap();
        assert_eq!(Scenario::parse(&again).unwrap(), scenario, "{name}");
    }
}

#[test]
fn mistakes_are_told_with_a_pointer() {
    for (text, pointer, word) in [
        ("{", "", "EOF"),
        ("{} x", "", "trailing"),
        (r#"{"arival": {}}"#, "/arival", "unknown field"),
        (r#"{"arrival": {"deliveries": 0}}"#, "/arrival/deliveries", "from 1 to 5000000; it is 0"),
        (r#"{"arrival": {"deliveries": -1}}"#, "/arrival/deliveries", "invalid value"),
        (r#"{"arrival": {"over_s": 1e300}}"#, "/arrival/over_s", "to 2419200"),
        (r#"{"tier": "vip"}"#, "/tier", "must be transactional"),
        (r#"{"ttl_s": 2419201}"#, "/ttl_s", "to 2419200"),
        (r#"{"workers": {"replicas": 17}}"#, "/workers/replicas", "from 1 to 16"),
        (r#"{"workers": {"concurrency": 5000}}"#, "/workers/concurrency", "to 4096"),
        (r#"{"gateway": {"latency": {"p50_ms": 300}}}"#, "/gateway/latency/p99_ms", "from 300"),
        (r#"{"gateway": {"overload": {}}}"#, "/gateway/overload", "either status or failure"),
        (r#"{"gateway": {"capacity_per_s": 0}}"#, "/gateway/capacity_per_s", "from 1"),
        (r#"{"gateway": {"faults": [{"answer": {"status": 99}}]}}"#, "/gateway/faults/0/answer/status", "from 100"),
        (
            r#"{"gateway": {"faults": [{"answer": {"failure": "timeout", "retry_after_s": 1}}]}}"#,
            "/gateway/faults/0/answer/retry_after_s",
            "needs a status",
        ),
        (r#"{"gateway": {"faults": [{"answer": {"status": 503}, "rate": 0}]}}"#, "/gateway/faults/0/rate", "above 0"),
        (r#"{"gateway": {"faults": [{"answer": {"status": 503}, "for_s": 0}]}}"#, "/gateway/faults/0/for_s", "above 0"),
        (r#"{"gateway": {"faults": [{"rate": 1}]}}"#, "/gateway/faults/0", "missing field `answer`"),
    ] {
        let error = Scenario::parse(text).unwrap_err();
        assert!(error.pointer == pointer && error.detail.contains(word), "{text}: {error}");
    }
    assert!(Scenario::parse(&" ".repeat(TEXT_MAX + 1)).unwrap_err().detail.contains("longer"));
}

#[test]
fn latencies_keep_their_quantiles() {
    let latency = Latency { p50_ms: 100, p99_ms: 900 };
    let mut drawn: Vec<_> =
        (0..10_000).map(|n| latency.draw(f64::from(n % 100) / 100.0, f64::from(n / 100) / 100.0)).collect();
    drawn.sort();
    let ms = |share: usize| drawn[share * 100].as_millis();
    assert!((90..=110).contains(&ms(50)) && (750..=1_050).contains(&ms(99)), "{} {}", ms(50), ms(99));
    let constant = Latency { p50_ms: 70, p99_ms: 70 };
    assert_eq!(constant.draw(0.9, 0.3), Duration::from_millis(70));
}

#[test]
fn last_ended_outage_is_the_recovered_one() {
    let scenario = Scenario::parse(
        r#"{"gateway": {"faults": [
                {"from_s": 5, "for_s": 10, "answer": {"status": 503}},
                {"from_s": 20, "for_s": 30, "rate": 0.5, "answer": {"status": 503}},
                {"from_s": 900, "answer": {"failure": "refused"}}]}}"#,
    );
    let scenario = scenario.unwrap();
    assert_eq!(scenario.recovery_s(), Some(15.0));
    assert_eq!(scenario.outages().count(), 2);
    assert!(scenario.gateway.faults[2].is_on(1e9) && !scenario.gateway.faults[0].is_on(15.0));
}
