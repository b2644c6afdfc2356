//! Passkeys of signed-in teammates.

use axum::http::Method;
use bellwire::testkit::api::{ApiConfig, RelyingParty};
use serde_json::{Value, json};

use super::api::{Browser, Reply, high_rate_limits};
use super::authenticator::Authenticator;

/// A server that browsers reach as `push.example`.
pub fn passkey_config() -> ApiConfig {
    let relying_party = RelyingParty::of(&"https://push.example".parse().unwrap());
    ApiConfig { relying_party, ..high_rate_limits() }
}

/// Options for creating a passkey.
pub async fn passkey_options(browser: &Browser<'_>) -> Value {
    browser.call(Method::POST, "/v1/session/passkeys/options", None).await.ok(200)["options"].clone()
}

pub async fn try_add_passkey(browser: &Browser<'_>, credential: Value) -> Reply {
    let body = json!({"name": "blue key", "credential": credential});
    browser.call(Method::POST, "/v1/session/passkeys", Some(body)).await
}

/// Adds the passkey that an authenticator makes.
pub async fn add_passkey(browser: &Browser<'_>, authenticator: &mut Authenticator) -> Value {
    let made = authenticator.make(&passkey_options(browser).await);
    try_add_passkey(browser, made).await.ok(201)
}
