//! Stories of sites on other origins, whose pages and workers contain more than our line.

use axum::http::Method;
use serde_json::{Value, json};

use super::chromium::Chromium;
use super::push_clients::{pushed, start_firefox};
use super::shop::Shop;
use super::site::Scheme;
use super::{DISPLAYED, logged, until};
use crate::support::TempDir;
use crate::support::campaigns::{MINUTE, advance};
use crate::support::identity::user_hmac;

/// Push handler that tutorials for `web-push` recommend, below our line.
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
async fn in_firefox_one_notification_per_push() {
    let (shop, profile) = (Shop::open(Scheme::Http).await, TempDir::new());
    shop.put_page("{}");
    shop.put("/service-worker.js", ORDINARY_WORKER);
    let mut firefox = start_firefox(&shop.server, &profile.path().join("profile"), &json!({})).await;
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

/// Registers the worker as the SDK would, which cannot subscribe here.
async fn register(chromium: &mut Chromium, shop: &Shop, kind: &str) {
    let url = format!("/service-worker.js?app=shop&server={}", shop.server.origin);
    let register = format!("navigator.serviceWorker.register({url:?}, {{ type: {kind:?} }})");
    chromium.evaluate(&format!("{register}.then(() => navigator.serviceWorker.ready).then(() => true)")).await;
}

#[tokio::test]
async fn in_chromium_one_notification_per_push() {
    let (shop, home) = (Shop::open(Scheme::Http).await, TempDir::new());
    shop.put_page("{}");
    shop.put("/service-worker.js", ORDINARY_WORKER);
    let mut chromium = Chromium::start(home.path()).await;
    chromium.permit(&shop.origin).await;
    chromium.open(&shop.page()).await;
    register(&mut chromium, &shop, "classic").await;
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

/// The two lines that `bellwire init` prints.
const LINES_OF_INIT: &str = r#"importScripts("{server}/sdk/service-worker.js");
    bellwire.appUrl = "{server}/v1/apps/shop";"#;

/// Subscribing without the SDK.
const BY_HAND: &str = r#"(async () => {
    const registration = await navigator.serviceWorker.register("/service-worker.js");
    await navigator.serviceWorker.ready;
    const app = "{server}/v1/apps/shop";
    const { application_server_key } = await (await fetch(`${app}/config`)).json();
    const subscription = await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: application_server_key });
    const body = JSON.stringify({ subscription, topics: ["news"] });
    return (await fetch(`${app}/subscriptions`, { method: "POST", headers: { "Content-Type": "application/json" }, body })).status;
})()"#;

#[tokio::test]
async fn subscriptions_registered_by_hand_send_receipts_too() {
    let (shop, profile) = (Shop::open(Scheme::Http).await, TempDir::new());
    shop.put("/", "<!doctype html><meta charset=utf-8><title>Shop</title><link rel=icon href=data:,>");
    shop.put("/service-worker.js", LINES_OF_INIT);
    let mut firefox = start_firefox(&shop.server, &profile.path().join("profile"), &json!({})).await;
    firefox.open(&shop.page()).await;
    assert_eq!(firefox.evaluate(&BY_HAND.replace("{server}", &shop.server.origin)).await, 201);
    let content = json!({"content": {"title": "Hello", "body": "By hand", "require_interaction": true}});
    let message = shop.server.send_message(content).await;
    shop.server.until_counts(&message, json!({"displayed": 1})).await;
    firefox.press_notification("By hand", "alert-close").await;
    shop.server.until_counts(&message, json!({"displayed": 1, "closed": 1})).await;
    firefox.quit().await;
    shop.server.app.finish().await;
}

#[tokio::test]
async fn firefox_without_site_data_gets_values() {
    let (shop, profile) = (Shop::open(Scheme::Http).await, TempDir::new());
    shop.put_page("{ userId: null }");
    let blocked = json!({"network.cookie.cookieBehavior": 2});
    let mut firefox = start_firefox(&shop.server, &profile.path().join("profile"), &blocked).await;
    firefox.open(&shop.page()).await;
    let throws = "(() => { try { new BroadcastChannel('x'); } catch (error) { return error.name; } })()";
    assert_eq!(firefox.evaluate(throws).await, "SecurityError", "it is blocked indeed");
    assert_eq!(firefox.evaluate("bellwire.ready").await, json!({"state": "private-mode"}));
    for call in ["subscribe()", "login('ann', 'signed')", "setTopics(['news'])", "logout()", "unsubscribe()"] {
        let result = firefox.evaluate(&format!("bellwire.{call}")).await;
        assert_eq!((&result["ok"], &result["reason"]), (&json!(false), &json!("private-mode")), "{call}: {result}");
    }
    assert_eq!(firefox.complaints(), Vec::<String>::new());
    firefox.quit().await;
    shop.server.app.finish().await;
}

