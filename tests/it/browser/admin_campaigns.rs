//! Campaigns and segments on the admin page, in Chromium: a segment is made by rows and as text, and a campaign to it is begun; who
//! only looks is offered nothing that acts.

use axum::http::Method;
use serde_json::json;

use super::admin_stories::{invite, look_at, says};
use super::chromium::Chromium;
use super::site::Site;
use super::when;
use crate::support::TempDir;

/// Writes into a field, as a person does.
async fn write(chromium: &mut Chromium, selector: &str, text: &str) {
    let fill = format!(
        "(() => {{ const it = document.querySelector({selector:?}); it.focus(); it.value = {text:?};
            it.dispatchEvent(new Event('input', {{ bubbles: true }})); it.dispatchEvent(new Event('change', {{ bubbles: true }})); }})()"
    );
    appears(chromium, selector).await;
    chromium.evaluate(&fill).await;
}

async fn appears(chromium: &mut Chromium, selector: &str) {
    chromium.evaluate(&when(&format!("document.querySelector({selector:?})"))).await;
}

async fn click(chromium: &mut Chromium, selector: &str) {
    chromium.evaluate(&when(&format!("document.querySelector({selector:?})?.disabled === false"))).await;
    chromium.evaluate(&format!("document.querySelector({selector:?}).click()")).await;
}

/// What a field holds.
async fn holds(chromium: &mut Chromium, selector: &str, value: &str) {
    chromium.evaluate(&when(&format!("document.querySelector({selector:?})?.value === {value:?}"))).await;
}

async fn sign_in(chromium: &mut Chromium, site: &Site, address: &str) {
    chromium.open(address).await;
    appears(chromium, "#other-way").await;
    chromium.click("other-way").await;
    appears(chromium, "#api_key").await;
    let key = &site.app.operator;
    chromium.evaluate(&format!("document.getElementById('api_key').value = {key:?}")).await;
    chromium.click("sign-in").await;
}

#[tokio::test]
async fn in_chromium_a_segment_is_made_by_rows_and_as_text_and_shows_its_members() {
    let (site, home) = (Site::for_admins().await, TempDir::new());
    site.app.subscribe_with("fcm", 0..20, json!({"tags": ["beta"], "topics": ["news"]})).await;
    site.app.subscribe_with("mozilla", 100..104, json!({"topics": ["news"]})).await;
    site.app.subscribe_with("mozilla", 104..105, json!({"user_id": "ann"})).await;
    let mut chromium = Chromium::start(home.path()).await;
    chromium.listen().await;

    // Nothing is there yet, and each page says what would be. A segment is made by rows, which write its text.
    sign_in(&mut chromium, &site, &format!("{}/admin/segments", site.origin)).await;
    chromium.evaluate(&says("There is no segment yet.")).await;
    look_at(&mut chromium, "segments-empty").await;
    chromium.press("n").await;
    write(&mut chromium, "[name=segment-name]", "Testers").await;
    click(&mut chromium, "#add-condition").await;
    write(&mut chromium, "[data-part=subject]", "tag").await;
    write(&mut chromium, "[data-part=value]", "beta").await;
    holds(&mut chromium, "[name=expression]", r#"tag("beta")"#).await;
    chromium.evaluate(&says("of 25 active subscriptions")).await;

    // Text writes rows, too; what the parser refuses is shown where it is, and what rows cannot show stays text.
    write(&mut chromium, "[name=expression]", r#"tag("beta") and gateway ~ "fcm""#).await;
    chromium.evaluate(&when("document.querySelector('.position mark')?.innerText === '~'")).await;
    chromium.evaluate(&says("Rows come back once the text can be read.")).await;
    look_at(&mut chromium, "segment-refused").await;
    write(&mut chromium, "[name=expression]", r#"not (tag("beta") or tag("x"))"#).await;
    chromium.evaluate(&says("so it stays a text")).await;
    write(&mut chromium, "[name=expression]", r#"tag("beta") and gateway = "fcm""#).await;
    chromium.evaluate(&when("document.querySelectorAll('.condition').length === 2")).await;
    look_at(&mut chromium, "segment-new").await;
    click(&mut chromium, "#save-segment").await;
    appears(&mut chromium, "#expression").await;
    assert_eq!(site.get("/segments/testers").await["expression"], r#"tag("beta") and gateway = "fcm""#);
    chromium.evaluate(&when("document.querySelectorAll('tr[data-row]').length === 20")).await;
    look_at(&mut chromium, "segment").await;

    // A campaign is written to it.
    chromium.open(&format!("{}/admin/campaigns", site.origin)).await;
    chromium.evaluate(&says("There is no campaign yet.")).await;
    look_at(&mut chromium, "campaigns-empty").await;
    chromium.press("n").await;
    write(&mut chromium, "[name=campaign-name]", "Autumn sale").await;
    click(&mut chromium, "[name=narrowed][value=stored]").await;
    look_at(&mut chromium, "campaign-composer").await;
    let unexpected: Vec<_> = chromium.complaints().into_iter().filter(|said| !is_noted(said)).collect();
    assert_eq!(unexpected, Vec::<String>::new());
    site.app.finish().await;
}

/// Whether a complaint is the browser's note of an expression that was refused.
fn is_noted(said: &str) -> bool {
    said.contains("/segments/preview") && said.contains("422")
}

#[tokio::test]
async fn in_chromium_a_viewer_sees_campaigns_and_segments_and_is_offered_no_act() {
    let (site, home) = (Site::for_admins().await, TempDir::new());
    site.app.subscribe_with("fcm", 0..3, json!({"tags": ["beta"]})).await;
    let plan = json!({"slug": "spring", "message": {"to": {"all": true}, "content": {"title": "Spring"}}});
    site.call(Method::POST, "/campaigns", plan).await;
    site.call(Method::PUT, "/segments/testers", json!({"expression": "tag(\"beta\")"})).await;
    let link = invite(&site, "ann@example.com", json!([{"role": "viewer", "app": "shop"}])).await;
    let (_, token) = link.split_once('#').expect("a token");
    let mut chromium = Chromium::start(home.path()).await;
    chromium.open(&format!("{}/admin/", site.origin)).await;
    let enter = format!(
        "fetch('/v1/session', {{ method: 'POST', headers: {{ 'content-type': 'application/json' }},
            body: JSON.stringify({{ link: {token:?} }}) }}).then((response) => response.status)"
    );
    assert_eq!(chromium.evaluate(&enter).await, 201);
    for (path, why) in [
        ("/campaigns", "Writing campaigns is not yours to do."),
        ("/campaigns/-new", "Writing campaigns is not yours to do."),
        ("/campaigns/spring", "Starting, stopping and copying it is not yours to do."),
        ("/segments", "Making segments is not yours to do."),
        ("/segments/-new", "Making segments is not yours to do."),
        ("/segments/testers", "Changing and deleting it is not yours to do."),
    ] {
        chromium.open(&format!("{}/admin{path}", site.origin)).await;
        chromium.evaluate(&says(why)).await;
        let offered = "[...document.querySelectorAll('main button')].map((button) => button.innerText.trim())
            .filter((text) => /^(Start|Pause|Resume|Cancel|Copy|Try|Delete|Change|Save|Make)/.test(text))";
        assert_eq!(chromium.evaluate(offered).await, json!([]), "{path}");
    }
    site.app.finish().await;
}
