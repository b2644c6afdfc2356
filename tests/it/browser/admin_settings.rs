//! Settings and first run of the admin page: an admin changes keys and team, and a viewer sees them read-only. On an empty server, the page
//! leads to a notification in the visitor's own browser.

use axum::http::Method;
use bellwire_core::base64url;
use bellwire_simulator::gateways::Minted;
use chrono::{TimeDelta, Utc};
use serde_json::{Value, json};

use super::admin_page::{invite, look_at, says};
use super::chromium::Chromium;
use super::push_clients::start_firefox;
use super::site::Site;
use super::{DISPLAYED, in_shadow, until, when};
use crate::support::TempDir;

const PASSWORD: &str = "correct horse battery";

/// Signs in by a one-time link with that role.
async fn come_in(site: &Site, chromium: &mut Chromium, email: &str, role: &str) {
    let link = invite(site, email, json!([{"role": role}])).await;
    // The page takes the token out of the address.
    chromium.follow(&format!("{}{link}", site.origin), "document.getElementById('new_password') !== null").await;
    fill(chromium, "#new_password", PASSWORD).await;
    press(chromium, "set-password").await;
    chromium.evaluate(&when("document.querySelector('nav.pages')")).await;
}

/// Writes into a field, as typing would.
async fn fill(chromium: &mut Chromium, selector: &str, text: &str) {
    let write = format!(
        "(() => {{ const it = document.querySelector({selector:?}); it.value = {text:?};
            it.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()"
    );
    chromium.evaluate(&write).await;
}

/// Presses what has that id, once it is there, wherever the layout has it by then.
async fn press(chromium: &mut Chromium, id: &str) {
    chromium.evaluate(&when(&format!("document.getElementById({id:?})"))).await;
    chromium.evaluate(&format!("document.getElementById({id:?}).click()")).await;
}

/// Opens a dialog by a button, and waits for its own.
async fn ask(chromium: &mut Chromium, button: &str) {
    chromium.evaluate(&when(&format!("document.querySelector({button:?})"))).await;
    chromium.evaluate(&format!("document.querySelector({button:?}).click()")).await;
    chromium.evaluate(&when("document.querySelector('dialog[open] #do-it')")).await;
}

async fn until_closed(chromium: &mut Chromium) {
    chromium.evaluate(&when("!document.querySelector('dialog')")).await;
}

/// The text of an element, once it is there.
async fn read(chromium: &mut Chromium, id: &str) -> String {
    chromium.evaluate(&when(&format!("document.getElementById({id:?})"))).await;
    let text = chromium.evaluate(&format!("document.getElementById({id:?}).textContent")).await;
    text.as_str().unwrap().to_owned()
}

/// The preview follows the form, and pages get what is saved.
async fn change_the_prompt(site: &Site, chromium: &mut Chromium) {
    chromium.open(&page(site, "/settings/prompt?app=shop")).await;
    let part = |part: &str| in_shadow(&format!("bellwire-prompt >>> {part}"));
    chromium.evaluate(&when(&format!("{}?.textContent === 'Get notifications?'", part(".title")))).await;
    fill(chromium, "[name=text_title]", "Hear of new arrivals?").await;
    fill(chromium, "[name=layout]", "bar").await;
    fill(chromium, "[name=seconds]", "10").await;
    chromium.evaluate("document.querySelector('[name=enabled]').click()").await;
    chromium.evaluate(&when(&format!("{}?.textContent === 'Hear of new arrivals?'", part(".bar .title")))).await;
    let stage = "document.querySelector('.stage').getBoundingClientRect()";
    let bar = format!("{}.getBoundingClientRect()", part(".bar"));
    let within = "({ left, right, bottom }, bar) => bar.left >= left && bar.right <= right && bar.bottom <= bottom";
    chromium.evaluate(&when(&format!("({within})({stage}, {bar})"))).await; // once its animation is over
    look_at(chromium, "prompt").await;
    press(chromium, "change-prompt").await;
    let saved = until(async || site.get("/prompt").await, |prompt| prompt["layout"] == "bar").await;
    assert_eq!((&saved["enabled"], &saved["seconds"]), (&json!(true), &json!(10)));
    assert_eq!(saved["texts"], json!({"en": {"title": "Hear of new arrivals?"}}));
}

