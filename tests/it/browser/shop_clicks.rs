//! Clicks on notifications, what people buy after them, and two apps on one site, in Firefox.

use axum::http::Method;
use serde_json::{Value, json};

use super::push_clients::start_firefox;
use super::shop::Shop;
use super::site::Scheme;
use super::{until, when};
use crate::support::TempDir;
use crate::support::campaigns::run_scheduler;

const WORKER: &str = r#"importScripts("{server}/sdk/service-worker.js");"#;

#[tokio::test]
async fn clicks_in_firefox_leave_other_tabs_alone() {
    let (shop, profile) = (Shop::open(Scheme::Http).await, TempDir::new());
    shop.put_page("{}");
    shop.put("/service-worker.js", WORKER);
    let mut firefox = start_firefox(&shop.server, &profile.path().join("profile"), &json!({})).await;
    let [form, new, order] = ["?form", "?new", "?order=7"].map(|query| format!("{}{query}", shop.page()));
    firefox.open(&form).await;
    let subscribed = firefox.evaluate("bellwire.subscribe()").await;
    assert_eq!(subscribed["ok"], true, "{subscribed}");
    let content = |body: &str, url: &str| json!({"content": {"title": "Hello", "body": body, "url": url, "require_interaction": true}});
    let opened = shop.server.send_message(content("A new tab", &new)).await;
    shop.server.until_counts(&opened, json!({"displayed": 1})).await;
    firefox.press_notification("A new tab", "alertBox").await;
    let tabs = until(async || firefox.tabs().await, |tabs| tabs.contains(&new)).await;
    assert!(tabs.contains(&form), "text typed in that tab stays: {tabs:?}");

    // The page's router takes the next click.
    firefox.evaluate("(bellwire.on('click', (click) => (window.clicked = click)), null)").await;
    let routed = shop.server.send_message(content("The router", &order)).await;
    shop.server.until_counts(&routed, json!({"displayed": 1})).await;
    firefox.press_notification("The router", "alertBox").await;
    firefox.evaluate(&when("window.clicked?.url.endsWith('?order=7')")).await;
    shop.server.until_counts(&routed, json!({"clicked": 1, "closed": 0})).await;
    let tabs = firefox.tabs().await;
    assert!(tabs.contains(&form) && !tabs.contains(&order), "{tabs:?}");
    firefox.quit().await;
    shop.server.app.finish().await;
}

#[tokio::test]
async fn second_app_leaves_the_first_subscribed() {
    let (shop, profile) = (Shop::open(Scheme::Http).await, TempDir::new());
    shop.put_page("{}");
    shop.put("/service-worker.js", WORKER);
    let mut firefox = start_firefox(&shop.server, &profile.path().join("profile"), &json!({})).await;
    firefox.open(&shop.page()).await;
    let first = firefox.evaluate("bellwire.subscribe({ topics: ['news'] })").await;
    assert_eq!(first["status"]["topics"], json!(["news"]), "{first}");

    shop.put_page("{ app: 'blog' }");
    firefox.open(&format!("{}?blog", shop.page())).await;
    assert_eq!(firefox.evaluate("bellwire.ready").await["state"], "unsubscribed");
    let refused = firefox.evaluate("bellwire.subscribe()").await;
    let message = "this scope belongs to app shop: set serviceWorker.scope";
    assert_eq!((&refused["reason"], &refused["message"]), (&json!("worker"), &json!(message)), "{refused}");

    shop.put_page("{}");
    firefox.open(&format!("{}?shop", shop.page())).await;
    assert_eq!(firefox.evaluate("bellwire.ready").await, first["status"]);
    firefox.quit().await;
    shop.server.app.finish().await;
}

#[tokio::test]
async fn order_after_click_is_attributed() {
    let (shop, profile) = (Shop::open(Scheme::Http).await, TempDir::new());
    shop.put_page("{}");
    shop.put("/service-worker.js", WORKER);
    let app = &shop.server.app;
    app.operate(Method::PATCH, "/v1/apps/shop", json!({"browsers_may": ["report_conversions"]})).await.ok(200);
    let measurement = json!({"window": "7d", "link_tags": {"hosts": ["localhost", "127.0.0.1"]}});
    shop.server.call(Method::PUT, "/measurement", measurement).await;
    let mut firefox = start_firefox(&shop.server, &profile.path().join("profile"), &json!({})).await;
    firefox.open(&shop.page()).await;
    let subscribed = firefox.evaluate("bellwire.subscribe()").await;
    assert_eq!(subscribed["ok"], true, "{subscribed}");
    let coats = format!("{}?coats#top", shop.page());
    let content = json!({"title": "Spring", "body": "New coats", "url": coats, "require_interaction": true});
    let plan = json!({"slug": "spring", "message": {"to": {"all": true}, "content": content}});
    shop.server.call(Method::POST, "/campaigns", plan).await;
    shop.server.call(Method::POST, "/campaigns/spring/start", Value::Null).await;
    run_scheduler(app).await;
    let message = shop.server.last_message().await;
    shop.server.until_counts(&message, json!({"displayed": 1})).await;
    firefox.press_notification("New coats", "alertBox").await;
    let tagged = format!("{}?coats&utm_campaign=spring&utm_medium=web-push&utm_source=push#top", shop.page());
    until(async || firefox.tabs().await, |tabs| tabs.contains(&tagged)).await;
    shop.server.until_counts(&message, json!({"clicked": 1})).await;
    let order = "bellwire.converted('order', { value: 49.9, currency: 'EUR', id: 'o-17' })";
    for _ in 0..2 {
        let reported = firefox.evaluate(order).await;
        assert_eq!(reported["ok"], true, "{reported}");
    }
    let results = shop.server.get("/campaigns/spring/results").await;
    let attributed = &results["data"][0]["conversions"][0]["attributed"];
    let values = json!([{"currency": "EUR", "value": 49.9, "per_delivery": 49.9}]);
    assert_eq!(attributed, &json!({"conversions": 1, "people": 1, "values": values}));
    firefox.quit().await;
    shop.server.app.finish().await;
}
