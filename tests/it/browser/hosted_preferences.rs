//! Hosted preferences of a user, as a person opens them from an e-mail.

use axum::http::Method;
use serde_json::{Value, json};

use super::admin_page::{AXE, objections};
use super::chromium::Chromium;
use super::site::{Scheme, Site};
use super::when;
use crate::support::TempDir;

/// Views: name, language, theme, width in pixels.
const VIEWS: [(&str, &str, &str, u32); 4] = [
    ("light", "en", "light", 1000),
    ("dark", "de", "dark", 1000),
    ("rtl", "ar", "light", 1000),
    ("narrow", "de", "dark", 320),
];

/// Elements beyond the edges of the page, and buttons that are too small for a finger.
const FAULTS: &str = "(() => {
    const all = [...document.body.querySelectorAll('*')];
    const outside = all.filter((it) => { const { left, right } = it.getBoundingClientRect(); return left < -1 || right > innerWidth + 1; });
    const small = all.filter((it) => it.matches('button, label') && it.getBoundingClientRect().height < 40);
    return [...outside, ...small].map((it) => it.outerHTML);
})()";

async fn link(site: &Site, request: Value) -> String {
    let made = site.call(Method::POST, "/users/ann/preferences-link", request).await;
    let link = made["link"].as_str().expect("a link");
    format!("{}{}", site.origin, &link[link.find("/preferences/").expect("its path")..])
}

async fn press(chromium: &mut Chromium, selector: &str) {
    chromium.evaluate(&format!("document.querySelector({selector:?}).click()")).await;
}

/// A click on a button that sends the form, until the next page is there.
async fn submit(chromium: &mut Chromium, selector: &str) {
    chromium.evaluate("window.isOld = true").await;
    press(chromium, selector).await;
    chromium.until_there("!window.isOld && document.readyState === 'complete'").await;
}

#[tokio::test]
async fn user_changes_hosted_preferences() {
    let (site, home) = (Site::of_shop(Scheme::Http).await, TempDir::new());
    let display = json!({"title": "News", "description": "What is new in the shop, once a week",
        "texts": {"de": {"title": "Neuigkeiten", "description": "Was es Neues gibt"}, "ar": {"title": "الأخبار"}}});
    site.call(Method::PUT, "/topics/news", json!({"display": display})).await;
    site.call(Method::PUT, "/topics/offers", json!({"display": {"title": "Offers"}})).await;
    let browsers = site.app.subscribe_with("fcm", 0..2, json!({"user_id": "ann", "topics": ["news"]})).await;
    let mut chromium = Chromium::start(home.path()).await;
    chromium.listen().await;
    let axe = std::fs::read_to_string(AXE).expect("`npm ci` in static/admin") + "\n;0";
    for (view, language, theme, width) in VIEWS {
        chromium.emulate_theme(theme).await;
        let size = json!({"width": width, "height": 720, "deviceScaleFactor": 1, "mobile": false});
        chromium.call("Emulation.setDeviceMetricsOverride", size).await;
        chromium.open(&link(&site, json!({"locale": language})).await).await;
        assert_eq!(chromium.evaluate("document.documentElement.lang").await, language);
        assert_eq!(chromium.evaluate(FAULTS).await, json!([]), "{view}");
        chromium.call("Runtime.evaluate", json!({"expression": axe})).await;
        assert_eq!(chromium.evaluate(&objections()).await, json!([]), "{view}");
        chromium.keep_picture(&format!("preferences-{view}"), width, 720).await;
    }
    chromium.open(&link(&site, json!({"locale": "en"})).await).await;
    for box_of in ["[name=topic][value=news]", "[name=topic][value=offers]", "[name=important]"] {
        press(&mut chromium, box_of).await;
    }
    submit(&mut chromium, "button.main").await;
    chromium.evaluate(&when("document.querySelector('[role=status]')?.textContent === 'Saved.'")).await;
    chromium.keep_picture("preferences-saved", 1000, 720).await;
    for browser in &browsers {
        let subscription = site.get(&format!("/subscriptions/{}", browser.id)).await;
        assert_eq!((&subscription["topics"], &subscription["muted"]), (&json!(["offers"]), &json!({"until": null})));
    }
    submit(&mut chromium, "[name=unsubscribe]").await;
    for browser in &browsers {
        site.until_state(&browser.id, "unsubscribed").await;
    }
    assert_eq!(chromium.evaluate("document.forms.length").await, 0);
    chromium.keep_picture("preferences-ended", 1000, 720).await;
    chromium.open(&format!("{}/preferences/forged", site.origin)).await;
    let why = chromium.evaluate("document.querySelector('[role=status]').textContent").await;
    assert!(why.as_str().is_some_and(|why| why.contains("Ask the sender for a new one")), "{why}");
    chromium.keep_picture("preferences-forged", 1000, 720).await;
    site.app.finish().await;
}
