//! Withdrawn messages: what waits is cancelled, and who may have got a push gets another one that removes it.

mod kills;
mod users;

use std::time::Duration;

use axum::http::Method;
use bellwire_simulator::gateways::{Rule, RuleAction};
use serde_json::{Value, json};

use crate::support::app::{PATIENCE, Reply, Subscriber, scalar};
use crate::support::campaigns::{create, order, plan, run_scheduler};
use crate::support::engine::{expire_leases, until_changes_read};
use crate::support::{START, TestApp, seed};

const HOUR: Duration = Duration::from_secs(3600);

async fn withdraw(app: &TestApp, id: &str) -> Reply {
    app.call(Method::POST, &format!("/v1/apps/shop/messages/{id}/withdraw"), Value::Null).await
}

/// Withdraws a message and sends its removal. Returns the removal's id.
async fn withdrawn(app: &TestApp, id: &str) -> String {
    withdraw(app, id).await.ok(200);
    app.run_until_idle().await;
    removal(app, id).await.as_str().expect("a removal").to_owned()
}

/// Id of the message that removes a withdrawn one. Null: none.
async fn removal(app: &TestApp, id: &str) -> Value {
    app.message(id).await["counts"]["withdrawal"]["removal"].clone()
}

/// A push as its browser got it.
struct Push {
    id: String,
    /// Delivery that it removes.
    withdraws: Option<String>,
    notification: Value,
    topic: Option<String>,
    ttl: Option<u64>,
}

/// Accepted pushes of a browser, in order.
fn pushes(app: &TestApp, subscriber: &Subscriber) -> Vec<Push> {
    let received = app.simulator.received(&subscriber.endpoint).unwrap();
    let read = |delivery: bellwire_simulator::gateways::Delivery| {
        let push: Value = serde_json::from_slice(delivery.plaintext.as_deref().expect("it was opened")).unwrap();
        let stamp = push["notification"]["data"]["bellwire"].clone();
        let text = |name: &str| stamp[name].as_str().map(str::to_owned);
        let last = delivery.attempts.last().expect("a request");
        Push {
            id: text("id").expect("a stamp"),
            withdraws: text("withdraws"),
            notification: push["notification"].clone(),
            topic: last.topic.as_deref().map(str::to_owned),
            ttl: last.ttl,
        }
    };
    received.into_iter().filter(|delivery| delivery.accepted > 0).map(read).collect()
}

/// Whether a browser that got these pushes, in any order, shows none of them.
fn shows_nothing(pushes: &[Push]) -> bool {
    let is_removed = |push: &Push| pushes.iter().any(|other| other.withdraws.as_deref() == Some(&push.id));
    pushes.iter().filter(|push| push.withdraws.is_none()).all(is_removed)
}

