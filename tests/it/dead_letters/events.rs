//! Events for webhooks, and the hygiene report.

use std::time::Duration;

use axum::http::Method;
use bellwire_core::delivery::Tier;
use bellwire_core::id::{AppId, MessageId};
use bellwire_simulator::gateways::{Rule, RuleAction};
use bellwire_store::outcomes::events::{self, Event};
use serde_json::{Value, json};

use super::{letter_of, letters_of, refusing, to};
use crate::support::{START, TestApp};

async fn events(app: &TestApp) -> Vec<Value> {
    app.get("/v1/apps/shop/events").await["data"].as_array().unwrap().clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn deaths_within_a_minute_are_one_event() {
    let app = TestApp::start().await;
    let (subscribers, _) = letters_of(&app, 3).await;
    app.advance(Duration::from_secs(20)).await;
    app.simulator.add_rule(Rule { endpoints: Some([1].into()), ..Rule::always(RuleAction::Unauthorized) }).unwrap();
    app.simulator.add_rule(refusing(0..3)).unwrap();
    app.send(to(&subscribers), json!({})).await;
    app.run_until_idle().await;
    app.advance(Duration::from_secs(60)).await;
    app.send(to(&subscribers[..1]), json!({})).await;
    app.run_until_idle().await;

    let told = events(&app).await;
    let brief: Vec<_> =
        told.iter().map(|e| (e["data"]["reason"].as_str().unwrap(), e["count"].as_i64().unwrap())).collect();
    let of = |reason| brief.iter().filter(|(r, _)| *r == reason).map(|(_, n)| *n).collect::<Vec<_>>();
    assert_eq!((of("bad_request"), of("unauthorized")), (vec![1, 5], vec![1]), "{told:?}");
    assert!(told.iter().all(|event| event["kind"] == "dead_letter.created"));
    let first = told.last().unwrap();
    assert!(first["id"].as_str().unwrap().starts_with("evt_"));
    assert_eq!(first["at"].as_str().unwrap().parse::<chrono::DateTime<chrono::Utc>>().unwrap(), START);
    let letter =
        app.get(&format!("/v1/apps/shop/dead-letters/{}", first["data"]["dead_letter"].as_str().unwrap())).await;
    assert_eq!(letter["reason"], "bad_request");
    let page = app.get("/v1/apps/shop/events?limit=1").await;
    assert_eq!((page["data"].as_array().unwrap().len(), &page["done"]), (1, &json!(false)));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lost_subscriptions_are_reported_by_lane_and_day() {
    let app = TestApp::start().await;
    let [fcm, mozilla] = [app.subscribe("fcm", 0..3).await, app.subscribe("mozilla", 0..1).await];
    app.simulator.add_rule(Rule::always(RuleAction::Gone)).unwrap();
    let first = app.send(to(&fcm[..2]), json!({})).await;
    app.send(to(&mozilla), json!({})).await;
    app.run_until_idle().await;
    app.advance(Duration::from_secs(86_400)).await;
    app.send(to(&fcm[2..]), json!({})).await;
    app.run_until_idle().await;
    assert_eq!(app.counts(&first).await["gone"], 2);

    let told = events(&app).await;
    let mut brief: Vec<_> = told.iter().map(|e| json!([e["kind"], e["data"]["gateway"], e["count"]])).collect();
    brief.sort_by_key(Value::to_string);
    let gone = "subscription.gone";
    assert_eq!(brief, [json!([gone, "fcm", 1]), json!([gone, "fcm", 2]), json!([gone, "mozilla", 1])]);
    assert!(told[0]["data"]["vapid_key"].as_str().unwrap().starts_with("vk_"));
    assert_eq!(letter_of(&app, &fcm[0]).await["state"], "closed");

    let report = app.get("/v1/apps/shop/lost-subscriptions").await;
    let lines: Vec<_> = report["data"]
        .as_array()
        .unwrap()
        .iter()
        .map(|l| json!([l["day"], l["gateway"], l["gone"], l["suspended"]]))
        .collect();
    assert_eq!(
        lines,
        [
            json!(["2027-01-16", "fcm", 1, 0]),
            json!(["2027-01-15", "fcm", 2, 0]),
            json!(["2027-01-15", "mozilla", 1, 0])
        ]
    );
    let today = app.get("/v1/apps/shop/lost-subscriptions?days=1").await;
    assert_eq!(today["data"].as_array().unwrap().len(), 1);
    let reply = app.call(Method::GET, "/v1/apps/shop/lost-subscriptions?days=0", Value::Null).await;
    assert_eq!((reply.status, &reply.json["errors"][0]["parameter"]), (400, &json!("days")));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn missed_sla_is_reported_once_a_minute() {
    let app = TestApp::start().await;
    let owner: AppId = sqlx::query_scalar("SELECT id FROM apps").fetch_one(&app.pool).await.unwrap();
    let missed = |n| Event::sla_missed(owner, Tier::Transactional, 30, MessageId(uuid::Uuid::nil()), n);
    let mut tx = app.pool.begin().await.unwrap();
    events::record(&mut tx, vec![missed(1), missed(2)], app.clock.now()).await.unwrap();
    events::record(&mut tx, vec![missed(4)], app.clock.now()).await.unwrap();
    tx.commit().await.unwrap();
    let mut tx = app.pool.begin().await.unwrap();
    events::record(&mut tx, vec![missed(8)], app.clock.now()).await.unwrap();
    tx.rollback().await.unwrap();
    let told = self::events(&app).await;
    assert_eq!(told.len(), 1);
    assert_eq!((&told[0]["kind"], &told[0]["count"]), (&json!("sla.missed"), &json!(7)));
    assert_eq!((&told[0]["data"]["tier"], &told[0]["data"]["sla_seconds"]), (&json!("transactional"), &json!(30)));
    app.finish().await;
}
