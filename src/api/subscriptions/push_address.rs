//! Push address of a browser, as the browser reports it, with its checks.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::Value;
use utoipa::ToSchema;

use crate::api::ApiState;
use crate::api::http::problem::Faults;
use bellwire_core::lane::Gateway;
use bellwire_core::subscription::{BrowserKeys, Endpoint, InvalidSubscription};
use bellwire_gateway::HostRefused;
use bellwire_store::keys::apps::App;

/// Value of `PushSubscription.toJSON()`. Unknown members are ignored, because browsers add some.
#[derive(Deserialize, ToSchema)]
pub(crate) struct PushSubscription {
    /// URL of the push resource.
    pub(in crate::api) endpoint: String,
    /// Expiry at the push service, in milliseconds since 1970.
    #[serde(rename = "expirationTime")]
    #[schema(value_type = Option<f64>)]
    pub(in crate::api) expiration_time: Option<Value>,
    /// Keys for encrypting payloads.
    pub(in crate::api) keys: PushKeys,
}

/// Keys of a `PushSubscription`, in base64 or base64url, with or without padding.
#[derive(Deserialize, ToSchema)]
pub(crate) struct PushKeys {
    /// The browser's public key: an uncompressed point on P-256.
    pub(in crate::api) p256dh: String,
    /// Authentication secret of 16 bytes.
    pub(in crate::api) auth: String,
}

/// Checked parts of a [`PushSubscription`].
#[derive(Debug)]
pub(in crate::api) struct Address {
    pub endpoint: Endpoint,
    pub keys: BrowserKeys,
    pub gateway: Gateway,
    pub expires_at: Option<DateTime<Utc>>,
}

/// Results for hosts outside the known push services: each host is resolved once, even if a file has many of its endpoints.
#[derive(Debug, Default)]
pub(in crate::api) struct CheckedHosts(HashMap<String, Result<(), HostRefused>>);

impl CheckedHosts {
    /// Maximum hosts. When it is reached, all are forgotten and checked again.
    const MAX: usize = 1_000;

    async fn check(&mut self, endpoint: &Endpoint, state: &ApiState) -> Result<(), HostRefused> {
        if let Some(known) = self.0.get(endpoint.authority()) {
            return *known;
        }
        if self.0.len() >= Self::MAX {
            self.0.clear();
        }
        let checked = state.gateways.check_public(endpoint).await;
        self.0.insert(endpoint.authority().to_owned(), checked);
        checked
    }
}

fn field_of(error: &InvalidSubscription) -> &'static str {
    match error {
        InvalidSubscription::Endpoint(_) => "/subscription/endpoint",
        InvalidSubscription::P256dh(_) => "/subscription/keys/p256dh",
        InvalidSubscription::Auth(_) => "/subscription/keys/auth",
    }
}

/// Checks the address of a browser. Only hosts outside the known push services are resolved in DNS. An invalid expiration time
/// is omitted, with a fault in `details`.
pub(in crate::api) async fn check_address(
    given: &PushSubscription, app: &App, state: &ApiState, hosts: &mut CheckedHosts,
    (faults, details): (&mut Faults, &mut Faults),
) -> Option<Address> {
    let endpoint = Endpoint::parse(&given.endpoint).map_err(|e| faults.refuse(field_of(&e), e.to_string())).ok();
    let keys = BrowserKeys::parse(&given.keys.p256dh, &given.keys.auth);
    let keys = keys.map_err(|e| faults.refuse(field_of(&e), e.to_string())).ok();
    let expires_at = given.expiration_time.as_ref().and_then(|given| {
        let ms = given.as_f64().or_else(|| given.as_str()?.parse().ok()).filter(|ms| (0.0..1e14).contains(ms));
        let at = ms.and_then(|ms| DateTime::from_timestamp_millis(ms as i64)).filter(|at| *at > state.clock.now());
        let rule = "must be null or milliseconds since 1970, in the future";
        details.require(at.is_some(), "/subscription/expirationTime", rule);
        at
    });
    let at = field_of(&InvalidSubscription::Endpoint(""));
    let endpoint = endpoint?;
    let gateway = state.gateways.recognise(&endpoint).map_err(|e| faults.refuse(at, e.to_string())).ok()?;
    if gateway == Gateway::Other {
        if !app.allow_other_gateways {
            faults.refuse(at, "is not of a known push service, and this app allows no others");
            return None;
        }
        hosts.check(&endpoint, state).await.map_err(|e| faults.refuse(at, e.to_string())).ok()?;
    }
    Some(Address { endpoint, keys: keys?, gateway, expires_at })
}