#[tokio::test]
async fn accepted_message_is_removed_from_its_browsers() {
    let app = TestApp::start().await;
    let subscribers = app.subscribe("fcm", 0..3).await;
    let id = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    let later = app.subscribe("fcm", 3..4).await.remove(0);
    let removal = withdrawn(&app, &id).await;
    for subscriber in &subscribers {
        let pushes = pushes(&app, subscriber);
        assert_eq!(pushes.len(), 2);
        assert_eq!(pushes[1].withdraws.as_deref(), Some(&*pushes[0].id));
        assert_ne!(pushes[1].id, pushes[0].id);
        assert_eq!(pushes[1].notification["tag"], format!("bellwire:{}", pushes[0].id), "for older workers");
        assert_eq!(pushes[1].notification["silent"], true);
        assert_eq!(pushes[1].ttl, Some(2_419_200), "a device may be offline for weeks");
    }
    assert!(pushes(&app, &later).is_empty(), "it never got the message");
    assert_eq!(app.counts(&id).await["accepted"], 3, "the account of the message stays");
    assert_eq!(app.counts(&removal).await["accepted"], 3);
    assert!(app.message(&id).await["withdrawn_at"].is_string());

    let story = async |message: &str| {
        let path = format!("/v1/apps/shop/messages/{message}/deliveries/{}/explain", subscribers[0].id);
        let story = app.get(&path).await["story"].clone();
        story.as_array().unwrap().iter().map(|it| it["code"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert!(story(&id).await.contains(&"message_withdrawn".to_owned()));
    assert!(story(&removal).await.contains(&"message_removes".to_owned()));

    let repeated = withdraw(&app, &id).await.ok(200);
    app.run_until_idle().await;
    assert_eq!(repeated["counts"]["withdrawal"]["removal"], removal, "a repeat changes nothing");
    assert_eq!(pushes(&app, &subscribers[0]).len(), 2);
    let listed = app.get("/v1/apps/shop/messages").await;
    assert_eq!(listed["data"].as_array().map(Vec::len), Some(1), "removals are not listed: {listed}");
    app.finish().await;
}

#[tokio::test]
async fn unsent_message_is_only_cancelled() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..1).await;
    let id = app.send(json!({"all": true}), json!({"send_at": json!(START + HOUR), "key": "sale"})).await;
    let by_key = "/v1/apps/shop/messages/by-key/sale/withdraw";
    let shown = app.call(Method::POST, by_key, Value::Null).await.ok(200);
    assert_eq!((&shown["id"], &shown["state"]), (&json!(id), &json!("cancelled")));
    let withdrawal = &shown["counts"]["withdrawal"];
    assert_eq!(withdrawal["removal"], Value::Null);
    assert!(withdrawal["ended_at"].is_string());
    app.advance(2 * HOUR).await;
    assert_eq!(app.simulator.report().requests, 0);
    app.finish().await;
}

#[tokio::test]
async fn removal_of_a_campaign_reaches_its_recipients_alone() {
    let app = TestApp::start().await;
    seed(&app, "fcm", 0..130).await;
    seed(&app, "mozilla", 0..60).await;
    let gone = Rule { endpoints: Some([0, 1, 2].into()), ..Rule::always(RuleAction::Gone) };
    let gone = app.simulator.add_rule(gone).unwrap();
    let id = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    assert!(app.simulator.remove_rule(gone));
    seed(&app, "fcm", 130..140).await;
    let removal = withdrawn(&app, &id).await;
    let accepted = app.counts(&id).await["accepted"];
    assert_eq!(app.counts(&removal).await["accepted"], accepted);
    assert_eq!(app.counts(&removal).await["targeted"], accepted);
    app.finish().await;
}

#[tokio::test]
async fn removal_waits_for_pushes_on_their_way() {
    let app = TestApp::start().await;
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    let hold = app.simulator.add_rule(Rule::always(RuleAction::Hold)).unwrap();
    let id = app.send(json!({"all": true}), json!({})).await;
    app.until_held(hold, 1).await;
    let shown = withdraw(&app, &id).await.ok(200);
    assert_eq!(shown["counts"]["withdrawal"]["ended_at"], Value::Null);
    app.sweep().await;
    assert_eq!(removal(&app, &id).await, Value::Null);
    assert!(app.simulator.remove_rule(hold));
    app.run_until_idle().await;
    app.sweep().await;
    app.run_until_idle().await;
    let pushes = pushes(&app, &subscriber);
    assert_eq!(pushes.len(), 2);
    assert_eq!(pushes[1].withdraws.as_deref(), Some(&*pushes[0].id));
    app.finish().await;
}

#[tokio::test]
async fn pushes_of_a_crashed_worker_are_removed() {
    let app = TestApp::start().await;
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    let hold = app.simulator.add_rule(Rule::always(RuleAction::Hold)).unwrap();
    let id = app.send(json!({"all": true}), json!({})).await;
    app.until_held(hold, 1).await;
    // As if its worker had died after the request.
    expire_leases(&app.pool).await;
    withdraw(&app, &id).await.ok(200);
    assert!(app.simulator.remove_rule(hold));
    app.run_until_idle().await;
    app.sweep().await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&id).await["cancelled"], 1);
    assert!(shows_nothing(&pushes(&app, &subscriber)));
    assert!(pushes(&app, &subscriber).iter().any(|push| push.withdraws.is_some()));
    app.finish().await;
}

