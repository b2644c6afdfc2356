//! The admin page's policies, checks and single dead letters, in Chromium; and what a viewer is not offered on any page.

use axum::http::Method;
use serde_json::{Value, json};

use super::admin_page::{invite, look_at, says, with_a_campaign};
use super::chromium::Chromium;
use super::site::Site;
use super::when;
use crate::support::TempDir;

/// Signs in with an operator's key, on the page of that path.
async fn sign_in(chromium: &mut Chromium, site: &Site, path: &str) {
    chromium.open(&format!("{}{path}", site.origin)).await;
    chromium.evaluate(&says("Sign in")).await;
    chromium.click("other-way").await;
    chromium.evaluate(&when("document.getElementById('api_key')")).await;
    chromium.evaluate(&format!("document.getElementById('api_key').value = {:?}", site.app.operator)).await;
    chromium.click("sign-in").await;
}

/// Types text into a field.
async fn write(chromium: &mut Chromium, id: &str, text: &str) {
    let typed = format!(
        "(() => {{ const field = document.getElementById({id:?}); field.value = {text:?};
            field.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()"
    );
    chromium.evaluate(&when(&format!("document.getElementById({id:?})"))).await;
    chromium.evaluate(&typed).await;
}

async fn click(chromium: &mut Chromium, selector: &str) {
    chromium.evaluate(&when(&format!("document.querySelector({selector:?})"))).await;
    chromium.evaluate(&format!("document.querySelector({selector:?}).click()")).await;
}

const MAY_SAVE: &str = "document.getElementById('save-policy') && !document.getElementById('save-policy').disabled";

#[tokio::test]
async fn in_chromium_a_policy_is_simulated_and_saved() {
    let (site, home) = (with_a_campaign().await, TempDir::new());
    let mut chromium = Chromium::start(home.path()).await;
    chromium.listen().await;
    sign_in(&mut chromium, &site, "/admin/policies?app=shop").await;
    chromium.evaluate(&says("10 retries within")).await;
    chromium.evaluate(&says("sns-customer-managed")).await;
    look_at(&mut chromium, "policies").await;

    // The timetable follows what is typed; what is wrong stands at its field, and cannot be saved.
    click(&mut chromium, "a[href*='/policies/tiers/transactional']").await;
    chromium.evaluate(&says("8 retries within")).await;
    write(&mut chromium, "field-maxAttempts", "3").await;
    chromium.evaluate(&says("3 retries within")).await;
    chromium.evaluate(&when(MAY_SAVE)).await;
    look_at(&mut chromium, "policy").await;
    write(&mut chromium, "field-maxDelayMs", "1").await;
    chromium
        .evaluate(&when("document.querySelector('#field-maxDelayMs[aria-invalid], #field-baseDelayMs[aria-invalid]')"))
        .await;
    assert_eq!(chromium.evaluate("document.getElementById('save-policy').disabled").await, true);
    look_at(&mut chromium, "policy-refused").await;
    click(&mut chromium, "input[name=form][value=qstash]").await;
    write(&mut chromium, "field-retryDelay", "pow(2, retried").await;
    chromium.evaluate(&when("document.querySelector('.position mark')")).await;
    assert_eq!(chromium.evaluate("document.getElementById('save-policy').disabled").await, true);
    write(&mut chromium, "field-retryDelay", "pow(2, retried) * 1000").await;
    write(&mut chromium, "field-retries", "2").await;
    chromium.evaluate(&says("2 retries within 3 s")).await;

    // It is tried beside what holds today, and nothing is sent.
    let posts = site.app.simulator.report().deliveries;
    chromium.evaluate(&when("!document.getElementById('try-policy').disabled")).await;
    click(&mut chromium, "#try-policy").await;
    chromium.evaluate(&when("document.querySelectorAll('#trial .load').length === 2")).await;
    chromium.evaluate(&says("10,000 deliveries")).await;
    look_at(&mut chromium, "policy-tried").await;
    assert_eq!(site.app.simulator.report().deliveries, posts);

    // Saving says what changes first.
    chromium.evaluate(&when(MAY_SAVE)).await;
    click(&mut chromium, "#save-policy").await;
    chromium.evaluate(&says("its next failure is final")).await;
    look_at(&mut chromium, "policy-save").await;
    click(&mut chromium, "#confirm-policy").await;
    chromium.evaluate(&says("Set: QStash")).await;
    let stored = async || site.get("/policies/tiers/transactional").await["policy"].clone();
    assert_eq!(stored().await, json!({"retries": 2, "retryDelay": "pow(2, retried) * 1000"}));
    click(&mut chromium, "#remove-policy").await;
    chromium.evaluate(&says("built-in policy of the tier")).await;
    click(&mut chromium, "#confirm-policy").await;
    chromium.evaluate(&says("No policy is set")).await;
    assert_eq!(stored().await, Value::Null);

    // The policy of a topic without subscribers.
    chromium.open(&format!("{}/admin/policies/topics/vip?app=shop", site.origin)).await;
    write(&mut chromium, "field-maxAttempts", "1").await;
    chromium.evaluate(&when(MAY_SAVE)).await;
    click(&mut chromium, "#save-policy").await;
    click(&mut chromium, "#confirm-policy").await;
    chromium.evaluate(&says("Set: Web-push guide")).await;
    assert_eq!(site.get("/policies/topics/vip").await["policy"], json!({"maxAttempts": 1}));
    let unexpected: Vec<_> = chromium.complaints().into_iter().filter(|said| !is_noted(said)).collect();
    assert_eq!(unexpected, Vec::<String>::new());
    site.app.finish().await;
}

