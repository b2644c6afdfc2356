//! Campaigns by the API, and their scheduler under a stub clock.

use std::time::Duration;

use axum::http::Method;
use bellwire::testkit::server::{campaigns, measuring, triggers};
use serde_json::{Value, json};

use super::app::{Reply, TestApp};

pub const MINUTE: Duration = Duration::from_secs(60);

pub const HOUR: Duration = Duration::from_secs(3600);

/// A plan to everybody, with further members.
pub fn plan(slug: &str, more: Value) -> Value {
    let mut plan =
        json!({"slug": slug, "message": {"to": {"all": true}, "content": {"title": "Spring", "body": "It is here"}}});
    plan.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    plan
}

pub async fn create(app: &TestApp, plan: Value) -> Value {
    app.call(Method::POST, "/v1/apps/shop/campaigns", plan).await.ok(201)
}

pub async fn order(app: &TestApp, slug: &str, verb: &str) -> Reply {
    app.call(Method::POST, &format!("/v1/apps/shop/campaigns/{slug}/{verb}"), Value::Null).await
}

pub async fn started(app: &TestApp, plan: Value) -> String {
    let slug = plan["slug"].as_str().unwrap().to_owned();
    create(app, plan).await;
    order(app, &slug, "start").await.ok(200);
    slug
}

pub async fn show(app: &TestApp, slug: &str) -> Value {
    app.get(&format!("/v1/apps/shop/campaigns/{slug}")).await
}

/// Runs the scheduler once, and the engine until it is idle.
pub async fn run_scheduler(app: &TestApp) {
    for _ in 0..2 {
        campaigns::advance(&app.pool, &app.vault, &app.clock).await.expect("the database answers");
        // Campaigns that are measured wait for it.
        assert!(measuring::measure(&app.pool, &app.vault, &app.clock).await.expect("the database answers"));
    }
    triggers::send_due(&app.pool, &app.vault, &app.clock).await.expect("the database answers");
    app.run_until_idle().await;
}

pub async fn advance(app: &TestApp, by: Duration) {
    app.clock.advance(by);
    run_scheduler(app).await;
}

pub fn accepted(campaign: &Value) -> i64 {
    campaign["progress"]["total"]["accepted"].as_i64().unwrap()
}