/// Logs out. Resolves, once that is answered, with whether the notifications were gone before.
const GONE_BEFORE_ANSWERED: &str = "(async () => {
    const registration = await navigator.serviceWorker.getRegistration();
    let answered = false;
    const leaving = bellwire.logout().then(() => (answered = true));
    while ((await registration.getNotifications()).length) await new Promise((resolve) => setTimeout(resolve, 5));
    const before = !answered;
    await leaving;
    return before;
})()";

#[tokio::test]
async fn logout_removes_notifications_without_closed_receipts() {
    let (mut shop, profile) = (Shop::open(Scheme::Http).await, TempDir::new());
    shop.put_page("{}");
    shop.put("/service-worker.js", LINES_OF_INIT);
    let mut firefox = start_firefox(&shop.server, &profile.path().join("profile"), &json!({})).await;
    firefox.open(&shop.page()).await;
    let subscribed = firefox.evaluate("bellwire.subscribe()").await;
    let id = subscribed["status"]["id"].as_str().unwrap().to_owned();
    let content = |body: &str| json!({"content": {"title": "Hello", "body": body, "require_interaction": true}});
    let personal = shop.server.send_message(content("For you alone")).await;
    shop.server.until_counts(&personal, json!({"displayed": 1})).await;
    shop.server.shut().await;
    assert_eq!(firefox.evaluate(GONE_BEFORE_ANSWERED).await, true, "nobody was waited for");
    shop.server.reopen().await;
    shop.server.until_state(&id, "unsubscribed").await;

    // What was reported before would come with this at the latest.
    firefox.evaluate("bellwire.subscribe()").await;
    let next = shop.server.send_message(content("For whoever is next")).await;
    shop.server.until_counts(&next, json!({"displayed": 1})).await;
    firefox.press_notification("For whoever is next", "alert-close").await;
    shop.server.until_counts(&next, json!({"displayed": 1, "closed": 1})).await;
    shop.server.until_counts(&personal, json!({"displayed": 1, "closed": 0})).await;
    firefox.quit().await;
    shop.server.app.finish().await;
}

#[tokio::test]
async fn in_firefox_a_page_reports_events() {
    let (shop, profile) = (Shop::open(Scheme::Http).await, TempDir::new());
    shop.put_page("{}");
    shop.put("/service-worker.js", LINES_OF_INIT);
    let plan = json!({"slug": "reminder", "schedule": {"on": "event:cart_added", "where": "total >= 50", "after": "1m"},
        "message": {"to": {"all": true}, "content": {"title": "Hello", "body": "Your cart waits"}}});
    shop.server.call(Method::POST, "/campaigns", plan).await;
    shop.server.call(Method::POST, "/campaigns/reminder/start", Value::Null).await;
    let mut firefox = start_firefox(&shop.server, &profile.path().join("profile"), &json!({})).await;
    firefox.open(&shop.page()).await;
    let track = "bellwire.track('cart_added', { total: 59 })";
    let early = firefox.evaluate(track).await;
    assert_eq!((&early["ok"], &early["reason"]), (&json!(false), &json!("not-subscribed")), "{early}");
    let subscribed = firefox.evaluate("bellwire.subscribe()").await;
    assert_eq!(subscribed["ok"], true, "{subscribed}");
    let refused = firefox.evaluate(track).await;
    assert_eq!((&refused["reason"], &refused["code"]), (&json!("refused"), &json!("forbidden")), "{refused}");
    let allowed = json!({"browsers_may": ["track_events"]});
    shop.server.app.operate(Method::PATCH, "/v1/apps/shop", allowed).await.ok(200);
    let tracked = firefox.evaluate(track).await;
    assert_eq!(tracked["ok"], true, "{tracked}");
    advance(&shop.server.app, MINUTE).await;
    let message = shop.server.last_message().await;
    shop.server.until_counts(&message, json!({"displayed": 1})).await;
    firefox.quit().await;
    shop.server.app.finish().await;
}