/// Whether a complaint is the browser's note of a draft that was refused (422), or of a topic that is yet to come about (404).
fn is_noted(said: &str) -> bool {
    (said.contains("/policies/preview") && said.contains("422"))
        || (said.contains("/topics/vip") && said.contains("404"))
}

#[tokio::test]
async fn in_chromium_checks_name_their_remedy() {
    let (site, home) = (with_a_campaign().await, TempDir::new());
    let mut chromium = Chromium::start(home.path()).await;
    chromium.listen().await;
    sign_in(&mut chromium, &site, "/admin/checks").await;
    // The tests' own Postgres does not wait for its disk.
    chromium.evaluate(&says("ALTER SYSTEM SET fsync = on")).await;
    chromium.evaluate(&says("Passed")).await;
    look_at(&mut chromium, "checks").await;

    let lane = site.app.lane("fcm").await;
    chromium.open(&format!("{}/admin/push-services/{lane}", site.origin)).await;
    chromium.evaluate(&says("Last error")).await;
    chromium.evaluate(&says("The request is malformed.")).await;
    look_at(&mut chromium, "lane").await;

    chromium.open(&format!("{}/admin/dead-letters?app=shop&reason=bad_request", site.origin)).await;
    click(&mut chromium, "a[href*='/dead-letters/dl_']").await;
    chromium.evaluate(&says("First POST")).await;
    chromium.evaluate(&says("Everything must go")).await;
    look_at(&mut chromium, "dead-letter").await;
    click(&mut chromium, "[data-do=discard]").await;
    click(&mut chromium, "#handle-one").await;
    chromium.evaluate(&when("document.getElementById('letter-state')?.innerText.includes('Discarded')")).await;
    assert_eq!(site.get("/dead-letters?state=discarded").await["data"].as_array().map(Vec::len), Some(1));
    assert_eq!(chromium.complaints(), Vec::<String>::new());
    site.app.finish().await;
}

/// Labels of the buttons with actions, on all pages.
const ACTS: &str = "^(Save|Send|Hold|Release|Open the breaker|Close the breaker|Probe|Replay|Discard|Pause|Resume|Cancel|Erase|Revoke|Rotate|\
Invite|Delete|Remove|Retry|Create|Import|Disable|Reset|Unsubscribe|Resolve)";

#[tokio::test]
async fn in_chromium_a_viewer_has_no_actions() {
    let (site, home) = (with_a_campaign().await, TempDir::new());
    let mut chromium = Chromium::start(home.path()).await;
    let link = invite(&site, "ann@example.com", json!([{"role": "viewer", "app": "shop"}])).await;
    let (_, token) = link.split_once('#').expect("a token");
    chromium.open(&format!("{}/admin/", site.origin)).await;
    let enter = format!(
        "fetch('/v1/session', {{ method: 'POST', headers: {{ 'content-type': 'application/json' }},
            body: JSON.stringify({{ link: {token:?} }}) }}).then((response) => response.status)"
    );
    assert_eq!(chromium.evaluate(&enter).await, 201);
    let lane = site.app.lane("fcm").await;
    let letters = site.get("/dead-letters").await;
    let letter = letters["data"][0]["id"].as_str().unwrap();
    // Their own password and sessions are theirs, so the page of settings is left out.
    for path in [
        "/",
        "/messages",
        "/deliveries",
        "/push-services",
        &format!("/push-services/{lane}"),
        "/dead-letters",
        "/dead-letters?reason=bad_request",
        &format!("/dead-letters/{letter}"),
        "/subscribers",
        "/policies",
        "/policies/tiers/promotional",
        "/policies/topics/news",
        "/checks",
    ] {
        chromium.open(&format!("{}/admin{path}", site.origin)).await;
        chromium.evaluate(&when("document.querySelector('main h1') && !document.querySelector('main .loading')")).await;
        let offered = format!(
            "[...document.querySelectorAll('main button')].map((button) => button.innerText.trim()).filter((text) => /{ACTS}/.test(text))"
        );
        assert_eq!(chromium.evaluate(&offered).await, json!([]), "{path}");
    }
    chromium.evaluate(&says("This requires the role `operator` for all apps.")).await;
    look_at(&mut chromium, "forbidden").await;
    chromium.open(&format!("{}/admin/policies/tiers/promotional", site.origin)).await;
    chromium.evaluate(&says("but not saving them")).await;
    // One app's lanes and events are theirs to see.
    chromium.open(&format!("{}/admin/push-services", site.origin)).await;
    chromium.evaluate(&when("document.querySelectorAll('tr[data-row]').length === 2")).await;
    chromium.evaluate(&says("Live")).await;
    let hold = site.app.operate(Method::POST, &format!("/v1/gateways/{lane}/hold"), Value::Null).await;
    hold.ok(200);
    chromium.evaluate(&says("An operator holds Google until")).await;
    site.app.operate(Method::POST, &format!("/v1/gateways/{lane}/release"), Value::Null).await.ok(200);
    site.app.finish().await;
}
