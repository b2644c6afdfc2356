//! One-time codes, sent one by one through the API, and when they arrived.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bellwire_core::id::{AppId, MessageId, SubscriptionId};
use bellwire_vault::delivery_token::delivery_id;
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio::task::JoinSet;
use tokio::time::MissedTickBehavior;

use super::harness::Harness;

/// One single send.
pub struct Sent {
    message: MessageId,
    to: SubscriptionId,
    asked_ms: f64,
    answered_ms: f64,
}

impl Sent {
    /// Time of the API response.
    pub fn answered_within_ms(&self) -> f64 {
        self.answered_ms - self.asked_ms
    }
}

/// The request that sends one.
pub fn code(to: SubscriptionId) -> Value {
    code_to(&json!({"subscriptions": [to]}))
}

/// The same code, to the [`user`] of a subscription.
pub fn code_to_user(to: SubscriptionId) -> Value {
    code_to(&json!({"users": [user(to)]}))
}

fn code_to(to: &Value) -> Value {
    let content = json!({"title": "Your code is 123 456", "body": "It is good for ten minutes."});
    json!({"to": to, "tier": "transactional", "content": content})
}

fn user(of: SubscriptionId) -> String {
    of.0.to_string()
}

/// Gives each subscription of an app a user of its own, whose id is the subscription's as Postgres writes it.
pub async fn name_users(pool: &PgPool, app: AppId) {
    let named = sqlx::query("UPDATE subscriptions SET user_id = id::text WHERE app = $1").bind(app.0);
    named.execute(pool).await.expect("users");
    sqlx::query("VACUUM ANALYZE subscriptions").execute(pool).await.expect("maintenance of a table");
}

/// Sends at a steady rate, whether or not earlier requests were answered.
pub async fn send(harness: &Harness, app: AppId, to: &[SubscriptionId], per_second: u32, seconds: u32) -> Vec<Sent> {
    let mut ticks = tokio::time::interval(Duration::from_secs(1) / per_second);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut requests = JoinSet::new();
    for to in to.iter().copied().cycle().take((per_second * seconds) as usize) {
        ticks.tick().await;
        let api = harness.api.clone();
        requests.spawn(async move {
            let asked_ms = now_ms();
            let taken = api.post(&format!("/v1/apps/{app}/messages"), &code(to)).await;
            let message = taken["id"].as_str().and_then(|id| id.parse().ok()).expect("a message's id");
            Sent { message, to, asked_ms, answered_ms: now_ms() }
        });
    }
    requests.join_all().await
}

fn now_ms() -> f64 {
    SystemTime::now().duration_since(UNIX_EPOCH).expect("after 1970").as_secs_f64() * 1e3
}

/// Latency of each request until its POST arrived, in ms, by the simulator's records. Their resolution is 1 ms, of which the middle is
/// used. Each code must have arrived exactly once.
pub async fn arrivals(harness: &Harness, sent: &[Sent]) -> Vec<f64> {
    for sent in sent {
        harness.wait_for(sent.message).await;
    }
    let mut arrivals = Vec::with_capacity(sent.len());
    for Sent { message, to, asked_ms, .. } in sent {
        let id = URL_SAFE_NO_PAD.encode(delivery_id(&harness.vault, *message, *to));
        let found = harness.gateways.get(&format!("/received?id={id}")).await;
        assert_eq!(found[0]["accepted"], 1, "{message} to {to} arrives exactly once");
        let at_ms = found[0]["attempts"][0]["at_ms"].as_f64().expect("a time");
        arrivals.push(at_ms + 0.5 - asked_ms);
    }
    arrivals
}
