//! Who goes first.

use std::time::Duration;

use axum::http::Method;
use bellwire::testkit::dispatch::Settings;
use bellwire::testkit::model::lane::Gateway;
use bellwire::testkit::simulate::gateways::{Action, Report, Rule};
use serde_json::json;

use crate::support::app::{PATIENCE, Setup, TestApp};

/// A lane whose gateway has parked every push that may be in flight, with as many again waiting.
async fn saturated(tier: &str) -> (TestApp, u64, String) {
    // A limit that does not grow with every code that is accepted.
    let dispatch = Settings { lane_limit_max: 32, ..Settings::default() };
    let app = TestApp::with(Setup { dispatch, ..Setup::default() }).await;
    app.subscribe_with("fcm", 0..90, json!({"topics": ["news"]})).await;
    // What is urgent goes to browsers that are answered at once, but for one that fails twice.
    let failing = Rule { attempts: Some([1, 2]), endpoints: Some([1_010].into()), ..Rule::always(Action::ServerError) };
    let urgent = Rule { endpoints: Some((1_000..1_011).collect()), ..Rule::default() };
    for rule in [failing, urgent] {
        app.simulator.add_rule(rule).unwrap();
    }
    let hold = Rule { gateway: Some(Gateway::Fcm), ..Rule::always(Action::Hold) };
    let hold = app.simulator.add_rule(hold).unwrap();
    let campaign = app.send(json!({"topic": "news"}), json!({"tier": tier})).await;
    app.until_held(hold, 31).await;
    (app, hold, campaign)
}

async fn ends(app: TestApp, hold: u64, campaign: &str) {
    assert_eq!(app.rule(hold), (31, 31), "the campaign stands where it stood");
    app.simulator.remove_rule(hold);
    app.run_until_idle().await;
    assert_eq!(app.counts(campaign).await["accepted"], 90);
    app.finish().await;
}

async fn until_accepted(app: &TestApp, n: u64) {
    let accepted = app.simulator.wait_until(|report| report.accepted == n);
    tokio::time::timeout(PATIENCE, accepted).await.expect("it gets through");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_code_gets_through_while_a_campaign_saturates_its_lane() {
    for tier in ["promotional", "engagement"] {
        let (app, hold, campaign) = saturated(tier).await;
        let subscribers = app.subscribe("fcm", 1_000..1_006).await;
        for (n, subscriber) in (1..).zip(&subscribers) {
            app.send(json!({"subscriptions": [subscriber.id]}), json!({"tier": "transactional"})).await;
            until_accepted(&app, n).await;
        }
        ends(app, hold, &campaign).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn codes_to_several_browsers_pass_a_campaign_too() {
    let (app, hold, campaign) = saturated("promotional").await;
    let subscribers = app.subscribe_with("fcm", 1_000..1_010, json!({"user_id": "ada"})).await;
    let code = json!({"to": {"users": ["ada"]}, "payload": "123456", "tier": "transactional", "ttl": 60});
    let code = app.call(Method::POST, "/v1/apps/shop/messages", code).await.ok(202);
    until_accepted(&app, subscribers.len() as u64).await;
    // A batch of the campaign that closes meanwhile does not change who is next.
    app.message(code["id"].as_str().unwrap()).await;
    ends(app, hold, &campaign).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_promotion_does_not_take_the_place_that_is_kept_for_codes() {
    let (app, hold, campaign) = saturated("promotional").await;
    let subscriber = app.subscribe("fcm", 1_000..1_001).await.remove(0);
    let to = json!({"subscriptions": [subscriber.id]});
    let promotion = app.send(to.clone(), json!({"tier": "promotional"})).await;
    app.send(to, json!({"tier": "transactional"})).await;
    until_accepted(&app, 1).await;
    assert_eq!(app.counts(&promotion).await.get("accepted"), None);
    ends(app, hold, &campaign).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_of_a_code_overtakes_a_campaign_as_well() {
    let (app, hold, campaign) = saturated("promotional").await;
    let subscriber = app.subscribe("fcm", 1_010..1_011).await.remove(0);
    let code = app.send(json!({"subscriptions": [subscriber.id]}), json!({"tier": "transactional"})).await;
    let failed = |report: &Report| report.statuses.get(&500) == Some(&2);
    let failed = tokio::time::timeout(PATIENCE, app.simulator.wait_until(failed)).await;
    failed.expect("its first retry is made at once");
    let retrying = async {
        while app.counts(&code).await.get("retrying") != Some(&1) {
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, retrying).await.expect("its second is planned");
    app.clock.advance(Duration::from_millis(1_200));
    app.dispatcher.kick();
    until_accepted(&app, 1).await;
    // Failures halve the lane's limit, which is no reason to begin more of the campaign.
    ends(app, hold, &campaign).await;
}