fn page(site: &Site, path: &str) -> String {
    format!("{}/admin{path}", site.origin)
}

#[tokio::test]
async fn in_chromium_an_admin_changes_keys_and_team() {
    let (site, home) = (Site::for_admins().await, TempDir::new());
    site.app.subscribe("fcm", 0..24).await;
    site.call(Method::POST, "/vapid-keys", json!({})).await;
    let ends = Utc::now() + TimeDelta::days(9);
    let agency = json!({"name": "agency", "scopes": ["read"], "expires_at": ends});
    site.call(Method::POST, "/api-keys", agency).await;
    let mut chromium = Chromium::start(home.path()).await;
    chromium.listen().await;
    come_in(&site, &mut chromium, "ann@example.com", "admin").await;

    // First the open actions.
    invite(&site, "ben@example.com", json!([{"role": "viewer"}])).await;
    chromium.open(&page(&site, "/settings")).await;
    chromium.evaluate(&says("0 % of 24 moved")).await;
    chromium.evaluate(&says("The API key “agency” of Shop expires in 9 days")).await;
    chromium.evaluate(&says("ben@example.com has an unused invitation link")).await;
    look_at(&mut chromium, "settings").await;

    // A key for a program: its secret is shown once, works, and does not when it is revoked.
    chromium.open(&page(&site, "/settings/keys?app=shop")).await;
    ask(&mut chromium, "#new-api-key").await;
    fill(&mut chromium, "dialog [name=name]", "newsletter tool").await;
    press(&mut chromium, "do-it").await;
    let secret = read(&mut chromium, "secret").await;
    let messages = "/v1/apps/shop/messages";
    site.app.call_as(Method::GET, messages, &secret, Value::Null).await.ok(200);
    look_at(&mut chromium, "secret").await;
    chromium.press_escape().await;
    until_closed(&mut chromium).await;
    chromium.evaluate(&says("newsletter tool")).await;
    chromium.evaluate(&when(&format!("!document.documentElement.outerHTML.includes({secret:?})"))).await;
    let listed = site.get("/api-keys").await;
    assert_eq!(listed["data"][0]["last_used_on"], Utc::now().date_naive().to_string(), "{listed}");
    look_at(&mut chromium, "keys").await;
    let revoke =
        "[...document.querySelectorAll('button')].find((one) => one.textContent === 'Revoke… newsletter tool')";
    chromium.evaluate(&when(revoke)).await;
    chromium.evaluate(&format!("{revoke}.click()")).await;
    chromium.evaluate(&says("Within a second every request with")).await;
    press(&mut chromium, "do-it").await;
    until_closed(&mut chromium).await;
    let refused = async || site.app.call_as(Method::GET, messages, &secret, Value::Null).await.status;
    until(refused, |status| *status == 401).await;

    // Another VAPID key, after it was said whom that reaches; and one taken out.
    ask(&mut chromium, "#new-vapid-key").await;
    chromium.evaluate(&says("24 subscriptions keep their key")).await;
    look_at(&mut chromium, "new-vapid-key").await;
    press(&mut chromium, "do-it").await;
    until_closed(&mut chromium).await;
    assert_eq!(site.get("/vapid-keys").await["data"].as_array().map(Vec::len), Some(3));
    let export = "[...document.querySelectorAll('button')].find((one) => one.textContent === 'Export…')";
    chromium.evaluate(&when(export)).await;
    chromium.evaluate(&format!("{export}.click()")).await;
    chromium.evaluate(&when("document.querySelector('dialog[open] #do-it')")).await;
    press(&mut chromium, "do-it").await;
    assert!(read(&mut chromium, "private-key").await.contains("BEGIN PRIVATE KEY"));
    chromium.press_escape().await;
    until_closed(&mut chromium).await;

    // What an app is changed by, and when its messages may come.
    chromium.open(&page(&site, "/settings/apps?app=shop")).await;
    chromium.evaluate(&when("document.querySelector('[name=origins]')")).await;
    fill(&mut chromium, "[name=origins]", "https://shop.example.com").await;
    press(&mut chromium, "change-app").await;
    chromium.evaluate(&says("Pages of https://shop.example.com can subscribe browsers.")).await;
    press(&mut chromium, "do-it").await;
    chromium.evaluate(&says("Saved.")).await;
    assert_eq!(site.get("").await["origins"], json!(["https://shop.example.com"]));
    look_at(&mut chromium, "app").await;
    chromium.open(&page(&site, "/settings/hours?app=shop")).await;
    chromium.evaluate(&when("document.querySelector('[name=quiet]')")).await;
    chromium.evaluate("document.querySelector('[name=quiet]').click()").await;
    chromium.evaluate(&when("document.querySelector('[name=quiet_from]')")).await;
    look_at(&mut chromium, "hours").await;
    press(&mut chromium, "change-hours").await;
    chromium.evaluate(&says("wait from 22:00 until 08:00")).await;
    press(&mut chromium, "do-it").await;
    until_closed(&mut chromium).await;
    assert_eq!(site.get("/calendar").await["quiet_hours"], json!({"from": "22:00", "to": "08:00"}));

    change_the_prompt(&site, &mut chromium).await;

    // A teammate is invited by a link that is shown once.
    chromium.open(&page(&site, "/settings/team")).await;
    ask(&mut chromium, "#invite").await;
    fill(&mut chromium, "dialog [name=email]", "cora@example.com").await;
    look_at(&mut chromium, "invite-somebody").await;
    press(&mut chromium, "do-it").await;
    chromium.evaluate(&when("document.querySelector('dialog[open] #link')")).await;
    assert!(read(&mut chromium, "link").await.starts_with(&page(&site, "/invite#bwl_")));
    chromium.press_escape().await;
    until_closed(&mut chromium).await;
    chromium.evaluate(&says("cora@example.com")).await;
    look_at(&mut chromium, "team").await;

    // A passkey of one's own.
    chromium.call("Page.bringToFront", json!({})).await; // what has no focus makes no passkey
    chromium.call("Emulation.setFocusEmulationEnabled", json!({"enabled": true})).await;
    chromium.call("WebAuthn.enable", json!({})).await;
    let keeper = json!({"options": {"protocol": "ctap2", "transport": "internal", "hasResidentKey": true,
        "hasUserVerification": true, "isUserVerified": true}});
    chromium.call("WebAuthn.addVirtualAuthenticator", keeper).await;
    chromium.open(&page(&site, "/settings/you")).await;
    ask(&mut chromium, "#add-passkey").await;
    fill(&mut chromium, "dialog [name=name]", "blue key").await;
    press(&mut chromium, "do-it").await;
    let dialog = async || chromium.evaluate("document.querySelector('dialog')?.innerText").await;
    until(dialog, Value::is_null).await;
    chromium.evaluate(&says("blue key")).await;
    look_at(&mut chromium, "you").await;

    // All of it stands in the log.
    chromium.open(&page(&site, "/settings/audit")).await;
    for entry in ["added a passkey", "invited a teammate", "exported a VAPID key", "revoked an API key"] {
        chromium.evaluate(&says(entry)).await;
    }
    look_at(&mut chromium, "audit").await;
    chromium.open(&page(&site, "/settings/audit?action=teammate.invited")).await;
    chromium.evaluate(&when("document.querySelectorAll('tr[data-row]').length === 3")).await;
    assert_eq!(chromium.complaints(), Vec::<String>::new());
    site.app.finish().await;
}

