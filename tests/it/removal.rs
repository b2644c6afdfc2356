//! Deletion of an app: sending ends, all of its data is deleted, and its slug is free.

use std::time::Duration;

use axum::http::Method;
use bellwire::testkit::server::maintenance;
use bellwire_simulator::gateways::{Rule, RuleAction};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;

use crate::support::app::scalar;
use crate::support::{Setup, TestApp};

const DELETE: &str = "/v1/apps/shop?confirm=shop";

async fn remove_apps(app: &TestApp) {
    maintenance::remove_apps(&app.pool, app.clock.now()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_app_sends_nothing_after_the_response() {
    let dispatch = bellwire_dispatch::DispatchConfig { batch_min: 50, batch_max: 50, ..Default::default() };
    let app = TestApp::with(Setup { dispatch, ..Setup::default() }).await;
    let subscribers = app.subscribe("fcm", 0..200).await;
    let rule = app.simulator.add_rule(Rule::always(RuleAction::Hold)).unwrap();
    let campaign = app.send(json!({"all": true}), json!({})).await;
    for subscriber in &subscribers[..20] {
        app.send(json!({"subscriptions": [subscriber.id]}), json!({"tier": "transactional"})).await;
    }
    app.until_held(rule, 32).await; // as many as a lane begins with
    let begun = app.rule(rule).0;

    let refused = app.operate(Method::DELETE, "/v1/apps/shop?confirm=shoq", Value::Null).await.ok(400);
    assert_eq!(refused["errors"][0]["parameter"], "confirm");
    app.call(Method::DELETE, DELETE, Value::Null).await.ok(403);
    let deleted = app.operate(Method::DELETE, DELETE, Value::Null).await.ok(202);
    assert!(deleted["deleting_at"].is_string(), "{deleted}");

    // No caller finds it.
    assert_eq!(app.call(Method::GET, "/v1/apps/shop", Value::Null).await.status, 401, "its keys are revoked");
    assert_eq!(app.operate(Method::GET, "/v1/apps/shop", Value::Null).await.status, 404);
    assert_eq!(app.call_as(Method::GET, "/v1/apps/shop/config", "", Value::Null).await.status, 404);
    let receipt = json!({"receipt": "x", "kind": "displayed"});
    assert_eq!(app.call_as(Method::POST, "/v1/apps/shop/receipts", "", receipt).await.status, 404);
    let taken = json!({"slug": "shop", "name": "New", "subject": "mailto:ops@example.com"});
    let taken = app.operate(Method::POST, "/v1/apps", taken).await.ok(409);
    assert!(taken["detail"].as_str().unwrap().contains("still being deleted"), "{taken}");
    let listed = app.operate(Method::GET, "/v1/apps", Value::Null).await.ok(200);
    assert!(listed["data"][0]["deleting_at"].is_string(), "{listed}");

    assert!(app.simulator.release(rule, 1_000_000));
    app.run_until_idle().await;
    remove_apps(&app).await;
    assert_eq!(app.rule(rule).0, begun, "pushes that were begun");
    let account = "SELECT sum(targeted - accepted - cancelled)::bigint FROM message_counts";
    assert_eq!(scalar(&app.pool, account).await, 0, "what was under way ended as cancelled");
    assert!(scalar(&app.pool, "SELECT sum(cancelled)::bigint FROM message_counts").await > 0, "{campaign}");
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn deleted_app_leaves_nothing_and_frees_its_name() {
    let app = TestApp::start().await;
    let caps = json!({"caps": [{"max": 9, "window": "1d"}]});
    app.call(Method::PUT, "/v1/apps/shop/caps", caps).await.ok(200);
    let person = json!({"user_id": "ann", "topics": ["news"], "tags": ["vip"]});
    let subscribers = app.subscribe_with("fcm", 0..3, person).await;
    let refusing = RuleAction::Answer { status: 400, headers: Vec::new(), body: String::new() };
    app.simulator.add_rule(Rule { endpoints: Some([0].into()), ..Rule::always(refusing) }).unwrap();
    let failing = RuleAction::Unavailable { retry_after_s: None };
    app.simulator.add_rule(Rule { endpoints: Some([1].into()), ..Rule::always(failing) }).unwrap();
    app.send(json!({"topic": "news"}), json!({})).await;
    app.run_until_idle().await;
    for (method, path, body) in [
        (Method::PUT, "calendar", json!({"timezone": "Europe/Berlin", "off_peak": [{"from": "13:00", "to": "14:00"}]})),
        (Method::PUT, "flow", json!({"rate": 1000, "period": "1s"})),
        (Method::POST, "identity-keys", json!({"name": "backend", "algorithm": "HS256"})),
        (Method::POST, "vapid-keys", json!({"subject": "mailto:ops@example.com"})),
        (Method::DELETE, "users/nobody", Value::Null),
        (Method::POST, "imports", json!([])),
        (Method::GET, "export", Value::Null),
    ] {
        let reply = app.call(method, &format!("/v1/apps/shop/{path}"), body).await;
        assert!(reply.status < 300, "{path}: {}", reply.json);
    }
    let of_another =
        json!({"slug": "other", "name": "Other", "subject": "mailto:ops@example.com", "allow_other_gateways": true});
    app.operate(Method::POST, "/v1/apps", of_another).await.ok(201);
    let shop: uuid::Uuid =
        sqlx::query_scalar("SELECT id FROM apps WHERE slug = 'shop'").fetch_one(&app.pool).await.unwrap();
    let lanes: Vec<i32> = sqlx::query_scalar("SELECT id FROM lanes").fetch_all(&app.pool).await.unwrap();
    assert!(!lanes.is_empty() && subscribers.len() == 3);

    // A batch whose worker died: it will not be settled.
    sqlx::query(
        "WITH batch AS (
           INSERT INTO batches (id, message, lane, tier, recipients, lease, due_at)
           SELECT gen_random_uuid(), m.id, s.lane, 2, ARRAY[s.id], gen_random_uuid(), $1
           FROM messages m, (SELECT id, lane FROM subscriptions ORDER BY id LIMIT 1) s RETURNING message, lane)
         UPDATE message_counts c SET targeted = targeted + 1 FROM batch p WHERE c.message = p.message AND c.lane = p.lane",
    )
    .bind(app.clock.now() + Duration::from_secs(1)) // before, this worker would lease it
    .execute(&app.pool)
    .await
    .unwrap();

    app.operate(Method::DELETE, DELETE, Value::Null).await.ok(202);
    app.clock.advance(Duration::from_secs(1));
    remove_apps(&app).await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM queue").await, 0, "what waited is cancelled at once");
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM batches").await, 0);
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM subscriptions").await, 3, "requests may still be under way");
    app.operate(Method::DELETE, DELETE, Value::Null).await.ok(202);
    app.clock.advance(Duration::from_secs(61));
    remove_apps(&app).await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM subscriptions").await, 0);
    app.sweep().await; // kept counts have come to nothing, and are forgotten
    remove_apps(&app).await;

    // Every table that refers to apps or lanes, but for those whose rows go with their day or minute, or outlive
    // what they tell of.
    let stays = ["attempts", "receipts", "rollup", "reliability_counts", "breaker_trips", "audit_log"];
    let columns: Vec<(String, String)> = sqlx::query_as(
        "SELECT table_name::text, column_name::text FROM information_schema.columns
           JOIN information_schema.tables USING (table_schema, table_name)
         WHERE table_type = 'BASE TABLE' AND table_schema = 'bellwire' AND column_name IN ('app', 'lane', 'subscription', 'message')",
    )
    .fetch_all(&app.pool)
    .await
    .unwrap();
    for (table, column) in columns.into_iter().filter(|(table, _)| !stays.iter().any(|stays| table.starts_with(stays)))
    {
        let left = format!("SELECT count(*) FROM {table} WHERE {column}::text IS NOT NULL");
        let left: i64 = sqlx::query_scalar(AssertSqlSafe(left)).fetch_one(&app.pool).await.unwrap();
        let of_the_other = i64::from(table == "vapid_keys" && column == "app");
        assert_eq!(left, of_the_other, "{table}.{column}");
    }
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM apps").await, 1, "the other app stays");
    let named = format!("SELECT count(*) FROM apps WHERE id = '{shop}'");
    let named: i64 = sqlx::query_scalar(AssertSqlSafe(named)).fetch_one(&app.pool).await.unwrap();
    assert_eq!(named, 0);
    app.operate(Method::DELETE, DELETE, Value::Null).await.ok(404);
    let again = json!({"slug": "shop", "name": "New", "subject": "mailto:ops@example.com"});
    app.operate(Method::POST, "/v1/apps", again).await.ok(201);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn losses_of_a_deleted_app_show_by_service() {
    let app = TestApp::start().await;
    app.subscribe("mozilla", 0..3).await;
    app.operate(Method::DELETE, DELETE, Value::Null).await.ok(202);
    app.clock.advance(Duration::from_secs(61));
    for _ in 0..3 {
        remove_apps(&app).await;
        app.sweep().await;
    }
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM apps").await, 0);
    let gateways: Vec<(String, i64)> = sqlx::query_as(
        "SELECT gateway, sum(n)::bigint FROM rollups, unnest(facts, ns) AS f (fact, n)
         WHERE step = 3 AND lane = 0 AND fact IN (40, 46) GROUP BY gateway, fact",
    )
    .fetch_all(&app.pool)
    .await
    .unwrap();
    assert_eq!(gateways, [("mozilla".to_owned(), 3), ("mozilla".to_owned(), 3)], "as many lost as won");
    app.finish().await;
}