#[tokio::test]
async fn removal_replaces_the_message_at_the_push_service() {
    let app = TestApp::start().await;
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    let keyed = json!({"collapse_key": "score"});
    let first = app.send(json!({"all": true}), keyed.clone()).await;
    app.run_until_idle().await;
    withdrawn(&app, &first).await;
    let got = pushes(&app, &subscriber);
    assert!(got[0].topic.is_some());
    assert_eq!(got[0].topic, got[1].topic);
    let second = app.send(json!({"all": true}), keyed.clone()).await;
    app.run_until_idle().await;
    app.clock.advance(Duration::from_secs(1));
    app.send(json!({"all": true}), keyed).await;
    app.run_until_idle().await;
    withdrawn(&app, &second).await;
    assert_eq!(pushes(&app, &subscriber)[4].topic, None, "it would replace the third message");
    app.finish().await;
}

#[tokio::test]
async fn removal_waits_for_no_quiet_hours_or_caps() {
    let app = TestApp::start().await; // at 08:00 UTC
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    let caps = json!({"caps": [{"tiers": ["promotional"], "max": 1, "window": "1d"}]});
    app.call(Method::PUT, "/v1/apps/shop/caps", caps).await.ok(200);
    let id = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    let quiet = json!({"timezone": "UTC", "quiet_hours": {"from": "07:00", "to": "10:00"}});
    app.call(Method::PUT, "/v1/apps/shop/calendar", quiet).await.ok(200);
    withdrawn(&app, &id).await;
    assert_eq!(pushes(&app, &subscriber).len(), 2);
    app.finish().await;
}

#[tokio::test]
async fn dead_letters_of_a_withdrawn_message_are_discarded() {
    let app = TestApp::start().await;
    let subscribers = app.subscribe("fcm", 0..3).await;
    let refused = Rule { endpoints: Some([0, 1].into()), ..Rule::always(RuleAction::BadRequest) };
    let rule = app.simulator.add_rule(refused).unwrap();
    let id = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    assert!(app.simulator.remove_rule(rule));
    let first = json!({"filter": {"subscription": subscribers[0].id}});
    app.call(Method::POST, "/v1/apps/shop/dead-letters/replay", first).await.ok(200);
    app.run_until_idle().await;
    withdrawn(&app, &id).await;
    app.sweep().await;
    app.run_until_idle().await;
    for subscriber in &subscribers {
        assert!(shows_nothing(&pushes(&app, subscriber)), "the replay is withdrawn, too");
    }
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM dead_letters WHERE state = 'open'").await, 0);
    app.finish().await;
}

#[tokio::test]
async fn replays_of_replays_are_withdrawn() {
    for path in ["messages/by-key/sale/withdraw", "users/ann/withdraw"] {
        let app = TestApp::start().await;
        let subscriber = app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await.remove(0);
        let rule = app.simulator.add_rule(Rule::always(RuleAction::BadRequest)).unwrap();
        app.send(json!({"all": true}), json!({"key": "sale"})).await;
        app.run_until_idle().await;
        for is_last in [false, true] {
            assert!(!is_last || app.simulator.remove_rule(rule));
            let filter = json!({"filter": {"subscription": subscriber.id}});
            app.call(Method::POST, "/v1/apps/shop/dead-letters/replay", filter).await.ok(200);
            app.run_until_idle().await;
        }
        assert_eq!(pushes(&app, &subscriber).len(), 1, "the second replay arrived");
        let body = if path.starts_with("users") { json!({"key": "sale"}) } else { Value::Null };
        app.call(Method::POST, &format!("/v1/apps/shop/{path}"), body).await.ok(200);
        for _ in 0..3 {
            app.sweep().await;
            app.run_until_idle().await;
        }
        let pushes = pushes(&app, &subscriber);
        assert!(pushes.len() > 1 && shows_nothing(&pushes), "{path}: {} pushes", pushes.len());
        app.finish().await;
    }
}

