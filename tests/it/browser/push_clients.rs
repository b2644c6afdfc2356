//! Browsers that receive pushes: Firefox from the simulator, Chromium by the developer tools.

use std::path::Path;

use axum::http::Method;
use bellwire_simulator::gateways::Minted;
use bellwire_simulator::gateways::{BrowsersReport, SimulatorReport};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::firefox::Firefox;
use super::site::Site;
use crate::support::app::PATIENCE;

pub const MOZILLA: &str = "mozilla.bellwire.test";

/// Starts Firefox with these preferences, and waits until the simulator has its connection.
pub async fn start_firefox(site: &Site, profile: &Path, prefs: &Value) -> Firefox {
    let hosts = site.app.simulator.hosts();
    let push_service = hosts.into_iter().find_map(|host| host.browsers).expect("Mozilla's host");
    let firefox = Firefox::start(profile, push_service, prefs).await;
    until_browsers(site, |browsers| browsers.connected == 1).await;
    firefox
}

pub fn browsers(report: &SimulatorReport) -> &BrowsersReport {
    report.hosts[MOZILLA].browsers.as_ref().expect("Mozilla's host")
}

pub async fn until_browsers(site: &Site, wanted: impl Fn(&BrowsersReport) -> bool) -> BrowsersReport {
    let waited = timeout(PATIENCE, site.app.simulator.wait_until(|report| wanted(browsers(report)))).await;
    let report = waited.unwrap_or_else(|_| panic!("in the end it was {:?}", browsers(&site.app.simulator.report())));
    browsers(&report).clone()
}

/// The plaintext that a gateway is given for a message, and the message's id.
pub async fn pushed(site: &Site, message: Value) -> (String, String) {
    let minted = minted(site).await;
    let keys = json!({"p256dh": minted.p256dh, "auth": minted.auth});
    let subscription = json!({"subscription": {"endpoint": minted.endpoint, "keys": keys}});
    let made = site.call(Method::POST, "/subscriptions", subscription).await;
    assert_eq!(made["state"], "active", "{made}");
    let message = site.send_message(message).await;
    (message, last_payload(site).await)
}

/// The simulated browser that pushes for Chromium are sent to.
async fn minted(site: &Site) -> Minted {
    let config = site.get("/config").await;
    let key = bellwire_core::base64url::decode_any(config["application_server_key"].as_str().unwrap()).unwrap();
    site.app.simulator.mint("fcm.bellwire.test", 1, Some(&key)).unwrap()
}

/// Plaintext of the last push to it.
pub async fn last_payload(site: &Site) -> String {
    let received = site.app.simulator.received(&minted(site).await.endpoint).unwrap();
    let plaintext = received.last().and_then(|delivery| delivery.plaintext.clone()).expect("it was opened");
    String::from_utf8(plaintext.to_vec()).unwrap()
}
