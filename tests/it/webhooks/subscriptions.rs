//! Webhooks receive events about subscriptions, and those of operators alerts about the server.

use std::time::Duration;

use axum::http::Method;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{AppId, MessageId};
use bellwire_simulator::gateways::{Rule, RuleAction};
use bellwire_store::outcomes::alerts::{self, Alert, AlertKind};
use bellwire_store::outcomes::events::{self as event_log, Event};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::{Stage, URL, at, events};
use crate::support::app::{PATIENCE, scalar};

/// All events that a receiver got, once at least `n` of them arrived.
async fn told(stage: &Stage, n: usize) -> Vec<Value> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let told: Vec<Value> = stage.receiver.pushed().iter().flat_map(events).collect();
        if told.len() >= n {
            return told;
        }
        assert!(Instant::now() < deadline, "{n} events are expected: {told:#?}");
        // The stream waits for transactions that began before, in any database of the Postgres. A request that a busy machine
        // let fail is due again by this clock.
        stage.tell_after(Duration::from_millis(100)).await;
    }
}

/// Type, subscription, user, and cause or changed members.
fn summary(event: &Value) -> (String, String, Value, Value) {
    let data = &event["data"];
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let why = data.get("cause").or(data.get("changed")).unwrap().clone();
    (text(&event["type"]), text(&data["subscription"]), data["user_id"].clone(), why)
}