#[tokio::test]
async fn withdrawn_campaign_cancels_its_replays() {
    let app = TestApp::start().await;
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    let rule = app.simulator.add_rule(Rule::always(RuleAction::BadRequest)).unwrap();
    create(&app, plan("sale", json!({}))).await;
    order(&app, "sale", "start").await.ok(200);
    run_scheduler(&app).await;
    assert!(app.simulator.remove_rule(rule));
    let busy = app.simulator.add_rule(Rule::always(RuleAction::Throttled { retry_after_s: Some(60) })).unwrap();
    let filter = json!({"filter": {"subscription": subscriber.id}});
    app.call(Method::POST, "/v1/apps/shop/dead-letters/replay", filter).await.ok(200);
    app.run_until_idle().await;
    order(&app, "sale", "withdraw").await.ok(200);
    until_changes_read(&app).await;
    assert!(app.simulator.remove_rule(busy));
    app.advance(HOUR).await; // without a sweep
    assert_eq!(pushes(&app, &subscriber).len(), 0);
    app.finish().await;
}

#[tokio::test]
async fn reports_of_browsers_are_counted() {
    let app = TestApp::start().await;
    let subscribers = app.subscribe("fcm", 0..4).await;
    let id = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    withdrawn(&app, &id).await;
    for (subscriber, kind) in subscribers.iter().zip(["removed", "prevented", "missed"]) {
        let pushes = pushes(&app, subscriber);
        let receipt = &pushes[1].notification["data"]["bellwire"]["receipt"];
        let report = json!({"receipt": receipt, "kind": kind});
        app.call(Method::POST, "/v1/apps/shop/receipts", report).await.ok(204);
    }
    let withdrawal = app.message(&id).await["counts"]["withdrawal"].clone();
    for name in ["removed", "prevented", "missed", "unknown"] {
        assert_eq!(withdrawal[name], 1, "{name}: {withdrawal}");
    }
    app.finish().await;
}

#[tokio::test]
async fn withdrawn_campaign_is_cancelled_and_removed() {
    let app = TestApp::start().await;
    let subscribers = app.subscribe("fcm", 0..3).await;
    create(&app, plan("spring", json!({}))).await;
    assert_eq!(order(&app, "spring", "withdraw").await.ok(409)["code"], "campaign_state", "it is a draft");
    order(&app, "spring", "start").await.ok(200);
    run_scheduler(&app).await;
    order(&app, "spring", "withdraw").await.ok(200);
    app.sweep().await;
    app.run_until_idle().await;
    assert!(subscribers.iter().all(|subscriber| pushes(&app, subscriber).len() == 2));
    assert!(subscribers.iter().all(|subscriber| shows_nothing(&pushes(&app, subscriber))));
    let shown = order(&app, "spring", "withdraw").await.ok(200);
    assert_eq!(shown["progress"]["withdrawal"]["unknown"], 3, "a repeat changes nothing: {shown}");
    app.finish().await;
}

async fn update(app: &TestApp, key: &str, body: Value) -> Reply {
    app.call(Method::PATCH, &format!("/v1/apps/shop/messages/by-key/{key}"), body).await
}

