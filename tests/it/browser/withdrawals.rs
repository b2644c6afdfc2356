//! Withdrawn messages in real browsers: on display, waiting at the push service, and with a worker that knows no withdrawals.

use axum::http::Method;
use serde_json::{Value, json};

use super::chromium::Chromium;
use super::firefox::Firefox;
use super::push_clients::{last_payload, pushed, start_firefox};
use super::shop::Shop;
use super::site::{Scheme, Site};
use super::{DISPLAYED, until};
use crate::support::TempDir;
use crate::support::app::DAY;

const WORKER: &str = r#"importScripts("{server}/sdk/service-worker.js");"#;
/// Shows what pushes propose, and knows nothing of Bellwire.
const OTHER_WORKER: &str = r#"self.addEventListener("push", (event) => {
      const { title, body, tag, data } = event.data.json().notification;
      const shown = self.registration.showNotification(title, { body, tag: tag ?? `bellwire:${data.bellwire.id}` });
      event.waitUntil(shown.then(() => caches.open(title)));
    });"#;

fn price(more: Value) -> Value {
    let mut message = json!({"content": {"title": "Shoes", "body": "For 1 euro", "require_interaction": true}});
    message.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    message
}

async fn withdraw(site: &Site, id: &str) {
    let shown = site.call(Method::POST, &format!("/messages/{id}/withdraw"), Value::Null).await;
    assert!(shown["withdrawn_at"].is_string(), "{shown}");
}

/// Waits until a browser has reported what it found of a withdrawn message.
async fn until_reported(site: &Site, id: &str, kind: &str) {
    let read = async || site.get(&format!("/messages/{id}")).await["counts"]["withdrawal"].clone();
    until(read, |withdrawal| withdrawal[kind] == 1).await;
}

async fn titles(displayed: impl AsyncFnMut() -> Value, wanted: &[&str]) {
    let is_wanted = |all: &Value| {
        let all = all.as_array().expect("a list");
        all.len() == wanted.len() && all.iter().zip(wanted).all(|(one, title)| one["title"] == *title)
    };
    until(displayed, is_wanted).await;
}

async fn subscribed(shop: &Shop, firefox: &mut Firefox) {
    firefox.open(&shop.page()).await;
    let result = firefox.evaluate("bellwire.subscribe()").await;
    assert_eq!(result["ok"], true, "{result}");
}

#[tokio::test]
async fn firefox_closes_and_prevents_withdrawn_messages() {
    let (shop, dir) = (Shop::open(Scheme::Http).await, TempDir::new());
    let (site, profile) = (&shop.server, dir.path().join("profile"));
    shop.put_page("{}");
    shop.put("/service-worker.js", WORKER);
    let mut firefox = start_firefox(site, &profile, &json!({})).await;
    subscribed(&shop, &mut firefox).await;
    let first = site.send_message(price(json!({}))).await;
    site.until_counts(&first, json!({"displayed": 1})).await;
    withdraw(site, &first).await;
    until_reported(site, &first, "removed").await;
    titles(async || firefox.evaluate(DISPLAYED).await, &[]).await;
    site.until_counts(&first, json!({"displayed": 1, "closed": 0})).await;

    let second = site.send_message(price(json!({"key": "price-17"}))).await;
    site.until_counts(&second, json!({"displayed": 1})).await;
    let new = json!({"content": {"title": "Boots", "body": "For 2 euro", "require_interaction": true}});
    site.call(Method::PATCH, "/messages/by-key/price-17", new).await;
    site.app.run_until_idle().await;
    titles(async || firefox.evaluate(DISPLAYED).await, &["Boots"]).await;
    withdraw(site, &second).await;
    until_reported(site, &second, "removed").await;
    titles(async || firefox.evaluate(DISPLAYED).await, &[]).await;

    // Offline for days while the message and its withdrawal are sent: with a collapse key, only the withdrawal is left.
    firefox.quit().await;
    let week = 7 * 86_400;
    let keyed = site.send_message(price(json!({"collapse_key": "price", "ttl": week}))).await;
    let plain = site.send_message(price(json!({"ttl": week}))).await;
    for message in [&keyed, &plain] {
        site.until_counts(message, json!({"accepted": 1})).await;
        withdraw(site, message).await;
    }
    site.app.advance(3 * DAY).await;
    let mut firefox = start_firefox(site, &profile, &json!({})).await;
    until_reported(site, &keyed, "prevented").await;
    until_reported(site, &plain, "removed").await;
    firefox.open(&shop.page()).await;
    titles(async || firefox.evaluate(DISPLAYED).await, &[]).await;
    site.until_counts(&keyed, json!({"displayed": 0})).await;
    firefox.quit().await;
    shop.server.app.finish().await;
}

