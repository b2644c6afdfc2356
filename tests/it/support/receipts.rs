//! Receipts as service workers report them.

use std::time::Duration;

use axum::http::Method;
use bellwire::testkit::api::ApiConfig;
use bellwire::testkit::receipts;
use bellwire_core::id::{MessageId, SubscriptionId};
use bellwire_vault::Vault;
use bellwire_vault::delivery_token;
use serde_json::Value;

use super::api::{Reply, TestApi, high_rate_limits};

/// Settings under which each report is written at once.
pub fn receipt_config() -> ApiConfig {
    let receipts = receipts::ReceiptConfig { linger: Duration::ZERO, ..receipts::ReceiptConfig::default() };
    ApiConfig { receipts, ..high_rate_limits() }
}

/// The token that the push of a message to a subscription carries.
pub fn receipt_token(vault: &Vault, message: &str, subscription: &str) -> String {
    let (message, subscription): (MessageId, SubscriptionId) =
        (message.parse().unwrap(), subscription.parse().unwrap());
    String::from_utf8(delivery_token::receipt_token(vault, message, subscription).to_vec()).unwrap()
}

/// Reports a receipt, as a service worker does.
pub async fn report_receipt(api: &TestApi, body: Value) -> Reply {
    api.browse(Method::POST, "/receipts", None, Some(body)).await
}
