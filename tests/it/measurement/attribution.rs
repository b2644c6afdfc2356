use axum::http::Method;
use serde_json::{Value, json};

use super::{DAY, convert, measure, order_of, receipt, result};
use crate::support::TestApp;
use crate::support::app::scalar;
use crate::support::campaigns::{HOUR, MINUTE, plan, run_scheduler, started};

/// Sends a campaign to everybody.
async fn send(app: &TestApp, slug: &str) {
    started(app, plan(slug, json!({}))).await;
    run_scheduler(app).await;
}

/// Attributed conversions of a kind.
fn attributed(result: &Value, name: &str) -> Value {
    let all = result["conversions"].as_array().unwrap();
    all.iter().find(|it| it["name"] == name).map_or(Value::Null, |it| it["attributed"].clone())
}

#[tokio::test]
async fn orders_go_to_campaign_clicked_last() {
    let app = TestApp::start().await;
    measure(&app, json!({})).await;
    let [ann, ben] = app.subscribe("fcm", 0..2).await.try_into().unwrap_or_else(|_| panic!("two"));
    send(&app, "spring").await;
    receipt(&app, &ann, "clicked").await.ok(204);
    order_of(&app, &ben, 10.0).await;
    app.clock.advance(HOUR);
    send(&app, "summer").await;
    receipt(&app, &ann, "displayed").await.ok(204);
    order_of(&app, &ann, 49.9).await;
    app.clock.advance(MINUTE);
    receipt(&app, &ann, "clicked").await.ok(204);
    app.clock.advance(MINUTE);
    order_of(&app, &ann, 0.1).await;
    order_of(&app, &ann, 20.0).await;
    let values = |value: f64, n: i64| {
        let each = json!([{"currency": "EUR", "value": value, "per_delivery": value / 2.0}]);
        json!({"conversions": n, "people": 1, "values": each})
    };
    assert_eq!(attributed(&result(&app, "spring").await, "order"), values(49.9, 1), "only shown since");
    assert_eq!(attributed(&result(&app, "summer").await, "order"), values(20.1, 2));
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM conversions WHERE campaign IS NULL").await, 1, "of ben");
    app.finish().await;
}

#[tokio::test]
async fn settings_choose_receipt_and_campaign() {
    let app = TestApp::start().await;
    measure(&app, json!({"after": "displayed", "attribution": "first"})).await;
    let ann = app.subscribe("fcm", 0..1).await.remove(0);
    for slug in ["spring", "summer"] {
        send(&app, slug).await;
        receipt(&app, &ann, "displayed").await.ok(204);
        app.clock.advance(HOUR);
    }
    order_of(&app, &ann, 5.0).await;
    assert_eq!(attributed(&result(&app, "spring").await, "order")["conversions"], 1);
    assert_eq!(attributed(&result(&app, "summer").await, "order"), Value::Null);
    measure(&app, json!({"after": "displayed", "attribution": "last"})).await;
    order_of(&app, &ann, 5.0).await;
    assert_eq!(attributed(&result(&app, "summer").await, "order")["conversions"], 1);
    app.finish().await;
}

#[tokio::test]
async fn orders_after_window_count_for_nothing() {
    let app = TestApp::start().await;
    measure(&app, json!({"window": "1h"})).await;
    let ann = app.subscribe("fcm", 0..1).await.remove(0);
    send(&app, "spring").await;
    receipt(&app, &ann, "clicked").await.ok(204);
    let at = app.clock.now();
    app.clock.advance(2 * HOUR);
    order_of(&app, &ann, 5.0).await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM conversions WHERE campaign IS NULL").await, 1);
    // Reported late: its own time counts.
    let late = json!({"name": "order", "subscription": ann.id, "at": at + HOUR / 2});
    convert(&app, json!([late])).await.ok(200);
    assert_eq!(attributed(&result(&app, "spring").await, "order")["conversions"], 1);
    app.finish().await;
}

