//! Story of a user with Firefox, from the first click to the last.

use std::path::Path;

use axum::http::Method;
use serde_json::{Value, json};

use super::firefox::Firefox;
use super::push_clients::{MOZILLA, start_firefox, until_browsers};
use super::site::Site;
use super::{DISPLAYED, headline, logged, until};
use crate::support::TempDir;

const REGISTRATION: &str = "navigator.serviceWorker.getRegistration('/example/')";
const ENDPOINT: &str = "navigator.serviceWorker.getRegistration('/example/')
    .then((r) => r.pushManager.getSubscription()).then((s) => s?.endpoint)";

/// Kept once the worker has a receipt that it could not send.
const RECEIPT_KEPT: &str = "new Promise((resolve, reject) => {
    const open = indexedDB.open('bellwire');
    const look = () => {
        const count = open.result.transaction('receipts').objectStore('receipts').count();
        count.onsuccess = () => (count.result ? resolve(open.result.close()) : setTimeout(look, 20));
    };
    open.onsuccess = look;
    open.onerror = () => reject(open.error);
})";

async fn start(site: &Site, profile: &Path) -> Firefox {
    start_firefox(site, profile, &json!({})).await
}

/// Content that stays on display until the user closes it.
fn content(body: &str) -> Value {
    json!({"title": "Hello", "body": body, "require_interaction": true})
}

/// The id of the one subscription that the server has in this state.
async fn only(site: &Site, state: &str) -> String {
    let all = site.get("/subscriptions").await;
    let found: Vec<&Value> = all["data"].as_array().unwrap().iter().filter(|one| one["state"] == state).collect();
    assert_eq!(found.len(), 1, "{state}: {all}");
    found[0]["id"].as_str().unwrap().to_owned()
}

/// The notification with that text, which must be there once.
fn shown<'a>(displayed: &'a Value, body: &str) -> &'a Value {
    let found: Vec<&Value> = displayed.as_array().unwrap().iter().filter(|one| one["body"] == body).collect();
    assert_eq!(found.len(), 1, "{body}: {displayed}");
    found[0]
}

async fn subscribe(site: &Site, firefox: &mut Firefox) -> String {
    firefox.open(&site.page()).await;
    firefox.evaluate(&headline("Not subscribed")).await;
    firefox.click("subscribe").await;
    firefox.evaluate(&headline("You are subscribed")).await;
    only(site, "active").await
}

