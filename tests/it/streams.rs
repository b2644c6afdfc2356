//! Peers that take few requests at a time: waiting for them costs a delivery nothing.

use bellwire_core::lane::Gateway;
use bellwire_simulator::gateways::{HostSpec, Options, Rule, RuleAction};
use serde_json::json;

use crate::support::app::PATIENCE;
use crate::support::{Setup, TestApp, seed};

/// FCM with so many streams on each connection, or by HTTP/1.1, that parks every request.
async fn parking(streams: u32, http1_only: bool, n: u32) -> (TestApp, u64) {
    let hosts = vec![HostSpec { http1_only, ..HostSpec::new(Gateway::Fcm, "fcm.bellwire.test") }];
    let app =
        TestApp::with(Setup { simulator: Options { hosts, streams, ..Options::default() }, ..Setup::default() }).await;
    seed(&app, "fcm", 0..n).await;
    let hold = app.simulator.add_rule(Rule::always(RuleAction::Hold)).unwrap();
    (app, hold)
}

/// Sends to all, with one retry at most, and expects so many requests at the peer and no more permits than that.
async fn saturate(app: &TestApp, hold: u64, at_once: u64) -> String {
    let policy = json!({"retries": 1, "retryDelay": "1000"});
    let campaign = app.send(json!({"all": true}), json!({"tier": "promotional", "policy": policy})).await;
    app.until_held(hold, at_once).await;
    assert_eq!(app.dispatcher.load().in_flight as u64, at_once, "permits are what the connections allow");
    campaign
}

#[tokio::test(flavor = "multi_thread")]
async fn few_streams_cost_no_delivery_a_retry() {
    const N: u32 = 400;
    let (app, hold) = parking(1, false, N).await;
    let subscriber = app.subscribe("fcm", N..N + 1).await.remove(0);
    // Four connections with a stream each, of which one is kept for codes.
    let campaign = saturate(&app, hold, 3).await;
    let code = app.send(json!({"subscriptions": [subscriber.id]}), json!({"tier": "transactional"})).await;
    app.until_held(hold, 4).await;
    app.simulator.remove_rule(hold);
    app.run_until_idle().await;
    assert_eq!(app.counts(&campaign).await["accepted"], i64::from(N) + 1);
    assert_eq!(app.counts(&code).await["accepted"], 1);
    let report = app.simulator.report();
    assert_eq!((report.requests, report.duplicates), (u64::from(N) + 2, 0), "nothing is sent twice");
    assert_eq!(app.dispatcher.load().broken, 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http1_peers_get_more_connections() {
    const N: u32 = 100;
    let (app, hold) = parking(100, true, N).await;
    let campaign = saturate(&app, hold, 31).await;
    assert_eq!(app.simulator.report().hosts["fcm.bellwire.test"].open_connections, 31);
    app.simulator.remove_rule(hold);
    tokio::time::timeout(PATIENCE, app.run_until_idle()).await.expect("it ends");
    assert_eq!(app.counts(&campaign).await["accepted"], i64::from(N));
    assert_eq!((app.simulator.report().requests, app.dispatcher.load().broken), (u64::from(N), 0));
    app.finish().await;
}