#[tokio::test(flavor = "multi_thread")]
async fn subscription_events_account_for_every_change() {
    let stage = Stage::set().await;
    let app = &stage.app;
    let early = app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await.remove(0);
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM stream_events WHERE kind ~ '^subscription'").await, 0);
    stage.webhook(URL, &["subscription.created", "subscription.changed", "subscription.ended"], json!({})).await;
    let consent = json!({"user_id": "bob", "consent": {"at": app.clock.now(), "source": "checkout"}});
    let bob = app.subscribe_with("fcm", 1..2, consent).await.remove(0);
    // The same again changes nothing.
    app.come_back_with("fcm", 0, json!({"user_id": "ann"})).await;
    let path = format!("/v1/apps/shop/subscriptions/{}", early.id);
    app.call(Method::PATCH, &path, json!({"tags": ["vip"], "timezone": "Europe/Paris"})).await.ok(200);
    let next = app.subscribe_with("fcm", 2..3, json!({"replaces": {"id": early.id}})).await.remove(0);
    app.simulator.add_rule(Rule { endpoints: Some([1].into()), ..Rule::always(RuleAction::Gone) }).unwrap();
    app.send(json!({"subscriptions": [bob.id]}), json!({})).await;
    app.run_until_idle().await;
    app.come_back_with("fcm", 1, json!({"user_id": "bob"})).await;
    app.call(Method::DELETE, &format!("/v1/apps/shop/subscriptions/{}", next.id), Value::Null).await.ok(204);

    let told = told(&stage, 7).await;
    let mut found: Vec<_> = told.iter().map(summary).collect();
    found.sort_by_key(|(kind, id, _, why)| (kind.clone(), id.clone(), why.to_string()));
    let event =
        |kind: &str, id: &str, user: Value, why: Value| (format!("subscription.{kind}"), id.to_owned(), user, why);
    let mut expected = vec![
        event("created", &bob.id, json!("bob"), json!("registered")),
        event("changed", &early.id, json!("ann"), json!(["tags", "timezone"])),
        event("created", &next.id, json!("ann"), json!("replacement")),
        event("ended", &early.id, json!("ann"), json!("replaced")),
        event("ended", &bob.id, json!("bob"), json!("gone")),
        event("created", &bob.id, json!("bob"), json!("restored")),
        event("ended", &next.id, json!("ann"), json!("unsubscribed")),
    ];
    expected.sort_by_key(|(kind, id, _, why)| (kind.clone(), id.clone(), why.to_string()));
    assert_eq!(found, expected);
    let of = |kind: &str, id: &str| {
        let is = |event: &&Value| event["type"] == kind && event["data"]["subscription"] == id;
        &told.iter().find(is).unwrap()["data"]
    };
    assert_eq!(of("subscription.created", &bob.id)["consent_source"], "checkout");
    assert_eq!(of("subscription.ended", &early.id)["replaced_by"], json!(next.id));
    stage.app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn subscription_events_name_no_erased_user() {
    let stage = Stage::set().await;
    let app = &stage.app;
    stage.webhook(URL, &["subscription.created", "subscription.ended"], json!({})).await;
    app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await;
    app.call(Method::DELETE, "/v1/apps/shop/users/ann", Value::Null).await.ok(200);
    let told = told(&stage, 2).await;
    assert!(told.iter().all(|event| event["data"]["user_id"].is_null()), "{told:?}");
    assert_eq!(
        told.iter().find(|event| event["type"] == "subscription.ended").unwrap()["data"]["cause"],
        "unsubscribed"
    );
    stage.app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_alerts_reach_webhooks_of_operators_only() {
    let stage = Stage::set().await;
    let app = &stage.app;
    let wanted = json!({"name": "Pager", "url": URL, "events": ["server.alert.raised", "sla.missed"]});
    let refused = app.call(Method::POST, "/v1/apps/shop/webhooks", wanted.clone()).await;
    assert_eq!((refused.status, &refused.json["code"]), (403, &json!("forbidden")), "{}", refused.json);
    let webhook = app.operate(Method::POST, "/v1/apps/shop/webhooks", wanted).await.ok(201);
    // A new URL would receive them, too.
    let moved = json!({"url": "https://slow.example.com/in"});
    assert_eq!(app.call(Method::PATCH, &at(&webhook, ""), moved.clone()).await.status, 403);
    stage.webhook("https://slow.example.com/in", &["alert.raised"], json!({})).await;
    let mut conn = app.pool.acquire().await.unwrap();
    let alert = Alert { app: None, kind: AlertKind::Sli, subject: "s", detail: "d" };
    alerts::raise(&mut conn, &alert, app.clock.now()).await.unwrap();
    let shop: AppId = app.get("/v1/apps/shop").await["id"].as_str().unwrap().parse().unwrap();
    let missed = Event::sla_missed(shop, Tier::Transactional, 30, MessageId(app.clock.uuid()), 1);
    event_log::record(&mut conn, vec![missed], app.clock.now()).await.unwrap();
    drop(conn);
    let told = told(&stage, 2).await;
    let mut types: Vec<_> = told.iter().map(|event| event["type"].as_str().unwrap()).collect();
    types.sort_unstable();
    assert_eq!(types, ["server.alert.raised", "sla.missed"]);
    assert!(stage.elsewhere.pushed().is_empty(), "an app does not learn of the server's alerts");
    app.operate(Method::PATCH, &at(&webhook, ""), moved).await.ok(200);
    stage.app.finish().await;
}

#[tokio::test]
async fn withdrawals_in_browsers_are_told() {
    let stage = Stage::set().await;
    let app = &stage.app;
    let subscriber = app.subscribe("fcm", 0..1).await.remove(0);
    stage.webhook(URL, &["delivery.withdrawn"], json!({})).await;
    let id = app.send(json!({"all": true}), json!({})).await;
    app.run_until_idle().await;
    app.call(Method::POST, &format!("/v1/apps/shop/messages/{id}/withdraw"), Value::Null).await.ok(200);
    app.run_until_idle().await;
    let removal = app.message(&id).await["counts"]["withdrawal"]["removal"].as_str().expect("a removal").to_owned();
    let received = app.simulator.received(&subscriber.endpoint).unwrap();
    let push: Value = serde_json::from_slice(received[1].plaintext.as_deref().unwrap()).unwrap();
    let receipt = &push["notification"]["data"]["bellwire"]["receipt"];
    let report = json!({"receipt": receipt, "kind": "removed"});
    app.call(Method::POST, "/v1/apps/shop/receipts", report).await.ok(204);
    stage.tell().await;
    let events = events(&stage.receiver.pushed().remove(0));
    assert_eq!(events.len(), 1);
    assert_eq!(
        (&events[0]["type"], &events[0]["data"]["subscription"]),
        (&json!("delivery.withdrawn"), &json!(subscriber.id))
    );
    assert_eq!((&events[0]["data"]["message"], &events[0]["data"]["withdraws"]), (&json!(removal), &json!(id)));
    assert_eq!(events[0]["data"]["result"], "removed", "{events:?}");
    stage.app.finish().await;
}