#[tokio::test]
async fn notification_returns_a_receipt_and_a_click() {
    let (site, profile) = (Site::start().await, TempDir::new());
    let mut firefox = start(&site, &profile.path().join("profile")).await;
    let id = subscribe(&site, &mut firefox).await;
    let subscription = site.get(&format!("/subscriptions/{id}")).await;
    assert_eq!((&subscription["gateway"], &subscription["topics"]), (&json!("mozilla"), &json!(["news"])));
    firefox.keep_picture("firefox-subscribed-1200", 1200, 800).await;
    firefox.keep_picture("firefox-subscribed-375", 375, 800).await;

    // The page's own button.
    firefox.click("send").await;
    firefox.evaluate(&logged("Arrived: Hello from Bellwire")).await;
    let displayed = firefox.evaluate(DISPLAYED).await;
    assert_eq!(shown(&displayed, "It works. You asked for this on the example page.")["title"], "Hello from Bellwire");
    let first = site.last_message().await;
    site.until_counts(&first, json!({"accepted": 1, "acknowledged": 1, "displayed": 1, "clicked": 0})).await;
    let now = until_browsers(&site, |now| now.unacknowledged == 0).await;
    assert_eq!((now.taken, &now.acks, &now.nacks), (1, &[(100, 1)].into(), &[].into()));

    // By REST, with everything that a site may say; then once more by a gateway that is not sure.
    let mut rich = content("All of it");
    rich["url"] = format!("{}/example/?order=7", site.origin).into();
    rich["data"] = json!({"order": 7});
    rich["actions"] = json!([{"action": "later", "title": "Later"}]);
    let message = site.send(rich).await;
    firefox.evaluate(&logged("Arrived: Hello · All of it")).await;
    let displayed = firefox.evaluate(DISPLAYED).await;
    let one = shown(&displayed, "All of it");
    assert_eq!((&one["title"], &one["data"]["order"]), (&json!("Hello"), &json!(7)));
    site.until_counts(&message, json!({"acknowledged": 1, "displayed": 1})).await;
    let delivery = site.get(&format!("/messages/{message}/deliveries/{id}")).await;
    assert_eq!((&delivery["state"], &delivery["confirmation"]), (&json!("accepted"), &json!("acknowledged")));
    assert_eq!(delivery["receipts"][0]["kind"], "displayed", "{delivery}");
    let endpoint = firefox.evaluate(ENDPOINT).await;
    assert!(site.app.simulator.push_again(endpoint.as_str().unwrap()).unwrap());
    until_browsers(&site, |now| now.acks.get(&100) == Some(&3)).await;
    let again = async || firefox.evaluate(DISPLAYED).await;
    let in_silence = |all: &Value| all.as_array().is_some_and(|all| all.iter().any(|one| one["silent"] == true));
    let again = until(again, in_silence).await; // which is how the worker shows a repeat
    assert_eq!(shown(&again, "All of it")["data"]["bellwire"]["id"], one["data"]["bellwire"]["id"]);
    site.until_counts(&message, json!({"displayed": 1, "closed": 0})).await;

    // A click opens its link; the close button reports a dismissal.
    firefox.press_notification("All of it", "alertBox").await;
    site.until_counts(&message, json!({"acknowledged": 1, "clicked": 1, "closed": 0})).await;
    firefox.switch_to(&format!("{}/example/?order=7", site.origin)).await;
    firefox.evaluate(&headline("You are subscribed")).await;
    let unwanted = site.send(content("Not now")).await;
    firefox.evaluate(&logged("Arrived: Hello · Not now")).await;
    firefox.press_notification("Not now", "alert-close").await;
    site.until_counts(&unwanted, json!({"displayed": 1, "clicked": 0, "closed": 1})).await;

    // The server is away: what was seen meanwhile is told when it is back.
    let mut site = site;
    let unheard = site.send(content("Nobody hears")).await;
    site.until_counts(&unheard, json!({"displayed": 1})).await;
    site.shut().await;
    firefox.press_notification("Nobody hears", "alert-close").await;
    firefox.evaluate(RECEIPT_KEPT).await;
    site.reopen().await;
    firefox.open(&site.page()).await;
    site.until_counts(&unheard, json!({"displayed": 1, "closed": 1})).await;

    // The end: from now on the push service refuses, and the server knows.
    firefox.evaluate(&headline("You are subscribed")).await;
    firefox.click("subscribe").await;
    firefox.evaluate(&headline("Not subscribed")).await;
    site.until_state(&id, "unsubscribed").await;
    assert_eq!(until_browsers(&site, |now| now.subscriptions == 0).await.unacknowledged, 0);
    assert_eq!(firefox.complaints(), Vec::<String>::new());
    firefox.quit().await;
    site.app.finish().await;
}

