//! The simulation follows the server's rules, and its account adds up.

use bellwire_core::delivery::Tier;
use bellwire_rules::policy::{Layer, Places, Policy, Terms};
use bellwire_simulator::policies::{self, STEPS_MAX, Scenario, SimulationReport, TooLong};
use serde_json::{Value, json};

fn scenario(value: Value) -> Scenario {
    Scenario::parse(&value.to_string()).unwrap()
}

fn policy(value: &Value) -> Policy {
    let layer = Layer::parse(value, &Terms { max_retries: 100, ..Terms::default() }).unwrap().layer;
    Policy::in_force(Tier::Promotional, &Places { message: Some(&layer), ..Places::default() })
}

fn run(scenario: &Scenario, policy: &Policy, seed: u64) -> Result<SimulationReport, TooLong> {
    policies::run(scenario, policy, seed, STEPS_MAX)
}

fn default() -> Policy {
    Policy::tier_default(Tier::Promotional)
}

fn ended(report: &SimulationReport) -> u64 {
    let dead: u64 = report.dead.values().sum();
    report.accepted_at_once + report.accepted_after_retry + report.gone + report.expired + dead
}

#[test]
fn each_delivery_ends_once_in_every_scenario() {
    for name in Scenario::names() {
        let mut built_in = Scenario::parse(Scenario::built_in(name).unwrap()).unwrap();
        built_in.arrival.deliveries = built_in.arrival.deliveries.min(3_000);
        for (breaker, jitter, adaptive, replicas) in
            [(true, true, true, 1), (false, true, false, 2), (true, false, true, 3), (false, false, false, 1)]
        {
            let mut scenario = built_in.clone();
            (scenario.breaker, scenario.jitter) = (breaker, jitter);
            (scenario.workers.adaptive, scenario.workers.replicas) = (adaptive, replicas);
            let report = run(&scenario, &default(), 1).unwrap();
            assert_eq!(ended(&report), u64::from(scenario.arrival.deliveries), "{name}: {report:?}");
            assert_eq!(report.posts_in_vain, report.posts - report.accepted_at_once - report.accepted_after_retry);
            assert!(report.posts >= report.deliveries - report.expired, "{name}: {report:?}");
        }
    }
}

#[test]
fn a_seed_decides_everything() {
    let flaky = scenario(json!({"arrival": {"deliveries": 5_000}, "gateway": {"faults": [
        {"rate": 0.2, "answer": {"status": 503}}]}}));
    let report = run(&flaky, &default(), 7).unwrap();
    assert_eq!(report, run(&flaky, &default(), 7).unwrap());
    assert_ne!(report, run(&flaky, &default(), 8).unwrap());
}

#[test]
fn a_gateway_that_copes_gets_one_post_each() {
    let report = run(&scenario(json!({"arrival": {"deliveries": 10_000, "over_s": 10}})), &default(), 1).unwrap();
    assert_eq!((report.posts, report.accepted_at_once, report.breaker_trips), (10_000, 10_000, 0));
    let times = report.to_acceptance.unwrap();
    assert!(times.p50_s < 0.1 && times.max_s < 3.0, "{times:?}");
    assert_eq!(report.load.posts_per_s.iter().sum::<u32>(), 10_000);
}

#[test]
fn open_breaker_keeps_load_off_without_attempts() {
    // Down for ten minutes: longer than all retries of the policy take together.
    let down = json!({"arrival": {"deliveries": 2_000, "over_s": 20}, "gateway": {"faults": [
        {"for_s": 600, "answer": {"status": 503}}]}});
    let with = run(&scenario(down.clone()), &policy(&json!({"maxAttempts": 5})), 1).unwrap();
    let mut scenario = scenario(down);
    (scenario.breaker, scenario.workers.adaptive) = (false, false);
    let without = run(&scenario, &policy(&json!({"maxAttempts": 5})), 1).unwrap();
    assert!(with.posts_in_vain < 100, "{with:?}");
    assert_eq!(with.accepted_at_once + with.accepted_after_retry + with.dead.values().sum::<u64>(), 2_000);
    assert!(with.accepted_at_once > 1_900 && with.breaker_trips >= 4, "{with:?}");
    assert_eq!(without.dead, [("retries_exhausted", 2_000)].into());
    assert_eq!((without.posts, without.breaker_trips), (12_000, 0));
}