/// Opens the shop in Chromium with a worker.
async fn chromium(shop: &Shop, home: &TempDir, worker: &str) -> Chromium {
    shop.put_page("{}");
    shop.put("/service-worker.js", worker);
    let mut chromium = Chromium::start(home.path()).await;
    chromium.permit(&shop.origin).await;
    chromium.open(&shop.page()).await;
    let url = format!("/service-worker.js?app=shop&server={}", shop.server.origin);
    let register =
        format!("navigator.serviceWorker.register({url:?}).then(() => navigator.serviceWorker.ready).then(() => true)");
    chromium.evaluate(&register).await;
    chromium
}

/// Payload of the removal of a message that so many browsers got: the last push to the browser of [`pushed`].
async fn removal(site: &Site, id: &str, browsers: u32) -> String {
    withdraw(site, id).await;
    let read = async || site.get(&format!("/messages/{id}")).await["counts"]["withdrawal"]["removal"].clone();
    let removal = until(read, Value::is_string).await;
    site.until_counts(removal.as_str().unwrap(), json!({"accepted": browsers})).await;
    last_payload(site).await
}

#[tokio::test]
async fn chromium_closes_withdrawn_messages() {
    let (shop, home) = (Shop::open(Scheme::Http).await, TempDir::new());
    let mut chromium = chromium(&shop, &home, WORKER).await;
    let (id, payload) = pushed(&shop.server, price(json!({}))).await;
    chromium.deliver(&shop.origin, &payload).await;
    // Chromium drops one whose list is read while it is being shown.
    shop.server.until_counts(&id, json!({"displayed": 1})).await;
    titles(async || chromium.evaluate(DISPLAYED).await, &["Shoes"]).await;
    let removal = removal(&shop.server, &id, 1).await;
    chromium.deliver(&shop.origin, &removal).await;
    until_reported(&shop.server, &id, "removed").await;
    titles(async || chromium.evaluate(DISPLAYED).await, &[]).await;
    chromium.deliver(&shop.origin, &payload).await; // a gateway that is not sure repeats it
    titles(async || chromium.evaluate(DISPLAYED).await, &[]).await;
    shop.server.app.finish().await;
}

/// Waits until the other worker has shown a notification. Chromium drops one whose list is read while it is being shown.
async fn until_shown(chromium: &mut Chromium, title: &str) {
    let has = format!("caches.has({title:?})");
    until(async || chromium.evaluate(&has).await, |has| *has == true).await;
}

#[tokio::test]
async fn worker_without_withdrawals_shows_the_notice() {
    let (shop, home) = (Shop::open(Scheme::Http).await, TempDir::new());
    let notice = json!({"title": "Shop", "body": "This offer has ended."});
    shop.server.call(Method::PUT, "/withdrawal-notice", notice).await;
    let mut chromium = chromium(&shop, &home, OTHER_WORKER).await;
    let (id, payload) = pushed(&shop.server, price(json!({}))).await;
    chromium.deliver(&shop.origin, &payload).await;
    until_shown(&mut chromium, "Shoes").await;
    titles(async || chromium.evaluate(DISPLAYED).await, &["Shoes"]).await;
    let removal = removal(&shop.server, &id, 1).await;
    chromium.deliver(&shop.origin, &removal).await;
    until_shown(&mut chromium, "Shop").await;
    titles(async || chromium.evaluate(DISPLAYED).await, &["Shop"]).await;
    shop.server.app.finish().await;
}