#[tokio::test]
async fn restart_new_key_and_lost_subscription_lose_nothing() {
    let (site, dir) = (Site::start().await, TempDir::new());
    let profile = dir.path().join("profile");
    let mut firefox = start(&site, &profile).await;
    let first = subscribe(&site, &mut firefox).await;

    // While the browser is closed, its push service keeps what comes.
    firefox.quit().await;
    until_browsers(&site, |now| now.connected == 0).await;
    let [one, two] = [site.send(content("Kept one")).await, site.send(content("Kept two")).await];
    for message in [&one, &two] {
        site.until_counts(message, json!({"accepted": 1, "acknowledged": 0})).await;
    }
    assert_eq!(until_browsers(&site, |now| now.unacknowledged == 2).await.sent, 0);
    let mut firefox = start(&site, &profile).await;
    for message in [&one, &two] {
        site.until_counts(message, json!({"acknowledged": 1, "displayed": 1})).await; // no page is open
    }
    assert_eq!(until_browsers(&site, |now| now.unacknowledged == 0).await.acks, [(100, 2)].into());

    // A new key: the subscription stays for the first visit, so that its queue drains, and a later visit replaces it.
    let key = site.call(Method::POST, "/vapid-keys", json!({})).await;
    firefox.open(&site.page()).await;
    firefox.evaluate(&headline("You are subscribed")).await;
    assert_eq!(only(&site, "active").await, first);
    let path = format!("/subscriptions/{first}");
    let visit_again = async || {
        firefox.open(&site.page()).await;
        firefox.evaluate(&headline("You are subscribed")).await;
        site.get(&path).await
    };
    until(visit_again, |subscription| subscription["state"] == "replaced").await;
    let second = only(&site, "active").await;
    let subscription = site.get(&format!("/subscriptions/{second}")).await;
    assert_eq!((&subscription["vapid_key_id"], &subscription["topics"]), (&key["id"], &json!(["news"])));
    let displayed = firefox.evaluate(DISPLAYED).await;
    assert!(shown(&displayed, "Kept one")["title"] == "Hello" && shown(&displayed, "Kept two")["title"] == "Hello");
    // Firefox shows three that stay, and lets the next wait.
    firefox
        .evaluate(&format!("{REGISTRATION}.then((r) => r.getNotifications()).then((all) => all.map((n) => n.close()))"))
        .await;
    firefox.evaluate(&headline("You are subscribed")).await;
    let message = site.send(content("Under the new key")).await;
    firefox.evaluate(&logged("Arrived: Hello · Under the new key")).await;
    site.until_counts(&message, json!({"targeted": 1, "acknowledged": 1})).await;

    // The push service has lost everything: the worker hears of it and subscribes by itself.
    site.app.simulator.forget_browsers(MOZILLA).unwrap();
    site.until_state(&second, "replaced").await;
    let third = only(&site, "active").await;
    let message = site.send(content("After the loss")).await;
    firefox.evaluate(&logged("Arrived: Hello · After the loss")).await;
    // Having reported, the worker looks whether server and browser agree: if it did so after what follows, it would mend it.
    site.until_counts(&message, json!({"targeted": 1, "acknowledged": 1, "displayed": 1})).await;

    // The browser alone ends it: the push service answers 410, and the server sends there no more.
    let end = "navigator.serviceWorker.getRegistration('/example/').then((r) => r.pushManager.getSubscription())
        .then((s) => s.unsubscribe())";
    assert_eq!(firefox.evaluate(end).await, true);
    until_browsers(&site, |now| now.subscriptions == 0).await;
    let late = site.send(content("Too late")).await;
    site.until_counts(&late, json!({"targeted": 1, "gone": 1})).await;
    site.until_state(&third, "gone").await;
    assert_eq!(site.app.simulator.report().hosts[MOZILLA].statuses.get(&410), Some(&1));
    let nobody = site.send(content("To nobody")).await;
    site.until_counts(&nobody, json!({"targeted": 0})).await;

    // Which the next visit makes good.
    firefox.open(&site.page()).await;
    firefox.evaluate(&logged("Subscribed as")).await;
    let active = |all: &Value| all["data"].as_array().is_some_and(|all| all.iter().any(|one| one["state"] == "active"));
    until(async || site.get("/subscriptions").await, active).await;
    assert_ne!(only(&site, "active").await, third);
    assert_eq!(firefox.complaints(), Vec::<String>::new());
    firefox.quit().await;
    site.app.finish().await;
}