#[test]
fn random_failures_do_not_throttle_a_lane() {
    for (rate, within_s) in [(0.005, 30.0), (0.01, 40.0), (0.05, 80.0)] {
        let flaky = scenario(json!({"arrival": {"deliveries": 100_000, "over_s": 20},
            "gateway": {"faults": [{"rate": rate, "answer": {"status": 503}}]}}));
        let report = run(&flaky, &default(), 1).unwrap();
        let times = report.to_acceptance.unwrap();
        assert!(times.p99_s < within_s && report.dead.is_empty(), "{rate}: {times:?}");
        assert_eq!(report.breaker_trips, 0, "{rate}");
    }
}

#[test]
fn fast_failures_do_not_slow_a_campaign() {
    let busy = |faults: Value, seed| {
        let scenario = scenario(json!({"arrival": {"deliveries": 6_000, "over_s": 0}, "gateway": {
            "latency": {"p50_ms": 400, "p99_ms": 800}, "faults": faults}}));
        run(&scenario, &default(), seed).unwrap()
    };
    for seed in 1..=8 {
        let flaky = busy(json!([{"rate": 0.05, "answer": {"status": 503, "after_ms": 1}}]), seed);
        assert_eq!((flaky.breaker_trips, flaky.dead.len()), (0, 0), "{flaky:?}");
        let [calm, flaky] = [busy(json!([]), seed), flaky].map(|report| report.to_acceptance.unwrap());
        assert!(flaky.p50_s <= calm.p50_s * 1.2, "{} instead of {} with seed {seed}", flaky.p50_s, calm.p50_s);
        assert!(flaky.p95_s <= calm.p95_s * 1.2, "{} instead of {} with seed {seed}", flaky.p95_s, calm.p95_s);
    }
}

#[test]
fn overloaded_gateway_receives_little_more() {
    let wall = scenario(json!({"arrival": {"deliveries": 100_000, "over_s": 60},
        "gateway": {"capacity_per_s": 500, "overload": {"status": 503}}}));
    let report = run(&wall, &default(), 1).unwrap();
    assert!(report.breaker_trips <= 3 && report.posts_in_vain < 1_500, "{report:?}");
    assert!(report.to_acceptance.unwrap().max_s < 400.0 && report.dead.is_empty(), "{report:?}");
}

#[test]
fn without_jitter_delays_are_nominal() {
    let quiet = json!({"jitter": false, "breaker": false, "workers": {"adaptive": false},
        "arrival": {"deliveries": 1, "over_s": 0},
        "gateway": {"latency": {"p50_ms": 100, "p99_ms": 100}, "faults": [{"for_s": 9, "answer": {"status": 503}}]}});
    // POSTs at 0, 2.1, 6.2 and 14.3 s, of which the last is accepted 100 ms later.
    let report = run(&scenario(quiet.clone()), &default(), 3).unwrap();
    assert_eq!((report.posts, report.to_acceptance.unwrap().max_s), (4, 14.4));
    let mut jittered = quiet;
    jittered["jitter"] = true.into();
    let report = run(&scenario(jittered), &default(), 3).unwrap();
    assert_ne!(report.to_acceptance.unwrap().max_s, 14.4);
}

#[test]
fn throttled_site_is_probed_and_loses_nothing() {
    for (retry_after_s, for_s) in [(Value::Null, 600), (json!(30), 600), (json!(86_400), 3_000)] {
        let throttled = scenario(json!({"ttl_s": 172_800, "arrival": {"deliveries": 5_000, "over_s": 10}, "gateway": {
            "faults": [{"for_s": for_s, "answer": {"status": 429, "retry_after_s": retry_after_s}}]}}));
        let report = run(&throttled, &default(), 1).unwrap();
        assert_eq!(report.accepted_at_once + report.accepted_after_retry, 5_000, "{retry_after_s}: {report:?}");
        assert!(report.posts_in_vain < 150 && report.breaker_trips == 0, "{retry_after_s}: {report:?}");
        assert!((8..=60).contains(&report.holds), "one for each minute: {report:?}");
    }
}

