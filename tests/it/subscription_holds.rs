//! 429 and its relatives: a throttled subscription waits alone, and a lane is held only when its sender is meant.

use std::time::Duration;

use bellwire_core::lane::Gateway;
use bellwire_simulator::gateways::{Rule, RuleAction};
use serde_json::{Value, json};

use crate::support::app::scalar;
use crate::support::simulator_rules::rule_for;
use crate::support::{TestApp, counts, seed};

const HOUR: Duration = Duration::from_secs(3_600);

/// A rule for the browser with index 0 of a gateway.
fn first_device(gateway: Gateway, retry_after_s: Option<u64>) -> Rule {
    Rule { endpoints: Some([0].into()), ..rule_for(gateway, RuleAction::Throttled { retry_after_s }) }
}

fn answer(status: u16, headers: &[(&str, &str)], body: &str) -> RuleAction {
    let headers = headers.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    RuleAction::Answer { status, headers, body: body.to_owned() }
}

fn one(id: &str) -> Value {
    json!({"subscriptions": [id]})
}

fn posts(app: &TestApp) -> u64 {
    app.simulator.report().requests
}

#[tokio::test(flavor = "multi_thread")]
async fn throttled_device_waits_alone() {
    for gateway in [Gateway::Apple, Gateway::Fcm, Gateway::Mozilla, Gateway::Wns, Gateway::Other] {
        let app = TestApp::start().await;
        let devices = app.subscribe(gateway.name(), 0..2).await;
        app.simulator.add_rule(first_device(gateway, Some(30))).unwrap();
        let refused = app.send(one(&devices[0].id), json!({})).await;
        app.run_until_idle().await;
        let code = app.send(one(&devices[1].id), json!({"tier": "transactional", "ttl": 10})).await;
        app.run_until_idle().await;
        assert_eq!(app.counts(&code).await.get("accepted"), Some(&1), "{gateway:?}");
        assert_eq!(app.counts(&refused).await, counts(&[("targeted", 1), ("retrying", 1)]));
        assert_eq!(app.dispatcher.load().held, 0, "{gateway:?}");
        app.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn other_deliveries_of_throttled_subscription_wait() {
    let app = TestApp::start().await;
    let devices = app.subscribe("fcm", 0..130).await;
    let rule = app.simulator.add_rule(first_device(Gateway::Fcm, Some(30))).unwrap();
    let refused = app.send(one(&devices[0].id), json!({})).await;
    app.run_until_idle().await;
    let code = app.send(one(&devices[0].id), json!({"tier": "transactional"})).await;
    let campaign = app.send(json!({"all": true}), json!({})).await;
    let brief = app.send(one(&devices[0].id), json!({"ttl": 10})).await;
    app.run_until_idle().await;
    assert_eq!(app.rule(rule).0, 1, "nothing else is sent to the throttled subscription");
    assert_eq!(app.counts(&code).await, counts(&[("targeted", 1), ("queued", 1)]));
    let most = counts(&[("targeted", 130), ("accepted", 129), ("awaiting_ack", 129), ("queued", 1)]);
    assert_eq!(app.counts(&campaign).await, most);
    app.simulator.remove_rule(rule);
    app.advance(Duration::from_secs(29)).await;
    assert_eq!(app.counts(&brief).await, counts(&[("targeted", 1), ("expired", 1)]));
    assert_eq!(posts(&app), 130);
    app.advance(Duration::from_secs(4)).await;
    for message in [&refused, &code, &campaign] {
        let counted = app.counts(message).await;
        assert_eq!(counted["accepted"], counted["targeted"], "{counted:?}");
    }
    let attempts = app.delivery(&code, &devices[0].id).await["attempts"].as_array().map(Vec::len);
    assert_eq!(attempts, Some(1), "waiting uses up no retry");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn other_workers_keep_a_subscriptions_hold() {
    let app = TestApp::start().await;
    let devices = app.subscribe("fcm", 0..130).await;
    let rule = app.simulator.add_rule(first_device(Gateway::Fcm, Some(60))).unwrap();
    let other = app.worker(app.clock.clone()).await;
    app.send(one(&devices[0].id), json!({})).await;
    app.run_until_idle().await;
    app.dispatcher.stop(Duration::ZERO).await;
    let late = app.worker(app.clock.clone()).await;
    for worker in [&other, &late] {
        let to = [json!({"all": true}), one(&devices[0].id)];
        for to in to {
            app.send(to, json!({})).await;
        }
        worker.run_until_idle().await;
        assert_eq!(app.rule(rule).0, 1);
        worker.dispatcher.stop(Duration::ZERO).await;
    }
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM queue WHERE lease IS NULL").await, 5, "nothing is lost");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn hold_without_header_doubles_until_acceptance() {
    let app = TestApp::start().await;
    let device = app.subscribe("fcm", 0..1).await.remove(0);
    let rule = app.simulator.add_rule(first_device(Gateway::Fcm, None)).unwrap();
    // Each message has retries of its own, of which none is due soon.
    let brief = json!({"ttl": 86_400, "policy": {"retries": 1, "retryDelay": "3600000"}});
    let mut waits_s = Vec::new();
    for _ in 0..9 {
        let before = app.rule(rule).0;
        app.send(one(&device.id), brief.clone()).await;
        app.run_until_idle().await;
        let mut waited_s = 0;
        while app.rule(rule).0 == before {
            app.advance(Duration::from_secs(1)).await;
            waited_s += 1;
            assert!(waited_s <= 70, "{waits_s:?}");
        }
        waits_s.push(waited_s);
    }
    // What is not urgent is spread over two seconds.
    for (waited_s, expected_s) in waits_s.iter().zip([0, 1, 2, 4, 8, 16, 32, 60, 60]) {
        assert!((expected_s..=expected_s + 2).contains(waited_s), "{waits_s:?}");
    }
    app.simulator.remove_rule(rule);
    app.advance(Duration::from_secs(63)).await;
    let accepted = app.send(one(&device.id), brief.clone()).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&accepted).await["accepted"], 1);
    app.simulator.add_rule(first_device(Gateway::Fcm, None)).unwrap();
    app.send(one(&device.id), brief.clone()).await;
    app.run_until_idle().await;
    let before = posts(&app);
    app.send(one(&device.id), brief).await;
    app.advance(Duration::from_secs(3)).await;
    assert_eq!(posts(&app), before + 1, "a hold after an acceptance is short again");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn day_long_retry_after_is_bounded() {
    let app = TestApp::start().await;
    let devices = app.subscribe("apple", 0..2).await;
    let rule = Rule { count: Some(1), ..first_device(Gateway::Apple, Some(86_400)) };
    app.simulator.add_rule(rule).unwrap();
    let long = json!({"ttl": 172_800});
    let refused = app.send(one(&devices[0].id), long.clone()).await;
    app.run_until_idle().await;
    let waits = app.send(one(&devices[0].id), long.clone()).await;
    let other = app.send(one(&devices[1].id), long).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&other).await["accepted"], 1);
    app.advance(HOUR - Duration::from_secs(1)).await;
    assert_eq!(posts(&app), 2);
    app.advance(Duration::from_secs(4)).await;
    for message in [refused, waits] {
        assert_eq!(app.counts(&message).await["accepted"], 1);
    }
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_in_hundred_throttled_slow_no_lane() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..1_000).await;
    let rule =
        Rule { share: Some([0.0, 0.02]), ..rule_for(Gateway::Fcm, RuleAction::Throttled { retry_after_s: Some(5) }) };
    let rule = app.simulator.add_rule(rule).unwrap();
    for _ in 0..3 {
        let campaign = app.send(json!({"all": true}), json!({"ttl": 86_400})).await;
        app.run_until_idle().await; // the clock stands still: what a hold keeps back is not sent
        let counted = app.counts(&campaign).await;
        assert!(counted["accepted"] >= 960 && counted["accepted"] < 1_000, "{counted:?}");
        let waits = counted.get("retrying").unwrap_or(&0) + counted.get("queued").unwrap_or(&0);
        assert_eq!(counted["accepted"] + waits, 1_000);
        assert_eq!(app.dispatcher.load().held, 0);
        app.advance(Duration::from_secs(8)).await;
    }
    let limit = scalar(&app.pool, "SELECT max(concurrency)::bigint FROM lane_limits").await;
    assert!(limit >= 100, "the lane's limit has grown all the same: {limit}");
    app.simulator.remove_rule(rule);
    app.advance(HOUR).await;
    app.advance(HOUR).await;
    let report = app.simulator.report();
    assert_eq!((report.accepted, report.duplicates), (3_000, 0));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_device_never_holds_its_lane() {
    let app = TestApp::start().await;
    let device = app.subscribe("fcm", 0..1).await.remove(0);
    app.simulator.add_rule(first_device(Gateway::Fcm, None)).unwrap();
    for _ in 0..40 {
        app.send(one(&device.id), json!({"tier": "transactional"})).await;
    }
    for _ in 0..60 {
        app.run_until_idle().await;
        assert_eq!(app.dispatcher.load().held, 0);
        app.clock.advance(Duration::from_secs(5));
    }
    assert!(posts(&app) > 40, "it was refused again and again");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn site_throttled_as_a_whole_loses_nothing() {
    for (gateway, retry_after_s) in [(Gateway::Fcm, None), (Gateway::Apple, Some(20)), (Gateway::Fcm, Some(86_400))] {
        let app = TestApp::start().await;
        seed(&app, gateway.name(), 0..300).await;
        let rule = app.simulator.add_rule(rule_for(gateway, RuleAction::Throttled { retry_after_s })).unwrap();
        let campaign = app.send(json!({"all": true}), json!({"ttl": 172_800})).await;
        app.run_until_idle().await;
        assert_eq!(app.dispatcher.load().held, 1, "{gateway:?}");
        let refused = app.rule(rule).0;
        assert!(refused <= 64, "no more than were in flight: {refused}");
        let code = app.send(json!({"all": true}), json!({"tier": "transactional", "ttl": 7_200})).await;
        for _ in 0..60 {
            app.advance(Duration::from_secs(10)).await;
        }
        let probes = app.rule(rule).0 - refused;
        assert!((8..=90).contains(&probes), "one probe after each hold: {probes}");
        app.simulator.remove_rule(rule);
        for _ in 0..30 {
            app.advance(Duration::from_secs(150)).await;
        }
        for message in [campaign, code] {
            let counted = app.counts(&message).await;
            assert_eq!(counted["accepted"], 300, "{gateway:?}, {retry_after_s:?}: {counted:?}");
        }
        app.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn response_that_means_the_sender_holds_lane() {
    let by_app = |status| answer(status, &[("x-wns-status", "appthrottled"), ("retry-after", "30")], "");
    let by_token = answer(429, &[("retry-after", "30")], r#"{"reason":"TooManyProviderTokenUpdates"}"#);
    for (gateway, action) in [
        (Gateway::Wns, by_app(406)),
        (Gateway::Wns, by_app(429)),
        (Gateway::Wns, by_app(200)),
        (Gateway::Wns, answer(406, &[("retry-after", "30")], "")),
        (Gateway::Apple, by_token),
    ] {
        let app = TestApp::start().await;
        let devices = app.subscribe(gateway.name(), 0..2).await;
        app.simulator.add_rule(Rule { count: Some(1), ..rule_for(gateway, action.clone()) }).unwrap();
        app.send(one(&devices[0].id), json!({})).await;
        app.run_until_idle().await;
        assert_eq!(app.dispatcher.load().held, 1, "{action:?}");
        let waits = app.send(one(&devices[1].id), json!({})).await;
        app.advance(Duration::from_secs(29)).await;
        assert_eq!(app.counts(&waits).await["queued"], 1);
        app.advance(Duration::from_secs(4)).await;
        assert_eq!(app.counts(&waits).await["accepted"], 1);
        app.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn sender_hold_is_bounded_and_probed() {
    let app = TestApp::start().await;
    app.subscribe("wns", 0..100).await;
    let day = answer(406, &[("x-wns-status", "appthrottled"), ("retry-after", "86400")], "");
    let rule = app.simulator.add_rule(rule_for(Gateway::Wns, day)).unwrap();
    let campaign = app.send(json!({"all": true}), json!({"ttl": 172_800})).await;
    app.run_until_idle().await;
    let refused = app.rule(rule).0;
    for quarter in 1..=4 {
        app.advance(Duration::from_secs(898)).await;
        assert_eq!(app.rule(rule).0, refused + quarter - 1);
        app.advance(Duration::from_secs(4)).await;
        assert_eq!(app.rule(rule).0, refused + quarter, "one probe after each quarter of an hour");
    }
    app.simulator.remove_rule(rule);
    app.advance(HOUR).await;
    app.advance(HOUR).await;
    assert_eq!(app.counts(&campaign).await["accepted"], 100);
    app.finish().await;
}
