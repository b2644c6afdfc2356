//! Chromium runs page and worker for everything short of receiving a push: its push service is Google's alone. What a
//! gateway was given for a delivery is handed to the worker by the developer tools instead.

use axum::http::Method;
use bellwire_simulator::gateways::Minted;
use serde_json::{Value, json};

use super::chromium::Chromium;
use super::site::Site;
use super::{DISPLAYED, headline, logged, when};
use crate::support::TempDir;

/// The plaintext that a gateway is given for a message, and the message's id.
pub(super) async fn pushed(site: &Site, message: Value) -> (String, String) {
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
pub(super) async fn last_payload(site: &Site) -> String {
    let received = site.app.simulator.received(&minted(site).await.endpoint).unwrap();
    let plaintext = received.last().and_then(|delivery| delivery.plaintext.clone()).expect("it was opened");
    String::from_utf8(plaintext.to_vec()).unwrap()
}

async fn push(site: &Site, body: &str) -> (String, String) {
    let url = format!("{}/example/?from=chromium", site.origin);
    pushed(site, json!({"content": {"title": "Hello", "body": body, "url": url, "data": {"order": 7}}})).await
}

#[tokio::test]
async fn chromium_runs_page_and_worker() {
    let (site, home) = (Site::start().await, TempDir::new());
    let mut chromium = Chromium::start(home.path()).await;

    // After a denial the page shows it, and does not prompt again.
    let permission =
        |setting: &str| json!({"permission": {"name": "notifications"}, "setting": setting, "origin": site.origin});
    chromium.manage("Browser.setPermission", permission("denied")).await;
    chromium.open(&site.page()).await;
    chromium.evaluate(&headline("Blocked in this browser")).await;
    assert_eq!(chromium.evaluate("document.getElementById('subscribe').disabled").await, true);

    // Without Google's push service the wish is kept, and the reason told.
    let hurry = "const later = setTimeout; window.setTimeout = (work, ms, ...rest) => later(work, ms === 20000 ? 200 : ms, ...rest);";
    chromium.call("Page.addScriptToEvaluateOnNewDocument", json!({"source": hurry})).await;
    chromium.manage("Browser.setPermission", permission("granted")).await;
    chromium.open(&format!("{}?again", site.page())).await;
    chromium.evaluate(&headline("Not subscribed")).await;
    chromium.keep_picture("chromium-1200", 1200, 800).await;
    chromium.keep_picture("chromium-375", 375, 800).await;
    chromium.click("prompt").await;
    chromium.evaluate(&when("document.querySelector('dialog[open]')")).await;
    chromium.press_escape().await;
    chromium.evaluate(&logged("You said not now.")).await;
    assert_eq!(chromium.evaluate("document.activeElement.id").await, "prompt", "the focus is back where it was");
    chromium.click("subscribe").await;
    chromium.evaluate(&logged("push-service: The browser's own push service: ")).await;
    chromium.evaluate(&headline("Almost there")).await;
    let none = site.get("/subscriptions").await;
    assert_eq!(none["data"], json!([]), "the server has nothing to send to");
    chromium.click("subscribe").await;
    chromium.evaluate(&headline("Not subscribed")).await;
    chromium.evaluate(&when("document.getElementById('note').hidden")).await;

    // What a gateway got, handed to the worker: shown once, and reported.
    let (message, payload) = push(&site, "By hand").await;
    chromium.deliver(&site.origin, &payload).await;
    chromium.evaluate(&logged("Arrived: Hello · By hand")).await;
    let displayed = chromium.evaluate(DISPLAYED).await;
    assert_eq!(displayed.as_array().map(Vec::len), Some(1), "{displayed}");
    assert_eq!((&displayed[0]["title"], &displayed[0]["data"]["order"]), (&json!("Hello"), &json!(7)));
    site.until_counts(&message, json!({"accepted": 1, "acknowledged": 1, "displayed": 1})).await;
    chromium.deliver(&site.origin, &payload).await;
    let (other, payload) = push(&site, "Another").await;
    chromium.deliver(&site.origin, &payload).await;
    chromium.evaluate(&logged("Arrived: Hello · Another")).await;
    site.until_counts(&other, json!({"displayed": 1})).await;
    let displayed = chromium.evaluate(DISPLAYED).await;
    assert_eq!(displayed.as_array().map(Vec::len), Some(2), "the repeat took the place of the first: {displayed}");
    site.until_counts(&message, json!({"acknowledged": 1, "displayed": 1, "closed": 0})).await;

    site.app.finish().await;
}
