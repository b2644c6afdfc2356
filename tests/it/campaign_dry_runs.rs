//! Dry runs of campaigns report the effect and change nothing.

use axum::http::Method;
use serde_json::{Value, json};

use crate::support::app::{DAY, scalar};
use crate::support::campaigns::{create, order, plan};
use crate::support::{TestApp, seed};

async fn tried(app: &TestApp, slug: &str, more: Value) -> Value {
    create(app, plan(slug, more)).await;
    order(app, slug, "dry-run").await.ok(200)
}

fn column<'a>(told: &'a Value, member: &'a str) -> Vec<&'a Value> {
    told["messages"].as_array().unwrap().iter().map(|message| &message[member]).collect()
}

#[tokio::test]
async fn dry_run_shows_times_and_reach_per_message() {
    let app = TestApp::start().await; // at 08:00 UTC
    seed(&app, "fcm", 0..200).await;
    let variants = json!([{"name": "plain", "message": {}}, {"name": "loud", "weight": 3, "message": {}}]);
    let test = json!({"share": 0.5, "after": 3_600});
    let told = tried(&app, "split", json!({"variants": variants, "test": test, "holdout": 0.1})).await;
    assert_eq!((&told["begins_at"], &told["more_messages"]), (&json!("2027-01-15T08:00:00Z"), &json!(0)));
    assert_eq!(column(&told, "variant"), [&json!("plain"), &json!("loud"), &Value::Null], "{told}");
    assert_eq!(column(&told, "share"), [&json!(0.125), &json!(0.375), &json!(0.4)]);
    assert_eq!(column(&told, "due_at")[1..], [&json!("2027-01-15T08:00:00Z"), &json!("2027-01-15T09:00:00Z")]);
    let reached: i64 = column(&told, "audience_estimate").iter().map(|n| n.as_i64().unwrap()).sum();
    assert!((140..=200).contains(&reached), "{reached}: all but those who are held out");

    let daily = json!({"cron": "0 9 * * *", "timezone": "UTC", "hour": "best"});
    let expires_at = app.clock.now() + 3 * DAY;
    let told = tried(&app, "daily", json!({"schedule": daily, "expires_at": expires_at})).await;
    assert_eq!(told["begins_at"], "2027-01-15T09:00:00Z");
    assert_eq!(told["later_runs"], json!(["2027-01-16T09:00:00Z", "2027-01-17T09:00:00Z"]));
    let hours: Vec<Value> = (0..24).map(|hour| json!(hour)).collect();
    assert_eq!(column(&told, "own_hour"), hours.iter().collect::<Vec<_>>());
    let reached: Vec<i64> = column(&told, "audience_estimate").iter().map(|n| n.as_i64().unwrap()).collect();
    assert_eq!((reached[0], reached[1..].iter().sum::<i64>()), (200, 0), "nobody's own hour is known");
    assert_eq!(scalar(&app.pool, "SELECT count(*) FROM messages").await, 0, "nothing was sent");
    app.finish().await;
}

#[tokio::test]
async fn a_dry_run_says_what_would_be_refused() {
    let app = TestApp::start().await;
    app.call(Method::PUT, "/v1/apps/shop/topics/news", json!({})).await.ok(201);
    let at = json!({"schedule": {"at": app.clock.now() + DAY}});
    let news = json!({"message": {"to": {"topic": "news"}, "content": {"title": "Spring"}}});
    assert_eq!(tried(&app, "one", at).await["refused"], json!([]));
    assert_eq!(tried(&app, "two", news).await["refused"], json!([]));
    app.call(Method::DELETE, "/v1/apps/shop/topics/news", Value::Null).await.ok(204);
    app.advance(2 * DAY).await;
    let refused = async |slug| order(&app, slug, "dry-run").await.ok(200)["refused"].clone();
    assert_eq!(refused("one").await, json!([{"pointer": "/schedule/at", "detail": "has passed"}]));
    assert_eq!(order(&app, "one", "start").await.status, 409);
    assert_eq!(refused("two").await[0]["pointer"], "/message/to/topic");
    app.finish().await;
}