#[tokio::test]
async fn in_chromium_a_viewer_sees_read_only_settings() {
    let (site, home) = (Site::for_admins().await, TempDir::new());
    site.app.subscribe("fcm", 0..3).await;
    let mut chromium = Chromium::start(home.path()).await;
    chromium.listen().await;
    come_in(&site, &mut chromium, "vera@example.com", "viewer").await;
    for (path, told) in [
        (
            "/settings/keys?app=shop",
            "Your role does not allow creating or revoking keys. This requires the role admin on this app.",
        ),
        ("/settings/apps", "Your role does not allow creating apps. This requires the role operator for all apps."),
        (
            "/settings/apps?app=shop",
            "Your role does not allow changing the app. This requires the role operator on this app.",
        ),
        (
            "/settings/hours?app=shop",
            "Your role does not allow changing quiet hours. This requires the role operator on this app.",
        ),
        (
            "/settings/prompt?app=shop",
            "Your role does not allow changing the prompt. This requires the role operator on this app.",
        ),
        ("/settings/team", "The team is visible to admins for all apps"),
    ] {
        chromium.open(&page(&site, path)).await;
        chromium.evaluate(&says(told)).await;
        let acts =
            chromium.evaluate("document.querySelectorAll('.part button:not(:disabled, [data-export])').length").await;
        assert_eq!(acts, 0, "{path}");
        let fields = ".part :is(input, select, textarea):not(:disabled, .filters *)";
        assert_eq!(chromium.evaluate(&format!("document.querySelectorAll({fields:?}).length")).await, 0, "{path}");
        look_at(&mut chromium, &format!("viewer{}", path.replace(['/', '?', '='], "-"))).await;
    }
    let wish = "fetch('/v1/apps/shop/vapid-keys', { method: 'POST', headers: { 'Content-Type': 'application/json' }, body: '{}' })";
    assert_eq!(chromium.evaluate(&format!("{wish}.then((answer) => answer.status)")).await, 403);
    site.app.finish().await;
}

