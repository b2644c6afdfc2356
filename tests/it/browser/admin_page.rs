//! Helpers for stories of the admin page: a site with a campaign, pictures, and checks of accessibility.

use axum::body::Body;
use axum::http::Request;
use bellwire_simulator::gateways::{Rule, RuleAction};
use bellwire_store::outcomes::rollups;
use serde_json::{Value, json};
use tower::ServiceExt as _;

use super::chromium::Chromium;
use super::site::Site;
use super::when;

/// Finds what keeps people out who do not see, or use no mouse; `npm ci` puts it there.
pub const AXE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/static/admin/node_modules/axe-core/axe.min.js");

pub const SHOWN: &str = "document.body.innerText";

/// A site whose campaign was accepted for most, with some who are gone and some dead.
pub async fn with_a_campaign() -> Site {
    let site = Site::for_admins().await;
    site.app.subscribe("fcm", 0..24).await;
    site.app.subscribe("mozilla", 100..108).await;
    let answer = |endpoints: std::ops::Range<u32>, status, body: &str| {
        let action = RuleAction::Answer { status, headers: Vec::new(), body: body.to_owned() };
        Rule { endpoints: Some(endpoints.collect()), ..Rule::always(action) }
    };
    site.app.simulator.add_rule(answer(0..3, 410, "")).unwrap();
    site.app.simulator.add_rule(answer(3..7, 400, "The request is malformed.")).unwrap();
    let content = json!({"title": "Autumn sale", "body": "Everything must go", "url": "https://example.com/"});
    let message = site.send(content).await;
    site.until_counts(&message, json!({"targeted": 32, "accepted": 25, "gone": 3, "dead": 4})).await;
    while rollups::fold(&site.app.pool).await.unwrap() {} // as maintenance does every few seconds
    site
}

/// Promise that resolves when the page contains the text.
pub fn says(text: &str) -> String {
    when(&format!("{SHOWN}.includes({text:?})"))
}

/// Findings of axe: rule, remedy and element.
pub fn objections() -> String {
    let told = "({ id, help, nodes }) => `${id}: ${help}: ${nodes.map((node) => node.target + ' ' + node.failureSummary).join('; ')}`";
    format!("axe.run(document, {{ resultTypes: ['violations'] }}).then(({{ violations }}) => violations.map({told}))")
}

async fn assert_accessible(chromium: &mut Chromium, view: &str) {
    if chromium.evaluate("typeof axe").await == "undefined" {
        let axe = std::fs::read_to_string(AXE).expect("`npm ci` in static/admin");
        let params = json!({"expression": axe + "\n;0"});
        chromium.call("Runtime.evaluate", params).await;
    }
    let found = chromium.evaluate(&objections()).await;
    assert_eq!(found, json!([]), "{view}");
}

/// Pictures of a view: wide and on a phone, light and dark; axe looks at all of them.
pub async fn look_at(chromium: &mut Chromium, view: &str) {
    chromium.evaluate("scrollTo(0, 0)").await;
    for theme in ["light", "dark"] {
        chromium.emulate_theme(theme).await;
        chromium.keep_picture(&format!("admin-{view}-{theme}"), 1280, 900).await;
        assert_accessible(chromium, &format!("{view}, {theme}")).await;
    }
    chromium.emulate_theme("light").await;
    chromium.keep_picture(&format!("admin-{view}-phone"), 375, 800).await;
    let fits = "document.documentElement.scrollWidth <= innerWidth"; // charts take their new size a frame later
    let size = json!({"width": 375, "height": 800, "deviceScaleFactor": 1, "mobile": false});
    chromium.call("Emulation.setDeviceMetricsOverride", size).await;
    chromium.evaluate(&when(fits)).await;
    assert_accessible(chromium, &format!("{view}, phone")).await;
    chromium.call("Emulation.clearDeviceMetricsOverride", json!({})).await;
}

/// Invites a teammate, as `bellwire admin invite` does, and returns the link.
pub async fn invite(site: &Site, email: &str, roles: Value) -> String {
    let body = json!({"email": email, "roles": roles}).to_string();
    let request = Request::post("/v1/team").header("content-type", "application/json").body(Body::from(body)).unwrap();
    let response = site.app.local.clone().oneshot(request).await.unwrap();
    let body = axum::body::to_bytes(response.into_body(), usize::MAX).await.unwrap();
    let invited: Value = serde_json::from_slice(&body).unwrap();
    invited["link"]["path"].as_str().unwrap_or_else(|| panic!("{invited}")).to_owned()
}
