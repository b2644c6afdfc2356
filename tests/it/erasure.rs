//! Users who are erased leave nothing that names them, wherever it breaks off.

use std::time::Duration;

use axum::http::Method;
use bellwire::testkit::server::maintenance;
use bellwire_core::id::AppId;
use bellwire_simulator::gateways::{Rule, RuleAction};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use crate::support::app::scalar;
use crate::support::{TestApp, counts};

const USER: &str = "ann@example.org";
const ERASE: &str = "/v1/apps/shop/users/ann%40example.org";

/// Every place in the database where a text stands, as `table: row`.
async fn places_of(app: &TestApp, text: &str) -> Vec<String> {
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT c.relname::text FROM pg_class c WHERE c.relnamespace = 'bellwire'::regnamespace AND c.relkind IN ('r', 'p')
         AND NOT c.relispartition",
    )
    .fetch_all(&app.pool)
    .await
    .unwrap();
    let mut places = Vec::new();
    for table in tables {
        let found = format!("SELECT $2 || ': ' || t::text FROM {table} t WHERE strpos(t::text, $1) > 0");
        let rows: Vec<String> =
            sqlx::query_scalar(AssertSqlSafe(found)).bind(text).bind(&table).fetch_all(&app.pool).await.unwrap();
        places.extend(rows);
    }
    places
}

