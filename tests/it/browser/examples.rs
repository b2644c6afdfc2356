//! The examples work as described: visitors subscribe at a shop, receive codes, and the backend receives events. Each example is started as
//! its README states, except for ports and addresses.

use std::path::Path;

use axum::http::Method;
use bellwire::testkit::hooks::{Sender, pack};
use bellwire_core::lane::Gateway;
use serde_json::{Value, json};
use tokio::process::Command;

use super::example_program::{Backend, copy, download, run, sh};
use super::firefox::Firefox;
use super::push_clients::start_firefox;
use super::site::Site;
use super::{DISPLAYED, element, until, when};
use crate::support::TempDir;
use crate::support::push_service::PushService;
use crate::support::repository::root;
use crate::support::webhooks::webhook_sender;

/// Host of the shop backend's webhook receiver.
const HOOKS: &str = "hooks.shop.test";

/// Bellwire with what the README of a backend has people create.
struct Shop {
    site: Site,
    hooks: PushService,
    sender: Sender,
    webhook_secret: String,
    identity_secret: String,
}

impl Shop {
    async fn open() -> Self {
        let hooks = PushService::start(&[(HOOKS, Gateway::Other)]).await;
        let site = Site::with_hooks(&hooks).await;
        for topic in ["news", "offers"] {
            site.call(Method::PUT, &format!("/topics/{topic}"), json!({"display": {"title": topic}})).await;
        }
        let identity = site.call(Method::POST, "/identity-keys", json!({"name": "backend", "form": "hmac"})).await;
        let wanted = json!({"name": "backend", "url": format!("https://{HOOKS}/webhooks/bellwire"), "events": ["delivery.accepted"]});
        let webhook = site.call(Method::POST, "/webhooks", wanted).await;
        let app = &site.app;
        let sender = webhook_sender(app);
        let secret = |made: &Value| made["secret"].as_str().expect("a secret").to_owned();
        Self { sender, hooks, webhook_secret: secret(&webhook), identity_secret: secret(&identity), site }
    }