#[test]
fn site_limited_to_a_rate_loses_nothing() {
    // Chrome lets a disruptive site send a thousand pushes a minute.
    for (tier, deliveries, ttl_s) in [("promotional", 20_000, 86_400), ("transactional", 2_000, 600)] {
        let limited =
            scenario(json!({"tier": tier, "ttl_s": ttl_s, "arrival": {"deliveries": deliveries, "over_s": 20},
            "gateway": {"capacity_per_s": 17, "overload": {"status": 429}}}));
        let policy = Policy::tier_default(limited.tier);
        let report = run(&limited, &policy, 1).unwrap();
        assert_eq!(report.accepted_at_once + report.accepted_after_retry, deliveries, "{tier}: {report:?}");
        let at_best_s = deliveries as f64 / 17.0;
        assert!(report.to_acceptance.unwrap().max_s < at_best_s * 3.0, "{tier}: {:?}", report.to_acceptance);
    }
}

#[test]
fn throttled_devices_leave_others_at_full_speed() {
    let devices = Scenario::parse(Scenario::built_in("devices").unwrap()).unwrap();
    let report = run(&devices, &default(), 1).unwrap();
    assert_eq!((report.holds, report.accepted_at_once + report.accepted_after_retry), (0, 60_000), "{report:?}");
    let times = report.to_acceptance.unwrap();
    assert!(times.p95_s < 0.5 && times.max_s < 60.0, "{times:?}");
    for seed in 1..=5 {
        let lasting = scenario(json!({"arrival": {"deliveries": 60_000, "over_s": 20}, "gateway": {"faults": [
            {"rate": 0.05, "sticky": true, "answer": {"status": 429, "retry_after_s": 5, "after_ms": 1}}]}}));
        let report = run(&lasting, &default(), seed).unwrap();
        assert!(report.holds == 0 && report.accepted_at_once.abs_diff(57_000) <= 2, "{report:?}");
        assert!(report.to_acceptance.unwrap().max_s < 2.0, "{:?}", report.to_acceptance);
    }
}

#[test]
fn a_gateway_takes_its_capacity_and_no_more() {
    let report = run(
        &scenario(json!({"breaker": false, "workers": {"adaptive": false}, "ttl_s": 3_600,
            "arrival": {"deliveries": 10_000, "over_s": 1},
            "gateway": {"capacity_per_s": 100, "overload": {"status": 503}}})),
        &policy(&json!({"maxAttempts": 100, "maxDelayMs": 10_000})),
        1,
    );
    let report = report.unwrap();
    let took_s = report.to_acceptance.unwrap().max_s;
    assert!((99.0..140.0).contains(&took_s), "{took_s}");
    assert_eq!(report.accepted_at_once + report.accepted_after_retry, 10_000);
}

#[test]
fn sticky_fault_meets_the_same_deliveries() {
    let shard = |sticky: bool| {
        let faults = json!([{"rate": 0.1, "sticky": sticky, "answer": {"status": 503}}]);
        let scenario = scenario(json!({"breaker": false, "workers": {"adaptive": false},
            "arrival": {"deliveries": 10_000}, "gateway": {"faults": faults}}));
        run(&scenario, &policy(&json!({"maxAttempts": 5})), 1).unwrap()
    };
    let (sticky, loose) = (shard(true), shard(false));
    assert!(sticky.accepted_after_retry == 0 && sticky.dead["retries_exhausted"].abs_diff(1_000) <= 1, "{sticky:?}");
    assert!(loose.accepted_after_retry > 900 && loose.dead.is_empty(), "{loose:?}");
}

#[test]
fn the_time_to_live_comes_first() {
    let down = |ttl_s: u32| {
        let faults = json!([{"answer": {"failure": "refused"}}]);
        let scenario = scenario(json!({"ttl_s": ttl_s, "breaker": false, "arrival": {"deliveries": 50, "over_s": 0},
            "gateway": {"faults": faults}}));
        run(&scenario, &default(), 1).unwrap()
    };
    let once = down(0);
    assert_eq!((once.expired, once.posts, once.to_acceptance), (50, 50, None));
    let short = down(10);
    assert!(short.expired == 50 && short.posts > 50, "{short:?}");
}

#[test]
fn simulated_answers_end_as_on_the_server() {
    for (status, gone, reason) in [
        (410, 40, None),
        (400, 0, Some("bad_request")),
        (403, 0, Some("unauthorized")),
        (413, 0, Some("payload_too_large")),
    ] {
        let scenario = scenario(json!({"arrival": {"deliveries": 40}, "gateway": {"faults": [
            {"answer": {"status": status}}]}}));
        let report = run(&scenario, &default(), 1).unwrap();
        assert_eq!((report.gone, report.posts), (gone, 40));
        assert_eq!(report.dead, reason.map(|reason| (reason, 40)).into_iter().collect());
    }
}