#[tokio::test]
async fn in_firefox_a_subscriber_is_welcomed_and_reminded() {
    let (shop, profile) = (Shop::open(Scheme::Http).await, TempDir::new());
    shop.put_page("{}");
    shop.put("/service-worker.js", LINES_OF_INIT);
    let app = &shop.server.app;
    app.operate(Method::PATCH, "/v1/apps/shop", json!({"browsers_may": ["track_events"]})).await.ok(200);
    let welcome = json!({"on": "subscribed", "after": "1m", "at_most": "once"});
    let reminder = json!({"on": "event:cart_added", "after": "30m", "unless": "event:bought"});
    for (slug, schedule) in [("welcome", welcome), ("reminder", reminder)] {
        let message =
            json!({"to": {"all": true}, "content": {"title": slug, "body": "-", "require_interaction": true}});
        let plan = json!({"slug": slug, "schedule": schedule, "message": message});
        shop.server.call(Method::POST, "/campaigns", plan).await;
        shop.server.call(Method::POST, &format!("/campaigns/{slug}/start"), Value::Null).await;
    }
    let mut firefox = start_firefox(&shop.server, &profile.path().join("profile"), &json!({})).await;
    firefox.open(&shop.page()).await;
    let subscribed = firefox.evaluate("bellwire.subscribe()").await;
    assert_eq!(subscribed["ok"], true, "{subscribed}");
    advance(app, MINUTE).await;
    shop.server.until_counts(&shop.server.last_message().await, json!({"displayed": 1})).await;
    assert_eq!(firefox.evaluate(DISPLAYED).await[0]["title"], "welcome");
    for event in ["cart_added", "bought"] {
        let tracked = firefox.evaluate(&format!("bellwire.track('{event}')")).await;
        assert_eq!(tracked["ok"], true, "{tracked}");
    }
    advance(app, 30 * MINUTE).await;
    let of_reminder = shop.server.get("/campaigns/reminder").await["progress"]["trigger"].clone();
    assert_eq!((&of_reminder["cancelled"], &of_reminder["sent"]), (&json!(1), &json!(0)), "{of_reminder}");
    let left = firefox.evaluate("bellwire.track('cart_added')").await;
    assert_eq!(left["ok"], true, "{left}");
    advance(app, 30 * MINUTE).await;
    shop.server.until_counts(&shop.server.last_message().await, json!({"displayed": 1})).await;
    firefox.quit().await;
    shop.server.app.finish().await;
}

#[tokio::test]
async fn firefox_shows_the_next_user_nothing_foreign() {
    let (shop, profile) = (Shop::open(Scheme::Http).await, TempDir::new());
    let made = shop.server.call(Method::POST, "/identity-keys", json!({"name": "site", "form": "hmac"})).await;
    let signed = |user: &str| user_hmac(user, made["secret"].as_str().unwrap());
    shop.put_page(&format!("{{ userId: 'ann', userToken: '{}' }}", signed("ann")));
    shop.put("/service-worker.js", LINES_OF_INIT);
    let mut firefox = start_firefox(&shop.server, &profile.path().join("profile"), &json!({})).await;
    firefox.open(&shop.page()).await;
    let ann = firefox.evaluate("bellwire.subscribe()").await;
    assert_eq!(ann["status"]["userId"], "ann", "{ann}");
    let content = json!({"title": "Hello", "body": "For Ann alone", "require_interaction": true});
    let hers = shop.server.send_message(json!({"to": {"users": ["ann"]}, "content": content})).await;
    shop.server.until_counts(&hers, json!({"displayed": 1})).await;
    let bob = firefox.evaluate(&format!("bellwire.login('bob', '{}')", signed("bob"))).await;
    assert_eq!((&bob["ok"], &bob["status"]["userId"]), (&json!(true), &json!("bob")), "{bob}");
    assert_eq!(firefox.evaluate(DISPLAYED).await, json!([]));

    // And without a user, by the page's own state.
    let content = json!({"title": "Hello", "body": "For Bob alone", "require_interaction": true});
    let his = shop.server.send_message(json!({"to": {"users": ["bob"]}, "content": content})).await;
    shop.server.until_counts(&his, json!({"displayed": 1, "closed": 0})).await;
    shop.put_page("{ userId: null }");
    firefox.open(&format!("{}?nobody", shop.page())).await;
    assert_eq!(firefox.evaluate("bellwire.ready").await["state"], "unsubscribed");
    assert_eq!(firefox.evaluate(DISPLAYED).await, json!([]));
    shop.server.until_counts(&hers, json!({"displayed": 1, "closed": 0})).await;
    firefox.quit().await;
    shop.server.app.finish().await;
}

