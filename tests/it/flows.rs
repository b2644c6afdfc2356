//! Flow control: rates and parallelism hold, of an app and of a lane; what exceeds them waits, and nothing is lost.

use std::time::Duration;

use axum::http::Method;
use bellwire_simulator::gateways::{Rule, RuleAction, SimulatorReport};
use serde_json::{Value, json};

use crate::support::app::PATIENCE;
use crate::support::simulator_rules::{held, until_report};
use crate::support::{Setup, TestApp, counts, seed};

const APP: &str = "/v1/apps/shop/flow";

async fn put(app: &TestApp, path: &str, body: Value) -> Value {
    app.operate(Method::PUT, path, body).await.ok(200)
}

async fn post(app: &TestApp, path: &str) -> Value {
    app.operate(Method::POST, path, Value::Null).await.ok(200)
}

#[tokio::test(flavor = "multi_thread")]
async fn rate_holds_for_two_engines_with_backlog() {
    let app = TestApp::start().await;
    let other = app.worker(app.clock.clone()).await;
    seed(&app, "fcm", 0..600).await;
    seed(&app, "apple", 0..500).await;
    app.run_until_idle_with(&other).await; // they know of each other
    let shown = app.call(Method::PUT, APP, json!({"rate": 90, "period": "1m"})).await.ok(200);
    assert_eq!((&shown["rate"], &shown["period"]), (&json!(90), &json!(60.0)));
    app.run_until_idle_with(&other).await;
    let message = app.send(json!({"all": true}), json!({})).await;
    let waiting = app.get(APP).await;
    assert!((1_098..=1_100).contains(&waiting["waiting"].as_i64().unwrap()), "{waiting}");
    app.run_until_idle_with(&other).await;
    for minute in 1..=10 {
        for _ in 0..60 {
            app.clock.advance(Duration::from_secs(1));
            app.run_until_idle_with(&other).await;
        }
        let sent = app.simulator.report().requests;
        let due = minute * 90; // and a token or two in hand
        assert!((due * 95 / 100 - 2..=due * 105 / 100 + 2).contains(&sent), "{sent} after {minute} minutes");
    }
    let hosts = app.simulator.report().hosts;
    assert!(hosts.values().filter(|host| host.requests > 0).count() == 2, "both lanes have their turns");
    app.call(Method::DELETE, APP, Value::Null).await.ok(204);
    app.run_until_idle_with(&other).await;
    assert_eq!(
        app.counts(&message).await,
        counts(&[("targeted", 1_100), ("accepted", 1_100), ("awaiting_ack", 1_100)])
    );
    let report = app.simulator.report();
    assert_eq!((report.deliveries, report.requests), (1_100, 1_100));
    assert_eq!(app.get(APP).await["waiting"], 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn two_engines_never_exceed_the_parallelism() {
    let app = TestApp::start().await;
    let other = app.worker(app.clock.clone()).await;
    seed(&app, "fcm", 0..30).await;
    seed(&app, "mozilla", 0..30).await;
    let lane = format!("/v1/gateways/{}/flow", app.lane("fcm").await);
    put(&app, &lane, json!({"parallelism": 2})).await;
    put(&app, APP, json!({"parallelism": 3})).await;
    for _ in 0..4 {
        // The second is a newcomer until the first has surely made room for it.
        app.clock.advance(Duration::from_secs(5));
        app.run_until_idle_with(&other).await;
    }
    app.run_until_idle_with(&other).await;
    let hold = app.simulator.add_rule(Rule::always(RuleAction::Hold)).unwrap();
    let message = app.send(json!({"all": true}), json!({})).await;
    let until = async |wanted: &dyn Fn(&SimulatorReport) -> bool| {
        let watched = |report: &SimulatorReport| {
            let at_a_time = |host: &str| report.hosts[host].requests - report.hosts[host].accepted;
            assert!(held(report) <= 3, "{} at a time", held(report));
            assert!(at_a_time("fcm.bellwire.test") <= 2, "in the lane");
            wanted(report)
        };
        let waited = tokio::time::timeout(PATIENCE, app.simulator.wait_until(watched)).await;
        waited.unwrap_or_else(|_| panic!("this never came about: {:?}", app.simulator.report()));
    };
    until(&|report| held(report) == 3).await;
    for done in 0..60 {
        until(&|report| held(report) > 0 && report.accepted == done).await;
        app.simulator.release(hold, 1);
    }
    app.simulator.remove_rule(hold);
    app.run_until_idle_with(&other).await;
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 60), ("accepted", 60), ("awaiting_ack", 60)]));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lane_flow_is_paused_resumed_and_reset() {
    let app = TestApp::start().await;
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    let elsewhere = app.subscribe("apple", 0..1).await.remove(0);
    let lane = format!("/v1/gateways/{}/flow", app.lane("fcm").await);
    let send = async || app.send(json!({"subscriptions": [subscriber.id]}), json!({})).await;
    let accepted = || app.simulator.report().accepted;

    put(&app, &lane, json!({"rate": 1, "period": 3_600})).await;
    for _ in 0..4 {
        send().await;
    }
    app.run_until_idle().await;
    app.send(json!({"subscriptions": [elsewhere.id]}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(accepted(), 1, "the lane begins without a token");
    app.advance(Duration::from_secs(1)).await;
    assert_eq!(accepted(), 2, "one of the lane, and one of another");
    app.advance(Duration::from_secs(599)).await;
    let shown = app.operate(Method::GET, &lane, Value::Null).await.ok(200);
    assert_eq!((&shown["waiting"], &shown["oldest_waiting_s"]), (&json!(3), &json!(600.0)), "{shown}");
    let of_all = app.operate(Method::GET, "/v1/flow", Value::Null).await.ok(200);
    assert_eq!(of_all, json!({"waiting": 3, "waiting_or_more": false, "oldest_waiting_s": 600.0}));
    post(&app, &format!("{lane}/reset")).await;
    app.advance(Duration::from_secs(1)).await;
    assert_eq!(accepted(), 3, "the period begins anew");
    app.advance(Duration::from_secs(3_598)).await;
    assert_eq!(accepted(), 3);
    app.advance(Duration::from_secs(2)).await;
    assert_eq!(accepted(), 4);

    assert_eq!(post(&app, &format!("{lane}/pause")).await["paused"], true);
    app.advance(Duration::from_secs(7_200)).await;
    assert_eq!(accepted(), 4);
    put(&app, &lane, json!({"parallelism": 5})).await;
    app.run_until_idle().await;
    assert_eq!(accepted(), 4, "other limits do not resume it");
    assert_eq!(post(&app, &format!("{lane}/resume")).await["paused"], false);
    app.run_until_idle().await;
    assert_eq!(accepted(), 5);

    app.call(Method::POST, "/v1/apps/shop/flow/pause", Value::Null).await.ok(200);
    let message = send().await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 1), ("queued", 1)]));
    app.call(Method::DELETE, APP, Value::Null).await.ok(204);
    app.run_until_idle().await;
    assert_eq!(app.message(&message).await["counts"]["accepted"], 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn first_second_has_no_more_than_the_rate() {
    for engines in 1..=2 {
        let app = TestApp::start().await;
        let other = if engines == 2 { Some(app.worker(app.clock.clone()).await) } else { None };
        seed(&app, "fcm", 0..60).await;
        app.clock.advance(Duration::from_secs(20)); // the second engine is no newcomer any more
        app.run_until_idle().await;
        if let Some(other) = &other {
            app.run_until_idle_with(other).await;
        }
        put(&app, APP, json!({"rate": 4, "period": 1})).await;
        app.send(json!({"all": true}), json!({})).await;
        let mut sent = Vec::new();
        for _ in 0..=100 {
            app.clock.advance(Duration::from_millis(20));
            match &other {
                Some(other) => app.run_until_idle_with(other).await,
                None => app.run_until_idle().await,
            }
            sent.push(app.simulator.report().accepted);
        }
        assert!(sent[1] <= 1, "{engines}: {} within 40 ms", sent[1]);
        assert!((3..=4).contains(&sent[49]), "{engines}: {} in the first second", sent[49]);
        assert!((7..=8).contains(&sent[99]), "{engines}: {} in two seconds", sent[99]);
        app.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn late_committed_pause_is_still_heard() {
    let app = TestApp::with(Setup { through_proxy: true, ..Setup::default() }).await;
    let [here, elsewhere] = [app.subscribe("fcm", 0..1).await.remove(0), app.subscribe("apple", 0..1).await.remove(0)];
    let lane = format!("/v1/gateways/{}/flow", app.lane("fcm").await);
    put(&app, &lane, json!({"parallelism": 5})).await;
    let mut slow = app.pool.begin().await.unwrap();
    let pause = "UPDATE flows SET paused = true, changed_at = changed_at + interval '1 microsecond'";
    sqlx::query(pause).execute(&mut *slow).await.unwrap();
    app.advance(Duration::from_secs(60)).await; // it has heard what was changed until now
    slow.commit().await.unwrap();
    // The second reading from now on has begun after the commit, and the third after the second was heard.
    app.proxy().take_runs();
    let read = app.proxy().until_run("/* read_flows */", 3);
    tokio::time::timeout(PATIENCE, read).await.expect("flows are read all the time");
    let message = app.send(json!({"subscriptions": [here.id]}), json!({})).await;
    app.send(json!({"subscriptions": [elsewhere.id]}), json!({})).await;
    let report = until_report(&app, |report| report.hosts["apple.bellwire.test"].accepted == 1).await;
    assert_eq!(report.hosts["fcm.bellwire.test"].requests, 0, "it is paused");
    post(&app, &format!("{lane}/resume")).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await["accepted"], 1);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn waiting_deliveries_expire_or_yield_to_urgent() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..20).await;
    let urgent = app.subscribe("fcm", 30..31).await.remove(0);
    put(&app, APP, json!({"rate": 1, "period": 10})).await;
    let campaign = app.send(json!({"all": true}), json!({"ttl": 60})).await;
    app.run_until_idle().await;
    let code = app.send(json!({"subscriptions": [urgent.id]}), json!({"tier": "transactional"})).await;
    // Claims that began before it was written down may have the next tokens, on a busy machine more than one; then it is its turn, long
    // before that of the 19.
    for _ in 0..4 {
        app.advance(Duration::from_secs(10)).await;
    }
    assert_eq!(app.delivery(&code, &urgent.id).await["state"], "accepted", "it waits behind 19 others");
    for _ in 0..39 {
        app.advance(Duration::from_secs(10)).await;
    }
    let end = app.counts(&campaign).await;
    assert_eq!(end["targeted"], end["accepted"] + end["expired"], "{end:?}");
    assert!((4..=6).contains(&end["accepted"]), "the time to live runs: {end:?}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn limits_are_checked() {
    let app = TestApp::start().await;
    for (body, place) in [
        (json!({}), ""),
        (json!({"rate": 0}), "/rate"),
        (json!({"rate": 1_000_001}), "/rate"),
        (json!({"rate": 5, "period": 0}), "/period"),
        (json!({"rate": 5, "period": "25h"}), "/period"),
        (json!({"rate": 5, "period": "soon"}), "/period"),
        (json!({"parallelism": 5, "period": 5}), "/period"),
        (json!({"parallelism": 0}), "/parallelism"),
        (json!({"burst": 5}), "/burst"),
    ] {
        let refused = app.call(Method::PUT, APP, body.clone()).await;
        assert_eq!((refused.status, &refused.json["errors"][0]["pointer"]), (422, &json!(place)), "{body}");
    }
    assert_eq!(app.call(Method::PUT, "/v1/gateways/1/flow", json!({"rate": 1})).await.status, 403);
    assert_eq!(app.operate(Method::GET, "/v1/gateways/1/flow", Value::Null).await.status, 404);
    assert_eq!(app.get(APP).await["rate"], Value::Null);
    app.finish().await;
}
