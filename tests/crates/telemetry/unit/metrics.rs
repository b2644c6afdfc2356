//! Unit tests of `crates/bellwire-telemetry/src/metrics.rs`, which includes them.

use uuid::Uuid;

use super::*;
use bellwire_core::id::{AppId, LaneId};

#[test]
fn each_count_lands_in_its_own_series() {
    let metrics = Metrics::new();
    metrics.attempt(Gateway::Wns, Tier::Promotional, Some(201), Duration::from_millis(30));
    metrics.attempt(Gateway::Wns, Tier::Promotional, None, Duration::from_secs(10));
    metrics.ended(Ending::Gone, Tier::Engagement, 3);
    let route = "/v1/apps/{app}/messages".to_owned();
    metrics.request(&Method::POST, route.clone(), "https", 202, Duration::from_millis(8));
    metrics.request(&Method::POST, route, "https", 503, Duration::from_secs(20));
    let invented = Method::from_bytes(b"INVENTED").unwrap();
    metrics.request(&invented, String::new(), "http", 404, Duration::ZERO);
    metrics.settle_fenced.inc();
    metrics.clock_offset_s.set(-0.25);
    metrics.show_pool("api", 5, 2);
    metrics.show_subscriptions(&[(Gateway::Fcm, 12)]);
    metrics.show_due(7, Duration::from_millis(1_500));
    metrics.webhook_request(DeliveryState::Pending);
    metrics.show_webhooks(3, Duration::from_secs(90));
    let text = metrics.render();
    for line in [
        r#"bellwire_attempts_total{gateway="wns",status="2xx",tier="promotional"} 1"#,
        r#"bellwire_attempts_total{gateway="wns",status="none",tier="promotional"} 1"#,
        r#"bellwire_attempts_total{gateway="fcm",status="2xx",tier="promotional"} 0"#,
        r#"bellwire_deliveries_ended_total{ending="gone",tier="engagement"} 3"#,
        r#"bellwire_attempt_seconds_count{gateway="wns"} 2"#,
        r#"http_server_request_duration_seconds_bucket{le="0.005",http_request_method="POST",http_response_status_code="202",url_scheme="https",http_route="/v1/apps/{app}/messages"} 0"#,
        r#"http_server_request_duration_seconds_bucket{le="0.01",http_request_method="POST",http_response_status_code="202",url_scheme="https",http_route="/v1/apps/{app}/messages"} 1"#,
        r#"http_server_request_duration_seconds_bucket{le="10.0",http_request_method="POST",http_response_status_code="503",url_scheme="https",http_route="/v1/apps/{app}/messages",error_type="503"} 0"#,
        r#"http_server_request_duration_seconds_sum{http_request_method="POST",http_response_status_code="503",url_scheme="https",http_route="/v1/apps/{app}/messages",error_type="503"} 20.0"#,
        r#"http_server_request_duration_seconds_count{http_request_method="_OTHER",http_response_status_code="404",url_scheme="http"} 1"#,
        "bellwire_settle_fenced_total 1",
        "bellwire_clock_offset_seconds -0.25",
        r#"bellwire_database_connections{pool="api",state="used"} 3"#,
        r#"bellwire_subscriptions_active{gateway="fcm"} 12"#,
        r#"bellwire_subscriptions_active{gateway="apple"} 0"#,
        "bellwire_webhook_requests_total{outcome=\"retried\"} 1",
        "bellwire_webhook_requests_total{outcome=\"delivered\"} 0",
        "bellwire_webhooks_pending 3",
        "bellwire_webhooks_oldest_pending_seconds 90.0",
        "bellwire_deliveries_due 7",
        "bellwire_oldest_due_seconds 1.5",
        concat!(r#"bellwire_build_info{version=""#, env!("CARGO_PKG_VERSION"), r#""} 1"#),
    ] {
        assert!(text.lines().any(|written| written == line), "{line} is missing in\n{text}");
    }
    assert!(text.ends_with("# EOF\n") && text.matches("# EOF").count() == 1, "one end, at the end");
    for name in ["process_cpu_seconds_total", "process_resident_memory_bytes", "process_open_fds"] {
        let value = text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<f64>().ok());
        assert!(!cfg!(target_os = "linux") || value.is_some(), "{name} in\n{text}");
    }
    let in_other_units = ["_ms", "_us", "milliseconds", "microseconds", "kilobytes"];
    let named = |line: &&str| in_other_units.iter().any(|unit| line.contains(unit));
    assert_eq!(text.lines().filter(|line| !line.starts_with('#')).find(named), None, "seconds and bytes only");
}

#[test]
fn lane_series_are_limited_worst_first() {
    let lane = |number, first_accepted| {
        let mut sums = reliability::Sums::default();
        sums.add(reliability::ReliabilityCount::FirstRetries as i16, 100);
        sums.add(reliability::ReliabilityCount::FirstAccepted as i16, first_accepted);
        let tiers = [(Some(Tier::Promotional), sums)].into();
        LaneSums { lane: LaneId(number), app: AppId(Uuid::nil()), gateway: Gateway::Fcm, tiers }
    };
    let mut lanes: Vec<LaneSums> = (1..=150).map(|number| lane(number, 100)).collect();
    lanes.push(lane(151, 0));
    let metrics = Metrics::new();
    metrics.show_slis(&lanes);
    let text = metrics.render();
    let shown: std::collections::BTreeSet<&str> = text
        .lines()
        .filter_map(|line| line.strip_prefix("bellwire_sli{")?.split_once("lane=\"")?.1.split('"').next())
        .collect();
    assert_eq!((shown.len(), shown.contains("151")), (LANES_MAX, true), "{shown:?}");
}

#[test]
fn every_gateway_tier_and_ending_has_its_series() {
    let metrics = Metrics::new();
    for gateway in Gateway::ALL {
        for tier in Tier::ALL {
            metrics.attempt(gateway, tier, Some(201), Duration::ZERO);
            metrics.lag(tier, Duration::ZERO);
            Ending::ALL.iter().for_each(|&ending| metrics.ended(ending, tier, 1));
        }
    }
    let text = metrics.render();
    let counted = |series: &str, n: &str| text.lines().filter(|l| l.starts_with(series) && l.ends_with(n)).count();
    assert_eq!(counted("bellwire_attempts_total", " 1"), Gateway::ALL.len() * Tier::ALL.len());
    assert_eq!(counted("bellwire_deliveries_ended_total", " 5"), Ending::ALL.len() * Tier::ALL.len());
    assert_eq!(counted("bellwire_queue_lag_seconds_count", " 5"), Tier::ALL.len());
}
