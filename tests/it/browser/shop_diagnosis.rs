//! Sites that find out what is wrong: workers without our line, `diagnose()`, and the prompt on a narrow screen.

use axum::http::Method;
use serde_json::{Value, json};

use super::chromium::Chromium;
use super::push_clients::start_firefox;
use super::shop::Shop;
use super::site::Scheme;
use super::{until, when};
use crate::support::TempDir;

const LINE: &str = r#"importScripts("{server}/sdk/service-worker.js");"#;
/// A worker that lacks our line.
const WITHOUT_LINE: &str = r#"self.addEventListener("push", () => {});"#;

/// Keeps what the page warns of.
const KEEP_WARNINGS: &str = "(() => {
    window.warned = [];
    console.warn = (...words) => void window.warned.push(words.join(' '));
    return true;
})()";
const WARNED_OF_LINE: &str = "window.warned.some((text) => text.includes('importScripts('))";

fn assert_names_line(warned: &Value, shop: &Shop) {
    let line = format!("importScripts(\"{}/sdk/service-worker.js\")", shop.server.origin);
    let of_line: Vec<&str> = warned.as_array().unwrap().iter().filter_map(Value::as_str).collect();
    let of_line: Vec<&&str> = of_line.iter().filter(|text| text.contains("importScripts(")).collect();
    assert_eq!(of_line.len(), 1, "{warned}");
    assert!(of_line[0].contains(&line) && of_line[0].contains("/service-worker.js?app=shop"), "{warned}");
}

/// Checks of a diagnosis by name, as whether each is fine.
fn by_name(diagnosis: &Value) -> Vec<(&str, bool)> {
    let checks = diagnosis["checks"].as_array().unwrap();
    checks.iter().map(|check| (check["name"].as_str().unwrap(), check["ok"].as_bool().unwrap())).collect()
}

const ALL: [&str; 11] = [
    "support",
    "permission",
    "worker",
    "line",
    "subscription",
    "manifest",
    "server",
    "key",
    "registration",
    "clock",
    "round-trip",
];

/// Sends what waits until the browser has reported the test notification.
async fn until_test_is_shown(shop: &Shop) {
    let displayed = async || {
        shop.server.app.run_until_idle().await;
        let messages = shop.server.get("/messages").await;
        let Some(id) = messages["data"][0]["id"].as_str() else { return Value::Null };
        shop.server.get(&format!("/messages/{id}")).await["counts"]["displayed"].clone()
    };
    until(displayed, |n| *n == 1).await;
}

#[tokio::test]
async fn firefox_warns_of_worker_without_line() {
    let (shop, profile) = (Shop::open(Scheme::Http).await, TempDir::new());
    shop.put_page("{}");
    shop.put("/service-worker.js", WITHOUT_LINE);
    let mut firefox = start_firefox(&shop.server, &profile.path().join("profile"), &json!({})).await;
    firefox.open(&shop.page()).await;
    firefox.evaluate(KEEP_WARNINGS).await;
    let subscribed = firefox.evaluate("bellwire.subscribe()").await;
    assert_eq!(subscribed["status"]["state"], "subscribed", "{subscribed}");
    firefox.evaluate(&when(WARNED_OF_LINE)).await;
    assert_names_line(&firefox.evaluate("window.warned").await, &shop);
    let diagnosis = firefox.evaluate("bellwire.diagnose()").await;
    assert!(by_name(&diagnosis).contains(&("line", false)), "{diagnosis}");
    assert!(by_name(&diagnosis).contains(&("round-trip", false)), "{diagnosis}");
    shop.server.app.run_until_idle().await;
    firefox.quit().await;
    shop.server.app.finish().await;
}