#[tokio::test(flavor = "multi_thread")]
async fn erased_user_is_unnamed_and_counts_stay() {
    let app = TestApp::start().await;
    let person =
        json!({"user_id": USER, "tags": ["ann-tag"], "attributes": {"name": "Ann Personal"}, "topics": ["news"]});
    let phones = app.subscribe_with("fcm", 0..2, person).await;
    let other = app.subscribe_with("fcm", 2..3, json!({"user_id": "bob"})).await.remove(0);

    let sent = app.send(json!({"users": [USER]}), json!({})).await;
    app.run_until_idle().await;
    let refusing = RuleAction::Answer { status: 400, headers: Vec::new(), body: String::new() };
    let rule = app.simulator.add_rule(Rule::always(refusing)).unwrap();
    let dead = app.send(json!({"users": [USER, "bob"]}), json!({})).await;
    app.run_until_idle().await;
    app.simulator.remove_rule(rule);
    let failing = app.simulator.add_rule(Rule::always(RuleAction::Unavailable { retry_after_s: None })).unwrap();
    let waiting = app.send(json!({"users": ["bob", USER]}), json!({})).await;
    app.run_until_idle().await;
    app.simulator.remove_rule(failing);
    assert!(!places_of(&app, USER).await.is_empty() && !places_of(&app, "ann-tag").await.is_empty());

    let requests = app.simulator.report().requests;
    let erased = app.call(Method::DELETE, ERASE, Value::Null).await.ok(200);
    assert_eq!((&erased["subscriptions"], &erased["messages"]), (&json!(2), &json!(3)), "{erased}");
    assert!(erased["completed_at"].is_string(), "{erased}");
    for trace in [USER, "ann-tag", "Ann Personal"] {
        assert_eq!(places_of(&app, trace).await, [] as [&str; 0], "{trace}");
    }
    for phone in &phones {
        assert_eq!(places_of(&app, &phone.endpoint).await, [] as [&str; 0]);
    }

    // What went to them is still accounted for, and what was for others too goes on.
    assert_eq!(app.counts(&sent).await["accepted"], 2);
    assert_eq!(app.counts(&dead).await, counts(&[("targeted", 3), ("dead", 3)]));
    assert_eq!(app.message(&waiting).await["to"], json!({"users": ["bob", null]}));
    app.advance(Duration::from_secs(600)).await;
    assert_eq!(app.simulator.report().requests, requests + 1, "only the other one gets anything");
    assert_eq!(app.delivery(&waiting, &other.id).await["state"], "accepted");
    assert_eq!(app.counts(&waiting).await["cancelled"], 2);
    let open = app.get("/v1/apps/shop/dead-letters?state=open").await;
    assert_eq!(open["data"].as_array().unwrap().len(), 1, "the other one's letter stays: {open}");
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM dead_letters WHERE state = 'discarded'").await, 2);
    let trail = app.get("/v1/apps/shop/dead-letters/audit").await;
    assert_eq!(trail["data"].as_array().unwrap().len(), 2, "{trail}");

    let again = app.call(Method::DELETE, ERASE, Value::Null).await.ok(200);
    assert_eq!((&again["subscriptions"], &again["messages"]), (&json!(0), &json!(0)));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn erasure_covers_letters_of_a_former_browser() {
    let app = TestApp::start().await;
    let phone = app.subscribe_with("fcm", 0..1, json!({"user_id": USER})).await.remove(0);
    let refusing = RuleAction::Answer { status: 400, headers: Vec::new(), body: String::new() };
    let rule = app.simulator.add_rule(Rule::always(refusing)).unwrap();
    let dead = app.send(json!({"users": [USER]}), json!({})).await;
    app.run_until_idle().await;
    app.clock.advance(Duration::from_secs(1));
    let path = format!("/v1/apps/shop/subscriptions/{}", phone.id);
    app.call(Method::PATCH, &path, json!({"user_id": "bob"})).await.ok(200);
    let to_bob = app.send(json!({"users": ["bob"]}), json!({})).await;
    app.run_until_idle().await;
    app.simulator.remove_rule(rule);

    app.call(Method::DELETE, ERASE, Value::Null).await.ok(200);
    let open = app.get("/v1/apps/shop/dead-letters?state=open").await;
    assert_eq!((open["data"].as_array().unwrap().len(), &open["data"][0]["message"]), (1, &json!(to_bob)), "{open}");
    for _ in 0..2 {
        app.clock.advance(Duration::from_secs(700));
        app.sweep().await;
    }
    assert_eq!(app.message(&dead).await["content_deleted"], true);
    assert_eq!(app.message(&to_bob).await["content_deleted"], false, "bob's letter needs it");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn finished_message_forgets_its_recipients() {
    let app = TestApp::start().await;
    app.subscribe_with("fcm", 0..1, json!({"user_id": USER})).await;
    let done = app.send(json!({"users": [USER, "nobody"]}), json!({})).await;
    app.run_until_idle().await;
    let failing = Rule::always(RuleAction::Unavailable { retry_after_s: None });
    app.simulator.add_rule(failing).unwrap();
    let moving = app.send(json!({"users": [USER]}), json!({})).await;
    app.run_until_idle().await;
    app.clock.advance(Duration::from_secs(301));
    app.sweep().await;
    assert_eq!(app.message(&done).await["to"], json!({"users": [null, null]}));
    assert_eq!(app.message(&moving).await["to"], json!({"users": [USER]}), "something of it is under way");
    app.steer(&moving, "cancel").await;
    app.run_until_idle().await; // its retry may have begun before that
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn maintenance_completes_an_interrupted_erasure() {
    let app = TestApp::start().await;
    app.subscribe_with("fcm", 0..3, json!({"user_id": USER})).await;
    app.simulator.add_rule(Rule::always(RuleAction::Unavailable { retry_after_s: None })).unwrap();
    let message = app.send(json!({"users": [USER]}), json!({})).await;
    app.run_until_idle().await;
    app.dispatcher.stop(Duration::ZERO).await; // no retry is under way while they are erased
    // As a crash leaves it: asked for, and one of three done.
    let shop: uuid::Uuid = sqlx::query_scalar("SELECT id FROM apps").fetch_one(&app.pool).await.unwrap();
    let mut connection = app.pool.acquire().await.unwrap();
    let begun = bellwire_store::audience::erasures::begin(&mut connection, AppId(shop), USER, "local", app.clock.now())
        .await
        .unwrap();
    bellwire_store::audience::erasures::erase_subscription(&app.pool, &app.vault, &begun, app.clock.now())
        .await
        .unwrap();
    let id = begun.id;
    let show = async || app.get(&format!("/v1/apps/shop/erasures/{id}")).await;
    let shown = show().await;
    assert_eq!((&shown["subscriptions"], &shown["completed_at"]), (&json!(1), &Value::Null));

    maintenance::erase(&app.pool, &app.vault, app.clock.now()).await.unwrap();
    assert_eq!(show().await["completed_at"], Value::Null, "the request may still be at it");
    app.clock.advance(Duration::from_secs(31));
    maintenance::erase(&app.pool, &app.vault, app.clock.now()).await.unwrap();
    let shown = show().await;
    assert_eq!((&shown["subscriptions"], &shown["messages"]), (&json!(3), &json!(1)), "{shown}");
    assert!(shown["completed_at"].is_string(), "{shown}");
    assert_eq!(places_of(&app, USER).await, [] as [&str; 0]);
    assert_eq!(app.counts(&message).await, counts(&[("targeted", 3), ("cancelled", 3)]));
    app.finish().await;
}
