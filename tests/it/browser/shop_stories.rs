//! What befalls sites of other people's, whose pages and workers hold more than our line.

use serde_json::{Value, json};

use super::chromium::Chromium;
use super::chromium_story::pushed;
use super::firefox_story::start_with;
use super::shop::Shop;
use super::site::Scheme;
use super::{DISPLAYED, logged, until};
use crate::support::TempDir;

/// What tutorials for `web-push` end with, below our line.
const ORDINARY_WORKER: &str = r#"importScripts("{server}/sdk/service-worker.js");
    self.addEventListener("push", (event) => {
      const { title, body, url } = event.data.json();
      event.waitUntil(self.registration.showNotification(title, { body, data: { url } }));
    });
    self.addEventListener("notificationclick", (event) => {
      event.notification.close();
      event.waitUntil(self.clients.openWindow(event.notification.data.url));
    });"#;

/// Messages of each kind, in an order in which the last has a receipt, so that all have been dealt with once it is there.
fn of_each_kind(page: &str) -> [Value; 3] {
    let payload = |title: &str| json!({"title": title, "body": title}).to_string();
    let content =
        json!({"title": "Content", "body": "Content", "url": format!("{page}?clicked"), "require_interaction": true});
    [
        json!({"payload": payload("No envelope"), "envelope": false}),
        json!({"payload": payload("Payload")}),
        json!({"content": content}),
    ]
}

const EACH_TITLE: [&str; 3] = ["Content", "No envelope", "Payload"];

fn titles(displayed: &Value) -> Vec<&str> {
    let mut titles: Vec<_> = displayed.as_array().unwrap().iter().map(|one| one["title"].as_str().unwrap()).collect();
    titles.sort_unstable();
    titles
}

#[tokio::test]
async fn in_firefox_each_push_shows_one_notification_beside_a_sites_own_listener() {
    let (shop, profile) = (Shop::open(Scheme::Http).await, TempDir::new());
    shop.put_page("{}");
    shop.put("/service-worker.js", ORDINARY_WORKER);
    let mut firefox = start_with(&shop.server, &profile.path().join("profile"), &json!({})).await;
    firefox.open(&shop.page()).await;
    let subscribed = firefox.evaluate("bellwire.subscribe({ topics: ['news'] })").await;
    assert_eq!(subscribed["status"]["state"], "subscribed", "{subscribed}");
    let mut last = String::new();
    for message in of_each_kind(&shop.page()) {
        last = shop.server.send_message(message).await;
    }
    shop.server.until_counts(&last, json!({"displayed": 1})).await;
    let displayed = until(async || firefox.evaluate(DISPLAYED).await, |all| titles(all).len() >= 3).await;
    assert_eq!(titles(&displayed), EACH_TITLE);

    // Nor does a click on ours lead where the site's own listener would.
    firefox.press_notification("Content", "alertBox").await;
    shop.server.until_counts(&last, json!({"clicked": 1, "closed": 0})).await;
    firefox.switch_to(&format!("{}?clicked", shop.page())).await;
    let tabs = firefox.tabs().await;
    assert!(!tabs.iter().any(|url| url.contains("undefined")), "{tabs:?}");
    assert_eq!(firefox.complaints(), Vec::<String>::new());
    firefox.quit().await;
    shop.server.app.finish().await;
}

#[tokio::test]
async fn in_chromium_each_push_shows_one_notification_beside_a_sites_own_listener() {
    let (shop, home) = (Shop::open(Scheme::Http).await, TempDir::new());
    shop.put_page("{}");
    shop.put("/service-worker.js", ORDINARY_WORKER);
    let mut chromium = Chromium::start(home.path()).await;
    let granted = json!({"permission": {"name": "notifications"}, "setting": "granted", "origin": shop.origin});
    chromium.manage("Browser.setPermission", granted).await;
    chromium.open(&shop.page()).await;
    chromium
        .evaluate(
            "navigator.serviceWorker.register('/service-worker.js?app=shop&server={server}')
        .then(() => navigator.serviceWorker.ready).then(() => true)"
                .replace("{server}", &shop.server.origin)
                .as_str(),
        )
        .await;
    for message in of_each_kind(&shop.page()) {
        let (message, payload) = pushed(&shop.server, message).await;
        chromium.deliver(&shop.origin, &payload).await;
        if !payload.contains("No envelope") {
            shop.server.until_counts(&message, json!({"displayed": 1})).await;
        }
    }
    chromium.evaluate(&logged("Payload Content")).await;
    assert_eq!(titles(&chromium.evaluate(DISPLAYED).await), EACH_TITLE);
    shop.server.app.finish().await;
}