/// Module worker of that version; a new version waits until the page activates it.
fn module_worker(version: u8) -> String {
    format!(
        r#"import "{{server}}/sdk/service-worker.js";
        self.addEventListener("message", ({{ data, ports }}) => {{
          if (data === "version") ports[0].postMessage({version});
          if (data === "take over") self.skipWaiting();
        }});"#
    )
}

const MODULE_OPTIONS: &str = r#"{ serviceWorker: { type: "module" } }"#;

/// State of the update in the page: an installed worker that waits, or the active version.
const UPDATE: &str = "navigator.serviceWorker.getRegistration().then((r) => r.update()).then((r) => r.scope)";
const WAITING: &str = "navigator.serviceWorker.getRegistration().then((r) => r.waiting?.state)";
const TAKE_OVER: &str = "navigator.serviceWorker.getRegistration().then((r) => r.waiting.postMessage('take over'))";
/// The state of the active one, once none waits. To ask for its version over and over would keep the old one at work.
const ACTIVE: &str = "navigator.serviceWorker.getRegistration().then((r) => !r.waiting && r.active.state)";
const VERSION: &str = "navigator.serviceWorker.getRegistration().then((r) => new Promise((resolve) => {
    const { port1, port2 } = new MessageChannel();
    port1.onmessage = ({ data }) => resolve(data);
    r.active.postMessage('version', [port2]);
}))";

#[tokio::test]
async fn https_module_worker_updates_in_firefox() {
    let (shop, profile) = (Shop::open(Scheme::Https).await, TempDir::new());
    shop.put_page(MODULE_OPTIONS);
    shop.put("/service-worker.js", &module_worker(1));
    let mut firefox = start_firefox(&shop.server, &profile.path().join("profile"), &json!({})).await;
    firefox.open(&shop.page()).await;
    let subscribed = firefox.evaluate("bellwire.subscribe({ topics: ['news'] })").await;
    assert_eq!(subscribed["status"]["state"], "subscribed", "{subscribed}");
    firefox.open(&format!("{}?controlled", shop.page())).await; // else nothing keeps the old worker
    let server = &shop.server;
    let content = |body: &str| json!({"content": {"title": "Hello", "body": body, "require_interaction": true}});
    let before = server.send_message(content("Before")).await;
    server.until_counts(&before, json!({"displayed": 1})).await;

    shop.put("/service-worker.js", &module_worker(2));
    firefox.evaluate(UPDATE).await;
    until(async || firefox.evaluate(WAITING).await, |state| *state == "installed").await;
    let meanwhile = server.send_message(content("Meanwhile")).await;
    server.until_counts(&meanwhile, json!({"displayed": 1})).await;
    assert_eq!(firefox.evaluate(VERSION).await, 1, "the old one is at work until the new one is let");

    firefox.evaluate(TAKE_OVER).await;
    until(async || firefox.evaluate(ACTIVE).await, |state| *state == "activated").await;
    assert_eq!(firefox.evaluate(VERSION).await, 2);
    let after = server.send_message(content("After")).await;
    server.until_counts(&after, json!({"displayed": 1})).await;
    firefox.press_notification("Before", "alert-close").await;
    firefox.press_notification("After", "alert-close").await;
    for message in [&before, &after] {
        server.until_counts(message, json!({"displayed": 1, "closed": 1})).await;
    }
    server.until_counts(&meanwhile, json!({"displayed": 1, "closed": 0})).await;
    assert_eq!(firefox.complaints(), Vec::<String>::new());
    firefox.quit().await;
    shop.server.app.finish().await;
}