#[tokio::test]
async fn chromium_warns_of_worker_without_line() {
    let (shop, home) = (Shop::open(Scheme::Http).await, TempDir::new());
    shop.put_page("{}");
    shop.put("/service-worker.js", WITHOUT_LINE);
    let mut chromium = Chromium::start(home.path()).await;
    chromium.permit(&shop.origin).await;
    // Google's push service cannot be reached, and is not waited for.
    let hurry = "const later = setTimeout; window.setTimeout = (work, ms, ...rest) => later(work, ms === 20000 ? 200 : ms, ...rest);";
    chromium.call("Page.addScriptToEvaluateOnNewDocument", json!({"source": hurry})).await;
    chromium.open(&shop.page()).await;
    chromium.evaluate(KEEP_WARNINGS).await;
    let pending = chromium.evaluate("bellwire.subscribe()").await;
    assert_eq!(pending["status"]["state"], "pending", "{pending}");
    chromium.evaluate(&when(WARNED_OF_LINE)).await;
    assert_names_line(&chromium.evaluate("window.warned").await, &shop);

    // With the line there is no such warning: the worker answers, which `diagnose` waits for as long.
    shop.put("/service-worker.js", LINE);
    chromium.evaluate("navigator.serviceWorker.getRegistration().then((it) => it.unregister())").await;
    chromium.open(&format!("{}?again", shop.page())).await;
    chromium.evaluate(KEEP_WARNINGS).await;
    chromium.evaluate("bellwire.ready").await;
    let diagnosis = chromium.evaluate("bellwire.diagnose()").await;
    assert!(by_name(&diagnosis).contains(&("line", true)), "{diagnosis}");
    assert_eq!(chromium.evaluate(WARNED_OF_LINE).await, false);
    shop.server.app.finish().await;
}

#[tokio::test]
async fn firefox_diagnoses_itself_for_support() {
    let (shop, profile) = (Shop::open(Scheme::Http).await, TempDir::new());
    shop.put_page("{}");
    shop.put("/service-worker.js", LINE);
    let mut firefox = start_firefox(&shop.server, &profile.path().join("profile"), &json!({})).await;
    firefox.open(&shop.page()).await;
    let before = firefox.evaluate("bellwire.diagnose()").await;
    assert_eq!(before["code"], Value::Null, "{before}");
    assert!(by_name(&before).contains(&("registration", false)), "{before}");
    let subscribed = firefox.evaluate("bellwire.subscribe({ topics: ['news'] })").await;
    assert_eq!(subscribed["status"]["state"], "subscribed", "{subscribed}");

    let diagnose = firefox.evaluate("bellwire.diagnose({ into: document.getElementById('log') })");
    let (diagnosis, ()) = tokio::join!(diagnose, until_test_is_shown(&shop));
    // The server's clock is a stub, which is off by weeks.
    assert_eq!(by_name(&diagnosis), ALL.map(|name| (name, name != "clock")), "{diagnosis}");
    let code = diagnosis["code"].as_str().unwrap();
    let found = shop.server.get(&format!("/diagnoses/{code}")).await;
    assert_eq!((&found["checks"], &found["subscription"]), (&diagnosis["checks"], &subscribed["status"]["id"]));
    assert!(found["test"]["displayed_at"].is_string(), "{found}");
    let shown = firefox.evaluate("document.querySelector('#log code').textContent").await;
    assert_eq!(shown, code);
    assert_eq!(firefox.evaluate("document.querySelectorAll('#log .bellwire-ok').length").await, 10);

    // The server has unsubscribed it: the report says so, and no test is made.
    let path = format!("/subscriptions/{}", subscribed["status"]["id"].as_str().unwrap());
    shop.server.app.call(Method::DELETE, &format!("/v1/apps/shop{path}"), Value::Null).await.ok(204);
    let ended = firefox.evaluate("bellwire.diagnose()").await;
    assert!(by_name(&ended).contains(&("registration", false)), "{ended}");
    assert!(by_name(&ended).contains(&("round-trip", false)), "{ended}");
    firefox.quit().await;
    shop.server.app.finish().await;
}

