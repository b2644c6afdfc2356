//! Chromium runs page and worker for everything short of receiving a push: its push service is Google's alone. What a
//! gateway was given for a delivery is handed to the worker by the developer tools instead.

use serde_json::json;

use super::chromium::Chromium;
use super::push_clients::pushed;
use super::site::Site;
use super::{DISPLAYED, headline, logged, when};
use crate::support::TempDir;

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
