//! Any number of engines work on one database, and nothing is sent twice.

use bellwire_dispatch::DispatchConfig;
use bellwire_simulator::gateways::{Rule, RuleAction};
use serde_json::json;

use crate::support::simulator_rules::{held, until_report};
use crate::support::{Setup, TestApp, counts, seed};

#[tokio::test(flavor = "multi_thread")]
async fn two_engines_share_a_campaign_without_duplicates() {
    let dispatch = DispatchConfig { lane_limit_max: 64, batch_min: 10, batch_max: 20, ..DispatchConfig::default() };
    let app = TestApp::with(Setup { dispatch, ..Setup::default() }).await;
    seed(&app, "fcm", 0..400).await;
    seed(&app, "apple", 0..200).await;
    let other = app.worker(app.clock.clone()).await;
    let hold = app.simulator.add_rule(Rule::always(RuleAction::Hold)).unwrap();
    let message = app.send(json!({"all": true}), json!({})).await;
    until_report(&app, |report| held(report) == 4 * 31).await; // what both may have in flight in two lanes
    app.simulator.remove_rule(hold);
    until_report(&app, |report| report.accepted >= 600).await; // an engine alone may be idle while the other claims
    app.run_until_idle_with(&other).await;
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 600), ("accepted", 600), ("awaiting_ack", 600)]));
    let report = app.simulator.report();
    assert_eq!((report.deliveries, report.requests), (600, 600));
    let batches = [&app.metrics, &other.metrics].map(|metrics| metrics.batches_taken.get());
    assert!(batches.iter().all(|batches| *batches >= 4), "both took part: {batches:?}");
    assert_eq!([&app.metrics, &other.metrics].map(|metrics| metrics.settle_fenced.get()), [0, 0]);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_racing_engines_send_each_row_once() {
    let app = TestApp::start().await;
    app.dispatcher.stop(std::time::Duration::ZERO).await; // so that rows are due at once, for the first claim
    let subscribers = app.subscribe("mozilla", 0..40).await;
    let ids: Vec<&str> = subscribers.iter().map(|subscriber| subscriber.id.as_str()).collect();
    let mut messages = Vec::new();
    for _ in 0..5 {
        messages.push(app.send(json!({"subscriptions": ids}), json!({"tier": "transactional"})).await);
    }
    let (one, other) = tokio::join!(app.worker(app.clock.clone()), app.worker(app.clock.clone()));
    until_report(&app, |report| report.accepted >= 200).await;
    tokio::join!(one.run_until_idle(), other.run_until_idle());
    for message in &messages {
        assert_eq!(app.counts(message).await["accepted"], 40);
    }
    let report = app.simulator.report();
    assert_eq!((report.deliveries, report.requests), (200, 200));
    assert_eq!(one.metrics.claims.get() + other.metrics.claims.get(), 200);
    app.finish().await;
}