#[tokio::test]
async fn https_module_worker_updates_in_chromium() {
    let (shop, home) = (Shop::open(Scheme::Https).await, TempDir::new());
    shop.put_page(MODULE_OPTIONS);
    shop.put("/service-worker.js", &module_worker(1));
    let mut chromium = Chromium::start(home.path()).await;
    chromium.permit(&shop.origin).await;
    chromium.open(&shop.page()).await;
    register(&mut chromium, &shop, "module").await;
    chromium.open(&format!("{}?controlled", shop.page())).await;
    let deliver = async |chromium: &mut Chromium, body: &str| {
        let (message, payload) = pushed(&shop.server, json!({"content": {"title": body, "body": body}})).await;
        chromium.deliver(&shop.origin, &payload).await;
        shop.server.until_counts(&message, json!({"displayed": 1})).await;
        payload
    };
    let before = deliver(&mut chromium, "Before").await;
    shop.put("/service-worker.js", &module_worker(2));
    chromium.evaluate(UPDATE).await;
    until(async || chromium.evaluate(WAITING).await, |state| *state == "installed").await;
    deliver(&mut chromium, "Meanwhile").await;
    assert_eq!(chromium.evaluate(VERSION).await, 1);
    chromium.evaluate(TAKE_OVER).await;
    until(async || chromium.evaluate(ACTIVE).await, |state| *state == "activated").await;
    assert_eq!(chromium.evaluate(VERSION).await, 2);
    // The new one knows what the old one has shown.
    chromium.deliver(&shop.origin, &before).await;
    deliver(&mut chromium, "After").await;
    assert_eq!(titles(&chromium.evaluate(DISPLAYED).await), ["After", "Before", "Meanwhile"]);
    shop.server.app.finish().await;
}

#[tokio::test]
async fn obstacles_are_reported_in_chromium() {
    let (shop, home) = (Shop::open(Scheme::Http).await, TempDir::new());
    shop.put("/service-worker.js", LINES_OF_INIT);
    let mut chromium = Chromium::start(home.path()).await;
    chromium.permit(&shop.origin).await;

    // The site has a mistyped app, then a missing origin.
    shop.put_page("{ app: 'shpo' }");
    chromium.open(&shop.page()).await;
    let warned = "(console.warn = (...words) => { window.warned = words.join(' '); }, null)";
    chromium.evaluate(warned).await;
    let refused = chromium.evaluate("bellwire.subscribe()").await;
    assert_eq!((&refused["reason"], &refused["code"]), (&json!("refused"), &json!("not_found")), "{refused}");
    let warning = chromium.evaluate("window.warned").await;
    let named = "/v1/apps/shpo/config: There is no app `shpo` on this server.";
    assert!(warning.as_str().unwrap().ends_with(named), "{warning}");
    shop.put_page("{}");
    let nobody = json!({"origins": ["https://shop.example"]});
    shop.server.app.operate(Method::PATCH, "/v1/apps/shop", nobody).await.ok(200);
    chromium.open(&format!("{}?again", shop.page())).await;
    chromium.evaluate(warned).await;
    let refused = chromium.evaluate("bellwire.subscribe()").await;
    assert_eq!((&refused["reason"], &refused["code"]), (&json!("refused"), &json!("origin_not_allowed")), "{refused}");
    let remedy = format!("`bellwire app change shop --add-origin {}`", shop.origin);
    let warning = chromium.evaluate("window.warned").await;
    assert!(warning.as_str().unwrap().ends_with(&remedy), "{warning}");
    let allowed = json!({"origins": [shop.origin]});
    shop.server.app.operate(Method::PATCH, "/v1/apps/shop", allowed).await.ok(200);

    // A private window has no push service, with any permission.
    chromium.go_private(&shop.origin).await;
    chromium.open(&shop.page()).await;
    let refused = chromium.evaluate("bellwire.subscribe()").await;
    assert_eq!((&refused["reason"], &refused["retrying"]), (&json!("private-mode"), &json!(false)), "{refused}");
    assert_eq!(refused["status"], json!({"state": "unsubscribed", "permission": "granted"}));
    shop.server.app.finish().await;
}
