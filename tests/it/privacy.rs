//! Questions of an auditor: is all data of a person erased, is that provable, and does the export contain all stored data.

use std::time::Duration;

use axum::http::Method;
use bellwire::testkit::hooks::pack;
use bellwire_simulator::gateways::{Rule, RuleAction};
use serde_json::{Value, json};
use sqlx::AssertSqlSafe;
use uuid::Uuid;

use crate::support::TestApp;
use crate::support::app::{Subscriber, scalar};

const USER: &str = "ann-7f3c@example.org";
const USER_PATH: &str = "/v1/apps/shop/users/ann-7f3c%40example.org";

/// Every place in the database where a text stands, as it is stored or within what is sealed.
async fn places_of(app: &TestApp, text: &str) -> Vec<String> {
    let columns: Vec<(String, String, bool, bool)> = sqlx::query_as(
        "SELECT c.relname::text, a.attname::text, a.atttypid = 'bytea'::regtype,
           EXISTS (SELECT FROM pg_attribute i WHERE i.attrelid = c.oid AND i.attname = 'id' AND i.atttypid = 'uuid'::regtype)
         FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped
         WHERE c.relnamespace = 'bellwire'::regnamespace AND c.relkind IN ('r', 'p') AND NOT c.relispartition",
    )
    .fetch_all(&app.pool)
    .await
    .unwrap();
    assert!(columns.len() > 200, "these are not all");
    let mut places = Vec::new();
    for (table, column, is_sealed, has_id) in columns {
        let place = format!("{table}.{column}");
        let found = format!("SELECT count(*) FROM {table} WHERE strpos({column}::text, $1) > 0");
        let n: i64 = sqlx::query_scalar(AssertSqlSafe(found)).bind(text).fetch_one(&app.pool).await.unwrap();
        if n > 0 {
            places.push(place.clone());
        }
        if !is_sealed || !has_id {
            continue;
        }
        let rows = format!("SELECT id, {column} FROM {table} WHERE {column} IS NOT NULL");
        let rows: Vec<(Uuid, Vec<u8>)> = sqlx::query_as(AssertSqlSafe(rows)).fetch_all(&app.pool).await.unwrap();
        let place: &'static str = place.leak();
        for (id, sealed) in rows {
            let Ok(opened) = app.vault.open(place, id, &sealed) else { continue };
            if String::from_utf8_lossy(&opened).contains(text) {
                places.push(format!("{place}, sealed"));
            }
        }
    }
    places.sort();
    places.dedup();
    places
}

async fn patch(app: &TestApp, subscriber: &Subscriber, body: Value) {
    app.call(Method::PATCH, &format!("/v1/apps/shop/subscriptions/{}", subscriber.id), body).await.ok(200);
}

/// Registers a browser without a user in place of another one.
async fn replace_by_nobody(app: &TestApp, old: &Subscriber, index: u32) -> Subscriber {
    let more = json!({"replaces": {"id": old.id}, "user_id": null});
    app.subscribe_with("fcm", index..index + 1, more).await.remove(0)
}

