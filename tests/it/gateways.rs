//! Gateways that are down, slow, throttling or faulty affect only their own deliveries.

use std::time::Duration;

use bellwire_core::lane::Gateway;
use bellwire_dispatch::DispatchConfig;
use bellwire_simulator::gateways::{HostSpec, Options, Rule, RuleAction};
use serde_json::json;

use crate::support::app::{PATIENCE, Setup, TestApp, scalar};
use crate::support::{counts, seed_together};

fn on(gateway: Gateway, action: RuleAction) -> Rule {
    Rule { gateway: Some(gateway), ..Rule::always(action) }
}

async fn attempts(app: &TestApp) -> i64 {
    scalar(&app.pool, "SELECT count(*) FROM attempts").await
}

/// Sends a message to everybody while `rules` apply to `gateway`. Asserts that 40 browsers of another gateway get it at once. In the end
/// the gateway's own 60 also have it exactly once, with one counted attempt each.
async fn survives(gateway: Gateway, rules: Vec<Rule>) -> TestApp {
    let app = TestApp::start().await;
    rules.into_iter().for_each(|rule| {
        app.simulator.add_rule(rule).unwrap();
    });
    let neighbour = if gateway == Gateway::Mozilla { "fcm" } else { "mozilla" };
    app.subscribe(gateway.name(), 0..60).await;
    app.subscribe(neighbour, 0..40).await;
    let message = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    let report = app.simulator.report();
    let of_neighbour = &report.hosts[&format!("{neighbour}.bellwire.test")];
    assert_eq!((of_neighbour.requests, of_neighbour.accepted), (40, 40), "the neighbour is not concerned");
    for _ in 0..20 {
        app.advance(Duration::from_secs(1)).await;
    }
    let end = counts(&[("targeted", 100), ("accepted", 100), ("awaiting_ack", 100)]);
    assert_eq!(app.counts(&message).await, end);
    let report = app.simulator.report();
    assert_eq!((report.deliveries, report.duplicates), (100, 0));
    assert_eq!(attempts(&app).await, 100);
    app
}

#[tokio::test(flavor = "multi_thread")]
async fn a_gateway_that_says_goodbye_costs_nothing() {
    let app = survives(Gateway::Fcm, vec![Rule { count: Some(5), ..on(Gateway::Fcm, RuleAction::GoAway) }]).await;
    app.finish().await;
}