#[tokio::test]
async fn update_shows_new_content_in_the_same_place() {
    let app = TestApp::start().await;
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    let id = app.send(json!({"all": true}), json!({"key": "price", "collapse_key": "price"})).await;
    app.run_until_idle().await;
    let ten = json!({"content": {"title": "Shoes", "body": "For 10 euro"}});
    assert!(update(&app, "price", ten).await.ok(200)["update"].is_string());
    app.run_until_idle().await;
    let eleven = json!({"content": {"title": "Shoes", "body": "For 11 euro"}, "alert": true});
    update(&app, "price", eleven).await.ok(200);
    app.run_until_idle().await;
    let got = pushes(&app, &subscriber);
    assert_eq!(got.len(), 3);
    for (push, body, silent) in [(&got[1], "For 10 euro", json!(true)), (&got[2], "For 11 euro", Value::Null)] {
        assert_eq!(push.notification["data"]["bellwire"]["updates"], *got[0].id);
        assert_eq!((&push.notification["body"], &push.notification["silent"]), (&json!(body), &silent));
        assert_eq!(push.topic, got[0].topic, "it replaces what waits at the push service");
    }
    withdrawn(&app, &id).await;
    let last = pushes(&app, &subscriber).pop().unwrap();
    assert_eq!(last.withdraws.as_deref(), Some(&*got[0].id));
    assert_eq!(last.topic, got[0].topic);
    let refused = update(&app, "price", json!({"content": {"title": "Late"}})).await.ok(409);
    assert_eq!(refused["code"], "message_cancelled");
    app.finish().await;
}

#[tokio::test]
async fn scheduled_message_is_sent_with_new_content() {
    let app = TestApp::start().await;
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    app.send(json!({"all": true}), json!({"send_at": json!(START + HOUR), "key": "sale"})).await;
    let updated = update(&app, "sale", json!({"content": {"title": "Later"}})).await.ok(200);
    assert_eq!(updated["update"], Value::Null);
    app.advance(2 * HOUR).await;
    let got = pushes(&app, &subscriber);
    assert_eq!((got.len(), &got[0].notification["title"]), (1, &json!("Later")));
    for wrong in [json!({}), json!({"content": {}}), json!({"content": {"title": ""}})] {
        assert_eq!(update(&app, "sale", wrong).await.ok(422)["code"], "invalid");
    }
    assert_eq!(update(&app, "none", json!({"content": {"title": "x"}})).await.status, 404);
    app.finish().await;
}

#[tokio::test]
async fn update_waits_for_pushes_on_their_way() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..1).await;
    let hold = app.simulator.add_rule(Rule::always(RuleAction::Hold)).unwrap();
    app.send(json!({"all": true}), json!({"key": "price"})).await;
    app.until_held(hold, 1).await;
    let refused = update(&app, "price", json!({"content": {"title": "New"}})).await.ok(409);
    assert_eq!(refused["code"], "message_sending");
    assert!(app.simulator.remove_rule(hold));
    app.run_until_idle().await;
    app.finish().await;
}

#[tokio::test]
async fn unknown_messages_and_removals_are_refused() {
    let app = TestApp::start().await;
    app.subscribe("fcm", 0..1).await;
    let id = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    let removal = withdrawn(&app, &id).await;
    assert_eq!(withdraw(&app, &removal).await.status, 404);
    assert_eq!(withdraw(&app, "msg_01980000-0000-7000-8000-000000000000").await.status, 404);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn race_of_send_and_withdraw_leaves_nothing() {
    let app = TestApp::start().await;
    let subscribers = app.subscribe("fcm", 0..5).await;
    for round in 0..500 {
        let key = format!("r{round}");
        let user = &subscribers[round % 5].id;
        let id = app.send(json!({"subscriptions": [user]}), json!({"key": key, "tier": "transactional"})).await;
        // At every distance from the request, from before the claim to after the settlement.
        for _ in 0..round % 25 {
            tokio::task::yield_now().await;
        }
        withdraw(&app, &id).await.ok(200);
    }
    app.run_until_idle().await;
    let waiting = async {
        while scalar(&app.pool, "SELECT count(*) FROM withdrawals WHERE ended_at IS NULL").await > 0 {
            app.sweep().await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect("every withdrawal ends");
    app.run_until_idle().await;
    let mut shown = 0;
    for subscriber in &subscribers {
        let pushes = pushes(&app, subscriber);
        shown += pushes.iter().filter(|push| push.withdraws.is_none()).count();
        assert!(shows_nothing(&pushes));
    }
    assert!(shown > 0, "some were sent before");
    app.finish().await;
}