/// Makes the server as empty as a new one.
async fn empty(site: &Site) {
    site.app.operate(Method::DELETE, "/v1/apps/shop?confirm=shop", Value::Null).await.ok(202);
}

/// Subscribes as the page's button would. Chromium's push service is Google's, so the test registers the simulator's endpoint; the worker
/// is installed and the page stores the user.
async fn subscribe(site: &Site, chromium: &mut Chromium, minted: &Minted) {
    let keys = json!({"p256dh": minted.p256dh, "auth": minted.auth});
    let body = json!({"subscription": {"endpoint": minted.endpoint, "keys": keys}});
    let made = site.app.operate(Method::POST, "/v1/apps/winter-shop/subscriptions", body).await.ok(201);
    let url = format!("/try/service-worker.js?app=winter-shop&server={}", site.origin);
    let register = format!("navigator.serviceWorker.register({url:?}).then(() => navigator.serviceWorker.ready)");
    chromium.evaluate(&format!("{register}.then(() => true)")).await;
    chromium.evaluate(&format!("localStorage.setItem('bellwire.tried.winter-shop', {})", made["id"])).await;
}

#[tokio::test]
async fn in_chromium_first_run_leads_to_a_notification() {
    let (site, home) = (Site::for_admins().await, TempDir::new());
    empty(&site).await;
    let mut chromium = Chromium::start(home.path()).await;
    chromium.listen().await;
    chromium.permit(&site.origin).await;
    come_in(&site, &mut chromium, "ann@example.com", "admin").await;

    // An app.
    chromium.evaluate(&says("Create an app for your site")).await;
    assert_eq!(chromium.evaluate("location.pathname").await, "/admin/first-run");
    chromium.evaluate(&when("document.getElementById('app-name')")).await;
    look_at(&mut chromium, "first-run").await;
    fill(&mut chromium, "#app-name", "Winter Shop").await;
    fill(&mut chromium, "#app-origin", "https://winter.example.com").await;
    fill(&mut chromium, "#app-subject", "mailto:ann@example.com").await;
    press(&mut chromium, "make-app").await;

    // A key, which works.
    chromium.evaluate(&when("document.getElementById('make-key')")).await;
    press(&mut chromium, "make-key").await;
    let line = read(&mut chromium, "secret").await;
    let secret = line.strip_prefix("BELLWIRE_KEY=").unwrap().to_owned();
    site.app.call_as(Method::GET, "/v1/apps/winter-shop/messages", &secret, Value::Null).await.ok(200);
    chromium.evaluate(&when("document.getElementById('pasted')")).await;
    let pasted = chromium.evaluate("document.querySelector('#step-site').textContent").await;
    let worker = format!("importScripts(\"{}/sdk/service-worker.js\");", site.origin);
    assert!(pasted.as_str().unwrap().contains(&worker), "{pasted}");
    look_at(&mut chromium, "first-run-site").await;
    press(&mut chromium, "pasted").await;

    // This browser, by a page of this server.
    chromium.evaluate(&when("document.querySelector('#step-browser details[open] #this-browser')")).await;
    let there = chromium.evaluate("document.getElementById('this-browser').href").await.as_str().unwrap().to_owned();
    let keys = site.app.operate(Method::GET, "/v1/apps/winter-shop/vapid-keys", Value::Null).await.ok(200);
    let key = base64url::decode_any(keys["data"][0]["public_key"].as_str().unwrap()).unwrap();
    let minted = site.app.simulator.mint("fcm.bellwire.test", 1, Some(&key)).unwrap();
    chromium.open(&there).await;
    chromium.evaluate(&when("!document.getElementById('subscribe').disabled")).await;
    look_at(&mut chromium, "this-browser").await;
    subscribe(&site, &mut chromium, &minted).await;

    // One comes back to where one was: the server knows what is done.
    let first_run = page(&site, "/first-run?app=winter-shop");
    chromium.open(&first_run).await;
    chromium.evaluate(&when("document.querySelector('#step-sent details[open] #send')")).await;
    let done = "[...document.querySelectorAll('.steps > li[data-done]')].map((step) => step.id)";
    assert_eq!(chromium.evaluate(done).await, json!(["step-app", "step-key", "step-browser"]));
    look_at(&mut chromium, "first-run-send").await;
    press(&mut chromium, "send").await;
    let received = async || {
        site.app.run_until_idle().await;
        site.app.simulator.received(&minted.endpoint).unwrap().len()
    };
    until(received, |n| *n == 1).await;
    let received = site.app.simulator.received(&minted.endpoint).unwrap();
    let plaintext = received.last().and_then(|delivery| delivery.plaintext.clone()).expect("it was opened");
    chromium.evaluate(&says("Accepted by the push service")).await;
    chromium.deliver(&site.origin, std::str::from_utf8(&plaintext).unwrap()).await;
    chromium.evaluate(&says("Everything works.")).await;
    chromium.evaluate(&says("Shown by your browser")).await;
    look_at(&mut chromium, "first-run-done").await;
    assert_eq!(chromium.complaints(), Vec::<String>::new());
    site.app.finish().await;
}

