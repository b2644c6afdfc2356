//! Results of campaigns: conversions that a site reports, to which campaign they are attributed, and what a control group shows.

mod attribution;
mod groups;
mod links;
mod refusals;

use std::time::Duration;

use axum::http::Method;
use bellwire::testkit::server::measuring;
use serde_json::{Value, json};

use crate::support::TestApp;
use crate::support::app::{Reply, Subscriber};

const DAY: Duration = Duration::from_secs(86_400);

/// Measures within a week after a click.
async fn measure(app: &TestApp, more: Value) {
    let mut settings = json!({"window": "7d"});
    settings.as_object_mut().unwrap().extend(more.as_object().cloned().unwrap());
    app.call(Method::PUT, "/v1/apps/shop/measurement", settings).await.ok(200);
}

async fn convert(app: &TestApp, conversions: Value) -> Reply {
    app.call(Method::POST, "/v1/apps/shop/conversions", json!({"conversions": conversions})).await
}

/// Reports an order of this value.
async fn order_of(app: &TestApp, subscriber: &Subscriber, euro: f64) {
    let order = json!({"name": "order", "subscription": subscriber.id, "value": euro, "currency": "EUR"});
    convert(app, json!([order])).await.ok(200);
}

/// Reports a receipt of the last notification of a browser. Returns the response.
async fn receipt(app: &TestApp, subscriber: &Subscriber, kind: &str) -> Reply {
    let received = app.simulator.received(&subscriber.endpoint).unwrap();
    let last = received.last().and_then(|it| it.plaintext.as_deref()).expect("it was opened");
    let push: Value = serde_json::from_slice(last).unwrap();
    let receipt = &push["notification"]["data"]["bellwire"]["receipt"];
    app.call(Method::POST, "/v1/apps/shop/receipts", json!({"receipt": receipt, "kind": kind})).await
}

/// Returns the latest result of a campaign.
async fn result(app: &TestApp, slug: &str) -> Value {
    measuring::measure(&app.pool, &app.vault, &app.clock).await.expect("the database answers");
    app.get(&format!("/v1/apps/shop/campaigns/{slug}/results")).await["data"][0].clone()
}