#[test]
fn replicas_share_what_they_learn() {
    let down = |replicas: u32| {
        run(
            &scenario(json!({"arrival": {"deliveries": 3_000, "over_s": 30}, "workers": {"replicas": replicas},
                "gateway": {"faults": [{"for_s": 60, "answer": {"status": 503}}]}})),
            &default(),
            1,
        )
        .unwrap()
    };
    let (one, four) = (down(1), down(4));
    assert!(four.posts_in_vain <= one.posts_in_vain * 4, "{} {}", one.posts_in_vain, four.posts_in_vain);
    assert!(four.breaker_trips <= one.breaker_trips + 1);
}

#[test]
fn what_would_never_end_is_given_up() {
    let mut endless = scenario(json!({"ttl_s": 2_419_200, "breaker": false, "workers": {"adaptive": false},
        "arrival": {"deliveries": 1, "over_s": 0}, "gateway": {"faults": [{"answer": {"status": 503}}]}}));
    let aws = policy(&json!({"preset": "sns-aws-managed"}));
    assert_eq!(run(&endless, &aws, 1).unwrap().posts, 100_016);
    endless.arrival.deliveries = 1_000;
    assert_eq!(
        policies::run(&endless, &aws, 1, 50_000).unwrap_err().to_string().split(':').next(),
        Some("takes more than 50000 steps")
    );
}

#[test]
fn reports_are_compared_side_by_side() {
    let scenario = Scenario::parse(Scenario::built_in("outage").unwrap()).unwrap();
    let mut scenario = scenario;
    (scenario.arrival.deliveries, scenario.arrival.over_s) = (2_000, 200.0);
    let report = run(&scenario, &default(), 1).unwrap();
    let after = report.recovery.clone().unwrap();
    assert_eq!((after.at_s, after.posts_per_s.len()), (90.0, 10));
    let text = policies::compare(&[("one".into(), report.clone()), ("two".into(), report)]);
    let line = |start: &str| text.lines().find(|line| line.starts_with(start)).unwrap_or_else(|| panic!("{text}"));
    assert_eq!(line("deliveries").split_whitespace().collect::<Vec<_>>(), ["deliveries", "2,000", "2,000"]);
    assert!(text.contains("POSTs in each second after the outage, two: "), "{text}");
}

#[test]
fn fewer_deliveries_stand_for_the_same_situation() {
    let outage = Scenario::parse(Scenario::built_in("outage").unwrap()).unwrap();
    let small = outage.clone().with_at_most(20_000);
    assert_eq!((small.arrival.deliveries, small.gateway.capacity_per_s), (20_000, Some(300)));
    assert_eq!(small.clone().with_at_most(50_000), small, "one that is small enough stays as it is");
    let share = |scenario: &Scenario| {
        let report = run(scenario, &default(), 1).unwrap();
        let accepted = report.accepted_at_once + report.accepted_after_retry;
        accepted as f64 / report.deliveries as f64
    };
    assert!((share(&outage.with_at_most(40_000)) - share(&small)).abs() < 0.02);
}

#[test]
fn busiest_second_reports_accepted_posts() {
    let down =
        scenario(json!({"breaker": false, "workers": {"adaptive": false}, "arrival": {"deliveries": 400, "over_s": 4},
        "gateway": {"latency": {"p50_ms": 10, "p99_ms": 10}, "faults": [{"for_s": 1, "answer": {"status": 503}}]}}));
    let load = run(&down, &default(), 1).unwrap().load;
    let (bucket_s, posts_per_s, accepted_per_s) = (load.bucket_s, load.posts_per_s, load.accepted_per_s);
    assert_eq!((bucket_s, accepted_per_s.len(), accepted_per_s[0]), (1, posts_per_s.len(), 0));
    assert!(
        posts_per_s[0] >= 100
            && posts_per_s.iter().zip(&accepted_per_s).skip(1).all(|(posts, accepted)| posts == accepted)
    );
    assert_eq!(accepted_per_s.iter().sum::<u32>(), 400);
}
