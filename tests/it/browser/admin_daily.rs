//! Daily tasks of product teams on the admin page, in Chromium: read the list of messages, search, and read why deliveries
//! failed.

use axum::http::Method;
use serde_json::json;

use super::admin_page::{says, with_a_campaign};
use super::chromium::Chromium;
use super::site::Site;
use super::when;
use crate::support::TempDir;

async fn sign_in(page: &mut Chromium, site: &Site) {
    page.open(&format!("{}/admin/", site.origin)).await;
    let body = json!({"api_key": site.app.operator}).to_string();
    let enter = format!(
        "fetch('/v1/session', {{ method: 'POST', headers: {{ 'content-type': 'application/json' }}, body: {body:?} }}).then(({{ status }}) => status)"
    );
    assert_eq!(page.evaluate(&enter).await, 201);
}

async fn appears(page: &mut Chromium, selector: &str) {
    page.evaluate(&when(&format!("document.querySelector({selector:?})"))).await;
}

/// Presses a key where the focus is.
async fn press(page: &mut Chromium, key: &str, more: &str) {
    let event = format!("new KeyboardEvent('keydown', {{ key: {key:?}, bubbles: true, cancelable: true, {more} }})");
    page.evaluate(&format!("document.activeElement.dispatchEvent({event})")).await;
}

/// A site with everything that a search finds.
async fn furnished() -> Site {
    let site = with_a_campaign().await;
    site.app.subscribe_with("mozilla", 200..201, json!({"user_id": "ann", "topics": ["news"]})).await;
    site.call(Method::PUT, "/templates/code", json!({"content": {"title": "Code for {{ user_id }}"}})).await;
    site.call(Method::PUT, "/segments/buyers", json!({"expression": "tag(\"buyer\")"})).await;
    let plan = json!({"slug": "spring", "name": "Spring sale", "message": {"to": {"all": true}, "content": {"title": "Spring"}}});
    site.call(Method::POST, "/campaigns", plan).await;
    for _ in 0..3 {
        site.send_message(json!({"to": {"users": ["ann"]}, "tier": "transactional", "template": "code"})).await;
    }
    site
}

async fn titles_and_groups(page: &mut Chromium, site: &Site) {
    page.open(&format!("{}/admin/messages", site.origin)).await;
    appears(page, "tr[data-row]").await;
    let row = |n: usize| format!("document.querySelectorAll('tr[data-row]')[{n}].innerText");
    page.evaluate(&when("document.querySelectorAll('tr[data-row]').length === 2")).await;
    let group = page.evaluate(&row(0)).await;
    let group = group.as_str().unwrap();
    assert!(group.contains("Code for {{ user_id }}") && group.contains("3 messages to single users"), "{group}");
    let broadcast = page.evaluate(&row(1)).await;
    let broadcast = broadcast.as_str().unwrap();
    assert!(broadcast.contains("Autumn sale") && broadcast.contains("32") && broadcast.contains("25"), "{broadcast}");
    page.evaluate("document.querySelector('tr[data-row] button').click()").await;
    page.evaluate(&when("document.querySelectorAll('tr[data-row]').length === 5")).await;
    assert_eq!(page.evaluate("document.querySelector('button.title').ariaExpanded").await, "true");
}

async fn search_finds_each_kind(page: &mut Chromium, message: &str) {
    press(page, "k", "ctrlKey: true").await;
    page.evaluate(&when("document.activeElement.name === 'search'")).await;
    for (text, kind, title) in [
        ("ann", "User", "ann"),
        ("autumn", "Message", "Autumn sale"),
        ("spring", "Campaign", "Spring sale"),
        ("buyers", "Segment", "buyers"),
        ("code", "Template", "code"),
        ("news", "Topic", "news"),
        ("shop", "App", "shop"),
        ("passkeys", "Setting", "Your account"),
        ("calendar", "Page", "Calendar"),
        ("mozilla", "Push service", "Mozilla"),
        (message, "Id", "Message"),
    ] {
        let write = format!(
            "(() => {{ const field = document.activeElement; field.value = {text:?}; field.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()"
        );
        page.evaluate(&write).await;
        let found = format!(
            "[...document.querySelectorAll('#found [role=option]')].some(({{ innerText }}) => innerText.includes({title:?})) && document.getElementById('found').textContent.includes({kind:?})"
        );
        page.evaluate(&when(&found)).await;
    }
    press(page, "ArrowDown", "").await;
    appears(page, "#found-0[aria-selected=true]").await;
    page.evaluate("document.activeElement.form.requestSubmit()").await;
    page.evaluate(&when(&format!("location.pathname === '/admin/messages/{message}'"))).await;
    page.evaluate(&when("document.querySelector('h1')?.innerText === 'Autumn sale'")).await;
}

async fn a_failure_is_explained(page: &mut Chromium, site: &Site) {
    page.open(&format!("{}/admin/dead-letters?reason=bad_request", site.origin)).await;
    page.evaluate(&says("By error")).await;
    let error = "document.querySelector('table a[aria-current]')?.innerText === 'The request is malformed.'";
    appears(page, "tr.linked a[href*='error=The']").await;
    page.evaluate("document.querySelector(\"a[href*='error=The']\").click()").await;
    page.evaluate(&when(error)).await;
    page.evaluate(&when("document.querySelectorAll('a[href*=\"/dead-letters/dl_\"]').length === 4")).await;
    page.evaluate("document.querySelector('a[href*=\"/dead-letters/dl_\"]').click()").await;
    let advice = "Google responded with 400: “The request is malformed”. A replay sends the same request";
    page.evaluate(&when(&format!("document.getElementById('advice')?.innerText.startsWith({advice:?})"))).await;
    page.evaluate("document.getElementById('story').click()").await;
    appears(page, "#delivery-state[data-state=dead]").await;
}

async fn a_day(page: &mut Chromium, site: &Site) {
    let message = site.get("/messages").await["data"][3]["id"].as_str().unwrap().to_owned();
    sign_in(page, site).await;
    titles_and_groups(page, site).await;
    search_finds_each_kind(page, &message).await;
    a_failure_is_explained(page, site).await;
}

#[tokio::test]
async fn in_chromium_a_product_team_works() {
    let (site, home) = (furnished().await, TempDir::new());
    let mut chromium = Chromium::start(home.path()).await;
    chromium.listen().await;
    a_day(&mut chromium, &site).await;
    assert_eq!(chromium.complaints(), Vec::<String>::new());
    site.app.finish().await;
}