#[tokio::test]
async fn click_in_firefox_clears_chromium() {
    let (shop, dir, home) = (Shop::open(Scheme::Http).await, TempDir::new(), TempDir::new());
    let site = &shop.server;
    shop.put_page("{}");
    shop.put("/service-worker.js", WORKER);
    let mut firefox = start_firefox(site, &dir.path().join("profile"), &json!({})).await;
    subscribed(&shop, &mut firefox).await;
    let mut chromium = chromium(&shop, &home, WORKER).await;
    // The other device gets a message of its own first; then both belong to one person.
    let (own, payload) = pushed(site, price(json!({"content": {"title": "Hello"}}))).await;
    withdraw(site, &own).await;
    until_reported(site, &own, "removed").await;
    for subscription in site.get("/subscriptions").await["data"].as_array().expect("a list") {
        let path = format!("/subscriptions/{}", subscription["id"].as_str().expect("an id"));
        site.call(Method::PATCH, &path, json!({"user_id": "ann"})).await;
    }
    let message = json!({"to": {"users": ["ann"]}, "clear_on_click": true});
    let id = site.send_message(price(message.clone())).await;
    let shoes = last_payload(site).await;
    assert_ne!(shoes, payload);
    chromium.deliver(&shop.origin, &shoes).await;
    site.until_counts(&id, json!({"displayed": 2})).await;
    titles(async || chromium.evaluate(DISPLAYED).await, &["Shoes"]).await;
    firefox.press_notification("For 1 euro", "alertBox").await;
    site.until_counts(&id, json!({"clicked": 1})).await;
    site.app.sweep().await;
    site.app.run_until_idle().await;
    let clear = last_payload(site).await;
    assert_ne!(clear, shoes);
    chromium.deliver(&shop.origin, &clear).await;
    titles(async || chromium.evaluate(DISPLAYED).await, &[]).await;
    site.until_counts(&id, json!({"clicked": 1, "closed": 0})).await;

    // A withdrawal reaches both.
    let id = site.send_message(price(message)).await;
    chromium.deliver(&shop.origin, &last_payload(site).await).await;
    site.until_counts(&id, json!({"displayed": 2})).await;
    let removal = removal(site, &id, 2).await;
    chromium.deliver(&shop.origin, &removal).await;
    let read = async || site.get(&format!("/messages/{id}")).await["counts"]["withdrawal"].clone();
    until(read, |withdrawal| withdrawal["removed"] == 2).await;
    titles(async || chromium.evaluate(DISPLAYED).await, &[]).await;
    titles(async || firefox.evaluate(DISPLAYED).await, &[]).await;
    firefox.quit().await;
    shop.server.app.finish().await;
}

#[tokio::test]
async fn old_worker_in_firefox_shows_the_notice() {
    let (shop, dir) = (Shop::open(Scheme::Http).await, TempDir::new());
    let site = &shop.server;
    site.call(Method::PUT, "/withdrawal-notice", json!({"title": "Shop", "body": "This offer has ended."})).await;
    shop.put_page("{}");
    shop.put("/service-worker.js", OTHER_WORKER);
    let mut firefox = start_firefox(site, &dir.path().join("profile"), &json!({})).await;
    subscribed(&shop, &mut firefox).await;
    let id = site.send_message(price(json!({}))).await;
    titles(async || firefox.evaluate(DISPLAYED).await, &["Shoes"]).await;
    withdraw(site, &id).await;
    site.app.run_until_idle().await;
    titles(async || firefox.evaluate(DISPLAYED).await, &["Shop"]).await;
    firefox.quit().await;
    shop.server.app.finish().await;
}
