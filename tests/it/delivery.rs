//! Sent messages arrive once, readable, and counted.

use std::time::Duration;

use axum::http::Method;
use bellwire_core::lane::Gateway;
use bellwire_dispatch::DispatchConfig;
use bellwire_simulator::gateways::{Rule, RuleAction};
use serde_json::{Value, json};

use crate::support::engine::until_changes_read;
use crate::support::{Setup, TestApp, counts};

#[tokio::test(flavor = "multi_thread")]
async fn campaign_reaches_each_subscriber_once() {
    let app = TestApp::start().await;
    for gateway in ["fcm", "mozilla", "wns", "apple", "other"] {
        app.subscribe(gateway, 0..30).await;
    }
    let message = app.send(json!({"all": true}), json!({"collapse_key": "news-1", "urgency": "low"})).await;
    app.run_until_idle().await;
    let shown = app.message(&message).await;
    assert_eq!((&shown["state"], &shown["expanded"]), (&json!("done"), &json!(true)));
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 150), ("accepted", 150), ("awaiting_ack", 150)]));
    let report = app.simulator.report();
    assert_eq!(report.accepted, 150);
    assert_eq!(report.deliveries, 150);
    assert_eq!(report.duplicates, 0);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn single_send_carries_the_worker_envelope() {
    let app = TestApp::start().await;
    let subscriber = &app.subscribe("mozilla", 0..1).await[0];
    let message = app.send(json!({"subscriptions": [subscriber.id]}), json!({"tier": "transactional"})).await;
    app.run_until_idle().await;
    let received = app.simulator.received(&subscriber.endpoint).unwrap();
    assert_eq!(received.len(), 1);
    let plaintext: Value = serde_json::from_slice(received[0].plaintext.as_ref().unwrap()).unwrap();
    assert_eq!(plaintext["web_push"], 8030);
    assert_eq!(plaintext["notification"]["title"], "Hello");
    let envelope = &plaintext["notification"]["data"]["bellwire"];
    assert_eq!(envelope["retried"], 0);
    assert_eq!(envelope["id"].as_str().map(str::len), Some(22));
    assert_eq!(envelope["receipt"].as_str().map(str::len), Some(64));
    assert_eq!(app.delivery(&message, &subscriber.id).await["state"], "accepted");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn retry_after_503_keeps_the_delivery_id() {
    let app = TestApp::start().await;
    let rule = Rule { attempts: Some([1, 1]), ..Rule::always(RuleAction::Unavailable { retry_after_s: None }) };
    app.simulator.add_rule(rule).unwrap();
    let subscriber = &app.subscribe("fcm", 0..1).await[0];
    let message = app.send(json!({"subscriptions": [subscriber.id]}), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 1), ("retrying", 1)]));
    app.advance(Duration::from_secs(3)).await;
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 1), ("accepted", 1), ("awaiting_ack", 1)]));
    let received = app.simulator.received(&subscriber.endpoint).unwrap();
    assert_eq!((received.len(), received[0].attempts.len()), (1, 2), "two requests for one delivery");
    let delivery = app.delivery(&message, &subscriber.id).await;
    assert_eq!(delivery["attempts"].as_array().map(Vec::len), Some(2), "{delivery}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gone_subscription_is_pruned_with_its_queue() {
    let app = TestApp::start().await;
    let subscriber = &app.subscribe("apple", 0..1).await[0];
    let to = json!({"subscriptions": [subscriber.id]});
    let throttled = Rule { count: Some(1), ..Rule::always(RuleAction::Unavailable { retry_after_s: None }) };
    app.simulator.add_rule(throttled).unwrap();
    let waiting = app.send(to.clone(), json!({})).await;
    app.run_until_idle().await;
    app.simulator.add_rule(Rule::always(RuleAction::Gone)).unwrap();
    let message = app.send(to, json!({})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 1), ("gone", 1)]));
    assert_eq!(app.counts(&waiting).await, counts(&[("targeted", 1), ("gone", 1)]));
    let shown = app.get(&format!("/v1/apps/shop/subscriptions/{}", subscriber.id)).await;
    assert_eq!(shown["state"], "gone");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn throttling_gateway_holds_only_its_lane() {
    let app = TestApp::start().await;
    let headers = vec![("x-wns-status".into(), "appthrottled".into()), ("retry-after".into(), "60".into())];
    let by_app = RuleAction::Answer { status: 406, headers, body: String::new() };
    let throttled = Rule { gateway: Some(Gateway::Wns), count: Some(1), ..Rule::always(by_app) };
    app.simulator.add_rule(throttled).unwrap();
    app.subscribe("wns", 0..20).await;
    app.subscribe("fcm", 0..120).await;
    let message = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    let before = app.counts(&message).await;
    assert!(before["accepted"] >= 120, "{before:?}");
    assert!(before["accepted"] < 140, "{before:?}");
    app.advance(Duration::from_secs(70)).await;
    assert_eq!(app.counts(&message).await["accepted"], 140);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn too_large_payload_shrinks_raw_one_dies() {
    let app = TestApp::start().await;
    let subscriber = &app.subscribe("fcm", 0..1).await[0];
    let to = json!({"subscriptions": [subscriber.id]});
    app.simulator.add_rule(Rule { attempts: Some([1, 1]), ..Rule::always(RuleAction::TooLarge) }).unwrap();
    let content =
        json!({"title": "T", "body": "b".repeat(1900), "image": format!("https://example.com/{}", "i".repeat(1500))});
    let message = app.send(to.clone(), json!({"content": content})).await;
    app.run_until_idle().await;
    let delivery = app.delivery(&message, &subscriber.id).await;
    assert_eq!(delivery["state"], "accepted", "{delivery}");
    assert_eq!(delivery["attempts"].as_array().map(Vec::len), Some(2), "{delivery}");
    app.simulator.add_rule(Rule::always(RuleAction::TooLarge)).unwrap();
    let raw = json!({"to": to, "payload": "x".repeat(3000)});
    let raw = app.call(Method::POST, "/v1/apps/shop/messages", raw).await.ok(202);
    app.run_until_idle().await;
    assert_eq!(app.counts(raw["id"].as_str().unwrap()).await, counts(&[("targeted", 1), ("dead", 1)]));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn small_payload_loses_padding_then_content() {
    let content = json!({"title": "T", "body": "b".repeat(150)});
    for (refused, notification, raw) in [(1, "accepted", "accepted"), (2, "accepted", "dead"), (99, "dead", "dead")] {
        let app = TestApp::start().await;
        let rule = Rule { attempts: Some([1, refused]), ..Rule::always(RuleAction::TooLarge) };
        app.simulator.add_rule(rule).unwrap();
        // Each has a push service of its own, which has shown nothing of what it takes.
        let [shown, plain] =
            [app.subscribe("fcm", 0..1).await.remove(0), app.subscribe("mozilla", 0..1).await.remove(0)];
        let sent = app.send(json!({"subscriptions": [shown.id]}), json!({"content": content})).await;
        app.run_until_idle().await;
        let delivery = app.delivery(&sent, &shown.id).await;
        assert_eq!(delivery["state"], notification, "{refused}: {delivery}");
        let reason = |n: usize| delivery["attempts"][n]["reason"].as_str().unwrap_or_default();
        assert!(reason(0).ends_with("sent again without padding"), "{delivery}");
        assert!(refused == 1 || reason(1).ends_with("the end of body"), "{delivery}");

        let body = json!({"to": {"subscriptions": [plain.id]}, "payload": "x".repeat(100)});
        let sent = app.call(Method::POST, "/v1/apps/shop/messages", body).await.ok(202);
        app.run_until_idle().await;
        let delivery = app.delivery(sent["id"].as_str().unwrap(), &plain.id).await;
        assert_eq!(delivery["state"], raw, "{refused}: {delivery}");
        for letter in app.get("/v1/apps/shop/dead-letters").await["data"].as_array().unwrap() {
            assert!(letter["detail"].as_str().unwrap().contains("octets, and it cannot be made smaller"), "{letter}");
        }
        app.finish().await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn too_large_payload_loses_padding_first() {
    const TAKES: usize = 2_000; // octets of plaintext
    let mut options = bellwire_simulator::gateways::Options::default();
    for host in &mut options.hosts {
        host.body_limit = Some(TAKES + bellwire_webpush::OVERHEAD);
    }
    let app = TestApp::with(Setup { simulator: options, ..Setup::default() }).await;
    // At two gateways: what one has shown of its limit holds for what it gets next.
    let [one, other] = [app.subscribe("fcm", 0..1).await.remove(0), app.subscribe("mozilla", 0..1).await.remove(0)];
    let image = format!("https://example.com/{}", "i".repeat(1_500));
    let shrinks = json!({"content": {"title": "T", "body": "b".repeat(2_000), "image": image}});
    for (subscriber, content, told) in [
        (one, json!({"content": {"title": "T", "body": "b".repeat(1_700)}}), &["padding"][..]),
        (other, shrinks, &["padding", "image", "image, the end of body"]),
    ] {
        let message = app.send(json!({"subscriptions": [subscriber.id]}), content).await;
        app.run_until_idle().await;
        let delivery = app.delivery(&message, &subscriber.id).await;
        assert_eq!(delivery["state"], "accepted", "{delivery}");
        let attempts = delivery["attempts"].as_array().unwrap();
        let reasons: Vec<_> = attempts.iter().filter_map(|attempt| attempt["reason"].as_str()).collect();
        assert_eq!(reasons.len(), told.len(), "{delivery}");
        for (reason, told) in reasons.iter().zip(told) {
            assert!(reason.ends_with(&format!("sent again without {told}")), "{delivery}");
        }
        let received = app.simulator.received(&subscriber.endpoint).unwrap();
        let len = received[0].plaintext.as_ref().unwrap().len();
        assert!((1_500..=TAKES).contains(&len), "{len}");
    }
    app.finish_after(&[bellwire_simulator::gateways::RequestFault::TooLarge]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoint_change_mid_campaign_delivers_once() {
    // One POST at a time, which is held: the fan-out stands behind its first batch of 50.
    let dispatch = DispatchConfig { lane_limit_max: 1, batch_min: 50, batch_max: 50, ..DispatchConfig::default() };
    let app = TestApp::with(Setup { dispatch, ..Setup::default() }).await;
    let old = app.subscribe("fcm", 0..150).await;
    let hold = app.simulator.add_rule(Rule::always(RuleAction::Hold)).unwrap();
    let message = app.send(json!({"all": true}), json!({})).await;
    app.until_held(hold, 1).await;
    let mut new = Vec::new();
    for (place, index) in [(10, 200), (120, 201)] {
        let replaces = json!({"replaces": {"id": old[place].id}});
        new.extend(app.subscribe_with("fcm", index..index + 1, replaces).await);
    }
    until_changes_read(&app).await;
    app.simulator.remove_rule(hold);
    app.run_until_idle().await;
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 150), ("accepted", 150), ("awaiting_ack", 150)]));
    let times = |endpoint: &str| app.simulator.received(endpoint).unwrap().len();
    assert_eq!(
        (times(&old[10].endpoint), times(&new[0].endpoint)),
        (0, 1),
        "its batch was taken, and waited for a turn"
    );
    assert_eq!((times(&old[120].endpoint), times(&new[1].endpoint)), (0, 1), "the fan-out had not come to it");
    app.finish().await;
}