#[tokio::test(flavor = "multi_thread")]
async fn erased_person_leaves_only_the_audit_proof() {
    let app = TestApp::start().await;
    let caps = json!({"caps": [{"max": 20, "window": "1d"}]});
    app.call(Method::PUT, "/v1/apps/shop/caps", caps).await.ok(200);
    let hook = json!({"name": "n", "url": "https://hooks.example.com/",
        "events": ["delivery.accepted", "delivery.dead", "delivery.cancelled", "delivery.displayed"]});
    app.call(Method::POST, "/v1/apps/shop/webhooks", hook).await.ok(201);
    // A browser that was anonymous first, then theirs, and whose last subscription has no user.
    let first = app.subscribe_with("fcm", 0..1, json!({"attributes": {"seen": "ann-before"}})).await.remove(0);
    let person = json!({"user_id": USER, "tags": ["ann-tag"], "attributes": {"name": "Ann Personal"}, "topics": ["news"],
        "consent": {"source": "ann-form"}, "replaces": {"id": first.id}});
    let second = app.subscribe_with("fcm", 1..2, person.clone()).await.remove(0);
    let third = replace_by_nobody(&app, &second, 2).await;
    let phone = app.subscribe_with("fcm", 3..4, json!({"user_id": USER, "attributes": {"name": "Ann Personal"}})).await;
    // One that another user has now.
    let shared = app.subscribe_with("fcm", 4..5, json!({"user_id": USER})).await.remove(0);
    let content = json!({"title": "Dear Ann Personal"});
    let said = json!({"content": content});
    app.send(json!({"users": [USER]}), said.clone()).await;
    app.run_until_idle().await;
    let refusing = RuleAction::Answer { status: 400, headers: Vec::new(), body: String::new() };
    let rule = app.simulator.add_rule(Rule::always(refusing)).unwrap();
    app.send(json!({"users": [USER, "bob"]}), said.clone()).await;
    app.run_until_idle().await;
    app.simulator.remove_rule(rule);
    pack(&app.pool, &app.vault, app.clock.now()).await.unwrap();
    app.clock.advance(Duration::from_secs(1));
    patch(&app, &shared, json!({"user_id": "bob"})).await;
    let later = json!({"send_at": app.clock.now() + Duration::from_secs(3_600), "content": content});
    app.send(json!({"users": [USER]}), later).await;
    app.get(&format!("{USER_PATH}/export")).await;
    let diagnoses = format!("/v1/apps/shop/subscriptions/{}/diagnoses", phone[0].id);
    let code = app.call(Method::POST, &diagnoses, Value::Null).await.ok(200)["code"].as_str().unwrap().to_owned();
    let checks = json!({"checks": [{"name": "support", "ok": true, "found": "ann-browser", "advice": null}]});
    app.call(Method::PATCH, &format!("/v1/apps/shop/diagnoses/{code}"), checks).await.ok(204);
    for trace in
        [USER, "ann-tag", "Ann Personal", "ann-before", "ann-form", "ann-browser", &first.endpoint, &third.endpoint]
    {
        assert!(!places_of(&app, trace).await.is_empty(), "{trace} was there");
    }
    assert!(places_of(&app, USER).await.contains(&"webhook_deliveries.body, sealed".to_owned()));

    app.clock.advance(Duration::from_secs(1)); // entries of one millisecond are in no order
    let erased = app.call(Method::DELETE, USER_PATH, Value::Null).await.ok(200);
    assert!(erased["completed_at"].is_string(), "{erased}");
    assert_eq!((&erased["subscriptions"], &erased["dead_letters"]), (&json!(4), &json!(2)), "{erased}");
    assert!(erased["webhook_requests"].as_i64().unwrap() > 0, "{erased}");
    for _ in 0..2 {
        app.clock.advance(Duration::from_secs(700));
        app.sweep().await;
    }
    for trace in [USER, "ann-tag", "Ann Personal", "ann-before", "ann-form", "ann-browser"] {
        assert_eq!(places_of(&app, trace).await, [] as [&str; 0], "{trace}");
    }
    for browser in [&first, &second, &third, &phone[0]] {
        assert_eq!(places_of(&app, &browser.endpoint).await, [] as [&str; 0]);
        let shown = app.get(&format!("/v1/apps/shop/subscriptions/{}", browser.id)).await;
        assert_ne!(shown["state"], "active", "{shown}");
    }
    let others = app.get(&format!("/v1/apps/shop/subscriptions/{}", shared.id)).await;
    assert_eq!((&others["state"], &others["user_id"]), (&json!("active"), &json!("bob")));
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM cap_uses").await, 0);

    // The proof: it is found by the user id, and does not contain it.
    let id = erased["id"].as_str().unwrap();
    assert_eq!(app.get(&format!("/v1/apps/shop/erasures/{id}")).await, erased);
    let log = app.get("/v1/apps/shop/audit-log?user_id=ann-7f3c%40example.org").await;
    // The clock stands still: what was asked for and its end are of one time, and in no order.
    let entries = log["data"].as_array().unwrap();
    let mut actions: Vec<_> = entries.iter().map(|it| it["action"].as_str().unwrap()).collect();
    actions[..2].sort_unstable();
    assert_eq!(actions, ["user.erased", "user.erasure_completed", "user.exported"]);
    let proof = entries.iter().find(|it| it["action"] == "user.erasure_completed").unwrap();
    for (name, member) in [("erasure", "id"), ("subscriptions", "subscriptions"), ("messages", "messages")] {
        assert_eq!(proof["detail"][name], erased[member], "{proof}");
    }
    assert_eq!(app.get("/v1/apps/shop/audit-log?user_id=bob").await["data"], json!([]));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn anonymous_browser_is_erased_with_former_subscriptions() {
    let app = TestApp::start().await;
    let old = app.subscribe_with("fcm", 0..1, json!({"attributes": {"a": "former trace"}})).await.remove(0);
    let more = json!({"replaces": {"id": old.id}, "tags": ["present-trace"], "consent": {"source": "banner"}});
    let new = app.subscribe_with("fcm", 1..2, more).await.remove(0);
    let bystander = app.subscribe("fcm", 2..3).await.remove(0);
    let message = app.send(json!({"all": true}), json!({"send_at": app.clock.now() + Duration::from_secs(60)})).await;
    let erase = format!("/v1/apps/shop/subscriptions/{}/erase", new.id);
    app.call(Method::POST, &erase, Value::Null).await.ok(204);
    for trace in ["former trace", "present-trace", "banner", &old.endpoint, &new.endpoint] {
        assert_eq!(places_of(&app, trace).await, [] as [&str; 0], "{trace}");
    }
    app.advance(Duration::from_secs(60)).await;
    assert_eq!(app.counts(&message).await["targeted"], 1);
    assert_eq!(app.delivery(&message, &bystander.id).await["state"], "accepted");
    let log = app.get("/v1/apps/shop/audit-log?action=subscription.erased").await;
    assert_eq!(log["data"][0]["target"], new.id);
    app.call(Method::POST, &erase, Value::Null).await.ok(204);
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn personal_export_is_complete_and_exclusive() {
    let app = TestApp::start().await;
    let caps = json!({"caps": [{"max": 20, "window": "1d"}]});
    app.call(Method::PUT, "/v1/apps/shop/caps", caps).await.ok(200);
    let person = json!({"user_id": USER, "tags": ["vip"], "attributes": {"plan": "pro"}, "topics": ["news"],
        "locale": "de", "consent": {"source": "order form"}});
    let phones = app.subscribe_with("fcm", 0..2, person).await;
    app.subscribe_with("fcm", 2..3, json!({"user_id": "bob", "tags": ["of-bob"]})).await;
    let message = app.send(json!({"users": [USER, "bob"]}), json!({"tier": "promotional"})).await;
    app.run_until_idle().await;
    for kind in ["1", "2"] {
        let insert =
            "INSERT INTO receipts (message, subscription, kind, shard, at) SELECT $1, id, $3::smallint, shard, $4
            FROM subscriptions WHERE id = $2";
        sqlx::query(insert)
            .bind(message.strip_prefix("msg_").unwrap().parse::<Uuid>().unwrap())
            .bind(phones[0].id.strip_prefix("sub_").unwrap().parse::<Uuid>().unwrap())
            .bind(kind.parse::<i16>().unwrap())
            .bind(app.clock.now())
            .execute(&app.pool)
            .await
            .unwrap();
    }
    let export = app.get(&format!("{USER_PATH}/export")).await;
    assert_eq!((&export["user_id"], &export["app"], &export["complete"]), (&json!(USER), &json!("shop"), &json!(true)));
    assert_eq!(export["frequency"][0]["sent_at"].as_array().unwrap().len(), 1, "{export}");
    let subscriptions = export["subscriptions"].as_array().unwrap();
    assert_eq!(subscriptions.len(), 2);
    let shown = &subscriptions[1];
    assert_eq!(
        (&shown["id"], &shown["tags"], &shown["topics"]),
        (&json!(phones[0].id), &json!(["vip"]), &json!(["news"]))
    );
    assert_eq!((&shown["consent"]["source"], &shown["attributes"]), (&json!("order form"), &json!({"plan": "pro"})));
    assert!(phones[0].endpoint.starts_with(shown["endpoint_origin"].as_str().unwrap()), "{shown}");
    let deliveries = export["deliveries"].as_array().unwrap();
    assert_eq!(deliveries.len(), 2, "{export}");
    for delivery in deliveries {
        assert_eq!((&delivery["message"], &delivery["state"]), (&json!(message), &json!("accepted")));
        assert_eq!(delivery["message_content"]["content"]["title"], "Hello");
    }
    let receipts: usize = deliveries.iter().map(|it| it["receipts"].as_array().unwrap().len()).sum();
    assert_eq!(receipts, 2);
    let text = export.to_string();
    for secret in [&phones[0].endpoint, "of-bob", "p256dh"] {
        assert!(!text.contains(secret), "{secret}");
    }
    for _ in 0..2 {
        app.clock.advance(Duration::from_secs(700));
        app.sweep().await;
    }
    let export = app.get(&format!("{USER_PATH}/export")).await;
    assert_eq!(export["deliveries"][0]["message_content"], json!({"content_state": "deleted"}));
    let nobody = app.get("/v1/apps/shop/users/nobody/export").await;
    assert_eq!(
        (&nobody["subscriptions"], &nobody["deliveries"], &nobody["habits"]),
        (&json!([]), &json!([]), &Value::Null)
    );
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn browser_export_excludes_its_former_user() {
    let app = TestApp::start().await;
    let browser = app.subscribe_with("fcm", 0..1, json!({"user_id": USER, "topics": ["news"]})).await.remove(0);
    let said = |title: &str| json!({"content": {"title": title}});
    app.send(json!({"users": [USER]}), said("Your code is 4711")).await;
    app.send(json!({"subscriptions": [browser.id]}), said("Your results")).await;
    app.send(json!({"topic": "news"}), said("What she follows")).await;
    app.run_until_idle().await;
    sqlx::query(
        "INSERT INTO receipts (message, subscription, kind, shard, at)
         SELECT m.id, s.id, 2, s.shard, $1 FROM messages m CROSS JOIN subscriptions s",
    )
    .bind(app.clock.now())
    .execute(&app.pool)
    .await
    .unwrap();
    let busy = RuleAction::Answer { status: 503, headers: Vec::new(), body: String::new() };
    let rule = app.simulator.add_rule(Rule::always(busy)).unwrap();
    let waited = app.send(json!({"topic": "news"}), said("Still to come")).await;
    app.run_until_idle().await;
    app.simulator.remove_rule(rule);
    assert_eq!(app.get(&format!("{USER_PATH}/export")).await["deliveries"].as_array().unwrap().len(), 4);

    app.clock.advance(Duration::from_secs(1));
    patch(&app, &browser, json!({"user_id": "bob", "topics": ["news"]})).await;
    app.clock.advance(Duration::from_secs(1));
    let own = app.send(json!({"users": ["bob"]}), said("Hello Bob")).await;
    app.advance(Duration::from_secs(3_600)).await;
    let export = app.get("/v1/apps/shop/users/bob/export").await;
    let deliveries = export["deliveries"].as_array().unwrap();
    let told: Vec<_> = deliveries.iter().map(|it| it["message"].as_str().unwrap()).collect();
    assert_eq!(told, [&own, &waited], "{export}");
    for trace in ["4711", "results", "she follows", "clicked"] {
        assert!(!export.to_string().contains(trace), "{trace}: {export}");
    }
    let hers = app.get(&format!("{USER_PATH}/export")).await;
    assert_eq!((&hers["subscriptions"], &hers["deliveries"]), (&json!([]), &json!([])));
    app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_export_of_many_browsers_is_whole() {
    let app = TestApp::start().await;
    app.subscribe_with("fcm", 0..45, json!({"user_id": USER})).await;
    let sent = [app.send(json!({"all": true}), json!({})).await, app.send(json!({"users": [USER]}), json!({})).await];
    app.run_until_idle().await;
    let export = app.get(&format!("{USER_PATH}/export")).await;
    assert_eq!(export["subscriptions"].as_array().unwrap().len(), 45);
    for message in &sent {
        let of_message = |it: &&Value| it["message"] == *message;
        assert_eq!(export["deliveries"].as_array().unwrap().iter().filter(of_message).count(), 45);
    }
    app.finish().await;
}