    /// Gives a backend its settings, starts it, and lets its pages in.
    async fn start(&self, mut command: Command, listening: &str, pages: &Path) -> Backend {
        command.env("PUSH_SERVER", &self.site.origin).env("BELLWIRE_KEY", &self.site.app.key).env("PORT", "0");
        command.env("IDENTITY_SECRET", &self.identity_secret).env("WEBHOOK_SECRET", &self.webhook_secret);
        command.env("ACCOUNTS", r#"{"ann": "secret"}"#).env("SITE", pages);
        let backend = Backend::start(command, listening).await;
        let app = self.site.app.operate(Method::PATCH, "/v1/apps/shop", json!({"origins": [backend.origin]})).await;
        app.ok(200);
        backend
    }

    /// Waits for the one active subscription to be like that. Returns its id.
    async fn until_subscription(&self, wanted: Value) -> String {
        self.until_another_than("", wanted).await
    }

    /// The same for one that has taken the place of another.
    async fn until_another_than(&self, former: &str, wanted: Value) -> String {
        let all = async || self.site.get("/subscriptions").await;
        let wanted = wanted.as_object().expect("members");
        let active = |all: &Value| -> Vec<Value> {
            all["data"].as_array().expect("rows").iter().filter(|one| one["state"] == "active").cloned().collect()
        };
        let found = until(all, |all| match active(all).as_slice() {
            [one] => one["id"] != former && wanted.iter().all(|(name, value)| one[name] == *value),
            _ => false,
        });
        active(&found.await)[0]["id"].as_str().expect("an id").to_owned()
    }
}

/// Buttons and boxes of a site: ids, or elements in shadow roots.
struct Controls {
    /// Box to tick before subscribing.
    news: Option<&'static str>,
    subscribe: &'static str,
    unsubscribe: &'static str,
    offers: &'static str,
}

const PLAIN: Controls = Controls { news: None, subscribe: "subscribe", unsubscribe: "unsubscribe", offers: "offers" };
/// The elements of the SDK.
const ELEMENTS: Controls = Controls {
    news: Some("bellwire-preferences >>> [value=news]"),
    subscribe: "bellwire-preferences >>> .on",
    unsubscribe: "bellwire-preferences >>> .off",
    offers: "bellwire-preferences >>> [value=offers]",
};

async fn fill_in(firefox: &mut Firefox, name: &str, text: &str) {
    firefox.evaluate(&when(&format!("document.querySelector('[name={name}]')"))).await;
    firefox.evaluate(&format!("void (document.querySelector('[name={name}]').value = {text:?})")).await;
}

/// Waits until the page shows the server's state and is idle.
async fn settle(firefox: &mut Firefox, controls: &Controls) {
    let offers = element(controls.offers);
    firefox.evaluate(&when(&format!("{offers}?.checked && {offers}.checkVisibility()"))).await;
}

/// A visitor subscribes, selects topics, logs in and receives a code. The backend receives the events, and no forged ones.
async fn live_through(shop: &Shop, backend: &mut Backend, controls: &Controls) {
    let (site, profile) = (&shop.site, TempDir::new());
    let mut firefox = start_firefox(site, &profile.path().join("profile"), &json!({})).await;
    firefox.open(&format!("{}/", backend.origin)).await;
    if let Some(news) = controls.news {
        firefox.click(news).await;
    }
    firefox.click(controls.subscribe).await;
    shop.until_subscription(json!({"topics": ["news"], "user_id": null})).await;
    firefox.evaluate(&when(&format!("{}?.checkVisibility()", element(controls.unsubscribe)))).await;
    firefox.click(controls.offers).await;
    let former = shop.until_subscription(json!({"topics": ["news", "offers"]})).await;
    settle(&mut firefox, controls).await;

    fill_in(&mut firefox, "user", "ann").await;
    fill_in(&mut firefox, "password", "wrong").await;
    firefox.click("log-in").await;
    firefox.evaluate(&when("document.getElementById('problem').textContent.includes('do not match')")).await;
    fill_in(&mut firefox, "password", "secret").await;
    firefox.click("log-in").await;
    // It is hers at once, and soon afterwards a new one is, whose endpoint is unknown to others.
    shop.until_another_than(&former, json!({"topics": ["news", "offers"], "user_id": "ann"})).await;
    settle(&mut firefox, controls).await;

    firefox.click("code").await;
    until(async || site.get("/messages").await, |all| all["data"][0]["tier"] == "transactional").await;
    let message = site.last_message().await;
    site.until_counts(&message, json!({"accepted": 1, "displayed": 1})).await;
    let displayed = firefox.evaluate(DISPLAYED).await;
    assert!(displayed[0]["title"].as_str().is_some_and(|title| title.starts_with("Your code is ")), "{displayed}");
    assert_eq!(backend.post("/api/code", &[], b"{}").await, 401, "nobody is logged in");

    hear(shop, backend).await;

    firefox.click("log-out").await;
    firefox.evaluate(&when("document.querySelector('[name=user]')?.checkVisibility()")).await;
    let ended = async || site.get("/subscriptions?state=active").await;
    until(ended, |all| all["data"] == json!([])).await;
    assert_eq!(firefox.complaints(), Vec::<String>::new());
    firefox.quit().await;
}

/// Forwards webhook requests to the backend, as a proxy would.
async fn hear(shop: &Shop, backend: &mut Backend) {
    let app = &shop.site.app;
    pack(&app.pool, &app.vault, app.clock.now()).await.expect("the database answers");
    shop.sender.run_until_idle().await.expect("the database answers");
    let told = shop.hooks.pushed().remove(0);
    let names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
    let headers = names.map(|name| (name, told.header(name)));
    let altered = String::from_utf8(told.body.clone()).expect("JSON").replace("ann", "bob");
    assert_eq!(backend.post("/webhooks/bellwire", &headers, altered.as_bytes()).await, 400, "another body");
    assert_eq!(backend.post("/webhooks/bellwire", &[], &told.body).await, 400, "no signature");
    assert_eq!(backend.post("/webhooks/bellwire", &headers, &told.body).await, 204);
    assert!(backend.until_said("received ").await.ends_with("received delivery.accepted ann"));

    // A repeat is taken and dropped: the next to be heard of is another.
    assert_eq!(backend.post("/webhooks/bellwire", &headers, &told.body).await, 204);
    let other = br#"[{"type": "delivery.gone", "data": {"user_id": "bob"}}]"#;
    let signature = standardwebhooks::Webhook::new(&shop.webhook_secret).expect("a secret");
    let now = headers[1].1;
    let signature = signature.sign("whd_other", now.parse().expect("seconds"), other).expect("it signs");
    let headers = [("webhook-id", "whd_other"), ("webhook-timestamp", now), ("webhook-signature", &signature)];
    assert_eq!(backend.post("/webhooks/bellwire", &headers, other).await, 204);
    assert!(backend.until_said("received ").await.ends_with("received delivery.gone bob"));
}

#[tokio::test(flavor = "multi_thread")]
async fn plain_site_and_node_backend_make_a_shop() {
    let shop = Shop::open().await;
    let (pages, program) = (copy("plain-site", &shop.site).await, copy("node-backend", &shop.site).await);
    run("tests/clients/node_modules/.bin/tsc", &[], &program).await;
    let mut command = Command::new("node");
    command.arg("dist/server.js").current_dir(program.path());
    let mut backend = shop.start(command, "listening on ", pages.path()).await;
    live_through(&shop, &mut backend, &PLAIN).await;
    shop.site.app.finish().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn react_site_and_python_backend_make_a_shop() {
    let shop = Shop::open().await;
    let (pages, program) = (copy("react-site", &shop.site).await, copy("python-backend", &shop.site).await);
    run("static/admin/node_modules/.bin/tsc", &[], &pages).await;
    run("static/admin/node_modules/.bin/vite", &["build", "--logLevel", "warn"], &pages).await;
    let wheel = format!("bellwire-{}-py3-none-any.whl", env!("CARGO_PKG_VERSION"));
    download(&format!("/clients/{wheel}"), &wheel, &program, &shop.site).await;
    sh("python3 -m zipfile -e \"$1\" .", &wheel, &program).await;
    let mut command = Command::new("python3");
    command.args(["-m", "flask", "--app", "server", "run", "--host", "localhost", "--port", "0"]);
    command.current_dir(program.path()).env("PYTHONPATH", root().join(".deps/python-backend"));
    let mut backend = shop.start(command, "Running on ", &pages.path().join("dist")).await;
    live_through(&shop, &mut backend, &ELEMENTS).await;
    shop.site.app.finish().await;
}