#[tokio::test]
async fn chromium_diagnoses_what_stands_in_its_way() {
    let (shop, home) = (Shop::open(Scheme::Http).await, TempDir::new());
    shop.put_page("{}");
    let mut chromium = Chromium::start(home.path()).await;
    let denied = json!({"permission": {"name": "notifications"}, "setting": "denied", "origin": shop.origin});
    chromium.manage("Browser.setPermission", denied).await;
    chromium.open(&shop.page()).await;
    let diagnosis = chromium.evaluate("bellwire.diagnose()").await;
    let expected = [
        ("support", true),
        ("permission", false),
        ("worker", false),
        ("manifest", true),
        ("server", true),
        ("registration", false),
    ];
    assert_eq!((by_name(&diagnosis), &diagnosis["code"]), (expected.to_vec(), &Value::Null), "{diagnosis}");
    let advice = |name: &str| {
        let checks = diagnosis["checks"].as_array().unwrap();
        checks.iter().find(|check| check["name"] == name).unwrap()["advice"].as_str().unwrap_or_default().to_owned()
    };
    assert!(advice("permission").contains("settings"), "{diagnosis}");

    shop.put_page("{ app: '' }");
    chromium.open(&format!("{}?wrong", shop.page())).await;
    let diagnosis = chromium.evaluate("bellwire.diagnose()").await;
    assert_eq!(by_name(&diagnosis), [("support", false)], "{diagnosis}");
    shop.server.app.finish().await;
}

/// Opens the prompt twice, and another in an element that the page then empties.
const ASK_TWICE: &str = "(async () => {
    const words = { title: 'Donaudampfschifffahrtselektrizitätenhauptbetriebswerkbauunterbeamtengesellschaft', body: 'x'.repeat(200) };
    window.first = bellwire.prompt(words);
    window.second = bellwire.prompt(words);
    while (!document.querySelector('dialog')) await new Promise((resolve) => setTimeout(resolve, 20));
    const box = document.querySelector('dialog').getBoundingClientRect();
    return { dialogs: document.querySelectorAll('dialog').length, fits: box.left >= 0 && box.right <= innerWidth && document.documentElement.scrollWidth <= innerWidth };
})()";
const SAY_LATER: &str = "(async () => {
    document.querySelector('dialog button').click();
    return [(await window.first).answer, (await window.second).answer];
})()";
const EMPTIED: &str = "(async () => {
    const into = document.getElementById('log');
    const asked = bellwire.prompt({ into });
    while (!into.querySelector('.bellwire-prompt')) await new Promise((resolve) => setTimeout(resolve, 20));
    const language = into.querySelector('h2').lang;
    into.textContent = '';
    return [(await asked).answer, language];
})()";

#[tokio::test]
async fn prompt_asks_once_on_narrow_screen() {
    let (shop, home, profile) = (Shop::open(Scheme::Http).await, TempDir::new(), TempDir::new());
    shop.put_page("{}");
    shop.put("/service-worker.js", LINE);
    let expected = json!({"dialogs": 1, "fits": true});
    let mut chromium = Chromium::start(home.path()).await;
    chromium.permit(&shop.origin).await;
    let narrow = json!({"width": 320, "height": 640, "deviceScaleFactor": 1, "mobile": true});
    chromium.call("Emulation.setDeviceMetricsOverride", narrow).await;
    chromium.open(&shop.page()).await;
    assert_eq!(chromium.evaluate(EMPTIED).await, json!(["not-needed", "en"]));
    assert_eq!(chromium.evaluate(ASK_TWICE).await, expected);
    assert_eq!(chromium.evaluate(SAY_LATER).await, json!(["later", "later"]));

    let mut firefox = start_firefox(&shop.server, &profile.path().join("profile"), &json!({})).await;
    firefox.open(&shop.page()).await;
    assert_eq!(firefox.evaluate(EMPTIED).await, json!(["not-needed", "en"]));
    assert_eq!(firefox.evaluate(ASK_TWICE).await, expected);
    assert_eq!(firefox.evaluate(SAY_LATER).await, json!(["later", "later"]));
    firefox.quit().await;
    shop.server.app.finish().await;
}