/// Of ten requests at a time no second connection comes for want of room.
#[tokio::test(flavor = "multi_thread")]
async fn whoever_comes_after_a_goodbye_gets_another_connection() {
    let app = TestApp::start().await;
    app.simulator.add_rule(Rule { count: Some(1), ..on(Gateway::Fcm, RuleAction::GoAway) }).unwrap();
    app.subscribe("fcm", 0..10).await;
    for _ in 0..2 {
        let message = app.send(json!({"all": true}), json!({})).await;
        app.run_until_idle().await;
        // A request that comes after the goodbye was not processed (RFC 9113 section 6.8), waits at most 500 ms, and is no attempt.
        app.advance(Duration::from_millis(500)).await;
        assert_eq!(app.counts(&message).await, counts(&[("targeted", 10), ("accepted", 10), ("awaiting_ack", 10)]));
    }
    assert_eq!(attempts(&app).await, 20);
    assert_eq!(app.simulator.report().hosts["fcm.bellwire.test"].connections, 2);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unprocessed_requests_are_repeated_without_an_attempt() {
    for action in [RuleAction::GoAwayBelow, RuleAction::Reset { code: 7 }] {
        let rule = Rule { count: Some(12), ..on(Gateway::Apple, action) };
        let app = survives(Gateway::Apple, vec![rule]).await;
        app.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn single_stream_gateway_gets_one_at_once() {
    let app = survives(Gateway::Wns, vec![on(Gateway::Wns, RuleAction::StreamLimit { streams: 1 })]).await;
    assert_eq!(app.simulator.report().hosts["wns.bellwire.test"].peak_streams, 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_bodies_and_late_responses_change_nothing() {
    let slow = RuleAction::SlowBody { status: 201, octets: 20, every_ms: 10 };
    let rules = [(0..20, slow), (20..40, RuleAction::EndlessBody { status: 201 })]
        .map(|(endpoints, action)| Rule { endpoints: Some(endpoints.collect()), ..on(Gateway::Fcm, action) });
    let late = Rule { delay_ms: 300, ..on(Gateway::Fcm, RuleAction::Behave) };
    let app = survives(Gateway::Fcm, rules.into_iter().chain([late]).collect()).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn response_after_batch_close_is_counted() {
    let late = Rule { delay_ms: 1_150, ..on(Gateway::Mozilla, RuleAction::Behave) };
    let app = survives(Gateway::Mozilla, vec![late]).await;
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redirecting_gateway_loses_only_its_deliveries() {
    let app = TestApp::start().await;
    let target = app.subscribe("mozilla", 0..10).await.remove(0);
    app.subscribe("fcm", 0..10).await;
    app.simulator.add_rule(on(Gateway::Fcm, RuleAction::Redirect { to: target.endpoint })).unwrap();
    let message = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    let end = counts(&[("targeted", 20), ("accepted", 10), ("awaiting_ack", 10), ("dead", 10)]);
    assert_eq!(app.counts(&message).await, end);
    assert_eq!(app.simulator.report().hosts["mozilla.bellwire.test"].requests, 10);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn failed_gateway_is_probed_then_served() {
    let app = TestApp::start().await;
    seed_together(&app, "fcm", 0..120).await;
    app.subscribe("mozilla", 0..40).await;
    let down = app.simulator.add_rule(on(Gateway::Fcm, RuleAction::RefuseTcp)).unwrap();
    let message = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    let standing = app.counts(&message).await;
    assert_eq!((standing["targeted"], standing["accepted"]), (160, 40), "{standing:?}");
    // Those that were in flight together have failed; the breaker kept the rest back, uncounted.
    assert!((5..=40).contains(&standing["retrying"]), "{standing:?}");
    assert_eq!(standing["queued"], 120 - standing["retrying"], "{standing:?}");
    assert_eq!(attempts(&app).await, 40 + standing["retrying"]);
    assert_eq!(app.dispatcher.load().broken, 1);

    // Open for 30 s: no POST is tried, with any due deliveries.
    let failed = attempts(&app).await;
    app.advance(Duration::from_millis(29_500)).await;
    assert_eq!(attempts(&app).await, failed);
    // Then three probes, which fail; then open for twice as long.
    for _ in 0..4 {
        app.advance(Duration::from_secs(1)).await;
    }
    assert_eq!(attempts(&app).await, failed + 3);
    app.advance(Duration::from_secs(55)).await;
    assert_eq!(attempts(&app).await, failed + 3);

    // The gateway is back: a probe succeeds, and everything is delivered.
    app.simulator.remove_rule(down);
    for _ in 0..20 {
        app.advance(Duration::from_secs(3)).await;
    }
    let end = counts(&[("targeted", 160), ("accepted", 160), ("awaiting_ack", 160)]);
    assert_eq!(app.counts(&message).await, end);
    assert_eq!(app.dispatcher.load().broken, 0);
    assert_eq!((app.simulator.report().deliveries, app.simulator.report().duplicates), (160, 0));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn five_failures_open_the_breaker_four_not() {
    let app = TestApp::start().await;
    let subscribers = app.subscribe("apple", 0..6).await;
    let ids: Vec<_> = subscribers.iter().map(|subscriber| &subscriber.id).collect();
    app.simulator.add_rule(Rule { count: Some(9), ..Rule::always(RuleAction::ServerError) }).unwrap();
    for (index, broken) in [(0, 0), (1, 0), (2, 0), (3, 0), (4, 1)] {
        app.send(json!({"subscriptions": [ids[index]]}), json!({})).await;
        app.run_until_idle().await;
        assert_eq!(app.dispatcher.load().broken, broken, "after failure {index}");
    }
    // What is sent meanwhile waits and has used up nothing.
    let urgent = app.send(json!({"subscriptions": [ids[5]]}), json!({"tier": "transactional"})).await;
    app.run_until_idle().await;
    let delivery = app.delivery(&urgent, ids[5]).await;
    assert_eq!((&delivery["state"], &delivery["attempts"]), (&json!("queued"), &json!([])), "{delivery}");
    assert_eq!(app.simulator.report().requests, 5);
    for _ in 0..60 {
        app.advance(Duration::from_secs(5)).await;
    }
    assert_eq!(app.delivery(&urgent, ids[5]).await["state"], "accepted");
    assert_eq!(app.simulator.report().accepted, 6);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn throttling_gateway_is_left_alone_until_allowed() {
    // Few in flight, so that most still wait when the first answer comes.
    let dispatch = DispatchConfig { lane_limit_max: 4, ..DispatchConfig::default() };
    let app = TestApp::with(Setup { dispatch, ..Setup::default() }).await;
    seed_together(&app, "wns", 0..80).await;
    app.subscribe("apple", 0..40).await;
    let headers = vec![("x-wns-status".into(), "appthrottled".into()), ("retry-after".into(), "90".into())];
    let throttled = RuleAction::Answer { status: 406, headers, body: String::new() };
    app.simulator.add_rule(Rule { count: Some(1), ..on(Gateway::Wns, throttled) }).unwrap();
    let message = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    let standing = app.counts(&message).await;
    let requests = app.simulator.report().requests;
    assert!(standing["queued"] >= 40 && standing["retrying"] == 1, "those not in flight wait uncounted: {standing:?}");
    assert_eq!(app.dispatcher.load().held, 1);
    let urgent = app.send(json!({"all": true}), json!({"tier": "transactional"})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&urgent).await["accepted"], 40, "a hold is for every tier of its own lane");
    app.advance(Duration::from_secs(89)).await;
    assert_eq!(app.simulator.report().requests, requests + 40);
    app.advance(Duration::from_secs(4)).await;
    let end = counts(&[("targeted", 120), ("accepted", 120), ("awaiting_ack", 120)]);
    assert_eq!((app.counts(&message).await, app.counts(&urgent).await), (end.clone(), end));
    assert_eq!(app.simulator.report().requests, 241, "each delivery once, and one twice");
    app.finish().await;
}

/// A simulator with two strange origins; both share one stored lane.
fn with_a_stranger() -> Setup {
    let mut simulator = Options::default();
    simulator.hosts.push(HostSpec::new(Gateway::Other, "hostile.bellwire.test"));
    // Small batches, so that the first contains only recipients of the faulty origin.
    let dispatch = DispatchConfig { batch_min: 50, batch_max: 50, ..DispatchConfig::default() };
    Setup { simulator, dispatch, ..Setup::default() }
}

#[tokio::test(flavor = "multi_thread")]
async fn foreign_origin_hold_applies_to_it_alone() {
    let app = TestApp::with(with_a_stranger()).await;
    let rest = RuleAction::Throttled { retry_after_s: Some(80_000) };
    app.simulator.add_rule(Rule { host: Some("hostile.bellwire.test".into()), ..Rule::always(rest) }).unwrap();
    app.subscribe("hostile", 0..110).await;
    app.subscribe("other", 0..20).await;
    let message = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await["accepted"], 20);
    // Five different subscriptions, and what was in flight beside the fifth.
    let requests = app.simulator.report().hosts["hostile.bellwire.test"].requests;
    assert!(requests <= 8, "{requests}");
    app.finish().await;
}

/// The one test that waits for an attempt's deadline, ten real seconds.
#[tokio::test(flavor = "multi_thread")]
async fn hanging_foreign_origin_blocks_no_other() {
    let app = TestApp::with(with_a_stranger()).await;
    let rule = Rule { host: Some("hostile.bellwire.test".into()), ..Rule::always(RuleAction::Hang) };
    let rule = app.simulator.add_rule(rule).unwrap();
    app.subscribe("hostile", 0..60).await;
    for gateway in ["fcm", "other"] {
        app.subscribe(gateway, 0..60).await;
    }
    let message = app.send(json!({"all": true}), json!({})).await;
    let others = |report: &bellwire_simulator::gateways::SimulatorReport| report.accepted == 120;
    let others = tokio::time::timeout(Duration::from_secs(5), app.simulator.wait_until(others)).await;
    assert!(others.is_ok(), "others wait for the one that hangs: {:?}", app.simulator.report().hosts);
    assert!(app.rule(rule).0 <= 4, "no more than a stranger's permits");
    app.message(&message).await;

    let failed = tokio::time::timeout(PATIENCE, async {
        while attempts(&app).await < 123 {
            tokio::task::yield_now().await;
        }
    });
    failed.await.expect("the attempts end at their deadline");
    let reason = "SELECT count(*) FROM attempts WHERE ending = 2 AND status IS NULL AND reason = 'deadline'";
    assert!(scalar(&app.pool, reason).await >= 3);
    app.simulator.remove_rule(rule);
    app.steer(&message, "cancel").await;
    app.run_until_idle().await;
    app.message(&message).await;
    app.finish().await;
}
