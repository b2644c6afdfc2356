//! Dead letters: what they keep, how they are found, sent again and put aside, and when all of it goes.

mod archive;
mod events;
mod keeping;
mod replay;

use axum::body::Body;
use axum::http::{Method, Request};
use bellwire_core::id::AppId;
use bellwire_simulator::gateways::{Rule, RuleAction};
use serde_json::{Value, json};
use tower::ServiceExt as _;

use crate::support::TestApp;
use crate::support::app::{Reply, Subscriber, scalar};

/// The letters' route.
const LETTERS: &str = "/v1/apps/shop/dead-letters";

/// A gateway that finds fault with every request to these browsers.
fn refusing(endpoints: impl IntoIterator<Item = u32>) -> Rule {
    let action = RuleAction::Answer { status: 400, headers: Vec::new(), body: "=bad, \"very\" bad".to_owned() };
    Rule { endpoints: Some(endpoints.into_iter().collect()), ..Rule::always(action) }
}

/// Subscribes so many browsers and sends each of them a message that is refused. Answers them and the message.
async fn letters_of(app: &TestApp, n: u32) -> (Vec<Subscriber>, String) {
    let subscribers = app.subscribe("fcm", 0..n).await;
    let rule = app.simulator.add_rule(refusing(0..n)).unwrap();
    let message = app.send(to(&subscribers), json!({})).await;
    app.run_until_idle().await;
    app.simulator.remove_rule(rule);
    assert_eq!(app.counts(&message).await["dead"], i64::from(n));
    (subscribers, message)
}

fn to(subscribers: &[Subscriber]) -> Value {
    json!({"subscriptions": subscribers.iter().map(|subscriber| &subscriber.id).collect::<Vec<_>>()})
}

/// Letters put into the archive by hand, a second apart, for tests that need many: the subscriptions do not exist.
async fn bury(app: &TestApp, n: i32) {
    let ats: Vec<_> = (0..n).map(|i| app.clock.now() - chrono::TimeDelta::seconds(i.into())).collect();
    sqlx::query(
        "INSERT INTO dead_letters (app, id, shard, message, subscription, lane, tier, reason, detail, retries, at)
         SELECT a.id, t.id, 0, gen_random_uuid(), gen_random_uuid(), l.id, 2, 'bad_request', '@words', 0, t.at
         FROM apps a JOIN lanes l ON l.app = a.id, unnest($1::uuid[], $2::timestamptz[]) AS t (id, at)",
    )
    .bind(ats.iter().map(|at| bellwire_core::clock::uuid_of(*at)).collect::<Vec<_>>())
    .bind(ats)
    .execute(&app.pool)
    .await
    .unwrap();
}

async fn list(app: &TestApp, query: &str) -> Vec<Value> {
    let page = app.get(&format!("{LETTERS}{query}")).await;
    page["data"].as_array().unwrap().clone()
}

async fn post(app: &TestApp, path: &str, body: Value) -> Reply {
    app.call(Method::POST, &format!("{LETTERS}{path}"), body).await
}

/// The only letter there is for a subscription.
async fn letter_of(app: &TestApp, subscriber: &Subscriber) -> Value {
    let mut found = list(app, &format!("?subscription={}", subscriber.id)).await;
    assert_eq!(found.len(), 1, "{found:?}");
    found.remove(0)
}

/// An export: its media type and its text.
async fn export(app: &TestApp, query: &str) -> (String, String) {
    let request = Request::builder()
        .uri(format!("{LETTERS}/export{query}"))
        .header("authorization", format!("Bearer {}", app.key))
        .body(Body::empty())
        .unwrap();
    let response = app.router.clone().oneshot(request).await.unwrap();
    assert_eq!(response.status(), 200);
    let kind = response.headers()["content-type"].to_str().unwrap().to_owned();
    let octets = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    (kind, String::from_utf8(octets.to_vec()).unwrap())
}

/// A key of the app with these scopes.
async fn key(app: &TestApp, scopes: &[bellwire_core::scope::Scope]) -> String {
    let owner: uuid::Uuid = sqlx::query_scalar("SELECT id FROM apps").fetch_one(&app.pool).await.unwrap();
    let made = bellwire_store::keys::api_keys::create(
        &app.pool,
        &app.vault,
        Some(AppId(owner)),
        "k",
        scopes,
        None,
        &app.clock,
    );
    made.await.unwrap().1
}

async fn open_letters(app: &TestApp) -> i64 {
    scalar(&app.pool, "SELECT count(*) FROM dead_letters WHERE state = 'open'").await
}
