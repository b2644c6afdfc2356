//! Pushes of the site itself beside ours, and notifications that stay open.

use serde_json::{Value, json};

use super::chromium::Chromium;
use super::push_clients::{pushed, start_firefox};
use super::shop::Shop;
use super::site::Scheme;
use super::{DISPLAYED, until};
use crate::support::TempDir;

/// Listeners that show a push late, without `waitUntil`. The last one stands above our line.
const LATE: &str = r#"importScripts("{server}/sdk/service-worker.js");
    self.addEventListener("push", async (event) => {
      const { title, body } = event.data.json();
      await new Promise((resolve) => setTimeout(resolve, 50));
      if (title) self.registration.showNotification(title, { body });
    });"#;
const LINE_LAST: &str = r#"self.addEventListener("push", async (event) => {
      const { title, body } = event.data.json();
      await new Promise((resolve) => setTimeout(resolve, 50));
      if (title) self.registration.showNotification(title, { body });
    });
    importScripts("{server}/sdk/service-worker.js");"#;

fn own(title: &str) -> Value {
    json!({"payload": json!({"title": title, "body": title}).to_string(), "envelope": false})
}

fn ours(body: &str) -> Value {
    json!({"content": {"title": "Ours", "body": body, "require_interaction": true}})
}

/// Count of each title on display, in order.
fn titles(displayed: &Value) -> Vec<&str> {
    let mut titles: Vec<_> = displayed.as_array().unwrap().iter().map(|one| one["title"].as_str().unwrap()).collect();
    titles.sort_unstable();
    titles
}

#[tokio::test]
async fn firefox_shows_late_pushes_of_a_site_once() {
    for worker in [LATE, LINE_LAST] {
        let (shop, profile) = (Shop::open(Scheme::Http).await, TempDir::new());
        shop.put_page("{}");
        shop.put("/service-worker.js", worker);
        let mut firefox = start_firefox(&shop.server, &profile.path().join("profile"), &json!({})).await;
        firefox.open(&shop.page()).await;
        let subscribed = firefox.evaluate("bellwire.subscribe()").await;
        assert_eq!(subscribed["ok"], true, "{subscribed}");
        for title in ["One", "Two"] {
            shop.server.send_message(own(title)).await;
        }
        let last = shop.server.send_message(ours("Last")).await;
        shop.server.until_counts(&last, json!({"displayed": 1})).await;
        let displayed = until(async || firefox.evaluate(DISPLAYED).await, |all| titles(all).len() >= 3).await;
        assert_eq!(titles(&displayed), ["One", "Ours", "Two"], "{worker}");
        firefox.quit().await;
        shop.server.app.finish().await;
    }
}

#[tokio::test]
async fn chromium_shows_late_pushes_of_a_site_once() {
    for worker in [LATE, LINE_LAST] {
        let (shop, home) = (Shop::open(Scheme::Http).await, TempDir::new());
        shop.put_page("{}");
        shop.put("/service-worker.js", worker);
        let mut chromium = Chromium::start(home.path()).await;
        chromium.permit(&shop.origin).await;
        chromium.open(&shop.page()).await;
        let url = format!("/service-worker.js?app=shop&server={}", shop.server.origin);
        let register = format!(
            "navigator.serviceWorker.register({url:?}).then(() => navigator.serviceWorker.ready).then(() => true)"
        );
        chromium.evaluate(&register).await;
        for title in ["One", "Two"] {
            let (_, payload) = pushed(&shop.server, own(title)).await;
            chromium.deliver(&shop.origin, &payload).await;
        }
        let (last, payload) = pushed(&shop.server, ours("Last")).await;
        chromium.deliver(&shop.origin, &payload).await;
        shop.server.until_counts(&last, json!({"displayed": 1})).await;
        let displayed = until(async || chromium.evaluate(DISPLAYED).await, |all| titles(all).len() >= 3).await;
        assert_eq!(titles(&displayed), ["One", "Ours", "Two"], "{worker}");
        shop.server.app.finish().await;
    }
}

#[tokio::test]
async fn firefox_reports_closed_only_where_known() {
    let (shop, profile) = (Shop::open(Scheme::Http).await, TempDir::new());
    shop.put_page("{}");
    shop.put("/service-worker.js", LATE);
    let mut firefox = start_firefox(&shop.server, &profile.path().join("profile"), &json!({})).await;
    firefox.open(&shop.page()).await;
    let subscribed = firefox.evaluate("bellwire.subscribe()").await;
    assert_eq!(subscribed["ok"], true, "{subscribed}");
    // Firefox ends these by itself after a while, and fires the same event as for a person's click on the cross.
    let unknown = json!({"content": {"title": "Unknown", "body": "Ends by itself"}});
    let unknown = shop.server.send_message(unknown).await;
    shop.server.until_counts(&unknown, json!({"displayed": 1})).await;
    firefox.press_notification("Ends by itself", "alert-close").await;
    let known = shop.server.send_message(ours("Stays")).await;
    shop.server.until_counts(&known, json!({"displayed": 1})).await;
    firefox.press_notification("Stays", "alert-close").await;
    shop.server.until_counts(&known, json!({"displayed": 1, "closed": 1})).await;
    shop.server.until_counts(&unknown, json!({"displayed": 1, "closed": 0})).await;
    firefox.quit().await;
    shop.server.app.finish().await;
}

#[tokio::test]
async fn chromium_reports_nothing_closed_by_the_page() {
    let (shop, home) = (Shop::open(Scheme::Http).await, TempDir::new());
    shop.put_page("{}");
    shop.put("/service-worker.js", LATE);
    let mut chromium = Chromium::start(home.path()).await;
    chromium.permit(&shop.origin).await;
    chromium.open(&shop.page()).await;
    let url = format!("/service-worker.js?app=shop&server={}", shop.server.origin);
    let register =
        format!("navigator.serviceWorker.register({url:?}).then(() => navigator.serviceWorker.ready).then(() => true)");
    chromium.evaluate(&register).await;
    let (first, payload) = pushed(&shop.server, ours("First")).await;
    chromium.deliver(&shop.origin, &payload).await;
    shop.server.until_counts(&first, json!({"displayed": 1})).await;
    let close = "navigator.serviceWorker.getRegistration().then((it) => it.getNotifications()).then((all) => all.map((one) => one.close()).length)";
    assert_eq!(chromium.evaluate(close).await, 1);
    until(async || chromium.evaluate(DISPLAYED).await, |all| titles(all).is_empty()).await;
    let (second, payload) = pushed(&shop.server, ours("Second")).await;
    chromium.deliver(&shop.origin, &payload).await;
    shop.server.until_counts(&second, json!({"displayed": 1})).await;
    shop.server.until_counts(&first, json!({"displayed": 1, "closed": 0})).await;
    shop.server.app.finish().await;
}
