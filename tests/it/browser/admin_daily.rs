//! What product teams do every day on the admin page, in both browsers: read the list of messages, search, read why deliveries
//! failed, zoom into a chart, and plan by the calendar.

use axum::http::Method;
use chrono::TimeDelta;
use serde_json::{Value, json};

use super::admin_stories::{says, with_a_campaign};
use super::chromium::Chromium;
use super::firefox::Firefox;
use super::firefox_story::start_with;
use super::site::Site;
use super::when;
use crate::support::TempDir;

/// A page in either browser.
trait BrowserPage {
    async fn open(&mut self, url: &str);
    async fn evaluate(&mut self, expression: &str) -> Value;
}

impl BrowserPage for Chromium {
    async fn open(&mut self, url: &str) {
        Self::open(self, url).await;
    }

    async fn evaluate(&mut self, expression: &str) -> Value {
        Self::evaluate(self, expression).await
    }
}

impl BrowserPage for Firefox {
    async fn open(&mut self, url: &str) {
        Self::open(self, url).await;
    }

    async fn evaluate(&mut self, expression: &str) -> Value {
        Self::evaluate(self, expression).await
    }
}

async fn sign_in(page: &mut impl BrowserPage, site: &Site) {
    page.open(&format!("{}/admin/", site.origin)).await;
    let body = json!({"api_key": site.app.operator}).to_string();
    let enter = format!(
        "fetch('/v1/session', {{ method: 'POST', headers: {{ 'content-type': 'application/json' }}, body: {body:?} }}).then(({{ status }}) => status)"
    );
    assert_eq!(page.evaluate(&enter).await, 201);
}

async fn appears(page: &mut impl BrowserPage, selector: &str) {
    page.evaluate(&when(&format!("document.querySelector({selector:?})"))).await;
}

/// Presses a key where the focus is.
async fn press(page: &mut impl BrowserPage, key: &str, more: &str) {
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

async fn titles_and_groups(page: &mut impl BrowserPage, site: &Site) {
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

async fn search_finds_each_kind(page: &mut impl BrowserPage, message: &str) {
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

async fn a_failure_is_explained(page: &mut impl BrowserPage, site: &Site) {
    page.open(&format!("{}/admin/dead-letters?reason=bad_request", site.origin)).await;
    page.evaluate(&says("By error")).await;
    let error = "document.querySelector('table a[aria-current]')?.innerText === 'The request is malformed.'";
    appears(page, "tr.linked a[href*='error=The']").await;
    page.evaluate("document.querySelector(\"a[href*='error=The']\").click()").await;
    page.evaluate(&when(error)).await;
    page.evaluate(&when("document.querySelectorAll('a[href*=\"/dead-letters/dl_\"]').length === 4")).await;
    page.evaluate("document.querySelector('a[href*=\"/dead-letters/dl_\"]').click()").await;
    let advice = "Google responded with 400: “The request is malformed.”. A replay sends the same request";
    page.evaluate(&when(&format!("document.getElementById('advice')?.innerText.startsWith({advice:?})"))).await;
    page.evaluate("document.getElementById('story').click()").await;
    appears(page, "#delivery-state[data-state=dead]").await;
}

async fn a_chart_is_zoomed(page: &mut impl BrowserPage, site: &Site) {
    page.open(&format!("{}/admin/?app=shop", site.origin)).await;
    appears(page, ".chart canvas").await;
    let keys = "(n) => {
        const chart = document.querySelector('.chart [tabindex]');
        const press = (key, shiftKey) => chart?.dispatchEvent(new KeyboardEvent('keydown', { key, shiftKey, bubbles: true }));
        [() => press('ArrowLeft', false), () => press('ArrowLeft', true), () => press('Enter', false)][n % 3]();
    }";
    page.evaluate(&until_zoomed(keys)).await;
    appears(page, "#zoomed").await;
    page.evaluate("document.getElementById('zoom-out').click()").await;
    page.evaluate(&when("!location.search.includes('zoom=') && document.querySelector('.chart .u-over')")).await;
    let drag = "() => {
        const over = document.querySelector('.chart .u-over');
        const { left, top, width } = over?.getBoundingClientRect() ?? {};
        const fire = (on, kind, share) =>
            on?.dispatchEvent(new MouseEvent(kind, { bubbles: true, button: 0, movementX: 9, clientX: left + width * share, clientY: top + 40 }));
        fire(over, 'mousemove', 0.2);
        fire(over, 'mousedown', 0.2);
        fire(over, 'mousemove', 0.6);
        fire(over && document, 'mouseup', 0.6);
    }";
    page.evaluate(&until_zoomed(drag)).await;
}

/// Promise that acts again until the chart is zoomed: figures that arrive meanwhile replace the chart.
fn until_zoomed(act: &str) -> String {
    format!(
        "new Promise((resolve) => {{
            let n = 0;
            const turns = setInterval(() => location.search.includes('zoom=') ? (clearInterval(turns), resolve(true)) : ({act})(n++), 100);
        }})"
    )
}