#[tokio::test]
async fn replaced_subscription_converts_for_its_successor() {
    let app = TestApp::start().await;
    measure(&app, json!({})).await;
    let old = app.subscribe("fcm", 0..1).await.remove(0);
    let new = app.subscribe_with("fcm", 1..2, json!({"replaces": {"id": old.id}})).await.remove(0);
    send(&app, "spring").await;
    receipt(&app, &new, "clicked").await.ok(204);
    order_of(&app, &old, 5.0).await;
    assert_eq!(attributed(&result(&app, "spring").await, "order")["conversions"], 1);
    app.finish().await;
}

#[tokio::test]
async fn users_convert_in_any_browser() {
    let app = TestApp::start().await;
    measure(&app, json!({})).await;
    let browsers = app.subscribe_with("fcm", 0..2, json!({"user_id": "ann"})).await;
    send(&app, "spring").await;
    receipt(&app, &browsers[1], "clicked").await.ok(204);
    let order = json!({"id": "o-17", "name": "order", "user_id": "ann", "value": 10, "currency": "EUR"});
    let both = json!([order, {"name": "signup", "user_id": "ann"}]);
    assert_eq!(convert(&app, both.clone()).await.ok(200), json!({"recorded": 2, "repeated": 0}));
    assert_eq!(convert(&app, json!([order])).await.ok(200), json!({"recorded": 0, "repeated": 1}));
    let result = result(&app, "spring").await;
    let values = json!([{"currency": "EUR", "value": 10.0, "per_delivery": 5.0}]);
    assert_eq!(attributed(&result, "order"), json!({"conversions": 1, "people": 1, "values": values}));
    assert_eq!(attributed(&result, "signup"), json!({"conversions": 1, "people": 1, "values": []}));
    assert_eq!((&result["accepted"], &result["is_final"]), (&json!(2), &json!(false)));
    app.finish().await;
}

#[tokio::test]
async fn receipts_of_former_user_count_for_nobody_else() {
    let app = TestApp::start().await;
    measure(&app, json!({})).await;
    let browser = app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await.remove(0);
    send(&app, "spring").await;
    receipt(&app, &browser, "clicked").await.ok(204);
    app.clock.advance(MINUTE);
    app.come_back_with("fcm", 0, json!({"user_id": "ben"})).await;
    app.clock.advance(MINUTE);
    convert(&app, json!([{"name": "order", "user_id": "ben"}])).await.ok(200);
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM conversions WHERE campaign IS NULL").await, 1);
    app.finish().await;
}

#[tokio::test]
async fn erasure_removes_conversions() {
    let app = TestApp::start().await;
    measure(&app, json!({})).await;
    let people = app.subscribe_with("fcm", 0..1, json!({"user_id": "ann"})).await;
    app.subscribe("fcm", 1..40).await;
    started(&app, plan("spring", json!({"holdout": 0.5}))).await;
    run_scheduler(&app).await;
    order_of(&app, &people[0], 10.0).await;
    let of_people = async |app: &TestApp| {
        let groups = result(app, "spring").await["groups"].clone();
        groups.as_array().unwrap().iter().map(|group| group["people"].as_i64().unwrap()).sum::<i64>()
    };
    assert_eq!(of_people(&app).await, 40);
    app.call(Method::DELETE, "/v1/apps/shop/users/ann", Value::Null).await.ok(200);
    app.sweep().await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM conversions").await, 0);
    assert_eq!(of_people(&app).await, 39);
    app.finish().await;
}

#[tokio::test]
async fn conversions_are_kept_as_long_as_events() {
    let app = TestApp::start().await;
    let ann = app.subscribe("fcm", 0..1).await.remove(0);
    order_of(&app, &ann, 10.0).await;
    app.clock.advance(91 * DAY);
    app.keep_house().await;
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM conversions").await, 0);
    app.finish().await;
}