#[tokio::test]
async fn in_firefox_first_run_ends_with_a_push() {
    let (site, profile) = (Site::for_admins().await, TempDir::new());
    let origin = json!({"add_origins": [site.origin]});
    site.app.operate(Method::PATCH, "/v1/apps/shop", origin).await.ok(200);
    let link = invite(&site, "ann@example.com", json!([{"role": "admin"}])).await;
    let mut firefox = start_firefox(&site, &profile.path().join("profile"), &json!({})).await;
    firefox.open(&format!("{}{link}", site.origin)).await;
    firefox.evaluate(&when("document.getElementById('new_password')")).await;
    firefox.evaluate(&format!("document.getElementById('new_password').value = {PASSWORD:?}")).await;
    firefox.click("set-password").await;
    firefox.evaluate(&when("document.getElementById('sentence')")).await;

    firefox.open(&format!("{}/try/?app=shop", site.origin)).await;
    firefox.evaluate(&when("!document.getElementById('subscribe').disabled")).await;
    firefox.click("subscribe").await;
    firefox.evaluate(&says("This browser is subscribed")).await;
    let displayed = DISPLAYED.replace("getRegistration()", "getRegistration('/try/')");

    firefox.open(&page(&site, "/first-run?app=shop")).await;
    firefox.evaluate(&when("document.querySelector('#step-sent details[open] #send')")).await;
    firefox.click("send").await;
    let text = async || {
        site.app.run_until_idle().await;
        firefox.evaluate("document.body.innerText").await
    };
    until(text, |text| text.as_str().is_some_and(|text| text.contains("Everything works."))).await;
    let shown = firefox.evaluate(&displayed).await;
    assert_eq!((&shown[0]["title"], &shown[0]["body"]), (&json!("Hello"), &json!("It works.")), "{shown}");
    assert_eq!(firefox.complaints(), Vec::<String>::new());
    firefox.quit().await;
    site.app.finish().await;
}