async fn conflicts_are_marked(page: &mut impl BrowserPage, site: &Site) {
    let now = site.app.clock.now();
    for hours in [24, 25, 30] {
        let at = (now + TimeDelta::hours(hours)).to_rfc3339();
        let body = json!({"to": {"all": true}, "content": {"title": format!("In {hours} hours")}, "send_at": at});
        site.call(Method::POST, "/messages", body).await;
    }
    let month = (now + TimeDelta::hours(24)).format("%Y-%m");
    page.open(&format!("{}/admin/calendar?month={month}", site.origin)).await;
    page.evaluate(&says("One conflict")).await;
    page.evaluate(&says("In 24 hours at")).await;
    assert_eq!(page.evaluate("document.querySelectorAll('.entry[data-conflict]').length").await, 2);
}

async fn a_day(page: &mut impl BrowserPage, site: &Site) {
    let message = site.get("/messages").await["data"][3]["id"].as_str().unwrap().to_owned();
    sign_in(page, site).await;
    titles_and_groups(page, site).await;
    search_finds_each_kind(page, &message).await;
    a_failure_is_explained(page, site).await;
    a_chart_is_zoomed(page, site).await;
    conflicts_are_marked(page, site).await;
}

#[tokio::test]
async fn in_chromium_a_product_team_works() {
    let (site, home) = (furnished().await, TempDir::new());
    let mut chromium = Chromium::start(home.path()).await;
    chromium.listen().await;
    a_day(&mut chromium, &site).await;
    pages_fit_all_widths(&mut chromium, &site).await;
    assert_eq!(chromium.complaints(), Vec::<String>::new());
    site.app.finish().await;
}

#[tokio::test]
async fn in_firefox_a_product_team_works() {
    let (site, profile) = (furnished().await, TempDir::new());
    let mut firefox = start_with(&site, &profile.path().join("profile"), &json!({})).await;
    a_day(&mut firefox, &site).await;
    assert_eq!(firefox.complaints(), Vec::<String>::new());
    firefox.quit().await;
    site.app.finish().await;
}

/// Keeps pictures of each page at three widths, and finds pages that are wider than the window.
async fn pages_fit_all_widths(chromium: &mut Chromium, site: &Site) {
    let mut wide = Vec::new();
    for (page, ready) in [
        ("", ".chart canvas"),
        ("messages", "tr[data-row]"),
        ("messages/new", "[name=title]"),
        ("campaigns", "tr[data-row]"),
        ("calendar", ".entry"),
        ("templates", "tr[data-row]"),
        ("subscribers", ".chart canvas"),
        ("segments", "tr[data-row]"),
        ("frequency", ".card"),
        ("deliveries?who=ann", "tr[data-row]"),
        ("push-services", "tr[data-row]"),
        ("dead-letters?reason=bad_request", "tr[data-row]"),
        ("policies", ".card, table"),
        ("webhooks", "h1"),
        ("transfers", ".card"),
        ("settings", ".part"),
        ("settings/team", ".part"),
        ("settings/keys", ".part"),
        ("checks", "h1"),
    ] {
        chromium.open(&format!("{}/admin/{page}", site.origin)).await;
        appears(chromium, ready).await;
        let name = page.split('?').next().unwrap_or_default().replace('/', "-");
        for width in [320, 768, 1280] {
            for theme in ["light", "dark"] {
                chromium.emulate_theme(theme).await;
                chromium.keep_picture(&format!("width-{width}-{name}-{theme}"), width, 900).await;
            }
            let size = json!({"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": false});
            chromium.call("Emulation.setDeviceMetricsOverride", size).await;
            // Charts take their new size a frame later.
            let frames = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => requestAnimationFrame(done)))).then(() => document.documentElement.scrollWidth - innerWidth)";
            let over = chromium.evaluate(frames).await.as_i64().unwrap_or_default();
            if over > 0 {
                wide.push(format!("{page} at {width}: {over} px"));
            }
            chromium.call("Emulation.clearDeviceMetricsOverride", json!({})).await;
        }
    }
    chromium.emulate_theme("light").await;
    assert_eq!(wide, Vec::<String>::new());
}
