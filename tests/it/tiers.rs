//! Priority of the tiers.

use std::time::Duration;

use axum::http::Method;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{LaneId, SubscriptionId};
use bellwire_core::lane::Gateway;
use bellwire_dispatch::DispatchConfig;
use bellwire_simulator::gateways::{Rule, RuleAction, SimulatorReport};
use bellwire_store::queue::claims::{self, DueSpan, LEASE};
use serde_json::{Value, json};

use crate::support::app::{PATIENCE, Setup, Subscriber, TestApp};

/// A lane whose gateway has parked every push that may be in flight, with as many again waiting.
async fn saturated(tier: &str) -> (TestApp, u64, String) {
    // A limit that does not grow with every code that is accepted.
    let dispatch = DispatchConfig { lane_limit_max: 32, ..DispatchConfig::default() };
    let app = TestApp::with(Setup { dispatch, ..Setup::default() }).await;
    app.subscribe_with("fcm", 0..90, json!({"topics": ["news"]})).await;
    // What is urgent goes to browsers that are answered at once, but for one that fails twice.
    let failing =
        Rule { attempts: Some([1, 2]), endpoints: Some([1_010].into()), ..Rule::always(RuleAction::ServerError) };
    let urgent = Rule { endpoints: Some((1_000..1_011).collect()), ..Rule::default() };
    for rule in [failing, urgent] {
        app.simulator.add_rule(rule).unwrap();
    }
    let hold = Rule { gateway: Some(Gateway::Fcm), ..Rule::always(RuleAction::Hold) };
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
async fn code_passes_a_saturated_lane() {
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
async fn promotion_leaves_the_reserved_permit() {
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
async fn retried_code_overtakes_a_campaign() {
    let (app, hold, campaign) = saturated("promotional").await;
    let subscriber = app.subscribe("fcm", 1_010..1_011).await.remove(0);
    let code = app.send(json!({"subscriptions": [subscriber.id]}), json!({"tier": "transactional"})).await;
    let failed = |report: &SimulatorReport| report.statuses.get(&500) == Some(&2);
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

async fn flow(app: &TestApp, turn: &str) {
    app.call(Method::POST, &format!("/v1/apps/shop/flow/{turn}"), Value::Null).await.ok(200);
}

/// Deliveries of one message that wait in the queue, since the flow is paused.
async fn waiting(app: &TestApp, subscribers: &[Subscriber]) -> String {
    flow(app, "pause").await;
    let ids: Vec<_> = subscribers.iter().map(|subscriber| &subscriber.id).collect();
    let message = app.send(json!({"subscriptions": ids}), json!({"ttl": 86_400})).await;
    app.run_until_idle().await;
    message
}

#[tokio::test(flavor = "multi_thread")]
async fn fewer_retries_are_claimed_first_within_bounds() {
    const LIMIT: usize = 6;
    let app = TestApp::start().await;
    let subscribers = app.subscribe("fcm", 0..40).await;
    let message = waiting(&app, &subscribers).await;
    let tried: Vec<_> = subscribers[..20].iter().map(|it| it.id.parse::<SubscriptionId>().unwrap().0).collect();
    for (retries, passing_ms) in [(1, 2_000), (2, 2_666), (3, 3_000), (9, 3_600)] {
        for (later_ms, not_tried) in [(1, 20), (passing_ms - 1, 20), (passing_ms + 1, 4)] {
            let wait = "UPDATE queue SET lease = NULL, leases = 0, has_turn = false,
                               retries = CASE WHEN subscription = ANY ($1) THEN $2 ELSE 0 END,
                               due_at = $3 - CASE WHEN subscription = ANY ($1) THEN $4 ELSE 0 END * interval '1 ms'";
            let now = app.clock.now();
            let bound = sqlx::query(wait).bind(&tried).bind(retries).bind(now).bind(later_ms);
            bound.execute(&app.pool).await.unwrap();
            let mut first = Vec::new();
            while first.len() < 24 {
                let span = DueSpan::all(LaneId(1), Tier::Promotional, now);
                let claimed = claims::claim_rows(&app.pool, span, LIMIT, app.clock.uuid(), now + LEASE).await.unwrap();
                assert_eq!(claimed.len(), LIMIT);
                first.extend(claimed.into_iter().map(|row| row.retries));
            }
            let found = first.iter().filter(|retries| **retries == 0).count();
            assert_eq!(found, not_tried, "due {later_ms} ms after {retries} retries: {first:?}");
        }
    }
    let genuine = "UPDATE queue SET lease = NULL, leases = 0, retries = 0, due_at = scheduled_at";
    sqlx::query(genuine).execute(&app.pool).await.unwrap();
    flow(&app, "resume").await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await["accepted"], 40);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn campaign_begins_behind_a_long_queue() {
    let dispatch = DispatchConfig { lane_limit_max: 6, ..DispatchConfig::default() };
    let app = TestApp::with(Setup { dispatch, ..Setup::default() }).await;
    app.subscribe_with("fcm", 1_000..1_120, json!({"topics": ["news"]})).await;
    let backlog = waiting(&app, &app.subscribe("fcm", 0..100).await).await;
    let campaign = app.send(json!({"topic": "news"}), json!({})).await;
    let hold = |endpoints: std::ops::Range<u32>| {
        let rule = Rule { endpoints: Some(endpoints.collect()), ..Rule::always(RuleAction::Hold) };
        app.simulator.add_rule(rule).unwrap()
    };
    let (of_backlog, of_campaign) = (hold(0..100), hold(1_000..1_120));
    flow(&app, "resume").await;
    let all = |report: &SimulatorReport| report.rules.iter().map(|rule| rule.held).sum::<u64>() == 5;
    tokio::time::timeout(PATIENCE, app.simulator.wait_until(all)).await.expect("all that may be in flight");
    assert_eq!((app.rule(of_backlog).1, app.rule(of_campaign).1), (3, 2), "each has half of the room");
    app.simulator.remove_rule(of_backlog);
    app.simulator.remove_rule(of_campaign);
    app.run_until_idle().await;
    assert_eq!((app.counts(&backlog).await["accepted"], app.counts(&campaign).await["accepted"]), (100, 120));
    app.finish().await;
}
