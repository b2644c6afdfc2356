//! Subscriptions of simulated browsers, registered through the public API.

use anyhow::Context;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use serde_json::json;

use super::client::Caller;
use super::faults::Fate;
use super::progress::Progress;
use super::setup::Setup;
use super::site::{APP, ORIGIN, TOPIC, gateway_of, host_of, text};
use bellwire_core::lane::Gateway;

/// Concurrent registrations.
const AT_ONCE: usize = 32;
/// One browser in this number belongs to a signed-in user. It has no common divisor with 20, so that every push service has
/// some.
const SIGNED_IN: u32 = 7;
const JOINS: u32 = 3;

#[derive(Debug, Clone)]
pub(super) struct Browser {
    pub id: String,
    pub gateway: Gateway,
    pub endpoint: String,
    pub fate: Fate,
    /// User id of the browser's owner; null for an anonymous visitor.
    pub user: Option<String>,
}

/// Registers `n` browsers. Pages register anonymous browsers without a secret. The site's server registers those of signed-in users,
/// because only the server can assign a user.
pub(super) async fn register(setup: &Setup, n: u32, progress: &Progress) -> anyhow::Result<Vec<Browser>> {
    progress.begin("registering", n.into());
    let mut browsers: Vec<Browser> = Vec::with_capacity(n as usize);
    let mut registering = stream::iter(0..n).map(|index| register_one(setup, index)).buffered(AT_ONCE);
    while let Some(browser) = registering.try_next().await? {
        browsers.push(browser);
        progress.reach(browsers.len() as u64, String::new);
    }
    Ok(browsers)
}

async fn register_one(setup: &Setup, index: u32) -> anyhow::Result<Browser> {
    let gateway = gateway_of(index);
    let host = host_of(gateway);
    let minted = setup.simulator.mint(&host, index, Some(&setup.application_server_key)).context("minting")?;
    let fate = Fate::of(setup.simulator.fraction(&host, index)?);
    let user = index.is_multiple_of(SIGNED_IN).then(|| format!("user-{index}"));
    let mut body = json!({
        "subscription": {
            "endpoint": minted.endpoint,
            "expirationTime": null,
            "keys": {"p256dh": minted.p256dh, "auth": minted.auth},
        },
        "locale": "en",
    });
    if index.is_multiple_of(JOINS) {
        body["topics"] = json!([TOPIC]);
    }
    let caller = match &user {
        Some(user) => {
            body["user_id"] = json!(user);
            setup.server()
        }
        None => Caller::Page(ORIGIN),
    };
    let made = setup.api.post(caller, &format!("/v1/apps/{APP}/subscriptions"), &body).await?;
    Ok(Browser { id: text(&made, "id")?.to_owned(), gateway, endpoint: minted.endpoint, fate, user })
}

#[cfg(test)]
#[path = "../../tests/unit/demo/subscribers.rs"]
mod tests;
